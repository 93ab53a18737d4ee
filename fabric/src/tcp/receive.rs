//! How is the peer's stream taken apart and executed?
//!
//! Invariants
//! - Bytes of unknown meaning are read into a staging buffer of fixed size; the payload of a write or an answer goes from the
//!   socket straight into registered memory, but for what was staged with its frame.
//! - A request that is refused has its payload read and thrown away; nothing of it touches memory.
//! - The peer's requests are executed and answered in their order; its sequence numbers must count from 0.

use std::os::fd::AsFd;

use rustix::{io::Errno, net::RecvFlags};

use super::{
    frame::{Body, FRAME_BYTES, Frame, Refusal},
    link::{Expected, Link},
    outbox::Payload,
    sys,
};
use crate::{
    completion::{Done, Event},
    error::{Ending, OperationError},
    limits::{TCP_ROUND_BYTES, TCP_STAGING_BYTES},
    memory::RawSlice,
    operation::RemoteSpan,
    region::Access,
};

/// Why receiving stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// The socket has no more.
    Drained,
    /// There is no room for the next message until the application polls.
    MessagesFull,
    /// There may be more, but it is time to send what waits.
    TakeTurns,
}

/// Where a payload goes.
#[derive(Debug)]
enum Sink {
    Shared(RawSlice),
    Message(Vec<u8>),
    Nowhere,
}

/// What is done when a payload is complete.
#[derive(Debug, Clone, Copy)]
enum Finish {
    /// A write of the peer is done.
    Written,
    /// A write of the peer is done, and the application is told.
    WrittenWithImmediate { immediate: u32 },
    /// A request of the peer was refused.
    Refuse(Refusal),
    /// A message is complete.
    Message,
    /// The answer to a read of ours is complete.
    ReadData,
}

#[derive(Debug)]
struct Incoming {
    sink: Sink,
    filled: usize,
    length: usize,
    finish: Finish,
}

/// The receiving half of a responder.
#[derive(Debug)]
pub(super) struct Receiver {
    staging: Box<[u8; TCP_STAGING_BYTES]>,
    staged: std::ops::Range<usize>,
    incoming: Option<Incoming>,
    /// The sequence number that the peer's next request must have.
    next_request: u64,
    /// Requests that are done and not acknowledged: those from here up to `next_request`.
    acknowledged: u64,
    /// Whether a frame was taken in since somebody asked.
    active: bool,
    /// Bytes that this round may still read.
    budget: usize,
}

fn violation(reason: impl ToString) -> Ending {
    Ending::Violation { reason: reason.to_string() }
}

impl Receiver {
    pub(super) fn new() -> Self {
        let staging = Box::new([0; TCP_STAGING_BYTES]);
        Self {
            staging,
            staged: 0..0,
            incoming: None,
            next_request: 0,
            acknowledged: 0,
            active: false,
            budget: 0,
        }
    }

    /// Whether a frame was taken in since the last call.
    pub(super) fn take_activity(&mut self) -> bool {
        std::mem::take(&mut self.active)
    }

    /// Receives and executes until the socket has no more, messages have no room, or a round's bytes are read: a peer
    /// that never stops must not keep our own frames from being sent.
    pub(super) fn receive(&mut self, link: &Link) -> Result<Pause, Ending> {
        self.budget = TCP_ROUND_BYTES;
        loop {
            if let Some(mut incoming) = self.incoming.take() {
                let complete = self.fill(&mut incoming, link);
                match complete {
                    Ok(true) => self.finish(incoming, link)?,
                    Ok(false) => {
                        self.incoming = Some(incoming);
                        return Ok(self.pause());
                    }
                    Err(ending) => return Err(ending),
                }
                continue;
            }
            let Some(bytes) = self.staging[self.staged.clone()].first_chunk::<FRAME_BYTES>() else {
                if self.stage(link)? {
                    continue;
                }
                return Ok(self.pause());
            };
            let frame = Frame::decode(bytes).map_err(violation)?;
            let message_bytes = match frame.body {
                Body::Send { length } => Some(length as usize),
                Body::WriteImmediate { .. } => Some(0),
                _ => None,
            };
            if message_bytes.is_some_and(|bytes| !link.has_room_for_message(bytes)) {
                return Ok(Pause::MessagesFull);
            }
            self.staged.start += FRAME_BYTES;
            self.active = true;
            self.begin(frame, link)?;
        }
    }

