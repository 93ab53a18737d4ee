//! Turns operations into work requests, and work completions into outcomes.
//!
//! Invariants
//! - Requests are numbered from 1 in the order of posting, complete in that order, and at most
//!   `VERBS_SENDS_MAX` are in the adapter's queue.
//! - A request that changes memory or announces a change waits for the reads and atomics before it
//!   (a fence), because adapters answer those late.
//! - The last of the requests that are posted together is signalled, so the completion of an
//!   operation does not depend on a later one.
//! - Memory that a request names is registered until the request is complete ([`Flight::holds`]).

use std::{collections::VecDeque, io, sync::Arc};

use super::{
    channel::{Channel, Part, WHOLE},
    flight::{Failure, Flight, Outcome, Progress},
    packet::{PacketKind, Sent},
    region::{Locals, Scratch},
    ring::ANNOUNCEMENT_BYTES,
    sys::{Local, MemoryRegion, MemoryWindow, QueuePair, SendKind, SendRequest},
};
use crate::{
    completion::{Done, Event},
    error::{Ending, OperationError},
    limits::{VERBS_BOUNCE_PIECE_BYTES, VERBS_TRANSFER_BYTES},
    operation::{Operation, RemoteSpan},
    region::RegionSlice,
};

/// Whether all of an operation could be posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advance {
    Posted,
    /// A queue, the peer's ring or the scratch memory is full. Continue later from here.
    Stalled,
}

/// Our side's bytes of an operation.
enum Source<'a> {
    Plain(&'a [u8]),
    Slice(&'a RegionSlice),
}

impl Source<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            Self::Slice(slice) => slice.len(),
        }
    }
}

/// The sending half of a connection.
#[derive(Debug)]
pub(super) struct Sender {
    pair: Arc<QueuePair>,
    depth: u64,
    channel: Channel,
    scratch: Scratch,
    locals: Locals,
    staged: Vec<SendRequest>,
    must_signal: bool,
    unsignalled: u64,
    last: u64,
    completed: u64,
    last_read: u64,
    last_atomic: u64,
    flights: VecDeque<Flight>,
    channel_tail_completed: u64,
}

impl Sender {
    /// The sending half of a queue pair on which the requests up to number `last` are complete.
    pub(super) fn new(
        pair: Arc<QueuePair>,
        (depth, last): (u32, u64),
        channel: Channel,
        (scratch, locals): (Scratch, Locals),
    ) -> Self {
        Self {
            pair,
            depth: u64::from(depth),
            channel,
            scratch,
            locals,
            staged: Vec::new(),
            must_signal: false,
            unsignalled: 0,
            last,
            completed: last,
            last_read: 0,
            last_atomic: 0,
            flights: VecDeque::new(),
            channel_tail_completed: 0,
        }
    }

    pub(super) fn locals(&self) -> &Locals {
        &self.locals
    }

    /// The number up to which requests are complete.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// Whether operations are in flight.
    pub(super) fn is_busy(&self) -> bool {
        !self.flights.is_empty()
    }

    /// The position up to which messages are known to have been sent.
    pub(super) fn channel_tail_completed(&self) -> u64 {
        self.channel_tail_completed
    }

    fn has_slots(&self, count: u64) -> bool {
        self.last - self.completed + count <= self.depth
    }

    /// Makes a request. The caller must have checked `has_slots`.
    fn stage(&mut self, kind: SendKind, local: Local) -> u64 {
        self.last += 1;
        let (reads, atomics) = (self.last_read > self.completed, self.last_atomic > self.completed);
        let fenced = match kind {
            SendKind::Read { .. } | SendKind::Bind { .. } => false,
            SendKind::FetchAdd { .. } | SendKind::CompareSwap { .. } => reads,
            SendKind::Write { .. } | SendKind::Send { .. } => reads || atomics,
        };
        match kind {
            SendKind::Read { .. } => self.last_read = self.last,
            SendKind::FetchAdd { .. } | SendKind::CompareSwap { .. } => self.last_atomic = self.last,
            _ => {}
        }
        self.unsignalled += 1;
        // Only signalled requests free places of the queue.
        let signalled = self.unsignalled >= self.depth / 4;
        if signalled {
            self.unsignalled = 0;
        }
        self.staged.push(SendRequest { id: self.last, kind, local, fenced, signalled });
        self.last
    }

