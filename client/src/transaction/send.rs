//! Sends messages to participants. All messages of a session are sent here.
//!
//! Invariants
//! - A payload contains at most one message that is answered, after messages that are not answered.
//! - Requests to one participant are sent in order. A request that needs a part of the memory that
//!   is in use waits, and so do all requests after it.
//! - A payload that is too long for a message stays in this process's memory until the reply has
//!   come, and the participant reads it from there.

use std::time::Instant;

use rackscan_format::{
    codec,
    limits::TRANSACT_BYTES_MAX,
    message::{Payload, Request as LineRequest, Target},
};
use rackscan_ramp::{
    algorithm::Message,
    item::{Key, Write},
    message::{ParticipantId, Request, participant_of},
    timestamp::Timestamp,
};

use super::{
    Operations, Session, TransactionError,
    participant::{Purpose, QueuedRequest, SentRequest},
};
use crate::{
    LineError,
    limits::{LEASE_REFRESH_PERIOD, PAYLOAD_KEY_BYTES, SETTLED_TOLD},
};

/// Approximate overhead of a key and its value beside their bytes, and of a part beside its items.
const ITEM_OVERHEAD_BYTES: usize = 32;
const PART_OVERHEAD_BYTES: usize = 1024;
/// Maximum bytes of the condition of an item: its position, and a timestamp.
const CONDITION_BYTES: usize = 20;

/// The outcome of an attempt to send.
enum SendOutcome {
    Yes,
    /// It waits for memory or room.
    NotYet,
    Never(TransactionError),
    Unavailable,
}

impl Session {
    pub(super) fn participant_of(&self, key: &Key) -> ParticipantId {
        participant_of(key.placement(), &self.ids)
    }

    /// Sends the messages of a coordinator. Keys that it reads come out of slots where their places
    /// are known and the operations are one-sided.
    pub(super) fn post(&mut self, messages: Vec<Message>) {
        if messages.is_empty() {
            return;
        }
        let Some(number) = self.run.as_ref().map(|run| run.number) else { return };
        self.lines.hold();
        let mut looked = false;
        for Message { to, request } in messages {
            let Some(at) = self.position(to) else { continue };
            match request {
                Request::Get { keys, .. } if self.operations == Operations::OneSided => {
                    looked = true;
                    self.begin_slot_reads(at, number, keys);
                }
                request => self.ask(at, Purpose::Run(number), request),
            }
        }
        // Before slots are copied, so that other participants answer meanwhile.
        self.lines.release();
        if looked {
            self.take_slots(number);
        }
    }

    /// Queues a request to a participant and sends what can be sent. Long lists of keys are
    /// divided.
    pub(super) fn ask(&mut self, at: usize, purpose: Purpose, request: Request) {
        match request {
            Request::Get { lease, keys } => {
                self.ask_in_parts(at, purpose, keys, |keys| Request::Get { lease, keys });
            }
            Request::Timestamps { lease, keys } => {
                self.ask_in_parts(at, purpose, keys, |keys| Request::Timestamps { lease, keys });
            }
            Request::Among { lease, keys, timestamps } => {
                let among = |keys| Request::Among { lease, keys, timestamps: timestamps.clone() };
                self.ask_in_parts(at, purpose, keys, among);
            }
            request => self.enqueue(at, purpose, Some(request)),
        }
        self.pump(at);
    }

    fn ask_in_parts(
        &mut self,
        at: usize,
        purpose: Purpose,
        keys: Vec<Key>,
        request: impl Fn(Vec<Key>) -> Request,
    ) {
        let bytes = |key: &Key| key.bytes().len() + 4;
        if keys.iter().map(bytes).sum::<usize>() <= PAYLOAD_KEY_BYTES {
            return self.enqueue(at, purpose, Some(request(keys)));
        }
        let (mut part, mut part_bytes) = (Vec::new(), 0);
        for key in keys {
            if part_bytes + bytes(&key) > PAYLOAD_KEY_BYTES && !part.is_empty() {
                self.enqueue(at, purpose, Some(request(std::mem::take(&mut part))));
                part_bytes = 0;
            }
            part_bytes += bytes(&key);
            part.push(key);
        }
        self.enqueue(at, purpose, Some(request(part)));
    }

    pub(super) fn enqueue(&mut self, at: usize, purpose: Purpose, request: Option<Request>) {
        self.participants[at].waiting.push_back(QueuedRequest { purpose, request });
    }

