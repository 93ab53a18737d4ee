//! Encodes the messages of the set-up, before two queue pairs can communicate.
//!
//! ```text
//! both, after the proof of the cluster key:
//!   Introduction: queue pair, first packet, address, limits            -> and <-
//!   (each side brings its queue pair up and opens its ring)
//!   MessagePlace: the ring or shared queue that receives its messages  -> and <-
//! ```
//!
//! Invariants
//! - A side announces where it receives messages only when its queue pair can receive, so the peer
//!   may send at once.

use crate::{
    error::ConnectError,
    limits::{VERBS_PACKET_BYTES_MIN, VERBS_RING_BYTES},
    stream::Stream,
};

/// The description of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Introduction {
    /// Number of the queue pair.
    pub(super) number: u32,
    /// Sequence number of the first packet that it will send.
    pub(super) first_packet: u32,
    /// Address in an InfiniBand subnet.
    pub(super) lid: u16,
    /// Largest packet, as the verbs number it.
    pub(super) mtu: u8,
    /// Whether its port is Ethernet.
    pub(super) is_ethernet: bool,
    /// Reads and atomics that it serves at a time.
    pub(super) reads_served: u8,
    /// Whether it receives through a shared queue, which may make senders wait for a long time.
    pub(super) shares: bool,
    /// Its global address.
    pub(super) gid: [u8; 16],
}

const INTRODUCTION_BYTES: usize = 32;
/// Queue pairs and packets are numbered with 24 bits.
pub(super) const NUMBER_MAX: u32 = (1 << 24) - 1;
const MTU_4096: u8 = 5;

impl Introduction {
    fn encode(&self) -> [u8; INTRODUCTION_BYTES] {
        let mut bytes = [0; INTRODUCTION_BYTES];
        bytes[..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.first_packet.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.lid.to_le_bytes());
        bytes[10] = self.mtu;
        bytes[11] = u8::from(self.is_ethernet);
        bytes[12] = self.reads_served;
        bytes[13] = u8::from(self.shares);
        bytes[16..].copy_from_slice(&self.gid);
        bytes
    }

    fn decode(bytes: &[u8; INTRODUCTION_BYTES]) -> Option<Self> {
        let number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let first_packet = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[16..]);
        let possible = number <= NUMBER_MAX
            && first_packet <= NUMBER_MAX
            && (1..=MTU_4096).contains(&bytes[10])
            && bytes[11] <= 1
            && bytes[13] <= 1
            && bytes[14..16] == [0; 2];
        possible.then_some(Self {
            number,
            first_packet,
            lid: u16::from_le_bytes([bytes[8], bytes[9]]),
            mtu: bytes[10],
            is_ethernet: bytes[11] == 1,
            reads_served: bytes[12],
            shares: bytes[13] == 1,
            gid,
        })
    }

    /// Sends ours and receives theirs.
    pub(super) fn exchange(&self, stream: &Stream<'_>) -> Result<Self, ConnectError> {
        const PHASE: &str = "introduction of queue pairs";
        stream.write_all(&self.encode(), PHASE)?;
        let mut bytes = [0; INTRODUCTION_BYTES];
        stream.read_exact(&mut bytes, PHASE)?;
        let theirs = Self::decode(&bytes).filter(|theirs| theirs.is_ethernet == self.is_ethernet);
        theirs.ok_or_else(|| {
            let found = format!("the introduction {bytes:02x?}");
            let expected = format!("that of a queue pair that ours can talk to: {self:?}");
            ConnectError::NotAPeer { peer: stream.peer(), found, expected }
        })
    }
}

/// Where a side receives messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessagePlace {
    /// In a ring of `VERBS_RING_BYTES`.
    Ring { address: u64, key: u32 },
    /// In slots of a shared receive queue, at most `allotment` packets at a time. A message without
    /// room is refused or waits.
    Shared { packet_bytes: u32, allotment: u32, refuses: bool },
}

