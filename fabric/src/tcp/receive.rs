//! How is the peer's stream taken apart and executed?
//!
//! Invariants
//! - Bytes of unknown meaning are read into a staging buffer of fixed size; the payload of a write
//!   or an answer goes from the socket straight into registered memory, but for what was staged
//!   with its frame.
//! - A request that is refused has its payload read and thrown away; nothing of it touches memory.
//! - The peer's requests are executed and answered in their order; its sequence numbers must count
//!   from 0.

use std::os::fd::AsFd;

use rustix::{io::Errno, net::RecvFlags};

use super::{
    answers::{acknowledged, execute_atomic, found, refused, violation},
    frame::{Body, FRAME_BYTES, Frame, Refusal},
    inbox::{Filled, InboxEnd, Message, fault},
    link::{Expected, Link},
    outbox::Payload,
    sys,
};
use crate::{
    completion::{Done, Event},
    error::{Ending, OperationError},
    inbox::{Membership, Sent},
    limits::{TCP_ROUND_BYTES, TCP_STAGING_BYTES},
    memory::{RawSlice, WORD_BYTES},
    operation::RemoteSpan,
    region::Access,
};

/// Why receiving stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// The socket has no more.
    Drained,
    /// There is no room for the next message until the application polls, or looks at its inbox.
    MessagesFull,
    /// There may be more, but it is time to send what waits.
    TakeTurns,
}

/// Where a payload goes.
#[derive(Debug)]
enum Sink {
    Shared(RawSlice),
    /// One aligned word of a write: gathered here, and stored when it is whole.
    Word(RawSlice, [u8; WORD_BYTES]),
    Message(Vec<u8>),
    Inbox(Message),
    Nowhere,
}

/// What is done when a payload is complete.
#[derive(Debug, Clone, Copy)]
enum Finish {
    /// A write of the peer is done; the application is woken if it waits for such.
    Written { wakes: bool },
    /// A write of the peer is done, and the application is told.
    WrittenWithImmediate { immediate: u32 },
    /// A request of the peer was refused.
    Refuse(Refusal),
    /// A message is complete, here or in the inbox.
    Message,
    /// The answer to a read of ours is complete.
    ReadData,
}

/// What becomes of a frame.
#[derive(Debug)]
enum Admission {
    /// There is room for what it brings, or it brings nothing.
    Ordinary,
    /// Its message goes into the inbox, where it has room.
    Into(Message),
    /// It must wait.
    Later,
    /// The inbox refuses its message, of so many bytes.
    Refused { length: usize },
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
    /// Where messages go, if not to the application's `poll`.
    inbox: Option<InboxEnd>,
    staging: Box<[u8; TCP_STAGING_BYTES]>,
    staged: std::ops::Range<usize>,
    incoming: Option<Incoming>,
    /// The sequence number that the peer's next request must have.
    next_request: u64,
    /// Requests that are done and not acknowledged: those from here up to `next_request`.
    acknowledged: u64,
    /// Whether a frame was taken in since somebody asked.
    active: bool,
    /// How the connection ended, if that was noticed outside of the responder's thread.
    failed: Option<Ending>,
    /// Bytes that this round may still read.
    budget: usize,
}

impl Receiver {
    pub(super) fn new(member: Option<Membership>) -> Self {
        let staging = Box::new([0; TCP_STAGING_BYTES]);
        Self {
            inbox: member.map(InboxEnd::new),
            staging,
            staged: 0..0,
            incoming: None,
            next_request: 0,
            acknowledged: 0,
            active: false,
            failed: None,
            budget: 0,
        }
    }

    /// Whether a frame was taken in since the last call.
    pub(super) fn take_activity(&mut self) -> bool {
        std::mem::take(&mut self.active)
    }

    /// The next `receive` fails with this.
    pub(super) fn fail(&mut self, ending: Ending) {
        self.failed = Some(ending);
    }

    /// Whether it is an inbox that messages wait for.
    pub(super) fn waits_for_inbox(&self) -> bool {
        self.inbox.is_some()
    }

    /// Whether the responder, after `MessagesFull`, may sleep until it is rung.
    pub(super) fn may_sleep(&mut self) -> bool {
        self.inbox.as_mut().is_none_or(InboxEnd::fall_asleep)
    }

