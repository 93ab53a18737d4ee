//! Implements a ring of messages in memory that both processes map.
//!
//! ```text
//! page 0: tail | head | sleeping | stalled | controls     (each alone in its cache line)
//! then:   records, each a 16-byte head and a part of a message padded to 16 bytes, wrapping at the end
//! ```
//!
//! Invariants
//! - There is one producer (the peer of the ring's owner) and one consumer (the owner). Each keeps
//!   its own position in private memory and publishes a copy. The position that the other side
//!   publishes is checked before it is used.
//! - A message longer than `SHM_RECORD_BYTES_MAX` is cut; its records follow each other and each
//!   names the whole length.
//! - `tail - head <= SHM_RING_BYTES`, both counting bytes since the start and never wrapping in
//!   practice.
//! - No wake-up is lost. A side that sleeps or stalls announces it, then reads the other's position
//!   once more. A side that moves its position then reads the announcement. Each has a fence
//!   between its two steps.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering, fence},
};

use az::SaturatingAs;
use rustix::fs::OFlags;

use crate::{
    error::{OutOfBounds, RegionError},
    limits::{MESSAGE_BYTES_MAX, SHM_RECORD_BYTES_MAX, SHM_RING_BYTES},
    memory::{Mapping, Protection},
    region::{Region, Source},
};

const HEADER_BYTES: usize = 4096;
/// Length of a ring's memory.
pub(super) const RING_MEMORY_BYTES: usize = HEADER_BYTES + SHM_RING_BYTES;

const TAIL: usize = 0;
const HEAD: usize = 128;
const SLEEPING: usize = 256;
const STALLED: usize = 384;
const CONTROLS: usize = 512;

const RECORD_HEAD_BYTES: u64 = 16;
const RING_BYTES: u64 = SHM_RING_BYTES as u64;

/// Space is given back at the latest when it comes to this many bytes, so that the producer can
/// continue meanwhile.
const GIVE_BACK_BYTES: u64 = RING_BYTES / 8;

const KIND_MESSAGE: u64 = 1;
const KIND_IMMEDIATE: u64 = 2;

/// What a ring carries.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record {
    Message { bytes: Vec<u8> },
    Immediate { immediate: u32, bytes: u32 },
}

/// Contents of a ring that no honest peer writes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RingFault {
    #[error("the positions {head} to {tail} of the message ring span more than its {RING_BYTES} bytes")]
    Positions { head: u64, tail: u64 },
    #[error(
        "the message ring has an invalid record: kind {kind}, {length} bytes, of which {available} are there"
    )]
    Record { kind: u64, length: u64, available: u64 },
    #[error("{length} bytes do not continue a message of {message} bytes, of which {before} have arrived")]
    Part { length: u64, message: u64, before: u64 },
    #[error("the memory of the message ring is too short: {0}")]
    Memory(#[from] OutOfBounds),
}

/// Bytes that a record with a message of `length` bytes occupies.
fn record_bytes(length: u64) -> u64 {
    RECORD_HEAD_BYTES + length.next_multiple_of(16)
}

/// The offset of `position` in the ring's memory.
fn place(position: u64) -> usize {
    let offset = usize::try_from(position & (RING_BYTES - 1));
    HEADER_BYTES + offset.expect("the mask keeps the offset below SHM_RING_BYTES")
}

/// How many of `length` bytes at `position` lie before the ring's end.
fn before_the_end(position: u64, length: usize) -> usize {
    length.min(RING_MEMORY_BYTES - place(position))
}

/// The receiving end, in memory of our own.
#[derive(Debug)]
pub(super) struct Consumer {
    ring: Region,
    head: u64,
    head_published: u64,
    /// The parts of a message that have arrived, and its whole length.
    incomplete: Option<(Vec<u8>, u64)>,
}

impl Consumer {
    pub(super) fn new() -> Result<Self, RegionError> {
        let ring = Region::allocate(RING_MEMORY_BYTES)?;
        Ok(Self { ring, head: 0, head_published: 0, incomplete: None })
    }

