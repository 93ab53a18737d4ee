//! Encodes the participant's replies so that they fit into the answer or the target.
//!
//! Invariants
//! - At most one reply, or about one piece, is encoded at a time, so a long answer is never in
//!   memory as a whole.
//! - An answer that does not fit is refused before any of it is written; the refusal states the
//!   length that it needs.

use std::collections::VecDeque;

use rackscan_format::{
    codec,
    limits::TRANSACT_BYTES_MAX,
    message::{Payload, Refusal, RefusalCode, Target},
};
use rackscan_ramp::message::Reply;

use crate::{
    limits::{TRANSACT_ANSWER_BYTES_MAX, TRANSACT_PIECE_BYTES, TRANSACT_REPLY_BYTES_MAX},
    task::malformed,
};

/// Replies that are being sent to the requester.
pub(super) struct Answering {
    replies: VecDeque<Reply>,
    target: Target,
    /// Encoded bytes, and how many of them are in the last piece.
    encoded: Vec<u8>,
    taken: usize,
    written_bytes: u64,
    total_bytes: u64,
}

impl Answering {
    /// Checks that the replies fit a message or the target.
    pub(super) fn new(replies: Vec<Reply>, target: Target) -> Result<Self, Refusal> {
        if let Some(found) =
            replies.iter().map(at_least_bytes).find(|bytes| *bytes > TRANSACT_REPLY_BYTES_MAX)
        {
            return Err(too_long(found as u64, TRANSACT_REPLY_BYTES_MAX as u64));
        }
        let mut encoded = Vec::new();
        append(&(replies.len() as u64), &mut encoded)?;
        let (mut done, mut total_bytes) = (0, 0);
        for reply in &replies {
            append(reply, &mut encoded)?;
            if encoded.len() > TRANSACT_BYTES_MAX {
                break;
            }
            done += 1;
        }
        if done < replies.len() {
            // Too long for a message: compute the length.
            let mut scratch = std::mem::take(&mut encoded);
            for reply in &replies[done + 1..] {
                total_bytes += scratch.len() as u64;
                scratch.clear();
                append(reply, &mut scratch)?;
            }
            total_bytes += scratch.len() as u64;
            fits(total_bytes, &target)?;
            append(&(replies.len() as u64), &mut encoded)?;
            done = 0;
        }
        let replies = replies.into_iter().skip(done).collect();
        Ok(Self { replies, target, encoded, taken: 0, written_bytes: 0, total_bytes })
    }

    /// The payload of the answer, once everything that does not travel in it was written.
    pub(super) fn ended(&mut self) -> Option<Payload> {
        if self.total_bytes == 0 {
            return Some(Payload::Here(std::mem::take(&mut self.encoded)));
        }
        let written = Target { length_bytes: self.total_bytes, ..self.target };
        (self.written_bytes == self.total_bytes).then_some(Payload::Beside(written))
    }

    /// The offset of the next piece in the target.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// The next piece, which counts as written from now on.
    pub(super) fn next_piece(&mut self) -> Result<&[u8], Refusal> {
        self.encoded.drain(..self.taken);
        self.taken = 0;
        while self.encoded.len() < TRANSACT_PIECE_BYTES
            && let Some(reply) = self.replies.pop_front()
        {
            append(&reply, &mut self.encoded)?;
        }
        self.taken = self.encoded.len().min(TRANSACT_PIECE_BYTES);
        self.written_bytes += self.taken as u64;
        Ok(&self.encoded[..self.taken])
    }
}

fn append<T: serde::Serialize>(value: &T, bytes: &mut Vec<u8>) -> Result<(), Refusal> {
    codec::append(value, bytes).map_err(|error| malformed(error.to_string()))
}

fn fits(bytes: u64, target: &Target) -> Result<(), Refusal> {
    if bytes > TRANSACT_ANSWER_BYTES_MAX {
        return Err(too_long(bytes, TRANSACT_ANSWER_BYTES_MAX));
    }
    if bytes > target.length_bytes {
        let text =
            format!("an answer of {bytes} bytes does not fit into a target of {} bytes", target.length_bytes);
        let mut refusal = Refusal::new(RefusalCode::TargetTooSmall, text);
        refusal.needed_bytes = bytes;
        return Err(refusal);
    }
    Ok(())
}

fn too_long(found: u64, most: u64) -> Refusal {
    malformed(format!(
        "the answer would have {found} bytes, expected at most {most}: ask for fewer keys at a time"
    ))
}

/// The total bytes of the values of a reply, a lower bound of its length.
fn at_least_bytes(reply: &Reply) -> usize {
    match reply {
        Reply::Found { items, .. } | Reply::Locked { items } => {
            items.iter().map(|(_, found)| found.bytes()).sum()
        }
        Reply::Named { items } => items
            .iter()
            .filter_map(|(_, version)| version.as_ref())
            .map(rackscan_ramp::item::Version::bytes)
            .sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_ramp::{
        item::{Key, Metadata, Value, Version},
        message::{Epoch, Found},
        timestamp::Timestamp,
    };

    fn reply(bytes: usize) -> Reply {
        let value = Value::new(&vec![7; bytes]).unwrap();
        let version = Version { timestamp: Timestamp::FIRST, metadata: Metadata::Timestamp, value };
        let found = Found { version, beside: Vec::new(), place: None };
        Reply::Found { items: vec![(Key::new(b"key").unwrap(), found)], epoch: Epoch(300) }
    }

    fn target(length_bytes: u64) -> Target {
        Target { key: 1, offset_bytes: 64, length_bytes }
    }

    #[test]
    fn pieces_put_together_are_what_a_message_would_carry() {
        for lengths in [vec![], vec![10, 20], vec![TRANSACT_BYTES_MAX], vec![1 << 20; 5], vec![40_000; 130]] {
            let replies: Vec<Reply> = lengths.iter().map(|bytes| reply(*bytes)).collect();
            let whole = codec::encode(&replies).unwrap();
            let mut answering = Answering::new(replies, target(whole.len() as u64)).unwrap();
            let mut written = Vec::new();
            let payload = loop {
                if let Some(payload) = answering.ended() {
                    break payload;
                }
                assert_eq!(answering.written_bytes(), written.len() as u64);
                let piece = answering.next_piece().unwrap();
                assert!((1..=TRANSACT_PIECE_BYTES).contains(&piece.len()));
                written.extend_from_slice(piece);
            };
            match payload {
                Payload::Here(bytes) => assert_eq!((bytes.len() <= TRANSACT_BYTES_MAX, bytes), (true, whole)),
                Payload::Beside(at) => {
                    assert!(whole.len() > TRANSACT_BYTES_MAX);
                    assert_eq!((at, written), (target(whole.len() as u64), whole));
                }
            }
        }
    }

    #[test]
    fn an_answer_that_does_not_fit_says_what_would_do() {
        let replies = || (0..3).map(|_| reply(30_000)).collect::<Vec<Reply>>();
        let whole = codec::encode(&replies()).unwrap().len() as u64;
        let refusal = Answering::new(replies(), target(whole - 1)).err().unwrap();
        assert_eq!((refusal.code, refusal.needed_bytes), (RefusalCode::TargetTooSmall, whole));
        assert!(Answering::new(replies(), target(whole)).is_ok());
        let long = (0..65).map(|_| reply(1 << 20)).collect();
        assert_eq!(Answering::new(long, target(u64::MAX)).err().unwrap().code, RefusalCode::Malformed);
    }
}