    /// Receives and executes until the socket has no more, messages have no room, or a round's
    /// bytes are read: a peer that never stops must not keep our own frames from being sent.
    pub(super) fn receive(&mut self, link: &Link) -> Result<Pause, Ending> {
        self.budget = TCP_ROUND_BYTES;
        if let Some(ending) = self.failed.take().or_else(|| self.inbox.as_ref().and_then(InboxEnd::ending)) {
            return Err(ending);
        }
        loop {
            if let Some(mut incoming) = self.incoming.take() {
                match self.fill(&mut incoming, link)? {
                    Filled::Complete => self.finish(incoming, link)?,
                    unfinished => {
                        self.incoming = Some(incoming);
                        return Ok(if unfinished == Filled::Full {
                            Pause::MessagesFull
                        } else {
                            self.pause()
                        });
                    }
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
            match self.admit(&frame.body, link)? {
                Admission::Later => return Ok(Pause::MessagesFull),
                Admission::Ordinary => self.begin(frame, link)?,
                Admission::Into(message) => self.begin_message(frame.sequence, message)?,
                Admission::Refused { length } => self.refuse_message(frame.sequence, length)?,
            }
            self.staged.start += FRAME_BYTES;
            self.active = true;
        }
    }

    /// Whether a frame that brings the application something can be taken now.
    fn admit(&mut self, body: &Body, link: &Link) -> Result<Admission, Ending> {
        let (length, report) = match *body {
            Body::Send { length, report } => (length as usize, Some(report)),
            Body::WriteImmediate { length, .. } => (length as usize, None),
            _ => return Ok(Admission::Ordinary),
        };
        let Some(inbox) = &mut self.inbox else {
            let message_bytes = if report.is_some() { length } else { 0 };
            let room = link.has_room_for_message(message_bytes);
            return Ok(if room { Admission::Ordinary } else { Admission::Later });
        };
        let found = match report {
            Some(report) => inbox.begin(length, report).map_err(fault)?.map(Admission::Into),
            None => match inbox.room_for_immediate().map_err(fault)? {
                Sent::All => Ok(Admission::Ordinary),
                other => Err(other),
            },
        };
        Ok(found.unwrap_or_else(|sent| match sent {
            Sent::Refused => Admission::Refused { length },
            Sent::All | Sent::Stalled => Admission::Later,
        }))
    }

    /// The next request of the peer.
    fn count_request(&mut self, sequence: u64) -> Result<(), Ending> {
        if sequence != self.next_request {
            return Err(violation(format!("request {sequence}, expected {}", self.next_request)));
        }
        self.next_request += 1;
        Ok(())
    }

    fn begin_message(&mut self, sequence: u64, message: Message) -> Result<(), Ending> {
        self.count_request(sequence)?;
        let sink = Sink::Inbox(message);
        self.incoming = Some(Incoming { sink, filled: 0, length: 0, finish: Finish::Message });
        Ok(())
    }

    fn refuse_message(&mut self, sequence: u64, length: usize) -> Result<(), Ending> {
        self.count_request(sequence)?;
        let finish = Finish::Refuse(Refusal::InboxFull);
        self.incoming = Some(Incoming { sink: Sink::Nowhere, filled: 0, length, finish });
        Ok(())
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

    /// Moves what there is of a message to its place in the inbox.
    fn fill_inbox(&mut self, message: &mut Message, link: &Link) -> Result<Filled, Ending> {
        loop {
            let Some(inbox) = &mut self.inbox else { return Ok(Filled::Complete) };
            match inbox.go_on(message).map_err(fault)? {
                Filled::Hungry => {}
                other => return Ok(other),
            }
            let staged = message.fill_staged(&self.staging[self.staged.clone()])?;
            self.staged.start += staged;
            if staged > 0 {
                continue;
            }
            if !message.takes_from_socket() {
                if self.stage(link)? {
                    continue;
                }
                return Ok(Filled::Hungry);
            }
            if self.budget == 0 {
                return Ok(Filled::Hungry);
            }
            match received(message.fill_from_socket(link))? {
                Some(count) => self.budget = self.budget.saturating_sub(count),
                None => return Ok(Filled::Hungry),
            }
        }
    }

    /// Moves what there is of a payload to its place.
    fn fill(&mut self, incoming: &mut Incoming, link: &Link) -> Result<Filled, Ending> {
        if let Sink::Inbox(message) = &mut incoming.sink {
            return self.fill_inbox(message, link);
        }
        while incoming.filled < incoming.length {
            let left = incoming.length - incoming.filled;
            let staged = &self.staging[self.staged.clone()];
            let staged = &staged[..staged.len().min(left)];
            if staged.is_empty() {
                if self.budget == 0 {
                    return Ok(Filled::Hungry);
                }
                let count = match &mut incoming.sink {
                    Sink::Shared(slice) => sys::receive(link.socket.as_fd(), slice, incoming.filled),
                    Sink::Message(bytes) => rustix::io::retry_on_intr(|| {
                        let rest = &mut bytes[incoming.filled..];
                        rustix::net::recv(&link.socket, rest, RecvFlags::DONTWAIT).map(|(count, _)| count)
                    }),
                    Sink::Nowhere | Sink::Word(..) if self.stage(link)? => continue,
                    Sink::Nowhere | Sink::Word(..) | Sink::Inbox(_) => return Ok(Filled::Hungry),
                };
                match received(count)? {
                    Some(count) => {
                        incoming.filled += count;
                        self.budget = self.budget.saturating_sub(count);
                    }
                    None => return Ok(Filled::Hungry),
                }
                continue;
            }
            match &mut incoming.sink {
                Sink::Shared(slice) => slice.copy_in(incoming.filled, staged).map_err(violation)?,
                Sink::Word(slice, word) => {
                    word[incoming.filled..incoming.filled + staged.len()].copy_from_slice(staged);
                    if staged.len() == left {
                        slice.copy_in(0, word).map_err(violation)?;
                    }
                }
                Sink::Message(bytes) => {
                    bytes[incoming.filled..incoming.filled + staged.len()].copy_from_slice(staged);
                }
                Sink::Nowhere | Sink::Inbox(_) => {}
            }
            incoming.filled += staged.len();
            self.staged.start += staged.len();
        }
        Ok(Filled::Complete)
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
        self.count_request(sequence)?;
        let place = |key, address, length: u32| RemoteSpan { key, address, length: u64::from(length) };
        match frame.body {
            Body::Write { key, address, length } => {
                self.begin_write(place(key, address, length), None, link);
            }
            Body::WriteImmediate { key, address, length, immediate } => {
                self.begin_write(place(key, address, length), Some(immediate), link);
            }
            Body::Send { length, .. } => {
                let length = length as usize;
                let sink = Sink::Message(vec![0; length]);
                self.incoming = Some(Incoming { sink, filled: 0, length, finish: Finish::Message });
            }
            Body::Read { key, address, length } => {
                let span = place(key, address, length);
                match link.grants.find(span, Access::Read) {
                    Ok(at) => {
                        let slice = at.region.as_raw_slice(at.offset, length as usize).map_err(violation)?;
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

    fn begin_write(&mut self, span: RemoteSpan, immediate: Option<u32>, link: &Link) {
        // A frame's length is a u32.
        let length = usize::try_from(span.length).unwrap_or(usize::MAX);
        let target = link.grants.find(span, Access::Write).and_then(|at| {
            let slice = at.region.as_raw_slice(at.offset, length).map_err(OperationError::OutOfBounds)?;
            Ok((slice, at.wakes))
        });
        let (sink, finish) = match (target, immediate) {
            (Ok((slice, wakes)), None) => (sink_of(slice), Finish::Written { wakes }),
            (Ok((slice, _)), Some(immediate)) => (sink_of(slice), Finish::WrittenWithImmediate { immediate }),
            (Err(error), _) => (Sink::Nowhere, Finish::Refuse(Refusal::of(&error))),
        };
        self.incoming = Some(Incoming { sink, filled: 0, length, finish });
    }

    fn begin_read_data(&mut self, sequence: u64, length: u32, link: &Link) -> Result<(), Ending> {
        let flights = link.flights.lock();
        let target = match flights.first() {
            Some(flight) if flights.first_sequence() == sequence => match &flight.expected {
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
            (Finish::WrittenWithImmediate { immediate }, _) if self.inbox.is_some() => {
                let Some(inbox) = &mut self.inbox else { return Ok(()) };
                let waits = inbox.announce(immediate, incoming.length as u64).map_err(fault)?;
                self.incoming = waits.map(|message| {
                    let sink = Sink::Inbox(message);
                    Incoming { sink, filled: 0, length: 0, finish: Finish::Message }
                });
            }
            (Finish::WrittenWithImmediate { immediate }, _) => {
                link.report(Event::Immediate { immediate, bytes: incoming.length as u64 });
            }
            (Finish::Refuse(refusal), _) => self.answer(link, Body::Refused(refusal), Payload::None)?,
            (Finish::ReadData, _) => {
                let flight = link.flights.lock().answered(&link.outbox);
                if let Some(flight) = flight {
                    let outcome = Ok(Done::Moved { bytes: incoming.length as u64 });
                    link.report(Event::Completed { id: flight.id, outcome });
                }
            }
            (Finish::Written { wakes: true }, _) => link.wake_sleeper(),
            (Finish::Written { wakes: false } | Finish::Message, _) => {}
        }
        Ok(())
    }

    /// Queues the acknowledgement of what is done. Called before an answer and when there is
    /// nothing more to do, so that many operations share one.
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

/// Where the bytes of a write go.
fn sink_of(slice: RawSlice) -> Sink {
    if slice.is_word() { Sink::Word(slice, [0; WORD_BYTES]) } else { Sink::Shared(slice) }
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
