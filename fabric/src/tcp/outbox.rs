//! Keeps the frames that wait to be sent on a `tcp` connection, in order.
//!
//! Invariants
//! - The order is first in, first out; no other frame is sent between a frame and its payload.
//! - The queue is bounded: our own requests by the connection's depth, answers by
//!   `TCP_ANSWERS_QUEUED_MAX`.
//! - Payloads in registered memory are sent from where they lie.

use std::{collections::VecDeque, os::fd::BorrowedFd};

use rustix::io::Errno;

use super::{
    frame::{Body, FRAME_BYTES, Frame},
    sys::{self, PIECES_MAX, Piece},
};
use crate::{limits::TCP_ANSWERS_QUEUED_MAX, memory::RawSlice};

/// The payload that follows a frame.
#[derive(Debug)]
pub(super) enum Payload {
    None,
    Private(Vec<u8>),
    Shared(RawSlice),
}

impl Payload {
    fn bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Private(bytes) => bytes.len(),
            Self::Shared(slice) => slice.len(),
        }
    }
}

#[derive(Debug)]
struct Entry {
    frame: [u8; FRAME_BYTES],
    payload: Payload,
    is_answer: bool,
    acknowledges: bool,
}

/// How much was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// Everything.
    All,
    /// A part: the socket takes no more for now, or the budget is spent.
    Some,
}

/// The queue of frames to send.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    entries: VecDeque<Entry>,
    /// Bytes of the first entry that were already sent.
    first_sent: usize,
    answers: usize,
    /// Whether the responder waits until the socket takes more, so that it need not be woken to
    /// send.
    pub(super) responder_watches: bool,
}

impl Outbox {
    /// Appends a request of ours.
    pub(super) fn push_request(&mut self, frame: Frame, payload: Payload) {
        let entry = Entry { frame: frame.encode(), payload, is_answer: false, acknowledges: false };
        self.entries.push_back(entry);
    }

    /// Appends an answer. Returns false if there are more answers than an honest peer can cause. An
    /// acknowledgement replaces one that would be sent right before it.
    pub(super) fn push_answer(&mut self, frame: Frame, payload: Payload) -> bool {
        let acknowledges = frame.body == Body::Acknowledge;
        let last_is_whole = self.entries.len() > 1 || self.first_sent == 0;
        if acknowledges
            && matches!(payload, Payload::None)
            && last_is_whole
            && let Some(last) = self.entries.back_mut()
            && last.acknowledges
        {
            last.frame = frame.encode();
            return true;
        }
        if self.answers >= TCP_ANSWERS_QUEUED_MAX {
            return false;
        }
        self.answers += 1;
        self.entries.push_back(Entry { frame: frame.encode(), payload, is_answer: true, acknowledges });
        true
    }

    /// Whether only acknowledgements wait to be sent, which the peer does not need at once.
    pub(super) fn holds_only_acknowledgements(&self) -> bool {
        self.entries.iter().all(|entry| entry.acknowledges)
    }

