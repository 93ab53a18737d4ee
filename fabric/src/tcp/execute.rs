//! Executes the peer's frames and answers them.
//!
//! Invariants
//! - The payload of a refused request is read and discarded; none of its bytes reach memory.
//! - The peer's requests are executed and answered in their order; its sequence numbers must count
//!   from 0.

use std::os::fd::AsFd;

use super::{
    answers::{acknowledged, execute_atomic, found, refused},
    frame::{Body, FRAME_BYTES, Frame, Refusal},
    inbox::{Filled, InboxEnd, Message, fault},
    outbox::Payload,
    receive::{Finish, Incoming, Pause, Receiver, Sink},
    request::Expected,
    shared::SharedState,
};
use crate::{
    access::Access,
    completion::{Done, Event},
    error::{Ending, OperationError},
    inbox::Sent,
    limits::TCP_ROUND_BYTES,
    memory::{RawSlice, WORD_BYTES},
    operation::RemoteSpan,
};

/// What happens with a frame.
#[derive(Debug)]
enum Admission {
    /// It has room, or needs none.
    Ordinary,
    /// Its message goes into the inbox and has room there.
    Into(Message),
    /// It must wait for room.
    Later,
    /// The inbox refuses its message of `length` bytes.
    Refused { length: usize },
}

