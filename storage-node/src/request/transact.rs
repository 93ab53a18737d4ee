//! Passes messages of transactions to the participant, and its replies to the requester.
//!
//! ```text
//! messages  in the request, or pulled in pieces from the requester's memory --> participant (`participant::access`)
//! replies   in the answer if they are short, else written in pieces into the target (memory of the requester)
//! ```
//!
//! Invariants
//! - A request occupies a share of the participant's memory from its first byte to its answer
//!   (`Charge`). The shares bound what all clients can send at one time. The exact share is known
//!   only after decoding; until then, one request of each reactor may exceed it, by the memory for
//!   the lists of two messages.
//! - A request that breaks a rule has no effect at all. The rules bound the length of the list of
//!   messages, the messages that need an answer (one), and each message.
//! - What the participant does takes effect even if its replies do not fit into the target.

mod answer;

use std::fmt;

use az::SaturatingAs;
use rackscan_fabric::OperationError;
use rackscan_format::{
    codec,
    message::{Answer, Payload, Refusal, RefusalCode, Target},
};
use rackscan_ramp::message::{Reply, Request};
use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use crate::{
    bridge::Core,
    limits::{TRANSACT_MESSAGES_MAX, TRANSACT_PIECE_BYTES, TRANSACT_PULLED_BYTES_MAX, TRANSIT_BYTES_MIN},
    participant::{Caller, Charge, ParticipantShared, is_answered},
    staging::Slot,
    task::{Place, Progress, Work, bad_memory, malformed},
};
use answer::Answering;

/// The progress of a request.
enum Stage {
    /// Waits for memory.
    Arrived(Payload),
    /// The bytes are being pulled from this source.
    Pulling(Target, Vec<u8>),
    /// The bytes are here, with the source that they were pulled from, if any.
    Here(Option<Target>, Vec<u8>),
    /// The participant has the messages.
    Asked(Caller),
    /// The participant has answered.
    Answering(Box<Answering>),
    /// The request has ended.
    Ended(Result<Answer, Refusal>),
}

struct Transact {
    target: Target,
    stage: Stage,
    /// The memory of the participant that it needs, as far as is known.
    needed_bytes: u64,
    charge: Option<Charge>,
    /// The staging slot and the length of the piece that is in flight, from or to the requester.
    slot: Option<(Slot, usize)>,
}

/// Begins to serve the request.
pub(crate) fn start(core: &Core, messages: Payload, target: Target) -> Result<Box<dyn Work>, Refusal> {
    let Some(participant) = &core.node.participant else {
        let text = "this node keeps no keys: its configuration gives no memory for `transactions`";
        return Err(Refusal::new(RefusalCode::NotFound, text));
    };
    participant.check()?;
    if let Payload::Beside(source) = &messages
        && !(1..=TRANSACT_PULLED_BYTES_MAX).contains(&source.length_bytes)
    {
        let found = source.length_bytes;
        return Err(malformed(format!(
            "a request has {found} bytes of messages of a transaction, expected 1 to {TRANSACT_PULLED_BYTES_MAX}"
        )));
    }
    let needed_bytes = transit_bytes(&messages);
    check_needed(participant, needed_bytes)?;
    Ok(Box::new(Transact { target, stage: Stage::Arrived(messages), needed_bytes, charge: None, slot: None }))
}

/// Refuses a request that needs more memory than all requests together may take.
fn check_needed(participant: &ParticipantShared, needed: u64) -> Result<(), Refusal> {
    let most = participant.transit_bytes();
    if needed <= most {
        return Ok(());
    }
    let text = format!(
        "the messages of a transaction need {needed} bytes of memory, expected at most {most}: divide the transaction, or give the node \
         more memory for `transactions`"
    );
    Err(Refusal::new(RefusalCode::Full, text))
}

/// The memory that a request needs, as far as is known before it is decoded: its bytes, and as much
/// for what they decode to.
fn transit_bytes(messages: &Payload) -> u64 {
    let bytes = match messages {
        Payload::Here(bytes) => bytes.len() as u64,
        Payload::Beside(source) => source.length_bytes,
    };
    (2 * bytes).max(TRANSIT_BYTES_MIN)
}

/// The memory that a request needs: many small keys decode to more than their bytes.
fn decoded_bytes(bytes: &[u8], messages: &[Request]) -> u64 {
    let meant = messages.iter().map(Request::memory_bytes).sum::<usize>();
    bytes.len() as u64 + meant as u64
}

/// A list of at most `TRANSACT_MESSAGES_MAX` messages, and the number of answered ones among them.
/// Answered messages after the first are counted but not stored.
struct Messages(Vec<Request>, usize);