    /// Sends the requests that wait for a participant, as far as possible now.
    pub(super) fn pump(&mut self, at: usize) {
        if self.participants[at].rests_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.participants[at].rests_until = None;
        while let Some(waiting) = self.participants[at].waiting.pop_front() {
            let QueuedRequest { purpose, request } = waiting;
            if let Purpose::Run(number) = purpose
                && !self.is_running(number)
                && request.as_ref().is_some_and(ends_with_its_transaction)
            {
                continue;
            }
            let (sent, request) = self.send(at, purpose, request);
            match sent {
                SendOutcome::Yes => {}
                SendOutcome::NotYet => {
                    self.participants[at].waiting.push_front(QueuedRequest { purpose, request });
                    return;
                }
                SendOutcome::Never(error) => self.fail_purpose(purpose, error),
                SendOutcome::Unavailable => self.not_sent(at, purpose, request),
            }
        }
    }

    /// Sends a request, with the messages that go in front of it. Returns it if it was not sent.
    fn send(
        &mut self,
        at: usize,
        purpose: Purpose,
        request: Option<Request>,
    ) -> (SendOutcome, Option<Request>) {
        self.tags += 1;
        let tag = self.tags;
        if purpose == Purpose::Open {
            let sent = self.lines.send(at, tag, LineRequest::OpenParticipant);
            return self.was_sent(at, SentRequest { tag, purpose, request }, sent);
        }
        let has_long_answer = request.as_ref().is_some_and(is_answered_at_length);
        if has_long_answer && self.participants[at].answer_of.is_some() {
            return (SendOutcome::NotYet, request);
        }
        let Some((_, memory)) = self.lines.memory(at) else { return (SendOutcome::Unavailable, request) };
        let mut messages = Vec::with_capacity(3);
        self.participants[at].piggy_back(&mut messages);
        messages.extend(request);
        let encoded = codec::encode(&messages);
        let request = messages.pop().filter(is_answered);
        let payload = match encoded {
            Ok(bytes) if bytes.len() <= TRANSACT_BYTES_MAX => Payload::Here(bytes),
            Ok(bytes) => match self.beside(at, tag, memory, &bytes) {
                Ok(payload) => payload,
                Err(sent) => return (sent, request),
            },
            Err(_) => return (SendOutcome::Never(self.too_large(at, 0)), request),
        };
        let answers = &self.parts.answers;
        let length_bytes = if has_long_answer { answers.len() as u64 } else { 0 };
        let target =
            Target { length_bytes, offset_bytes: memory.offset_bytes + answers.start as u64, ..memory };
        let sent = self.lines.send(at, tag, LineRequest::Transact { messages: payload, target });
        if has_long_answer && sent.is_ok() {
            self.participants[at].answer_of = Some(tag);
        }
        self.was_sent(at, SentRequest { tag, purpose, request }, sent)
    }

    fn was_sent(
        &mut self,
        at: usize,
        asked: SentRequest,
        sent: Result<(), LineError>,
    ) -> (SendOutcome, Option<Request>) {
        let participant = &mut self.participants[at];
        let Err(error) = sent else {
            participant.sent.push(asked);
            return (SendOutcome::Yes, None);
        };
        if participant.source_of == Some(asked.tag) {
            participant.source_of = None;
        }
        let sent = match error {
            LineError::Full { .. } => SendOutcome::NotYet,
            LineError::Unavailable { .. } => SendOutcome::Unavailable,
            _ => SendOutcome::Never(self.too_large(at, 0)),
        };
        (sent, asked.request)
    }

    /// Copies a payload that is too long for a message into our memory, where the participant reads
    /// it.
    fn beside(&mut self, at: usize, tag: u64, memory: Target, bytes: &[u8]) -> Result<Payload, SendOutcome> {
        let area = self.parts.requests.clone();
        if bytes.len() > area.len() {
            return Err(SendOutcome::Never(self.too_large(at, bytes.len() as u64)));
        }
        if self.participants[at].source_of.is_some() {
            return Err(SendOutcome::NotYet);
        }
        let (region, _) = self.lines.memory(at).ok_or(SendOutcome::Unavailable)?;
        if region.copy_in(area.start, bytes).is_err() {
            return Err(SendOutcome::Never(self.too_large(at, bytes.len() as u64)));
        }
        self.participants[at].source_of = Some(tag);
        let offset_bytes = memory.offset_bytes + area.start as u64;
        Ok(Payload::Beside(Target { offset_bytes, length_bytes: bytes.len() as u64, ..memory }))
    }

    pub(super) fn too_large(&self, at: usize, bytes: u64) -> TransactionError {
        let bytes_max = self.parts.requests.len() as u64;
        TransactionError::TooLarge { participant: self.participants[at].id, bytes, bytes_max }
    }