impl Receiver {
    /// Receives and executes until the socket has no more bytes, messages have no room, or the
    /// bytes of a round were read. The round is limited so that a peer that never stops sending
    /// does not keep our own frames from being sent.
    pub(super) fn receive(&mut self, shared: &SharedState) -> Result<Pause, Ending> {
        self.budget = TCP_ROUND_BYTES;
        if let Some(ending) = self.failed.take().or_else(|| self.inbox.as_ref().and_then(InboxEnd::ending)) {
            return Err(ending);
        }
        loop {
            if let Some(mut incoming) = self.incoming.take() {
                match self.fill(&mut incoming, shared.socket.as_fd())? {
                    Filled::Complete => self.finish(incoming, shared)?,
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
                if self.stage(shared.socket.as_fd())? {
                    continue;
                }
                return Ok(self.pause());
            };
            let frame = Frame::decode(bytes).map_err(Ending::violation)?;
            match self.admit(&frame.body, shared)? {
                Admission::Later => return Ok(Pause::MessagesFull),
                Admission::Ordinary => self.begin(frame, shared)?,
                Admission::Into(message) => self.begin_message(frame.sequence, message)?,
                Admission::Refused { length } => self.refuse_message(frame.sequence, length)?,
            }
            self.staged.start += FRAME_BYTES;
            self.active = true;
        }
    }

    /// Whether a frame can be executed now, as far as it needs room for a message or an immediate.
    fn admit(&mut self, body: &Body, shared: &SharedState) -> Result<Admission, Ending> {
        let (length, report) = match *body {
            Body::Send { length, report } => (length as usize, Some(report)),
            Body::WriteImmediate { length, .. } => (length as usize, None),
            _ => return Ok(Admission::Ordinary),
        };
        let Some(inbox) = &mut self.inbox else {
            let message_bytes = if report.is_some() { length } else { 0 };
            let room = shared.has_room_for_message(message_bytes);
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

    /// Checks the sequence number of the peer's next request.
    fn count_request(&mut self, sequence: u64) -> Result<(), Ending> {
        if sequence != self.next_request {
            return Err(Ending::violation(format!(
                "it sent request {sequence}, expected {}",
                self.next_request
            )));
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

    /// Executes a frame, or prepares for its payload.
    fn begin(&mut self, frame: Frame, shared: &SharedState) -> Result<(), Ending> {
        let sequence = frame.sequence;
        match frame.body {
            Body::Acknowledge => return acknowledged(shared, sequence),
            Body::ReadData { length } => return self.begin_read_data(sequence, length, shared),
            Body::Found { value } => return found(shared, sequence, value),
            Body::Refused(refusal) => return refused(shared, sequence, refusal),
            Body::Goodbye => return Err(Ending::Orderly),
            _ => {}
        }
        self.count_request(sequence)?;
        let place = |key, address, length: u32| RemoteSpan { key, address, length: u64::from(length) };
        match frame.body {
            Body::Write { key, address, length } => {
                self.begin_write(place(key, address, length), None, shared);
            }
            Body::WriteImmediate { key, address, length, immediate } => {
                self.begin_write(place(key, address, length), Some(immediate), shared);
            }
            Body::Send { length, .. } => {
                let length = length as usize;
                let sink = Sink::Message(vec![0; length]);
                self.incoming = Some(Incoming { sink, filled: 0, length, finish: Finish::Message });
            }
            Body::Read { key, address, length } => {
                let span = place(key, address, length);
                match shared.grants.find(span, Access::Read) {
                    Ok(at) => {
                        let slice =
                            at.region.as_raw_slice(at.offset, length as usize).map_err(Ending::violation)?;
                        self.answer(shared, Body::ReadData { length }, Payload::Shared(slice))?;
                    }
                    Err(error) => self.answer(shared, Body::Refused(Refusal::of(&error)), Payload::None)?,
                }
            }
            atomic => {
                let answer = execute_atomic(shared, atomic);
                self.answer(shared, answer, Payload::None)?;
            }
        }
        Ok(())
    }

    fn begin_write(&mut self, span: RemoteSpan, immediate: Option<u32>, shared: &SharedState) {
        let length = usize::try_from(span.length).expect("the length of a frame is a u32");
        let target = shared.grants.find(span, Access::Write).and_then(|at| {
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

    fn begin_read_data(&mut self, sequence: u64, length: u32, shared: &SharedState) -> Result<(), Ending> {
        let flights = shared.flights.lock();
        let target = match flights.first() {
            Some(flight) if flights.first_sequence() == sequence => match &flight.expected {
                Expected::ReadData { target } if target.len() == length as usize => target.clone(),
                other => {
                    return Err(Ending::violation(format!(
                        "it sent {length} bytes, which do not answer the request: {other:?}"
                    )));
                }
            },
            _ => {
                return Err(Ending::violation(format!(
                    "it answered request {sequence}, which was not the next one"
                )));
            }
        };
        drop(flights);
        let slice = target.region().as_raw_slice(target.offset(), target.len()).map_err(Ending::violation)?;
        let (sink, length) = (Sink::Shared(slice), target.len());
        self.incoming = Some(Incoming { sink, filled: 0, length, finish: Finish::ReadData });
        Ok(())
    }

    /// Acts on a complete payload.
    fn finish(&mut self, incoming: Incoming, shared: &SharedState) -> Result<(), Ending> {
        match (incoming.finish, incoming.sink) {
            (Finish::Message, Sink::Message(bytes)) => shared.report(Event::Message { bytes }),
            (Finish::WrittenWithImmediate { immediate }, _) if self.inbox.is_some() => {
                let Some(inbox) = &mut self.inbox else { return Ok(()) };
                let waits = inbox.announce(immediate, incoming.length as u64).map_err(fault)?;
                self.incoming = waits.map(|message| {
                    let sink = Sink::Inbox(message);
                    Incoming { sink, filled: 0, length: 0, finish: Finish::Message }
                });
            }
            (Finish::WrittenWithImmediate { immediate }, _) => {
                shared.report(Event::Immediate { immediate, bytes: incoming.length as u64 });
            }
            (Finish::Refuse(refusal), _) => self.answer(shared, Body::Refused(refusal), Payload::None)?,
            (Finish::ReadData, _) => {
                let flight = shared.flights.lock().answered(&shared.outbox);
                if let Some(flight) = flight {
                    let outcome = Ok(Done::Moved { bytes: incoming.length as u64 });
                    shared.report(Event::Completed { id: flight.id, outcome });
                }
            }
            (Finish::Written { wakes: true }, _) => shared.wake_sleeper(),
            (Finish::Written { wakes: false } | Finish::Message, _) => {}
        }
        Ok(())
    }

    /// Queues the acknowledgement of everything that is done. Called before an answer and when
    /// there is nothing more to do, so that many operations share one acknowledgement.
    pub(super) fn acknowledge(&mut self, shared: &SharedState) -> Result<(), Ending> {
        // A write or message whose payload is incomplete is not done yet.
        let open =
            self.incoming.as_ref().is_some_and(|incoming| !matches!(incoming.finish, Finish::ReadData));
        self.acknowledge_before(self.next_request - u64::from(open), shared)
    }

    /// Queues the acknowledgement of all requests before `done`.
    fn acknowledge_before(&mut self, done: u64, shared: &SharedState) -> Result<(), Ending> {
        if done <= self.acknowledged {
            return Ok(());
        }
        self.acknowledged = done;
        let frame = Frame { sequence: done - 1, body: Body::Acknowledge };
        push_answer(shared, frame, Payload::None)
    }

    /// Queues the answer to the newest request, after the acknowledgement of those before it.
    fn answer(&mut self, shared: &SharedState, body: Body, payload: Payload) -> Result<(), Ending> {
        let sequence = self.next_request - 1;
        self.acknowledge_before(sequence, shared)?;
        self.acknowledged = self.next_request;
        push_answer(shared, Frame { sequence, body }, payload)
    }
}

/// Where the bytes of a write go.
fn sink_of(slice: RawSlice) -> Sink {
    if slice.is_word() { Sink::Word(slice, [0; WORD_BYTES]) } else { Sink::Shared(slice) }
}

fn push_answer(shared: &SharedState, frame: Frame, payload: Payload) -> Result<(), Ending> {
    if shared.outbox.lock().push_answer(frame, payload) {
        Ok(())
    } else {
        Err(Ending::violation("it sent more unanswered requests than the queue may contain"))
    }
}