    /// Drops everything, because the stream is broken.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.first_sent = 0;
        self.answers = 0;
    }

    /// Sends as much as the socket takes without waiting, at most about `budget` bytes.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, mut budget: usize) -> Result<Sent, Errno> {
        while !self.entries.is_empty() {
            if budget == 0 {
                return Ok(Sent::Some);
            }
            let sent = match sys::send(socket, &self.pieces(), budget) {
                Ok(sent) => sent,
                Err(Errno::AGAIN) => return Ok(Sent::Some),
                Err(error) => return Err(error),
            };
            self.remove(sent);
            budget = budget.saturating_sub(sent);
        }
        Ok(Sent::All)
    }

    /// The unsent parts of the first entries.
    fn pieces(&self) -> Vec<Piece<'_>> {
        let mut pieces = Vec::with_capacity(PIECES_MAX.min(2 * self.entries.len()));
        let mut skip = self.first_sent;
        for entry in &self.entries {
            if skip < FRAME_BYTES {
                pieces.push(Piece::Private(&entry.frame[skip..]));
            }
            let offset = skip.saturating_sub(FRAME_BYTES);
            match &entry.payload {
                Payload::Private(bytes) if offset < bytes.len() => {
                    pieces.push(Piece::Private(&bytes[offset..]));
                }
                Payload::Shared(slice) if offset < slice.len() => {
                    pieces.push(Piece::Shared { slice, offset })
                }
                _ => {}
            }
            skip = 0;
            if pieces.len() + 2 > PIECES_MAX {
                break;
            }
        }
        pieces
    }

    /// Removes `sent` bytes from the front.
    fn remove(&mut self, mut sent: usize) {
        while let Some(first) = self.entries.front() {
            let left = FRAME_BYTES + first.payload.bytes() - self.first_sent;
            if sent < left {
                self.first_sent += sent;
                return;
            }
            sent -= left;
            self.answers -= usize::from(first.is_answer);
            self.first_sent = 0;
            self.entries.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::fd::AsFd};

    use super::*;
    use crate::region::Region;

    #[test]
    fn frames_and_payloads_arrive_whole_and_in_order_however_little_the_socket_takes() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let region = Region::allocate(1 << 20).unwrap();
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        for sequence in 0..200_u64 {
            let frame = Frame { sequence, body: Body::Found { value: sequence } };
            let length = usize::try_from(sequence * 37).unwrap();
            expected.extend_from_slice(&frame.encode());
            let payload = match sequence % 3 {
                0 => Payload::None,
                1 => Payload::Private(vec![1; length]),
                _ => Payload::Shared(region.as_raw_slice(5, length).unwrap()),
            };
            expected.extend(std::iter::repeat_n(u8::try_from(sequence % 3 % 2).unwrap(), payload.bytes()));
            assert!(outbox.push_answer(frame, payload));
        }
        let mut received = Vec::new();
        let mut chunk = vec![0; 1 << 16];
        while received.len() < expected.len() {
            outbox.send(ours.as_fd(), 777).unwrap();
            let count = theirs.read(&mut chunk).unwrap();
            received.extend_from_slice(&chunk[..count]);
        }
        assert!(received == expected, "the stream differs");
        assert!(outbox.entries.is_empty() && outbox.answers == 0);
    }

    #[test]
    fn a_peer_that_asks_too_much_is_noticed() {
        let mut outbox = Outbox::default();
        let frame = Frame { sequence: 0, body: Body::Found { value: 0 } };
        for _ in 0..TCP_ANSWERS_QUEUED_MAX {
            assert!(outbox.push_answer(frame, Payload::None));
        }
        assert!(!outbox.push_answer(frame, Payload::None));
    }

    #[test]
    fn an_acknowledgement_replaces_the_one_before_it_but_not_one_that_is_partly_sent() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut outbox = Outbox::default();
        let acknowledge = |sequence| Frame { sequence, body: Body::Acknowledge };
        for sequence in 0..1000 {
            assert!(outbox.push_answer(acknowledge(sequence), Payload::None));
        }
        assert!(outbox.holds_only_acknowledgements());
        outbox.send(ours.as_fd(), 1).unwrap();
        assert!(outbox.push_answer(acknowledge(1000), Payload::None));
        outbox.push_request(acknowledge(7), Payload::Private(b"x".to_vec()));
        assert!(!outbox.holds_only_acknowledgements());
        assert!(outbox.push_answer(acknowledge(1001), Payload::None));
        outbox.send(ours.as_fd(), 1 << 20).unwrap();
        let mut expected = Vec::new();
        for sequence in [999, 1000, 7] {
            expected.extend_from_slice(&acknowledge(sequence).encode());
        }
        expected.push(b'x');
        expected.extend_from_slice(&acknowledge(1001).encode());
        let mut received = vec![0; expected.len()];
        theirs.read_exact(&mut received).unwrap();
        assert_eq!((received, outbox.answers), (expected, 0));
    }
}