    /// Posts the requests that were made.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.must_signal
            && let Some(last) = self.staged.last_mut()
        {
            last.signalled = true;
            self.unsignalled = 0;
        }
        self.must_signal = false;
        let posted = self.pair.post(&self.staged);
        self.staged.clear();
        posted
    }

    /// Makes the requests of an operation, as far as there is room. A refusal ends the operation;
    /// then nothing of it was sent.
    pub(super) fn advance(&mut self, id: u64, operation: &Operation<'_>, progress: &mut Progress) -> Advance {
        let stalls = match operation {
            Operation::Send { bytes } => self.message(WHOLE, &Source::Plain(bytes), progress),
            Operation::SendRegion { source, report } => {
                self.message(PacketKind::Message(*report), &Source::Slice(source), progress)
            }
            Operation::Write { .. } | Operation::WriteBytes { .. } | Operation::WriteWithImmediate { .. } => {
                self.write(operation, progress)
            }
            Operation::Read { target, .. } => self.read(operation, target, progress),
            Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => self.atomic(operation, progress),
        };
        let outcome = match (stalls, progress.result) {
            (Ok(Advance::Stalled), _) => return Advance::Stalled,
            (Ok(Advance::Posted), Some(result)) => Outcome::Found(result),
            (Ok(Advance::Posted), None) => Outcome::Moved(operation.transfer_bytes() as u64),
            (Err(refusal), _) => Outcome::Refused(refusal),
        };
        self.must_signal = true;
        self.flights.push_back(Flight {
            id,
            first: progress.first.unwrap_or(self.last + 1),
            last: self.last,
            outcome,
            scratch_tail: self.scratch.tail(),
            channel_tail: self.channel.tail(),
            holds: progress.holds.take(),
        });
        Advance::Posted
    }

    fn note(&mut self, number: u64, progress: &mut Progress) {
        progress.first.get_or_insert(number);
        self.must_signal = true;
    }

    /// The local part of a request for `length` bytes from `offset` of the source; `None` while
    /// there is no scratch memory for them.
    fn local(
        &mut self,
        source: &Source<'_>,
        (offset, length): (usize, usize),
        progress: &mut Progress,
    ) -> Result<Option<Local>, OperationError> {
        if length == 0 {
            return Ok(Some(Local::Nothing));
        }
        if let (Some(memory), Source::Plain(_)) = (&progress.holds, source) {
            return Ok(Some(memory.local(offset, to_u32(length))));
        }
        let inline = length <= self.pair.inline_bytes_max();
        match source {
            Source::Plain(bytes) => {
                let bytes = &bytes[offset..offset + length];
                if inline {
                    return Ok(Some(Local::Inline(bytes.into())));
                }
                Ok(self.scratch.put(bytes))
            }
            Source::Slice(slice) => {
                let offset = slice.offset() + offset;
                if inline {
                    let bytes = slice.region().to_vec(offset, length).map_err(OperationError::OutOfBounds)?;
                    return Ok(Some(Local::Inline(bytes.into())));
                }
                let memory = self.held(slice, progress)?;
                Ok(Some(memory.local(offset, to_u32(length))))
            }
        }
    }

    /// The registration of a slice's region, held until the operation is complete.
    fn held(
        &mut self,
        slice: &RegionSlice,
        progress: &mut Progress,
    ) -> Result<Arc<MemoryRegion>, OperationError> {
        if let Some(memory) = &progress.holds {
            return Ok(Arc::clone(memory));
        }
        let memory = self.locals.find(slice.region())?;
        progress.holds = Some(Arc::clone(&memory));
        Ok(memory)
    }

    /// Sends the parts of a message.
    fn message(
        &mut self,
        kind: PacketKind,
        source: &Source<'_>,
        progress: &mut Progress,
    ) -> Result<Advance, OperationError> {
        loop {
            let (offset, message_bytes) = (progress.moved, source.len());
            let bytes = (message_bytes - offset).min(self.channel.part_bytes_max());
            if !self.has_slots(1) {
                return Ok(Advance::Stalled);
            }
            if !self.channel.has_room(bytes) {
                if self.channel.no_room(progress.first.is_none()) {
                    return Err(OperationError::InboxFull { bytes: message_bytes as u64 });
                }
                return Ok(Advance::Stalled);
            }
            let Some(local) = self.local(source, (offset, bytes), progress)? else {
                return Ok(Advance::Stalled);
            };
            let carried = self.channel.carry(Part { kind, offset, bytes, message_bytes });
            let number = self.stage(carried, local);
            self.note(number, progress);
            progress.moved += bytes;
            if progress.moved == message_bytes {
                return Ok(Advance::Posted);
            }
        }
    }

    fn write(
        &mut self,
        operation: &Operation<'_>,
        progress: &mut Progress,
    ) -> Result<Advance, OperationError> {
        let (span, key) = remote(operation)?;
        let (source, immediate) = match operation {
            Operation::Write { source, .. } => (Source::Slice(source), None),
            Operation::WriteWithImmediate { source, immediate, .. } => {
                (Source::Slice(source), Some(*immediate))
            }
            Operation::WriteBytes { bytes, .. } => (Source::Plain(bytes), None),
            _ => return Ok(Advance::Posted),
        };
        // Checked first: the bytes must not be written long before the peer is told.
        if immediate.is_some() && progress.first.is_none() && !self.channel.has_room(ANNOUNCEMENT_BYTES) {
            if self.channel.no_room(true) {
                return Err(OperationError::InboxFull { bytes: source.len() as u64 });
            }
            return Ok(Advance::Stalled);
        }
        if let Source::Plain(bytes) = source
            && bytes.len() > VERBS_BOUNCE_PIECE_BYTES
            && progress.holds.is_none()
        {
            progress.holds = Some(self.locals.copy(bytes)?);
        }
        while progress.moved < source.len() || (progress.first.is_none() && immediate.is_none()) {
            let bytes = (source.len() - progress.moved).min(VERBS_TRANSFER_BYTES);
            if !self.has_slots(1) {
                return Ok(Advance::Stalled);
            }
            let Some(local) = self.local(&source, (progress.moved, bytes), progress)? else {
                return Ok(Advance::Stalled);
            };
            let address = span.address + progress.moved as u64;
            let number = self.stage(SendKind::Write { address, key, immediate: None }, local);
            self.note(number, progress);
            progress.moved += bytes;
        }
        let Some(immediate) = immediate else { return Ok(Advance::Posted) };
        if !self.has_slots(1) {
            return Ok(Advance::Stalled);
        }
        let mut announcement = [0; ANNOUNCEMENT_BYTES];
        announcement[..4].copy_from_slice(&immediate.to_le_bytes());
        announcement[4..].copy_from_slice(&to_u32(source.len()).to_le_bytes());
        let plain = Source::Plain(&announcement);
        let mut own = Progress::default();
        let Some(local) = self.local(&plain, (0, ANNOUNCEMENT_BYTES), &mut own)? else {
            return Ok(Advance::Stalled);
        };
        let (kind, bytes) = (PacketKind::Announcement, ANNOUNCEMENT_BYTES);
        let carried = self.channel.carry(Part { kind, offset: 0, bytes, message_bytes: bytes });
        let number = self.stage(carried, local);
        self.note(number, progress);
        Ok(Advance::Posted)
    }

    fn read(
        &mut self,
        operation: &Operation<'_>,
        target: &RegionSlice,
        progress: &mut Progress,
    ) -> Result<Advance, OperationError> {
        let (span, key) = remote(operation)?;
        while progress.moved < target.len() {
            if !self.has_slots(1) {
                return Ok(Advance::Stalled);
            }
            let memory = self.held(target, progress)?;
            let bytes = (target.len() - progress.moved).min(VERBS_TRANSFER_BYTES);
            let local = memory.local(target.offset() + progress.moved, to_u32(bytes));
            let address = span.address + progress.moved as u64;
            let number = self.stage(SendKind::Read { address, key }, local);
            self.note(number, progress);
            progress.moved += bytes;
        }
        if progress.first.is_none() {
            // There is nothing to read. An empty write completes in order as well, and every
            // adapter supports it.
            if !self.has_slots(1) {
                return Ok(Advance::Stalled);
            }
            let kind = SendKind::Write { address: span.address, key, immediate: None };
            let number = self.stage(kind, Local::Nothing);
            self.note(number, progress);
        }
        Ok(Advance::Posted)
    }

    fn atomic(
        &mut self,
        operation: &Operation<'_>,
        progress: &mut Progress,
    ) -> Result<Advance, OperationError> {
        let (RemoteSpan { address, .. }, key) = remote(operation)?;
        if !self.has_slots(1) {
            return Ok(Advance::Stalled);
        }
        let kind = match *operation {
            Operation::FetchAdd { add, .. } => SendKind::FetchAdd { address, key, add },
            Operation::CompareSwap { expected, replacement, .. } => {
                SendKind::CompareSwap { address, key, expected, replacement }
            }
            _ => return Ok(Advance::Posted),
        };
        let (local, result) = self.scratch.next_result();
        progress.result = Some(result);
        let number = self.stage(kind, local);
        self.note(number, progress);
        Ok(Advance::Posted)
    }

    /// Binds a window. Returns the number of the request, or `None` while there is no room.
    pub(super) fn bind(&mut self, window: &Arc<MemoryWindow>) -> Option<u64> {
        if !self.has_slots(1) {
            return None;
        }
        self.must_signal = true;
        Some(self.stage(SendKind::Bind { window: Arc::clone(window) }, Local::Nothing))
    }

    /// Gives credit to the peer. Returns false while there is no room for that request. It is
    /// neither signalled nor fenced, because nobody waits for its completion and its order does not
    /// matter.
    pub(super) fn give_credit(&mut self, units: u32) -> bool {
        let possible = self.has_slots(1);
        if possible {
            self.stage(SendKind::Send { immediate: Sent::Credit(units).to_immediate() }, Local::Nothing);
            if let Some(credit) = self.staged.last_mut() {
                credit.fenced = false;
            }
        }
        possible
    }

    /// Takes credit that the peer has given.
    pub(super) fn take_credit(&mut self, units: u32) -> Result<(), String> {
        self.channel.credit(units)
    }

    /// Whether there is no room for a message, as far as is known.
    pub(super) fn is_short(&self) -> bool {
        self.channel.is_short()
    }

    /// Notes that requests up to `number` have succeeded.
    pub(super) fn complete(&mut self, number: u64) {
        self.completed = self.completed.max(number.min(self.last));
    }

    /// Appends the completions of the operations that are done.
    pub(super) fn drain(&mut self, finished: &mut VecDeque<Event>) {
        while let Some(flight) = self.flights.pop_front_if(|flight| flight.last <= self.completed) {
            self.scratch.release(flight.scratch_tail);
            self.channel_tail_completed = flight.channel_tail;
            let outcome = match flight.outcome {
                Outcome::Moved(bytes) => Ok(Done::Moved { bytes }),
                Outcome::Found(result) => Ok(Done::Found { value: self.scratch.result(result) }),
                Outcome::Refused(refusal) => Err(refusal),
            };
            finished.push_back(Event::Completed { id: flight.id, outcome });
        }
    }

    /// Fails all operations in flight and appends their completions. `failure` is the request that
    /// the adapter failed.
    pub(super) fn fail(&mut self, failure: Option<Failure>, ending: &Ending, events: &mut Vec<Event>) {
        for flight in self.flights.drain(..) {
            let failed = failure.filter(|failed| (flight.first..=flight.last).contains(&failed.number));
            let outcome = match flight.outcome {
                Outcome::Refused(refusal) => Err(refusal),
                _ => Err(failed.map_or_else(|| OperationError::Closed(ending.clone()), Failure::error)),
            };
            events.push(Event::Completed { id: flight.id, outcome });
        }
    }
}

/// The peer's memory that an operation touches, and its key. A key that does not fit an adapter's
/// 32 bits is refused here.
fn remote(operation: &Operation<'_>) -> Result<(RemoteSpan, u32), OperationError> {
    let span = operation.remote_span().map_err(OperationError::OutOfBounds)?;
    let span = span.unwrap_or(RemoteSpan { key: 0, address: 0, length: 0 });
    let key = u32::try_from(span.key).map_err(|_| OperationError::UnknownKey { key: span.key })?;
    Ok((span, key))
}

/// The length of a transfer as a u32.
fn to_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("transfers have at most TRANSFER_BYTES_MAX bytes")
}
