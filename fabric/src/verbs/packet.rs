//! Encodes a packet's immediate, and counts the credit of a sender at a shared receive queue: how
//! many packets it may still send.
//!
//! ```text
//! bits 31-30: 0 message, 1 message that is reported packet by packet, 2 announcement of an immediate, 3 credit
//! bit 29: first packet, bit 28: last packet, bit 27: its message had to wait for room (in the last packet)
//! bits 26-21: messages that were refused since the previous packet
//! bits 20-0: bytes of the whole message, or the units of the credit
//! ```
//!
//! Invariants
//! - Each packet carries the length of its message, so the receiver can allocate room for the whole
//!   message at the first packet.
//! - A sender has at most its allotment of packets at the receiver that were not given back by
//!   credit. The allotments together may exceed the slots. Then the adapter makes senders wait, and
//!   nothing is lost.
//! - The peer's packets are checked here. A packet that does not continue the one before it is a
//!   fault.

use az::SaturatingAs;

use crate::{limits::MESSAGE_BYTES_MAX, operation::Report};

use super::ring::ANNOUNCEMENT_BYTES;

/// What a packet belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketKind {
    Message(Report),
    Announcement,
}

/// A packet as its immediate describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PacketHead {
    pub(super) kind: PacketKind,
    pub(super) is_first: bool,
    pub(super) is_last: bool,
    pub(super) message_bytes: u32,
    /// The message had to wait for room. Set in its last packet.
    pub(super) waited: bool,
    /// Messages that were refused since the previous packet, at most `REFUSED_MAX`.
    pub(super) refused: u8,
}

/// The meaning of a `Send`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Packet(PacketHead),
    /// So many units of a ring, or so many packets, were given back.
    Credit(u32),
}

/// A packet that no honest peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum PacketFault {
    #[error(
        "a packet with the immediate {immediate:#010x} and {bytes} bytes does not continue its message, of which {received} bytes have arrived"
    )]
    Packet { immediate: u32, bytes: u32, received: u32 },
    #[error("it has sent more than the {allotment} packets that it may have outstanding")]
    Overrun { allotment: u32 },
    #[error("it has granted credit for {packets} packets, but only {used} are outstanding")]
    Credit { packets: u32, used: u64 },
}

const KIND_SHIFT: u32 = 30;
const FIRST: u32 = 1 << 29;
const LAST: u32 = 1 << 28;
const WAITED: u32 = 1 << 27;
const REFUSED_SHIFT: u32 = 21;
/// The largest number in six bits.
const REFUSED_MAX: u8 = 63;
const LENGTH_MASK: u32 = (1 << REFUSED_SHIFT) - 1;

const _: () = assert!(MESSAGE_BYTES_MAX < 1 << REFUSED_SHIFT);

impl Sent {
    pub(super) fn to_immediate(self) -> u32 {
        let head = match self {
            Self::Credit(units) => return 3 << KIND_SHIFT | units & LENGTH_MASK,
            Self::Packet(head) => head,
        };
        let kind = match head.kind {
            PacketKind::Message(Report::PerMessage) => 0,
            PacketKind::Message(Report::PerPacket) => 1,
            PacketKind::Announcement => 2,
        };
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        kind << KIND_SHIFT
            | flag(head.is_first, FIRST)
            | flag(head.is_last, LAST)
            | flag(head.waited, WAITED)
            | u32::from(head.refused.min(REFUSED_MAX)) << REFUSED_SHIFT
            | head.message_bytes & LENGTH_MASK
    }

    pub(super) fn from_immediate(immediate: u32) -> Self {
        let kind = match immediate >> KIND_SHIFT {
            0 => PacketKind::Message(Report::PerMessage),
            1 => PacketKind::Message(Report::PerPacket),
            2 => PacketKind::Announcement,
            _ => return Self::Credit(immediate & LENGTH_MASK),
        };
        Self::Packet(PacketHead {
            kind,
            is_first: immediate & FIRST != 0,
            is_last: immediate & LAST != 0,
            message_bytes: immediate & LENGTH_MASK,
            waited: immediate & WAITED != 0,
            refused: u8::try_from(immediate >> REFUSED_SHIFT & u32::from(REFUSED_MAX))
                .expect("the mask leaves six bits"),
        })
    }
}

