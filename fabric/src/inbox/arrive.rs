//! Turns an entry of the status ring into an arrival. The status ring records, in one order over
//! all senders, what has arrived in an inbox.
//!
//! Invariants
//! - Each word of an entry or a packet is read once, and checked before it is used.
//! - A message is handed out exactly once: whole, or packet by packet in order, as its sender
//!   requested.
//! - A message that was cut into packets is assembled in one buffer, which is then swapped with the
//!   caller's. Each sender has at most one such buffer, of at most
//!   [`super::InboxConfig::message_bytes_max`] bytes.

use std::sync::atomic::{Ordering, fence};

use super::{
    arrival::{Arrival, ArrivalKind, SenderId},
    layout::{Control, INLINE_BYTES_MAX, InboxMap, Kind, Packet},
    state::{GIVE_BACK_DIVISOR, Inbox, Incomplete, SenderState},
    status::PublishedEntry,
    supply::{SuppliedPacket, Supply},
};
use crate::{error::OutOfBounds, limits::MESSAGE_BYTES_MAX};

/// The location of a packet's bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bytes<'a> {
    /// At this offset of the inbox's memory.
    InRing(usize),
    /// In a slot of an adapter.
    Supplied(&'a dyn Supply, &'a SuppliedPacket),
}

impl Bytes<'_> {
    fn append_to(&self, map: &InboxMap, length: usize, bytes: &mut Vec<u8>) -> Result<(), OutOfBounds> {
        match self {
            Self::InRing(place) => map.mapping().append_to(*place, length, bytes),
            Self::Supplied(supply, packet) => supply.append_to(packet, bytes),
        }
    }
}

impl Inbox {
    /// Processes an entry of the status ring. Returns `None` if it yields no arrival.
    pub(super) fn arrive(
        &mut self,
        (position, word): PublishedEntry,
        bytes: &mut Vec<u8>,
    ) -> Option<Arrival> {
        let sender = Control::sender(word);
        let known = self.senders.get(usize::from(sender)).is_some_and(|state| state.present);
        let known = known || self.admit_sender(sender);
        let arrival = match Control::decode(word) {
            Some(Control { kind: Kind::Void, .. }) => None,
            Some(control) => self.read_entry(position, control, known, bytes),
            None => {
                self.report_violation(
                    sender,
                    format!("it wrote an entry with the invalid control word {word:#018x}"),
                );
                None
            }
        };
        if self.status.give_back(&self.map, self.map.layout.entries as u64 / GIVE_BACK_DIVISOR) {
            self.wake_stalled();
        }
        arrival
    }

    fn read_entry(
        &mut self,
        position: u64,
        control: Control,
        known: bool,
        bytes: &mut Vec<u8>,
    ) -> Option<Arrival> {
        let words = self.map.entry(position).ok()?;
        match control.kind {
            Kind::Void => None,
            Kind::Inline { length } => {
                if !known {
                    return None;
                }
                let mut payload = [0; INLINE_BYTES_MAX];
                let length = usize::from(length);
                let chunks = payload.as_chunks_mut::<8>().0;
                for (chunk, word) in chunks.iter_mut().zip(&words[1..]).take(length.div_ceil(8)) {
                    *chunk = word.load(Ordering::Relaxed).to_le_bytes();
                }
                bytes.clear();
                bytes.extend_from_slice(&payload[..length]);
                self.count_whole_message(control, length)
            }
            Kind::Packet => {
                let packet = Packet::decode(std::array::from_fn(|at| words[1 + at].load(Ordering::Relaxed)));
                self.take_packet(control, packet, known, bytes)
            }
            Kind::Handed => self.take_handed(control, bytes).filter(|_| known),
            Kind::Immediate => {
                let (immediate, written) =
                    (words[1].load(Ordering::Relaxed), words[2].load(Ordering::Relaxed));
                let state = self.senders.get(usize::from(control.sender)).filter(|_| known)?;
                let immediate =
                    u32::try_from(immediate & u64::from(u32::MAX)).expect("the mask leaves 32 bits");
                let kind = ArrivalKind::Immediate { immediate, bytes: written };
                Some(Arrival { sender: sender_id(control.sender, state), message: state.messages, kind })
            }
        }
    }

    /// Takes a message that a responder has assembled.
    fn take_handed(&mut self, control: Control, bytes: &mut Vec<u8>) -> Option<Arrival> {
        let seat = {
            let table = self.shared.table.lock();
            table.slots.get(usize::from(control.sender)).and_then(|slot| slot.seat.clone())
        }?;
        // Kept before the responder can begin its next message, which may use this buffer.
        if seat.handover.lock().ready.is_some() {
            self.shared.keep_spare(std::mem::take(bytes));
        }
        let Some(message) = seat.handover.lock().ready.take() else {
            self.report_violation(
                control.sender,
                "it reported a message that was not handed over".to_owned(),
            );
            return None;
        };
        fence(Ordering::SeqCst);
        self.shared.wake_if_stalled(control.sender, &seat);
        *bytes = message;
        self.count_whole_message(control, bytes.len())
    }

    /// Counts a message that arrived in one piece.
    fn count_whole_message(&mut self, control: Control, length: usize) -> Option<Arrival> {
        let state = self.senders.get_mut(usize::from(control.sender))?;
        if state.incomplete.is_some() {
            let reason = "it began a message in the middle of another".to_owned();
            self.report_violation(control.sender, reason);
            return None;
        }
        state.packets += 1;
        state.bytes += length as u64;
        state.messages += 1;
        self.counters.packets += 1;
        self.counters.bytes += length as u64;
        self.counters.messages += 1;
        let kind = if control.per_packet {
            ArrivalKind::Packet { offset: 0, message_bytes: length as u64, last: true }
        } else {
            ArrivalKind::Message
        };
        Some(Arrival { sender: sender_id(control.sender, state), message: state.messages - 1, kind })
    }

