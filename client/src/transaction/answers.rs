//! Handles the answers of participants.
//!
//! Invariants
//! - No answer is used before it has been parsed; a participant that breaks the protocol is lost.
//! - Every answer is recorded, also if it answers an earlier transaction, because its epochs,
//!   timestamps and places are valid for all transactions. The running transaction gets only the
//!   answers to its own requests.

use std::time::Instant;

use az::SaturatingAs;
use rackscan_fabric::RemoteRegion;
use rackscan_format::{
    codec,
    message::{Answer, ParticipantRegion, Payload, Refusal, RefusalCode, Target},
};
use rackscan_ramp::{
    algorithm::Event as CoordinatorEvent,
    item::{Key, Version},
    message::{Found, Reply, Request},
    timestamp::Timestamp,
};

use super::{
    Session, TransactionError,
    follower_event::FollowerEvent,
    participant::{OpenedParticipant, Purpose, SentRequest},
    send::ends_with_its_transaction,
};
use crate::limits::BUSY_PAUSE;

impl Session {
    pub(super) fn replied(&mut self, at: usize, tag: u64, outcome: Result<Answer, Box<Refusal>>) {
        let participant = &mut self.participants[at];
        let Some(place) = participant.sent.iter().position(|asked| asked.tag == tag) else { return };
        let asked = participant.sent.swap_remove(place);
        let answer_bytes = if participant.answer_of == Some(tag) { self.parts.answers.len() } else { 0 };
        if participant.source_of == Some(tag) {
            participant.source_of = None;
        }
        let understood = match outcome {
            Ok(Answer::Participant(region)) if asked.purpose == Purpose::Open => {
                self.opened(at, region);
                Ok(())
            }
            Ok(Answer::Transacted { messages }) => self
                .bytes_of(at, messages, answer_bytes)
                .and_then(|bytes| codec::decode("answers", &bytes).map_err(|error| error.to_string()))
                .map(|replies: Vec<Reply>| self.take_replies(at, &asked, replies)),
            Ok(other) => Err(format!("it answered a message of a transaction with {other:?}")),
            Err(refusal) => {
                self.refused(at, asked, &refusal);
                Ok(())
            }
        };
        let participant = &mut self.participants[at];
        if participant.answer_of == Some(tag) {
            participant.answer_of = None;
        }
        if let Err(reason) = understood {
            self.lines.hang_up(at, &reason);
        }
    }

    /// A private copy of the answer's bytes.
    fn bytes_of(&self, at: usize, payload: Payload, answer_bytes: usize) -> Result<Vec<u8>, String> {
        let beside = match payload {
            Payload::Here(bytes) => return Ok(bytes),
            Payload::Beside(beside) => beside,
        };
        let (region, memory) = self.lines.memory(at).ok_or("its connection has ended")?;
        let begin = self.parts.answers.start;
        // A length beyond usize is refused below.
        let length = beside.length_bytes.saturating_as::<usize>();
        let is_there = beside.key == memory.key && beside.offset_bytes == memory.offset_bytes + begin as u64;
        if !is_there || length > answer_bytes {
            return Err(format!(
                "it answered at {beside:?}, expected at most {answer_bytes} bytes in our target"
            ));
        }
        region.to_vec(begin, length).map_err(|error| error.to_string())
    }

    fn opened(&mut self, at: usize, region: Option<ParticipantRegion>) {
        let Some(ParticipantRegion { slots, feed, life }) = region else {
            let participant = self.participants[at].id;
            self.refuses_to_open(at, TransactionError::KeepsNoKeys { participant });
            return;
        };
        let mapped = slots.and_then(|slots| self.lines.map(at, slots));
        let remote = |Target { key, offset_bytes: address, length_bytes: length }| RemoteRegion {
            key,
            address,
            length,
        };
        let (slots, feed) = (slots.map(remote), feed.map(remote));
        self.participants[at].opened = Some(OpenedParticipant { life, slots, mapped, feed });
    }

    fn no_participant(&mut self, at: usize, reason: &str) {
        let (participant, reason) = (self.participants[at].id, reason.to_owned());
        self.refuses_to_open(at, TransactionError::NoParticipant { participant, reason });
    }

    fn refuses_to_open(&mut self, at: usize, refusal: TransactionError) {
        let participant = &mut self.participants[at];
        participant.is_opening = false;
        participant.refusal.get_or_insert(refusal);
    }

    fn take_replies(&mut self, at: usize, asked: &SentRequest, replies: Vec<Reply>) {
        if let Some(Request::Unlock { owner }) = asked.request {
            self.forget_lock(at, owner);
        }
        for reply in replies {
            self.note(at, asked.purpose, &reply);
            let from = self.participants[at].id;
            match asked.purpose {
                Purpose::Run(number) => self.notify(number, CoordinatorEvent::Reply { from, reply }),
                Purpose::Follow(attempt) => self.notify_follower(FollowerEvent::Reply { at, attempt, reply }),
                Purpose::Ending(timestamp) => {
                    let Some(ending) = self.endings.get_mut(&timestamp) else { continue };
                    let messages = ending.heard(from, &reply);
                    if ending.ended() {
                        self.endings.remove(&timestamp);
                    }
                    self.tell_ending(timestamp, messages);
                }
                Purpose::Open | Purpose::Lease | Purpose::Refresh | Purpose::Tell => {}
            }
        }
    }