impl<'de> Deserialize<'de> for Messages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bounded;
        impl<'de> Visitor<'de> for Bounded {
            type Value = Messages;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {TRANSACT_MESSAGES_MAX} messages")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Messages, A::Error> {
                let (mut messages, mut found, mut answered) = (Vec::new(), 0, 0);
                while let Some(message) = list.next_element()? {
                    if found == TRANSACT_MESSAGES_MAX {
                        return Err(serde::de::Error::invalid_length(found + 1, &self));
                    }
                    found += 1;
                    answered += usize::from(is_answered(&message));
                    // Answered messages may be large: at most two of them are in memory at a time.
                    if answered <= 1 {
                        messages.push(message);
                    }
                }
                Ok(Messages(messages, answered))
            }
        }
        deserializer.deserialize_seq(Bounded)
    }
}

/// Decodes the messages and checks the rules.
fn messages(bytes: &[u8]) -> Result<Vec<Request>, Refusal> {
    let Messages(messages, answered) = codec::decode("a list of at most 64 messages of transactions", bytes)
        .map_err(|error| malformed(error.to_string()))?;
    if answered > 1 {
        return Err(malformed(format!(
            "{answered} messages of transactions in one request need an answer, expected at most 1"
        )));
    }
    // A faulty answered message is refused in its answer.
    let unanswered = messages.iter().filter(|message| !is_answered(message));
    let fault = unanswered.filter_map(|message| message.check().err()).next();
    fault.map_or(Ok(messages), |fault| Err(malformed(fault.to_string())))
}

const _: () = assert!(TRANSACT_MESSAGES_MAX == 64);

impl Transact {
    /// Advances as far as possible without waiting. Returns what it waits for, or `None` if it can
    /// advance further.
    fn go_on(&mut self, core: &mut Core, place: Place) -> Result<Option<Progress>, Refusal> {
        match std::mem::replace(&mut self.stage, Stage::Ended(Err(bad_memory("the request was lost")))) {
            Stage::Arrived(payload) => {
                let taken = core
                    .node
                    .participant
                    .as_ref()
                    .and_then(|participant| Charge::take(participant, self.needed_bytes));
                if taken.is_none() {
                    self.stage = Stage::Arrived(payload);
                    return Ok(Some(Progress::Starved));
                }
                self.charge = taken;
                self.stage = match payload {
                    Payload::Here(bytes) => Stage::Here(None, bytes),
                    Payload::Beside(source) => Stage::Pulling(source, Vec::new()),
                };
            }
            Stage::Pulling(source, bytes) if bytes.len() as u64 == source.length_bytes => {
                self.stage = Stage::Here(Some(source), bytes);
            }
            Stage::Pulling(source, bytes) => {
                let pulled = self.pull(core, place, &source, bytes.len() as u64);
                self.stage = Stage::Pulling(source, bytes);
                return Ok(Some(if pulled? { Progress::Working } else { Progress::Starved }));
            }
            Stage::Here(source, bytes) => return self.ask(core, place, source, bytes),
            Stage::Asked(caller) => {
                self.stage = Stage::Asked(caller);
                return Ok(Some(Progress::Working));
            }
            Stage::Answering(mut answering) => {
                if let Some(payload) = answering.ended() {
                    self.stage = Stage::Ended(Ok(Answer::Transacted { messages: payload }));
                    return Ok(None);
                }
                let sent = self.send(core, place, &mut answering);
                self.stage = Stage::Answering(answering);
                return Ok(Some(if sent? { Progress::Working } else { Progress::Starved }));
            }
            Stage::Ended(outcome) => {
                self.charge = None;
                return Ok(Some(Progress::Finished(outcome)));
            }
        }
        Ok(None)
    }

    /// Decodes the request and passes it to the participant. Waits for memory if the decoded
    /// messages need more than was reserved.
    fn ask(
        &mut self,
        core: &mut Core,
        place: Place,
        source: Option<Target>,
        bytes: Vec<u8>,
    ) -> Result<Option<Progress>, Refusal> {
        let messages = messages(&bytes)?;
        let needed_bytes = decoded_bytes(&bytes, &messages);
        if needed_bytes > self.needed_bytes && !self.take_more(core, needed_bytes)? {
            // When there is memory, it is pulled and decoded again.
            self.stage = Stage::Arrived(source.map_or(Payload::Here(bytes), Payload::Beside));
            return Ok(Some(Progress::Starved));
        }
        drop(bytes);
        let connection = core.link(place).map(|link| {
            link.transacts = true;
            link.id()
        });
        let Some(connection) = connection else { return Err(bad_memory("the connection is gone")) };
        let is_question = messages.iter().any(is_answered);
        let caller = core.participant.ask(place.task, connection, messages);
        self.stage = match is_question {
            true => Stage::Asked(caller),
            false => Stage::Answering(Box::new(Answering::new(Vec::new(), self.target)?)),
        };
        Ok(None)
    }