/// The sender's view of a shared receive queue.
#[derive(Debug)]
pub(super) struct PacketCredit {
    packet_bytes: usize,
    allotment: u64,
    refuses: bool,
    sent: u64,
    returned: u64,
    /// Whether the message that is being sent had to wait.
    waited: bool,
    /// Refused messages that were not reported to the receiver yet.
    refused: u64,
}

impl PacketCredit {
    pub(super) fn new(packet_bytes: u32, allotment: u32, refuses: bool) -> Self {
        let (packet_bytes, allotment) = (packet_bytes as usize, u64::from(allotment));
        Self { packet_bytes, allotment, refuses, sent: 0, returned: 0, waited: false, refused: 0 }
    }

    pub(super) fn packet_bytes(&self) -> usize {
        self.packet_bytes
    }

    pub(super) fn has_room(&self) -> bool {
        self.sent - self.returned < self.allotment
    }

    /// Whether a message that finds no room at its beginning is refused.
    pub(super) fn refuses(&self) -> bool {
        self.refuses
    }

    /// Notes that a message found no room and waits.
    pub(super) fn note_wait(&mut self) {
        self.waited = true;
    }

    /// Notes that a message found no room and is refused.
    pub(super) fn note_refusal(&mut self) {
        self.refused += 1;
    }

    /// Counts a packet that is sent. There must be room for it. Returns whether its message had to
    /// wait, if it is the last packet, and the number of refusals to report.
    pub(super) fn take(&mut self, is_last: bool) -> (bool, u8) {
        self.sent += 1;
        // Refusals beyond the field's maximum are reported by later packets.
        let refused = self.refused.saturating_as::<u8>().min(REFUSED_MAX);
        self.refused -= u64::from(refused);
        (is_last && std::mem::take(&mut self.waited), refused)
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Notes that the receiver has given packets back.
    pub(super) fn credit(&mut self, packets: u32) -> Result<(), PacketFault> {
        let used = self.sent - self.returned;
        if u64::from(packets) > used {
            return Err(PacketFault::Credit { packets, used });
        }
        self.returned += u64::from(packets);
        Ok(())
    }
}

/// The receiver's view of one sender: which message is arriving, and how many of its packets were
/// not given back.
#[derive(Debug)]
pub(super) struct PacketSource {
    allotment: u32,
    outstanding: u32,
    /// The message whose packets are arriving: its kind, its length, and the bytes that have
    /// arrived.
    current: Option<(PacketKind, u32, u32)>,
}

impl PacketSource {
    pub(super) fn new(allotment: u32) -> Self {
        Self { allotment, outstanding: 0, current: None }
    }

    /// Checks and counts a packet of `bytes` bytes. Returns its offset in its message.
    pub(super) fn arrived(&mut self, head: PacketHead, bytes: u32) -> Result<u32, PacketFault> {
        if self.outstanding >= self.allotment {
            return Err(PacketFault::Overrun { allotment: self.allotment });
        }
        let received = self.current.map_or(0, |(_, _, received)| received);
        let fault = || PacketFault::Packet { immediate: Sent::Packet(head).to_immediate(), bytes, received };
        let continues = match self.current {
            None => head.is_first,
            Some((kind, message_bytes, _)) => {
                !head.is_first && head.kind == kind && head.message_bytes == message_bytes
            }
        };
        let possible = match head.kind {
            PacketKind::Message(_) => head.message_bytes as usize <= MESSAGE_BYTES_MAX,
            PacketKind::Announcement => head.message_bytes as usize == ANNOUNCEMENT_BYTES && head.is_last,
        };
        let end = received.checked_add(bytes).filter(|end| *end <= head.message_bytes).ok_or_else(fault)?;
        // Only the last packet completes the message, and a packet without bytes is the only one of
        // its message.
        let ends_well = head.is_last == (end == head.message_bytes) && (bytes > 0 || head.message_bytes == 0);
        if !continues || !possible || !ends_well {
            return Err(fault());
        }
        self.outstanding += 1;
        self.current = (!head.is_last).then_some((head.kind, head.message_bytes, end));
        Ok(received)
    }