    /// Why nothing more was read.
    fn pause(&self) -> Pause {
        if self.budget == 0 { Pause::TakeTurns } else { Pause::Drained }
    }

    /// Reads into the staging buffer; false when the socket has nothing or the round is over.
    fn stage(&mut self, link: &Link) -> Result<bool, Ending> {
        if self.budget == 0 {
            return Ok(false);
        }
        self.staging.copy_within(self.staged.clone(), 0);
        self.staged = 0..self.staged.len();
        let free = &mut self.staging[self.staged.end..];
        let count = received(rustix::io::retry_on_intr(|| {
            rustix::net::recv(&link.socket, &mut *free, RecvFlags::DONTWAIT).map(|(count, _)| count)
        }))?;
        let Some(count) = count else { return Ok(false) };
        self.staged.end += count;
        self.budget = self.budget.saturating_sub(count);
        Ok(true)
    }

    /// Moves what there is of a payload to its place; true when it is complete.
    fn fill(&mut self, incoming: &mut Incoming, link: &Link) -> Result<bool, Ending> {
        while incoming.filled < incoming.length {
            let left = incoming.length - incoming.filled;
            let staged = &self.staging[self.staged.clone()];
            let staged = &staged[..staged.len().min(left)];
            if staged.is_empty() {
                if self.budget == 0 {
                    return Ok(false);
                }
                let count = match &mut incoming.sink {
                    Sink::Shared(slice) => sys::receive(link.socket.as_fd(), slice, incoming.filled),
                    Sink::Message(bytes) => rustix::io::retry_on_intr(|| {
                        let rest = &mut bytes[incoming.filled..];
                        rustix::net::recv(&link.socket, rest, RecvFlags::DONTWAIT).map(|(count, _)| count)
                    }),
                    Sink::Nowhere if self.stage(link)? => continue,
                    Sink::Nowhere => return Ok(false),
                };
                match received(count)? {
                    Some(count) => {
                        incoming.filled += count;
                        self.budget = self.budget.saturating_sub(count);
                    }
                    None => return Ok(false),
                }
                continue;
            }
            match &mut incoming.sink {
                Sink::Shared(slice) => slice.copy_in(incoming.filled, staged).map_err(violation)?,
                Sink::Message(bytes) => {
                    bytes[incoming.filled..incoming.filled + staged.len()].copy_from_slice(staged);
                }
                Sink::Nowhere => {}
            }
            incoming.filled += staged.len();
            self.staged.start += staged.len();
        }
        Ok(true)
    }

    /// Executes a frame, or prepares for its payload.
    fn begin(&mut self, frame: Frame, link: &Link) -> Result<(), Ending> {
        let sequence = frame.sequence;
        match frame.body {
            Body::Acknowledge => return acknowledged(link, sequence),
            Body::ReadData { length } => return self.begin_read_data(sequence, length, link),
            Body::Found { value } => return found(link, sequence, value),
            Body::Refused(refusal) => return refused(link, sequence, refusal),
            Body::Goodbye => return Err(Ending::Orderly),
            _ => {}
        }
        if sequence != self.next_request {
            return Err(violation(format!("request {sequence}, expected {}", self.next_request)));
        }
        self.next_request += 1;
        let place = |key, address, length: u32| RemoteSpan { key, address, length: u64::from(length) };
        match frame.body {
            Body::Write { key, address, length } => {
                self.begin_write(place(key, address, length), Finish::Written, link);
            }
            Body::WriteImmediate { key, address, length, immediate } => {
                let finish = Finish::WrittenWithImmediate { immediate };
                self.begin_write(place(key, address, length), finish, link);
            }
            Body::Send { length } => {
                let length = length as usize;
                let sink = Sink::Message(vec![0; length]);
                self.incoming = Some(Incoming { sink, filled: 0, length, finish: Finish::Message });
            }
            Body::Read { key, address, length } => {
                let span = place(key, address, length);
                match link.grants.find(span, Access::Read) {
                    Ok((region, offset)) => {
                        let slice = region.as_raw_slice(offset, length as usize).map_err(violation)?;
                        self.answer(link, Body::ReadData { length }, Payload::Shared(slice))?;
                    }
                    Err(error) => self.answer(link, Body::Refused(Refusal::of(&error)), Payload::None)?,
                }
            }
            atomic => {
                let answer = execute_atomic(link, atomic);
                self.answer(link, answer, Payload::None)?;
            }
        }
        Ok(())
    }