    /// The memory, for the peer.
    pub(super) fn memory(&self) -> BorrowedFd<'_> {
        self.ring.memory()
    }

    fn word(&self, at: usize) -> Result<&AtomicU64, OutOfBounds> {
        self.ring.mapping().word_to_store(at)
    }

    /// Whether a record waits, or the ring is damaged, which `pop` then reports.
    pub(super) fn has_records(&self) -> bool {
        self.word(TAIL).is_ok_and(|tail| tail.load(Ordering::Acquire) != self.head)
    }

    /// Number of controls that the peer has sent over the socket.
    pub(super) fn controls(&self) -> u64 {
        self.word(CONTROLS).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Announces that our side is about to sleep, or is awake.
    pub(super) fn set_sleeping(&self, sleeping: bool) {
        if let Ok(word) = self.word(SLEEPING) {
            word.store(u64::from(sleeping), Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    /// Takes the next record. Returns `None` if there is none, or if it was a part of a message
    /// that is not complete yet.
    pub(super) fn pop(&mut self) -> Result<Option<Record>, RingFault> {
        let tail = self.word(TAIL)?.load(Ordering::Acquire);
        let available = tail.wrapping_sub(self.head);
        if available == 0 {
            return Ok(None);
        }
        if !(RECORD_HEAD_BYTES..=RING_BYTES).contains(&available) {
            return Err(RingFault::Positions { head: self.head, tail });
        }
        // Positions are multiples of 16 and so is the ring, so a record's head never wraps.
        let at = place(self.head);
        let (first, argument) = (self.word(at)?.load(Ordering::Relaxed), self.word(at + 8)?);
        let argument = argument.load(Ordering::Relaxed);
        let (kind, length) = (first >> 32, first & u64::from(u32::MAX));
        let fits = length <= SHM_RECORD_BYTES_MAX as u64 && record_bytes(length) <= available;
        let record = match (kind, usize::try_from(length)) {
            (KIND_MESSAGE, Ok(bytes)) if fits => self.take_part(bytes, argument)?,
            (KIND_IMMEDIATE, Ok(0)) => Some(Record::Immediate {
                immediate: u32::try_from(argument & u64::from(u32::MAX))
                    .expect("the low half of a u64 fits a u32"),
                bytes: u32::try_from(argument >> 32).expect("the high half of a u64 fits a u32"),
            }),
            _ => return Err(RingFault::Record { kind, length, available }),
        };
        self.head += record_bytes(length);
        Ok(record)
    }

    /// Copies `length` bytes of a message of `message` bytes. Returns the message when it is
    /// complete.
    fn take_part(&mut self, length: usize, message: u64) -> Result<Option<Record>, RingFault> {
        let (mut bytes, expected) = match self.incomplete.take() {
            Some(incomplete) => incomplete,
            None => (Vec::new(), message),
        };
        // A length of the peer that fits no usize is clamped, and refused below like every other
        // one beyond the limit.
        let (before, whole) = (bytes.len() as u64, message.saturating_as::<usize>());
        let progress = length > 0 || message == 0;
        if expected != message || whole > MESSAGE_BYTES_MAX || bytes.len() + length > whole || !progress {
            return Err(RingFault::Part { length: length as u64, message, before });
        }
        bytes.reserve_exact(whole - bytes.len());
        let start = self.head + RECORD_HEAD_BYTES;
        let first = before_the_end(start, length);
        self.ring.mapping().append_to(place(start), first, &mut bytes)?;
        self.ring.mapping().append_to(HEADER_BYTES, length - first, &mut bytes)?;
        if bytes.len() == whole {
            return Ok(Some(Record::Message { bytes }));
        }
        self.incomplete = Some((bytes, message));
        Ok(None)
    }

    /// Whether so much was taken that it should be given back now.
    pub(super) fn owes_space(&self) -> bool {
        self.head - self.head_published >= GIVE_BACK_BYTES
    }

    /// Gives the space of taken records back. Returns true if the producer waits for space and must
    /// be woken.
    pub(super) fn release(&mut self) -> Result<bool, OutOfBounds> {
        if self.head == self.head_published {
            return Ok(false);
        }
        self.word(HEAD)?.store(self.head, Ordering::Release);
        self.head_published = self.head;
        fence(Ordering::SeqCst);
        let stalled = self.word(STALLED)?;
        Ok(stalled.load(Ordering::Relaxed) != 0 && stalled.swap(0, Ordering::SeqCst) != 0)
    }
}

/// The sending end, in memory of the peer.
#[derive(Debug)]
pub(super) struct Producer {
    ring: Mapping,
    tail: u64,
    head_seen: u64,
}

impl Producer {
    /// Maps the peer's ring, after checking its memory.
    pub(super) fn new(memory: &OwnedFd) -> std::io::Result<Self> {
        super::region::check_memory(memory, RING_MEMORY_BYTES)?;
        if !rustix::fs::fcntl_getfl(memory)?.contains(OFlags::RDWR) {
            return Err(std::io::Error::other("the peer's ring is not writable"));
        }
        let ring = Mapping::new(memory.as_fd(), RING_MEMORY_BYTES, Protection::ReadWrite)?;
        Ok(Self { ring, tail: 0, head_seen: 0 })
    }

    fn word(&self, at: usize) -> Result<&AtomicU64, OutOfBounds> {
        self.ring.word_to_store(at)
    }

    fn free_bytes(&self) -> u64 {
        RING_BYTES - (self.tail - self.head_seen)
    }

    /// Whether a record of `length` bytes has room now. If not, the consumer will wake us when it
    /// has given space back.
    pub(super) fn has_room(&mut self, length: usize) -> Result<bool, RingFault> {
        let need = record_bytes(length as u64);
        if need <= self.free_bytes() {
            return Ok(true);
        }
        self.read_head()?;
        if need <= self.free_bytes() {
            return Ok(true);
        }
        self.word(STALLED)?.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.read_head()?;
        Ok(need <= self.free_bytes())
    }

    fn read_head(&mut self) -> Result<(), RingFault> {
        let head = self.word(HEAD)?.load(Ordering::Acquire);
        // The consumer's position only moves forward and never past ours.
        if head < self.head_seen || head > self.tail {
            return Err(RingFault::Positions { head, tail: self.tail });
        }
        self.head_seen = head;
        Ok(())
    }

    /// Appends records of a message from `sent` on, as far as there is room. Returns whether the
    /// message is complete. The caller must then wake the owner if it sleeps.
    pub(super) fn push_message(&mut self, source: Source<'_>, sent: &mut usize) -> Result<bool, RingFault> {
        loop {
            let length = (source.len() - *sent).min(SHM_RECORD_BYTES_MAX);
            if !self.has_room(length)? {
                return Ok(false);
            }
            let start = self.tail + RECORD_HEAD_BYTES;
            let first = before_the_end(start, length);
            source.copy_to(*sent, first, &self.ring, place(start))?;
            if first < length {
                source.copy_to(*sent + first, length - first, &self.ring, HEADER_BYTES)?;
            }
            self.publish(KIND_MESSAGE, length as u64, source.len() as u64)?;
            *sent += length;
            if *sent == source.len() {
                return Ok(true);
            }
        }
    }

    /// Whether more of a message that has stalled could be appended now.
    pub(super) fn can_continue(&mut self, message_bytes: usize, sent: usize) -> Result<bool, RingFault> {
        self.has_room((message_bytes - sent).min(SHM_RECORD_BYTES_MAX))
    }

    /// Appends an immediate. `has_room(0)` must have returned true.
    pub(super) fn push_immediate(&mut self, immediate: u32, bytes: u32) -> Result<(), RingFault> {
        self.publish(KIND_IMMEDIATE, 0, u64::from(bytes) << 32 | u64::from(immediate))
    }

    fn publish(&mut self, kind: u64, length: u64, argument: u64) -> Result<(), RingFault> {
        let at = place(self.tail);
        self.word(at)?.store(kind << 32 | length, Ordering::Relaxed);
        self.word(at + 8)?.store(argument, Ordering::Relaxed);
        self.tail += record_bytes(length);
        self.word(TAIL)?.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Tells the owner how many controls we have sent over the socket.
    pub(super) fn set_controls(&self, controls: u64) {
        if let Ok(word) = self.word(CONTROLS) {
            word.store(controls, Ordering::Release);
        }
    }

    /// Whether the owner sleeps and we must ring its bell. Returns true once per sleep.
    pub(super) fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.word(SLEEPING)
            .is_ok_and(|word| word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::SeqCst) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> (Producer, Consumer) {
        let consumer = Consumer::new().unwrap();
        let memory = consumer.memory().try_clone_to_owned().unwrap();
        (Producer::new(&memory).unwrap(), consumer)
    }

    fn push(producer: &mut Producer, bytes: &[u8]) -> bool {
        producer.push_message(Source::Bytes(bytes), &mut 0).unwrap()
    }

    #[test]
    fn messages_of_every_length_pass_the_end_of_the_ring_unharmed() {
        let (mut producer, mut consumer) = ring();
        for round in 0..2000_usize {
            let message: Vec<u8> =
                (0..round * 37 % 5000).map(|i| u8::try_from((i + round) % 251).unwrap()).collect();
            assert!(push(&mut producer, &message));
            assert_eq!(consumer.pop().unwrap(), Some(Record::Message { bytes: message }));
            consumer.release().unwrap();
        }
        assert_eq!(consumer.pop().unwrap(), None);
    }

    #[test]
    fn a_message_longer_than_the_ring_streams_through_it() {
        let (mut producer, mut consumer) = ring();
        let region = Region::allocate(MESSAGE_BYTES_MAX).unwrap();
        let message: Vec<u8> = (0..MESSAGE_BYTES_MAX).map(|i| u8::try_from(i % 251).unwrap()).collect();
        region.copy_in(0, &message).unwrap();
        let (source, mut sent, mut rounds) = (region.whole(), 0, 0);
        loop {
            let all = producer.push_message(Source::Region(&source), &mut sent).unwrap();
            rounds += 1;
            while consumer.has_records() {
                match consumer.pop().unwrap() {
                    Some(Record::Message { bytes }) => {
                        assert!(all && bytes == message);
                        assert!(rounds > 3, "{rounds} rounds through a ring of a quarter of the message");
                        return;
                    }
                    other => assert_eq!(other, None),
                }
                consumer.release().unwrap();
            }
        }
    }

    #[test]
    fn parts_that_do_not_make_a_message_are_faults() {
        let part = |length, message| (KIND_MESSAGE << 32 | length, message);
        let too_long = MESSAGE_BYTES_MAX as u64 + 1;
        for parts in [
            vec![part(16, too_long)],
            vec![part(16, 15)],
            vec![part(0, 16)],
            vec![part(16, 64), part(16, 65)],
            vec![part(16, 17), part(16, 17)],
        ] {
            let (mut producer, mut consumer) = ring();
            for (first, argument) in &parts {
                producer.publish(first >> 32, first & 0xffff, *argument).unwrap();
            }
            for _ in 1..parts.len() {
                assert_eq!(consumer.pop(), Ok(None));
            }
            assert!(matches!(consumer.pop(), Err(RingFault::Part { .. })), "{parts:?}");
        }
    }

    #[test]
    fn a_full_ring_has_no_room_until_something_is_taken() {
        let (mut producer, mut consumer) = ring();
        let message = vec![7; SHM_RECORD_BYTES_MAX];
        let mut pushed = 0;
        while push(&mut producer, &message) {
            pushed += 1;
        }
        assert_eq!(pushed, SHM_RING_BYTES / (SHM_RECORD_BYTES_MAX + 16));
        consumer.pop().unwrap().unwrap();
        assert!(consumer.release().unwrap(), "the stalled producer is to be woken");
        assert!(producer.has_room(message.len()).unwrap());
    }

    #[test]
    fn immediates_carry_their_word_and_length() {
        let (mut producer, mut consumer) = ring();
        producer.push_immediate(u32::MAX, 12345).unwrap();
        assert_eq!(consumer.pop().unwrap(), Some(Record::Immediate { immediate: u32::MAX, bytes: 12345 }));
    }

    #[test]
    fn positions_that_an_honest_peer_never_publishes_are_faults() {
        let (producer, mut consumer) = ring();
        for tail in [8, RING_BYTES + 16, u64::MAX] {
            producer.word(TAIL).unwrap().store(tail, Ordering::Release);
            assert_eq!(consumer.pop(), Err(RingFault::Positions { head: 0, tail }));
        }
        let (mut producer, consumer) = ring();
        consumer.word(HEAD).unwrap().store(1 << 40, Ordering::Release);
        producer.tail = RING_BYTES;
        assert_eq!(producer.has_room(1), Err(RingFault::Positions { head: 1 << 40, tail: RING_BYTES }));
    }

    #[test]
    fn a_record_longer_than_what_is_there_is_a_fault() {
        let (producer, mut consumer) = ring();
        for (kind, length) in
            [(KIND_MESSAGE, 17), (KIND_MESSAGE, u64::from(u32::MAX)), (9, 0), (KIND_IMMEDIATE, 1)]
        {
            producer.word(place(0)).unwrap().store(kind << 32 | length, Ordering::Relaxed);
            producer.word(TAIL).unwrap().store(32, Ordering::Release);
            assert_eq!(consumer.pop(), Err(RingFault::Record { kind, length, available: 32 }));
        }
    }
}