    /// Records what a reply says independently of its request: leases, epochs, timestamps and
    /// places.
    fn note(&mut self, at: usize, purpose: Purpose, reply: &Reply) {
        match reply {
            Reply::Leased { lease, epoch, newest } => {
                self.participants[at].leased(*lease, *epoch);
                self.hear(*newest);
                if !self.reads {
                    self.give_lease_back(at);
                }
            }
            Reply::Unleased if purpose == Purpose::Lease => {
                self.no_participant(
                    at,
                    "as many readers as it protects old versions for have leases; close some sessions",
                );
            }
            Reply::Unleased => {
                let participant = &mut self.participants[at];
                (participant.lease, participant.is_opening) = (None, false);
            }
            Reply::Found { items, epoch } => {
                self.participants[at].note_epoch(*epoch);
                self.note_found(at, items);
            }
            Reply::Locked { items } => self.note_found(at, items),
            Reply::Named { items } => {
                let versions = items.iter().filter_map(|(_, version)| version.as_ref());
                versions.for_each(|version| self.hear(version.timestamp));
            }
            Reply::Refused { why } if purpose == Purpose::Lease => self.no_participant(at, &why.to_string()),
            Reply::Refused { why } => {
                if let Some(newest) = why.newest() {
                    self.hear(newest);
                }
            }
            _ => {}
        }
    }

    fn note_found(&mut self, at: usize, items: &[(Key, Found)]) {
        let life = self.participants[at].opened.as_ref().map(|opened| opened.life);
        for (key, Found { version, place, .. }) in items {
            self.hear(version.timestamp);
            match (life, place) {
                _ if self.operations == super::Operations::Messages => {}
                (Some(life), Some(place)) => self.places.learn(key, life, *place),
                _ => self.places.forget(key),
            }
        }
    }

    /// Moves the clock on, so that a write after a read has a higher timestamp.
    pub(super) fn hear(&self, timestamp: Timestamp) {
        self.clock.hear(timestamp);
    }

    /// Stops waiting for the locks of `owner`: they are released, so that request is never
    /// answered.
    fn forget_lock(&mut self, at: usize, owner: Timestamp) {
        let participant = &mut self.participants[at];
        let of_owner = |asked: &SentRequest| matches!(asked.request, Some(Request::Lock { owner: of, .. }) if of == owner);
        let Some(place) = participant.sent.iter().position(of_owner) else { return };
        let SentRequest { tag, .. } = participant.sent.swap_remove(place);
        if participant.answer_of == Some(tag) {
            participant.answer_of = None;
        }
        if participant.source_of == Some(tag) {
            participant.source_of = None;
        }
        self.lines.forget(at, tag);
    }

    /// Handles a refusal of the node.
    fn refused(&mut self, at: usize, asked: SentRequest, refusal: &Refusal) {
        let SentRequest { purpose, request, .. } = asked;
        match (refusal.code, purpose) {
            (RefusalCode::Busy, _) => {
                let participant = &mut self.participants[at];
                participant.waiting.push_front(super::participant::QueuedRequest { purpose, request });
                (participant.rests_until, participant.busy) =
                    (Some(Instant::now() + BUSY_PAUSE), Some(refusal.text.clone()));
            }
            (RefusalCode::TargetTooSmall, _) => self.ask_for_less(at, purpose, request, refusal.needed_bytes),
            (_, Purpose::Open | Purpose::Lease) => self.no_participant(at, &refusal.text),
            (RefusalCode::Full | RefusalCode::Malformed | RefusalCode::NotFound, Purpose::Run(number))
                if request.as_ref().is_some_and(ends_with_its_transaction) =>
            {
                // The node did nothing of the request.
                let (participant, reason) = (self.participants[at].id, refusal.text.clone());
                self.fail(number, TransactionError::NoParticipant { participant, reason });
                self.not_sent(at, purpose, request);
            }
            // It is not known whether the request was carried out. The participant tells it when it
            // is asked again over a new connection.
            _ => self.lines.hang_up(at, &format!("it refused a message of a transaction: {}", refusal.text)),
        }
    }

    /// Repeats a request as two requests for half of the keys each, because the answer was too
    /// long.
    fn ask_for_less(&mut self, at: usize, purpose: Purpose, request: Option<Request>, needed_bytes: u64) {
        let halves = |mut keys: Vec<Key>| {
            let behind = keys.split_off(keys.len() / 2);
            [keys, behind]
        };
        let parts: Vec<Request> = match request {
            Some(Request::Get { lease, keys }) if keys.len() > 1 => {
                halves(keys).map(|keys| Request::Get { lease, keys }).into()
            }
            Some(Request::Timestamps { lease, keys }) if keys.len() > 1 => {
                halves(keys).map(|keys| Request::Timestamps { lease, keys }).into()
            }
            Some(Request::Among { lease, keys, timestamps }) if keys.len() > 1 => {
                halves(keys).map(|keys| Request::Among { lease, keys, timestamps: timestamps.clone() }).into()
            }
            _ => {
                let (participant, bytes_max) = (self.participants[at].id, self.parts.answers.len() as u64);
                let error = TransactionError::TooLarge { participant, bytes: needed_bytes, bytes_max };
                return self.fail_purpose(purpose, error);
            }
        };
        for part in parts {
            self.enqueue(at, purpose, Some(part));
        }
    }

    /// A version out of a slot, as a coordinator expects it.
    pub(super) fn as_found(version: Version) -> Found {
        Found { version, beside: Vec::new(), place: None }
    }
}