    fn take_packet(
        &mut self,
        control: Control,
        packet: Packet,
        known: bool,
        bytes: &mut Vec<u8>,
    ) -> Option<Arrival> {
        let ring = usize::from(packet.ring);
        let problem = match self.spaces.get(ring) {
            None => Some(format!("a packet in ring {ring} of {}", self.spaces.len())),
            Some(_) if packet.length as usize > self.map.layout.shape.packet_bytes => {
                Some(format!("a packet of {} bytes", packet.length))
            }
            Some(space) => space.problem(&packet),
        };
        if let Some(problem) = problem {
            self.report_violation(control.sender, problem);
            return None;
        }
        let place = Bytes::InRing(self.map.place(ring, packet.position));
        let arrival = if known { self.copy_packet(control, packet, place, bytes) } else { None };
        let space = &mut self.spaces[ring];
        space.take(&self.map, &packet);
        if space.give_back(&self.map, self.map.layout.granules as u64 / GIVE_BACK_DIVISOR) {
            self.wake_stalled();
        } else if !self.dirty_rings.contains(&ring) {
            self.dirty_rings.push(ring);
        }
        arrival
    }

    /// Copies a packet to the caller's buffer or to the message that it is a part of.
    pub(super) fn copy_packet(
        &mut self,
        control: Control,
        packet: Packet,
        place: Bytes<'_>,
        bytes: &mut Vec<u8>,
    ) -> Option<Arrival> {
        let (offset, length) = (packet.offset as usize, packet.length as usize);
        let message_bytes = packet.message_bytes as usize;
        if offset == 0 && length == message_bytes {
            bytes.clear();
            place.append_to(&self.map, length, bytes).ok()?;
            return self.count_whole_message(control, length);
        }
        let state = self.senders.get_mut(usize::from(control.sender))?;
        let bytes_max = if control.per_packet { MESSAGE_BYTES_MAX } else { self.shared.message_bytes_max };
        let fits = message_bytes <= bytes_max && offset + length < message_bytes + 1;
        let continues = match &state.incomplete {
            None => offset == 0,
            Some(incomplete) => {
                (incomplete.received, incomplete.message_bytes, incomplete.per_packet)
                    == (offset, message_bytes, control.per_packet)
            }
        };
        if length == 0 || !fits || !continues {
            let reason = format!(
                "it sent {length} bytes at offset {offset} of a message of {message_bytes}, out of order or longer than {bytes_max}"
            );
            self.report_violation(control.sender, reason);
            return None;
        }
        let mut incomplete = state.incomplete.take().unwrap_or_else(|| {
            let mut assembly = Vec::new();
            if !control.per_packet {
                assembly = std::mem::take(&mut self.spare);
                assembly.clear();
                assembly.reserve(message_bytes);
                self.assembly_bytes += assembly.capacity();
            }
            Incomplete { received: 0, message_bytes, per_packet: control.per_packet, assembly }
        });
        incomplete.received += length;
        let last = incomplete.received == message_bytes;
        state.packets += 1;
        state.bytes += length as u64;
        state.messages += u64::from(last);
        self.counters.packets += 1;
        self.counters.bytes += length as u64;
        self.counters.messages += u64::from(last);
        let arrival = |kind| {
            let message = state.messages - u64::from(last);
            Some(Arrival { sender: sender_id(control.sender, state), message, kind })
        };
        if control.per_packet {
            bytes.clear();
            place.append_to(&self.map, length, bytes).ok()?;
            let arrived = arrival(ArrivalKind::Packet {
                offset: offset as u64,
                message_bytes: message_bytes as u64,
                last,
            });
            state.incomplete = (!last).then_some(incomplete);
            return arrived;
        }
        place.append_to(&self.map, length, &mut incomplete.assembly).ok()?;
        if !last {
            state.incomplete = Some(incomplete);
            return None;
        }
        // Swapped, not copied. The caller's buffer is used for the next message.
        let arrived = arrival(ArrivalKind::Message);
        self.assembly_bytes -= incomplete.assembly.capacity();
        std::mem::swap(bytes, &mut incomplete.assembly);
        self.keep_spare(incomplete.assembly);
        arrived
    }

    pub(super) fn spare_bytes(&self) -> usize {
        self.spare.capacity()
    }

    pub(super) fn keep_spare(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() > self.spare.capacity() && buffer.capacity() <= 2 * MESSAGE_BYTES_MAX {
            self.spare = buffer;
        }
    }

    /// Takes in the holder of an index that was not known. Returns false if the index has no new
    /// holder.
    pub(super) fn admit_sender(&mut self, index: u16) -> bool {
        let table = self.shared.table.lock();
        let Some(state) = self.senders.get_mut(usize::from(index)) else { return false };
        match table.slots.get(usize::from(index)) {
            // A known generation that is not `present` has left.
            Some(slot) if slot.seat.is_some() && slot.generation != state.generation => {
                *state = SenderState { generation: slot.generation, present: true, ..SenderState::default() };
                true
            }
            _ => false,
        }
    }
}

fn sender_id(index: u16, state: &SenderState) -> SenderId {
    SenderId { index, generation: state.generation }
}