const PLACE_BYTES: usize = 16;
const RING: u8 = 1;
const SHARED: u8 = 2;

impl MessagePlace {
    fn encode(&self) -> [u8; PLACE_BYTES] {
        let mut bytes = [0; PLACE_BYTES];
        match self {
            Self::Ring { address, key } => {
                bytes[..8].copy_from_slice(&address.to_le_bytes());
                bytes[8..12].copy_from_slice(&key.to_le_bytes());
                bytes[12] = RING;
            }
            Self::Shared { packet_bytes, allotment, refuses } => {
                bytes[4] = u8::from(*refuses);
                bytes[..4].copy_from_slice(&packet_bytes.to_le_bytes());
                bytes[8..12].copy_from_slice(&allotment.to_le_bytes());
                bytes[12] = SHARED;
            }
        }
        bytes
    }

    fn decode(bytes: &[u8; PLACE_BYTES]) -> Option<Self> {
        let half = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (low, high, last) = (half(0), half(4), half(8));
        match bytes[12..] {
            [RING, 0, 0, 0] => {
                let address = u64::from(high) << 32 | u64::from(low);
                address.checked_add(VERBS_RING_BYTES as u64).map(|_| Self::Ring { address, key: last })
            }
            [SHARED, 0, 0, 0] => {
                let possible = high <= 1 && last > 0 && low >= VERBS_PACKET_BYTES_MIN;
                possible.then_some(Self::Shared { packet_bytes: low, allotment: last, refuses: high == 1 })
            }
            _ => None,
        }
    }

    /// Sends ours and receives theirs.
    pub(super) fn exchange(&self, stream: &Stream<'_>) -> Result<Self, ConnectError> {
        const PHASE: &str = "exchange of places for messages";
        stream.write_all(&self.encode(), PHASE)?;
        let mut bytes = [0; PLACE_BYTES];
        stream.read_exact(&mut bytes, PHASE)?;
        Self::decode(&bytes).ok_or_else(|| {
            let (found, expected) = (format!("{bytes:02x?}"), "a place for messages".to_owned());
            ConnectError::NotAPeer { peer: stream.peer(), found, expected }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTRODUCTION: Introduction = Introduction {
        number: 0x0012_3456,
        first_packet: NUMBER_MAX,
        lid: 0x789A,
        mtu: 5,
        is_ethernet: true,
        reads_served: 16,
        shares: true,
        gid: [7; 16],
    };

    #[test]
    fn an_introduction_and_a_message_place_survive_their_bytes() {
        assert_eq!(Introduction::decode(&INTRODUCTION.encode()), Some(INTRODUCTION));
        for place in [
            MessagePlace::Ring { address: 0x7F00_1234_5000, key: 0x00AB_CDEF },
            MessagePlace::Shared { packet_bytes: 4096, allotment: 7, refuses: false },
            MessagePlace::Shared { packet_bytes: 1 << 20, allotment: 1, refuses: true },
        ] {
            assert_eq!(MessagePlace::decode(&place.encode()), Some(place));
        }
    }

    #[test]
    fn an_introduction_that_is_not_possible_is_refused() {
        for (at, byte) in [(3, 1), (7, 1), (10, 0), (10, 6), (11, 2), (13, 2), (14, 1)] {
            let mut bytes = INTRODUCTION.encode();
            bytes[at] = byte;
            assert_eq!(Introduction::decode(&bytes), None, "byte {at}");
        }
        for place in [
            MessagePlace::Ring { address: u64::MAX - 1, key: 0 },
            MessagePlace::Shared { packet_bytes: 0, allotment: 7, refuses: false },
            MessagePlace::Shared { packet_bytes: 4096, allotment: 0, refuses: false },
        ] {
            assert_eq!(MessagePlace::decode(&place.encode()), None, "{place:?}");
        }
        assert_eq!(MessagePlace::decode(&[9; PLACE_BYTES]), None);
    }
}
