//! Sends our messages to the peer: into a ring that it keeps for us, or into its shared receive
//! queue.
//!
//! Invariants
//! - A message is sent in parts that fit the peer's buffers, and only as far as the peer has room.

use super::{
    packet::{PacketCredit, PacketHead, PacketKind, Sent},
    ring::{Outgoing, Record, RecordKind},
    setup::MessagePlace,
    sys::SendKind,
};
use crate::{
    limits::{SEND_BYTES_MAX, VERBS_RING_BYTES},
    operation::Report,
};

/// A part of a message, or the announcement of an immediate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) kind: PacketKind,
    pub(super) offset: usize,
    pub(super) bytes: usize,
    pub(super) message_bytes: usize,
}

impl Part {
    fn is_last(&self) -> bool {
        self.offset + self.bytes == self.message_bytes
    }
}

/// The path of our messages to the peer.
#[derive(Debug)]
pub(super) enum Channel {
    /// PUSH: written into the peer's ring.
    Ring { address: u64, key: u32, outgoing: Outgoing },
    /// IPUSH: sent into the next slot of the peer's shared receive queue.
    Shared(PacketCredit),
}

impl Channel {
    pub(super) fn new(place: MessagePlace) -> Self {
        match place {
            MessagePlace::Ring { address, key } => Self::Ring { address, key, outgoing: Outgoing::default() },
            MessagePlace::Shared { packet_bytes, allotment, refuses } => {
                Self::Shared(PacketCredit::new(packet_bytes, allotment, refuses))
            }
        }
    }

    /// The longest part.
    pub(super) fn part_bytes_max(&self) -> usize {
        match self {
            Self::Ring { .. } => SEND_BYTES_MAX,
            Self::Shared(credit) => credit.packet_bytes(),
        }
    }

    /// Whether the peer has room for a part of so many bytes.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        match self {
            Self::Ring { outgoing, .. } => outgoing.room_for(bytes).is_some(),
            Self::Shared(credit) => credit.has_room(),
        }
    }

    /// Notes that a message or announcement found no room. Returns true if it is refused, which is
    /// possible only at its beginning.
    pub(super) fn no_room(&mut self, is_beginning: bool) -> bool {
        let Self::Shared(credit) = self else { return false };
        let is_refused = is_beginning && credit.refuses();
        if is_refused {
            credit.note_refusal();
        } else {
            credit.note_wait();
        }
        is_refused
    }

    /// Whether the peer has no room for a packet, as far as is known.
    pub(super) fn is_short(&self) -> bool {
        matches!(self, Self::Shared(credit) if !credit.has_room())
    }

    /// The request that carries a part. There must be room for it.
    pub(super) fn carry(&mut self, part: Part) -> SendKind {
        match self {
            Self::Ring { address, key, outgoing } => {
                let kind = match part.kind {
                    PacketKind::Announcement => RecordKind::Announcement,
                    PacketKind::Message(_) if part.is_last() => RecordKind::LastPart,
                    PacketKind::Message(_) => RecordKind::Part,
                };
                let mut address = *address;
                if let Some(span) = outgoing.room_for(part.bytes) {
                    address += span.offset(VERBS_RING_BYTES as u64);
                    outgoing.take(span);
                }
                let immediate = Some(Record { kind, bytes: part.bytes }.to_immediate());
                SendKind::Write { address, key: *key, immediate }
            }
            Self::Shared(credit) => {
                let (waited, refused) = credit.take(part.is_last());
                let head = PacketHead {
                    kind: part.kind,
                    is_first: part.offset == 0,
                    is_last: part.is_last(),
                    message_bytes: u32::try_from(part.message_bytes)
                        .expect("messages have at most MESSAGE_BYTES_MAX bytes"),
                    waited,
                    refused,
                };
                SendKind::Send { immediate: Sent::Packet(head).to_immediate() }
            }
        }
    }

    /// How much was sent so far, in the unit in which the peer counts arrivals.
    pub(super) fn tail(&self) -> u64 {
        match self {
            Self::Ring { outgoing, .. } => outgoing.tail(),
            Self::Shared(credit) => credit.sent(),
        }
    }

    /// The peer has given room back.
    pub(super) fn credit(&mut self, units: u32) -> Result<(), String> {
        match self {
            Self::Ring { outgoing, .. } => outgoing.credit(units).map_err(|fault| fault.to_string()),
            Self::Shared(credit) => credit.credit(units).map_err(|fault| fault.to_string()),
        }
    }
}

/// The kind of messages that are reported whole.
pub(super) const WHOLE: PacketKind = PacketKind::Message(Report::PerMessage);