    /// Notes that so many packets were given back.
    pub(super) fn credited(&mut self, packets: u32) {
        self.outstanding =
            self.outstanding.checked_sub(packets).expect("each packet that arrived is given back once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(is_first: bool, is_last: bool, message_bytes: u32) -> PacketHead {
        let kind = PacketKind::Message(Report::PerPacket);
        PacketHead { kind, is_first, is_last, message_bytes, waited: false, refused: 0 }
    }

    #[test]
    fn a_description_survives_its_immediate() {
        let kinds = [
            PacketKind::Message(Report::PerMessage),
            PacketKind::Message(Report::PerPacket),
            PacketKind::Announcement,
        ];
        for kind in kinds {
            for (is_first, is_last) in [(true, true), (true, false), (false, false), (false, true)] {
                for (message_bytes, refused) in [(0, 0), (1, 1), (8, REFUSED_MAX), (1 << 20, 32)] {
                    let waited = message_bytes % 2 == 0;
                    let head = PacketHead { kind, is_first, is_last, message_bytes, waited, refused };
                    let sent = Sent::Packet(head);
                    assert_eq!(Sent::from_immediate(sent.to_immediate()), sent);
                }
            }
        }
        assert_eq!(Sent::from_immediate(Sent::Credit(1024).to_immediate()), Sent::Credit(1024));
    }

    #[test]
    fn packets_of_a_message_have_offsets() {
        let mut source = PacketSource::new(10);
        assert_eq!(source.arrived(head(true, false, 250), 100), Ok(0));
        assert_eq!(source.arrived(head(false, false, 250), 100), Ok(100));
        assert_eq!(source.arrived(head(false, true, 250), 50), Ok(200));
        assert_eq!(source.arrived(head(true, true, 0), 0), Ok(0));
    }

    #[test]
    fn a_packet_that_does_not_continue_its_message_is_a_fault() {
        for (second, bytes) in [
            (head(true, false, 250), 100),
            (head(false, false, 251), 100),
            (head(false, true, 250), 100),
            (head(false, false, 250), 150),
            (head(false, false, 250), 151),
            (head(false, false, 250), u32::MAX),
            (head(false, false, 250), 0),
        ] {
            let mut source = PacketSource::new(10);
            source.arrived(head(true, false, 250), 100).unwrap();
            let immediate = Sent::Packet(second).to_immediate();
            let fault = PacketFault::Packet { immediate, bytes, received: 100 };
            assert_eq!(source.arrived(second, bytes), Err(fault));
        }
        let middle = head(false, true, 4);
        assert!(PacketSource::new(10).arrived(middle, 4).is_err(), "nothing began");
        let long = head(true, false, 1 + (1 << 20));
        assert!(PacketSource::new(10).arrived(long, 4).is_err(), "too long a message");
    }

    #[test]
    fn waits_and_refusals_are_reported_once() {
        let mut credit = PacketCredit::new(4096, 10, true);
        credit.note_wait();
        for _ in 0..70 {
            credit.note_refusal();
        }
        assert_eq!(credit.take(false), (false, REFUSED_MAX), "the last packet says that there was a wait");
        assert_eq!(credit.take(true), (true, 7));
        assert_eq!(credit.take(true), (false, 0));
    }

    #[test]
    fn an_allotment_bounds_both_sides() {
        let (mut credit, mut source) = (PacketCredit::new(4096, 2, false), PacketSource::new(2));
        for _ in 0..2 {
            assert!(credit.has_room());
            credit.take(true);
            source.arrived(head(true, true, 4), 4).unwrap();
        }
        assert!(!credit.has_room());
        assert_eq!(source.arrived(head(true, true, 4), 4), Err(PacketFault::Overrun { allotment: 2 }));
        assert_eq!(credit.credit(3), Err(PacketFault::Credit { packets: 3, used: 2 }));
        source.credited(1);
        credit.credit(1).unwrap();
        assert!(credit.has_room());
        assert_eq!(source.arrived(head(true, true, 4), 4), Ok(0));
    }
}
