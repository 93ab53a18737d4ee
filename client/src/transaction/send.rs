//! How do messages get to a home?
//!
//! This is the only place where they leave a session: other ways of sending belong here.
//!
//! Invariants
//! - A payload carries at most one message that is answered, and in front of it what is not.
//! - Requests to one home leave in order. One that needs a part of the memory which is in use
//!   waits, and those behind it, too.
//! - What is longer than a message lies in our memory until the reply has come.

use std::time::Instant;

use rackscan_format::{
    codec,
    limits::TRANSACT_BYTES_MAX,
    message::{Payload, Request as LineRequest, Target},
};
use rackscan_ramp::{
    algorithm::Message,
    item::{Key, Write},
    message::{HomeId, Request, home_of},
    timestamp::Timestamp,
};

use super::{
    Operations, Session, TransactionError,
    home::{Asked, Purpose, Waiting},
};
use crate::{
    LineError,
    limits::{LEASE_REFRESH_PERIOD, PAYLOAD_KEY_BYTES, SETTLED_TOLD},
};

/// About what a key and its value take beside their bytes, and a part beside its items.
const ITEM_OVERHEAD_BYTES: usize = 32;
const PART_OVERHEAD_BYTES: usize = 1024;
/// At most what the condition of an item takes: its position, and a timestamp.
const CONDITION_BYTES: usize = 20;

/// What became of an attempt to send.
enum Sent {
    Yes,
    /// It waits for memory or room.
    NotYet,
    Never(TransactionError),
    Away,
}

impl Session {
    pub(super) fn home_of(&self, key: &Key) -> HomeId {
        home_of(key.placement(), &self.ids)
    }