    /// Checks that all parts of a write fit the memory that participants read them from.
    pub(super) fn check_sizes(&self, items: &[Write]) -> Result<(), TransactionError> {
        let bytes = |item: &Write| {
            // Its fingerprint may be in the write set of each part.
            let condition = item.expected.map_or(0, |_| CONDITION_BYTES);
            item.key.bytes().len() + item.value.len() + condition + ITEM_OVERHEAD_BYTES
        };
        let all: usize = items.iter().map(bytes).sum();
        let most = self.parts.requests.len() - PART_OVERHEAD_BYTES;
        if all <= most {
            return Ok(());
        }
        let mut of_participants = vec![items.len() * 8; self.participants.len()];
        for item in items {
            if let Some(at) = self.position(self.participant_of(&item.key)) {
                of_participants[at] += bytes(item);
            }
        }
        let too_large = of_participants.iter().position(|bytes| *bytes > most);
        too_large.map_or(Ok(()), |at| Err(self.too_large(at, of_participants[at] as u64)))
    }

    /// Requests a participant's memory and a lease.
    pub(super) fn open_participant(&mut self, at: usize) {
        let participant = &mut self.participants[at];
        if std::mem::replace(&mut participant.is_opening, true) {
            return;
        }
        if participant.opened.is_none() {
            self.enqueue(at, Purpose::Open, None);
        }
        let client = self.clock.client();
        self.ask(at, Purpose::Lease, Request::Lease { client });
    }

    /// Moves leases on that have not been moved for a while, so that participants do not keep old
    /// versions that nobody reads.
    pub(super) fn refresh(&mut self, now: Instant) {
        for at in 0..self.participants.len() {
            let participant = &mut self.participants[at];
            let is_due = participant.epoch_at.is_some_and(|epoch_at| now >= epoch_at + LEASE_REFRESH_PERIOD);
            if let Some(lease) = participant.lease.filter(|_| is_due) {
                // Not again before the participant has answered, or the period has passed again.
                participant.epoch_at = Some(now);
                self.ask(at, Purpose::Refresh, Request::Get { lease, keys: Vec::new() });
            }
        }
    }

    /// Tells a participant which transactions have settled, if they are many.
    pub(super) fn tell_if_many(&mut self, at: usize) {
        if self.participants[at].settled.len() >= SETTLED_TOLD && self.lines.unavailable(at).is_none() {
            self.enqueue(at, Purpose::Tell, None);
            self.pump(at);
        }
        let participant = &mut self.participants[at];
        if participant.settled.len() > 2 * SETTLED_TOLD {
            // It has been unavailable for long, and will find out itself.
            participant.settled.clear();
        }
    }

    /// Returns the lease to a participant, because nothing will be read for a while.
    pub(super) fn give_lease_back(&mut self, at: usize) {
        let lease = self.participants[at].lease.take();
        if let Some(lease) = lease {
            self.enqueue(at, Purpose::Tell, Some(Request::Close { lease }));
        } else if self.participants[at].has_news() && self.lines.unavailable(at).is_none() {
            self.enqueue(at, Purpose::Tell, None);
        }
        self.pump(at);
    }

    /// Sends messages of a committed transaction to participants that do not know of it yet.
    /// Unavailable ones are told when they are back.
    pub(super) fn tell_ending(&mut self, timestamp: Timestamp, messages: Vec<Message>) {
        for Message { to, request } in messages {
            let Some(at) = self.position(to).filter(|at| self.lines.unavailable(*at).is_none()) else {
                continue;
            };
            let is_asked = |asked: &SentRequest| asked.purpose == Purpose::Ending(timestamp);
            let is_last = matches!(request, Request::Ended { .. });
            if is_last || !self.participants[at].sent.iter().any(is_asked) {
                self.ask(at, Purpose::Ending(timestamp), request);
            }
        }
    }
}

/// Whether the participant answers the request at all.
fn is_answered(request: &Request) -> bool {
    !matches!(
        request,
        Request::Advance { .. } | Request::Close { .. } | Request::Settled { .. } | Request::Ended { .. }
    )
}

/// Whether the answer may be longer than a message.
fn is_answered_at_length(request: &Request) -> bool {
    match request {
        Request::Get { keys, .. } => !keys.is_empty(),
        Request::Timestamps { .. } | Request::Among { .. } | Request::Lock { .. } | Request::Scan { .. } => {
            true
        }
        _ => false,
    }
}

/// Whether the request is useless once its transaction is over. A part that was not sent by then is
/// never prepared.
pub(super) fn ends_with_its_transaction(request: &Request) -> bool {
    is_answered_at_length(request) || matches!(request, Request::Prepare { .. } | Request::Put { .. })
}