    fn begin_write(&mut self, span: RemoteSpan, finish: Finish, link: &Link) {
        // A frame's length is a u32.
        let length = usize::try_from(span.length).unwrap_or(usize::MAX);
        let target = link.grants.find(span, Access::Write).and_then(|(region, offset)| {
            region.as_raw_slice(offset, length).map_err(OperationError::OutOfBounds)
        });
        let (sink, finish) = match target {
            Ok(slice) => (Sink::Shared(slice), finish),
            Err(error) => (Sink::Nowhere, Finish::Refuse(Refusal::of(&error))),
        };
        self.incoming = Some(Incoming { sink, filled: 0, length, finish });
    }

    fn begin_read_data(&mut self, sequence: u64, length: u32, link: &Link) -> Result<(), Ending> {
        let flights = link.flights.lock();
        let target = match flights.waiting.front() {
            Some(flight) if flights.first_sequence == sequence => match &flight.expected {
                Expected::ReadData { target } if target.len() == length as usize => target.clone(),
                other => return Err(violation(format!("{length} bytes in answer to {other:?}"))),
            },
            _ => return Err(violation(format!("an answer to request {sequence}, which was not next"))),
        };
        drop(flights);
        let slice = target.region().as_raw_slice(target.offset(), target.len()).map_err(violation)?;
        let (sink, length) = (Sink::Shared(slice), target.len());
        self.incoming = Some(Incoming { sink, filled: 0, length, finish: Finish::ReadData });
        Ok(())
    }

    /// Acts on a complete payload.
    fn finish(&mut self, incoming: Incoming, link: &Link) -> Result<(), Ending> {
        match (incoming.finish, incoming.sink) {
            (Finish::Message, Sink::Message(bytes)) => link.report(Event::Message { bytes }),
            (Finish::WrittenWithImmediate { immediate }, _) => {
                link.report(Event::Immediate { immediate, bytes: incoming.length as u64 });
            }
            (Finish::Refuse(refusal), _) => self.answer(link, Body::Refused(refusal), Payload::None)?,
            (Finish::ReadData, _) => {
                let mut flights = link.flights.lock();
                let flight = flights.waiting.pop_front();
                flights.first_sequence += 1;
                drop(flights);
                if let Some(flight) = flight {
                    let outcome = Ok(Done::Moved { bytes: incoming.length as u64 });
                    link.report(Event::Completed { id: flight.id, outcome });
                }
            }
            (Finish::Written | Finish::Message, _) => {}
        }
        Ok(())
    }

    /// Queues the acknowledgement of what is done. Called before an answer and when there is nothing more to do, so that
    /// many operations share one.
    pub(super) fn acknowledge(&mut self, link: &Link) -> Result<(), Ending> {
        // A write or message whose payload is incomplete is not done yet.
        let open =
            self.incoming.as_ref().is_some_and(|incoming| !matches!(incoming.finish, Finish::ReadData));
        self.acknowledge_before(self.next_request - u64::from(open), link)
    }

    /// Queues the acknowledgement of all requests before `done`.
    fn acknowledge_before(&mut self, done: u64, link: &Link) -> Result<(), Ending> {
        if done <= self.acknowledged {
            return Ok(());
        }
        self.acknowledged = done;
        let frame = Frame { sequence: done - 1, body: Body::Acknowledge };
        push_answer(link, frame, Payload::None)
    }