    /// Sends what a coordinator wants to say; what it wants to get is read out of slots where they
    /// are known.
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
                    self.look(at, number, keys);
                }
                request => self.ask(at, Purpose::Run(number), request),
            }
        }
        // Before the copies are made, so that others answer meanwhile.
        self.lines.release();
        if looked {
            self.take_slots(number);
        }
    }

    /// Asks a home, now or when it is its turn. Long lists of keys are divided.
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
        self.homes[at].waiting.push_back(Waiting { purpose, request });
    }

    /// Sends what waits for a home, as far as that can be now.
    pub(super) fn pump(&mut self, at: usize) {
        if self.homes[at].rests_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.homes[at].rests_until = None;
        while let Some(waiting) = self.homes[at].waiting.pop_front() {
            let Waiting { purpose, request } = waiting;
            if let Purpose::Run(number) = purpose
                && !self.is_running(number)
                && request.as_ref().is_some_and(ends_with_its_transaction)
            {
                continue;
            }
            let (sent, request) = self.send(at, purpose, request);
            match sent {
                Sent::Yes => {}
                Sent::NotYet => {
                    self.homes[at].waiting.push_front(Waiting { purpose, request });
                    return;
                }
                Sent::Never(error) => self.is_impossible(purpose, error),
                Sent::Away => self.unsent(at, purpose, request),
            }
        }
    }

    /// Sends a request, with what goes in front of it. Gives it back if it was not sent.
    fn send(&mut self, at: usize, purpose: Purpose, request: Option<Request>) -> (Sent, Option<Request>) {
        self.tags += 1;
        let tag = self.tags;
        if purpose == Purpose::Open {
            let sent = self.lines.send(at, tag, LineRequest::OpenHome);
            return self.was_sent(at, Asked { tag, purpose, request }, sent);
        }
        let has_long_answer = request.as_ref().is_some_and(is_answered_at_length);
        if has_long_answer && self.homes[at].answer_of.is_some() {
            return (Sent::NotYet, request);
        }
        let Some((_, memory)) = self.lines.memory(at) else { return (Sent::Away, request) };
        let mut messages = Vec::with_capacity(3);
        self.homes[at].piggy_back(&mut messages);
        messages.extend(request);
        let encoded = codec::encode(&messages);
        let request = messages.pop().filter(is_answered);
        let payload = match encoded {
            Ok(bytes) if bytes.len() <= TRANSACT_BYTES_MAX => Payload::Here(bytes),
            Ok(bytes) => match self.beside(at, tag, memory, &bytes) {
                Ok(payload) => payload,
                Err(sent) => return (sent, request),
            },
            Err(_) => return (Sent::Never(self.too_large(at, 0)), request),
        };
        let answers = &self.parts.answers;
        let length_bytes = if has_long_answer { answers.len() as u64 } else { 0 };
        let target =
            Target { length_bytes, offset_bytes: memory.offset_bytes + answers.start as u64, ..memory };
        let sent = self.lines.send(at, tag, LineRequest::Transact { messages: payload, target });
        if has_long_answer && sent.is_ok() {
            self.homes[at].answer_of = Some(tag);
        }
        self.was_sent(at, Asked { tag, purpose, request }, sent)
    }

    fn was_sent(&mut self, at: usize, asked: Asked, sent: Result<(), LineError>) -> (Sent, Option<Request>) {
        let home = &mut self.homes[at];
        let Err(error) = sent else {
            home.asked.push(asked);
            return (Sent::Yes, None);
        };
        if home.source_of == Some(asked.tag) {
            home.source_of = None;
        }
        let sent = match error {
            LineError::Full { .. } => Sent::NotYet,
            LineError::Away { .. } => Sent::Away,
            _ => Sent::Never(self.too_large(at, 0)),
        };
        (sent, asked.request)
    }

    /// Lays bytes where the home takes them from.
    fn beside(&mut self, at: usize, tag: u64, memory: Target, bytes: &[u8]) -> Result<Payload, Sent> {
        let area = self.parts.requests.clone();
        if bytes.len() > area.len() {
            return Err(Sent::Never(self.too_large(at, bytes.len() as u64)));
        }
        if self.homes[at].source_of.is_some() {
            return Err(Sent::NotYet);
        }
        let (region, _) = self.lines.memory(at).ok_or(Sent::Away)?;
        if region.copy_in(area.start, bytes).is_err() {
            return Err(Sent::Never(self.too_large(at, bytes.len() as u64)));
        }
        self.homes[at].source_of = Some(tag);
        let offset_bytes = memory.offset_bytes + area.start as u64;
        Ok(Payload::Beside(Target { offset_bytes, length_bytes: bytes.len() as u64, ..memory }))
    }

    pub(super) fn too_large(&self, at: usize, bytes: u64) -> TransactionError {
        let bytes_max = self.parts.requests.len() as u64;
        TransactionError::TooLarge { home: self.homes[at].id, bytes, bytes_max }
    }

    /// Whether all parts of a write fit the memory that homes take them from.
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
        let mut of_homes = vec![items.len() * 8; self.homes.len()];
        for item in items {
            if let Some(at) = self.position(self.home_of(&item.key)) {
                of_homes[at] += bytes(item);
            }
        }
        let too_large = of_homes.iter().position(|bytes| *bytes > most);
        too_large.map_or(Ok(()), |at| Err(self.too_large(at, of_homes[at] as u64)))
    }

    /// Asks for a home's memory and for a lease.
    pub(super) fn open_home(&mut self, at: usize) {
        let home = &mut self.homes[at];
        if std::mem::replace(&mut home.is_opening, true) {
            return;
        }
        if home.opened.is_none() {
            self.enqueue(at, Purpose::Open, None);
        }
        let client = self.clock.client();
        self.ask(at, Purpose::Lease, Request::Lease { client });
    }

    /// Moves leases on that were not for a while, so that homes do not keep old versions for
    /// nobody.
    pub(super) fn refresh(&mut self, now: Instant) {
        for at in 0..self.homes.len() {
            let home = &mut self.homes[at];
            let is_due = home.told_at.is_some_and(|told_at| now >= told_at + LEASE_REFRESH_PERIOD);
            if let Some(lease) = home.lease.filter(|_| is_due) {
                // Not again before it has answered, or is late again.
                home.told_at = Some(now);
                self.ask(at, Purpose::Refresh, Request::Get { lease, keys: Vec::new() });
            }
        }
    }

    /// Tells a home what has settled, if that is much.
    pub(super) fn tell_if_many(&mut self, at: usize) {
        if self.homes[at].settled.len() >= SETTLED_TOLD && self.lines.away(at).is_none() {
            self.enqueue(at, Purpose::Tell, None);
            self.pump(at);
        }
        let home = &mut self.homes[at];
        if home.settled.len() > 2 * SETTLED_TOLD {
            // It is away for long, and will find out itself.
            home.settled.clear();
        }
    }

    /// Tells a home that nothing will be read for a while.
    pub(super) fn give_lease_back(&mut self, at: usize) {
        let lease = self.homes[at].lease.take();
        if let Some(lease) = lease {
            self.enqueue(at, Purpose::Tell, Some(Request::Close { lease }));
        } else if self.homes[at].has_news() && self.lines.away(at).is_none() {
            self.enqueue(at, Purpose::Tell, None);
        }
        self.pump(at);
    }

    /// Messages of a transaction that is committed, to homes that do not know it yet. Those that
    /// are away are told when they are back.
    pub(super) fn tell_ending(&mut self, timestamp: Timestamp, messages: Vec<Message>) {
        for Message { to, request } in messages {
            let Some(at) = self.position(to).filter(|at| self.lines.away(*at).is_none()) else { continue };
            let is_asked = |asked: &Asked| asked.purpose == Purpose::Ending(timestamp);
            let is_last = matches!(request, Request::Ended { .. });
            if is_last || !self.homes[at].asked.iter().any(is_asked) {
                self.ask(at, Purpose::Ending(timestamp), request);
            }
        }
    }
}

/// Whether the home answers it at all.
fn is_answered(request: &Request) -> bool {
    !matches!(
        request,
        Request::Advance { .. } | Request::Close { .. } | Request::Settled { .. } | Request::Ended { .. }
    )
}

/// Whether its answer may be longer than a message.
fn is_answered_at_length(request: &Request) -> bool {
    match request {
        Request::Get { keys, .. } => !keys.is_empty(),
        Request::Timestamps { .. } | Request::Among { .. } | Request::Lock { .. } | Request::Scan { .. } => {
            true
        }
        _ => false,
    }
}

/// Whether nobody needs it when its transaction is over. A part that was not sent is then never
/// prepared.
pub(super) fn ends_with_its_transaction(request: &Request) -> bool {
    is_answered_at_length(request) || matches!(request, Request::Prepare { .. } | Request::Put { .. })
}