    /// Takes a larger share of memory. Returns false if others hold it; then the request holds
    /// none.
    fn take_more(&mut self, core: &Core, needed_bytes: u64) -> Result<bool, Refusal> {
        let Some(participant) = &core.node.participant else { return Ok(false) };
        check_needed(participant, needed_bytes)?;
        self.needed_bytes = needed_bytes;
        // Gives up its share first: two requests that keep theirs and wait for more could wait for
        // each other.
        self.charge = None;
        self.charge = Charge::take(participant, needed_bytes);
        Ok(self.charge.is_some())
    }

    /// Begins with the next piece of the request. Returns false if there is no memory now.
    fn pull(&mut self, core: &mut Core, place: Place, source: &Target, from: u64) -> Result<bool, Refusal> {
        let length = (source.length_bytes - from).min(TRANSACT_PIECE_BYTES as u64);
        let length = length.saturating_as::<usize>();
        let Some(slot) = core.take_slot(place, length) else { return Ok(false) };
        let into = core.staging.slice(&slot, length).map_err(|error| bad_memory(error.to_string()));
        let asked = into.and_then(|into| core.fetch(place, 0, source, from, into));
        self.keep(core, place, (slot, length), asked)
    }

    /// Begins with the next piece of the answer. Returns false if there is no memory now.
    fn send(&mut self, core: &mut Core, place: Place, answering: &mut Answering) -> Result<bool, Refusal> {
        let Some(slot) = core.take_slot(place, TRANSACT_PIECE_BYTES) else { return Ok(false) };
        let at = answering.written_bytes();
        let piece = match answering.next_piece() {
            Ok(piece) => piece,
            Err(refusal) => {
                core.give_back(place, &slot);
                return Err(refusal);
            }
        };
        let staged = core.staging.copy_in(&slot, piece).and_then(|()| core.staging.slice(&slot, piece.len()));
        let length = piece.len();
        let source = staged.map_err(|error| bad_memory(error.to_string()));
        let sent = source.and_then(|source| core.send(place, 0, source, &self.target, at));
        self.keep(core, place, (slot, length), sent)
    }

    fn keep(
        &mut self,
        core: &mut Core,
        place: Place,
        slot: (Slot, usize),
        begun: Result<(), Refusal>,
    ) -> Result<bool, Refusal> {
        match begun {
            Ok(()) => self.slot = Some(slot),
            Err(refusal) => {
                core.give_back(place, &slot.0);
                return Err(refusal);
            }
        }
        Ok(true)
    }

    fn fail(&mut self, core: &mut Core, refusal: Refusal) {
        if let Stage::Asked(caller) = self.stage {
            core.participant.forget(caller);
        }
        self.stage = Stage::Ended(Err(refusal));
    }
}

impl Work for Transact {
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress {
        if self.slot.is_some() {
            return Progress::Working;
        }
        if core.link(place).is_none() {
            self.fail(core, bad_memory("the connection is gone"));
        }
        loop {
            match self.go_on(core, place) {
                Ok(None) => {}
                Ok(Some(progress)) => return progress,
                Err(refusal) => self.fail(core, refusal),
            }
        }
    }

    fn answered(&mut self, replies: Vec<Reply>) {
        self.stage = match Answering::new(replies, self.target) {
            Ok(answering) => Stage::Answering(Box::new(answering)),
            Err(refusal) => Stage::Ended(Err(refusal)),
        };
    }

    fn wire_done(&mut self, core: &mut Core, place: Place, _part: u32, outcome: Result<(), OperationError>) {
        let Some((slot, length)) = self.slot.take() else { return };
        let mut arrived =
            outcome.map_err(|error| bad_memory(format!("moving messages of a transaction: {error}")));
        if let (Ok(()), Stage::Pulling(_, bytes)) = (&arrived, &mut self.stage) {
            let from = bytes.len();
            bytes.resize(from + length, 0);
            arrived = core
                .staging
                .copy_out(&slot, &mut bytes[from..])
                .map_err(|error| bad_memory(error.to_string()));
        }
        core.give_back(place, &slot);
        if let Err(refusal) = arrived {
            self.fail(core, refusal);
        }
    }
}