    /// Queues the answer to the newest request, after the acknowledgement of those before it.
    fn answer(&mut self, link: &Link, body: Body, payload: Payload) -> Result<(), Ending> {
        let sequence = self.next_request - 1;
        self.acknowledge_before(sequence, link)?;
        self.acknowledged = self.next_request;
        push_answer(link, Frame { sequence, body }, payload)
    }
}

/// What a receiving call has brought: a count, nothing for now, or the end.
fn received(result: Result<usize, Errno>) -> Result<Option<usize>, Ending> {
    match result {
        Ok(0) => Err(Ending::Lost { reason: "the stream ended without a goodbye".to_owned() }),
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(Ending::Lost { reason: std::io::Error::from(error).to_string() }),
    }
}

fn push_answer(link: &Link, frame: Frame, payload: Payload) -> Result<(), Ending> {
    if link.outbox.lock().push_answer(frame, payload) {
        Ok(())
    } else {
        Err(violation("more unanswered requests than a queue holds"))
    }
}

/// Executes the peer's atomic operation.
fn execute_atomic(link: &Link, body: Body) -> Body {
    use std::sync::atomic::Ordering::SeqCst;
    let (Body::FetchAdd { key, address, .. } | Body::CompareSwap { key, address, .. }) = body else {
        return Body::Refused(Refusal::UnknownKey);
    };
    let found = || {
        let (region, offset) = link.grants.find(RemoteSpan { key, address, length: 8 }, Access::ReadWrite)?;
        let word = region.mapping().word_to_store(offset).map_err(OperationError::OutOfBounds)?;
        Ok(match body {
            Body::FetchAdd { add, .. } => word.fetch_add(add, SeqCst),
            Body::CompareSwap { expected, replacement, .. } => {
                word.compare_exchange(expected, replacement, SeqCst, SeqCst).unwrap_or_else(|found| found)
            }
            _ => 0,
        })
    };
    match found() {
        Ok(value) => Body::Found { value },
        Err(error) => Body::Refused(Refusal::of(&error)),
    }
}

/// The peer has done all writes and messages up to `through`.
fn acknowledged(link: &Link, through: u64) -> Result<(), Ending> {
    loop {
        let mut flights = link.flights.lock();
        if flights.first_sequence > through {
            return Ok(());
        }
        match flights.waiting.front() {
            Some(flight) => {
                let Expected::Acknowledge { bytes } = flight.expected else {
                    return Err(violation(format!("request {} was acknowledged", flights.first_sequence)));
                };
                let id = flight.id;
                flights.waiting.pop_front();
                flights.first_sequence += 1;
                drop(flights);
                link.report(Event::Completed { id, outcome: Ok(Done::Moved { bytes }) });
            }
            None => return Err(violation(format!("request {through} was acknowledged before it was made"))),
        }
    }
}

/// The peer's atomic operation found `value`.
fn found(link: &Link, sequence: u64, value: u64) -> Result<(), Ending> {
    let mut flights = link.flights.lock();
    let next = flights.first_sequence;
    let flight =
        flights.waiting.pop_front_if(|flight| next == sequence && matches!(flight.expected, Expected::Found));
    let Some(flight) = flight else {
        return Err(violation(format!(
            "a value in answer to request {sequence}, which was not next or asked for none"
        )));
    };
    flights.first_sequence += 1;
    drop(flights);
    link.report(Event::Completed { id: flight.id, outcome: Ok(Done::Found { value }) });
    Ok(())
}

/// The peer has refused a request.
fn refused(link: &Link, sequence: u64, refusal: Refusal) -> Result<(), Ending> {
    let mut flights = link.flights.lock();
    let next = flights.first_sequence;
    let touches = flights.waiting.front().and_then(|flight| flight.touches);
    match (touches, next == sequence) {
        (Some((span, needed)), true) => {
            let flight = flights.waiting.pop_front();
            flights.first_sequence += 1;
            drop(flights);
            if let Some(flight) = flight {
                let outcome = Err(refusal.to_error(span, needed));
                link.report(Event::Completed { id: flight.id, outcome });
            }
            Ok(())
        }
        _ => {
            Err(violation(format!("request {sequence} was refused, which touches no memory or was not next")))
        }
    }
}
