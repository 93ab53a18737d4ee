//! Turns the packets that an RDMA adapter has received into arrivals.
//!
//! Invariants
//! - Rings and adapters take turns while both have arrivals. An inbox without adapters has no cost
//!   for them.

use std::sync::atomic::Ordering;

use rustix::event::epoll;

use super::{
    arrival::{Arrival, ArrivalKind, SenderId},
    arrive::Bytes,
    layout::{Control, Kind, Packet, SenderWord},
    state::{AdoptedSupply, Inbox},
    supply::{Content, SuppliedPacket, Supply, SupplyEvent},
};
use crate::{limits::INBOX_LOOKS_PER_CALL_MAX, operation::Report};

impl Inbox {
    /// Takes over the queues that listeners have made.
    pub(super) fn adopt_supplies(&mut self) {
        for supply in std::mem::take(&mut self.shared.entrances.lock().new) {
            let data = epoll::EventData::new_u64(2);
            let added = epoll::add(&self.watch, supply.descriptor(), data, epoll::EventFlags::IN);
            if let Err(error) = &added {
                tracing::warn!(%error, "an inbox cannot watch an adapter, so it will not sleep");
            }
            self.supplies.push(AdoptedSupply { supply, watched: added.is_ok() });
        }
    }

    /// Returns the next arrival through an adapter.
    pub(super) fn next_supplied(&mut self, bytes: &mut Vec<u8>) -> Option<Arrival> {
        self.supplies_turn = false;
        // Taken out of `self`, because handling a packet needs the whole inbox.
        let mut supplies = std::mem::take(&mut self.supplies);
        let arrival = supplies.iter_mut().find_map(|adopted| self.take_from(&mut *adopted.supply, bytes));
        if arrival.is_some() && supplies.len() > 1 {
            supplies.rotate_left(1);
        }
        self.supplies = supplies;
        arrival
    }

    fn take_from(&mut self, supply: &mut dyn Supply, bytes: &mut Vec<u8>) -> Option<Arrival> {
        for _ in 0..INBOX_LOOKS_PER_CALL_MAX {
            match supply.next()? {
                // The departure is in the table, which the next call of `next` reads.
                SupplyEvent::Left => {}
                SupplyEvent::Packet(packet) => {
                    let arrival = self.take_supplied(supply, &packet, bytes);
                    supply.release(packet);
                    if arrival.is_some() {
                        return arrival;
                    }
                }
            }
        }
        None
    }

    fn take_supplied(
        &mut self,
        supply: &dyn Supply,
        packet: &SuppliedPacket,
        bytes: &mut Vec<u8>,
    ) -> Option<Arrival> {
        let SenderId { index, generation } = packet.sender;
        let known = self.senders.get(usize::from(index)).is_some_and(|state| state.present);
        if !known && !self.admit_sender(index) {
            return None;
        }
        let state = self.senders.get(usize::from(index)).filter(|state| state.generation == generation)?;
        let count = |word, messages: u8| {
            if messages > 0
                && let Ok(word) = self.map.line(index, word)
            {
                word.fetch_add(u64::from(messages), Ordering::Relaxed);
            }
        };
        count(SenderWord::Stalls, u8::from(packet.waited));
        count(SenderWord::Refusals, packet.refused);
        match packet.content {
            Content::Immediate { immediate, bytes } => {
                let kind = ArrivalKind::Immediate { immediate, bytes: u64::from(bytes) };
                Some(Arrival { sender: packet.sender, message: state.messages, kind })
            }
            Content::Message { report, offset, message_bytes } => {
                let per_packet = report == Report::PerPacket;
                let control = Control { lap: 0, sender: index, per_packet, kind: Kind::Packet };
                let part = Packet { ring: 0, position: 0, length: packet.bytes, offset, message_bytes };
                self.copy_packet(control, part, Bytes::Supplied(supply, packet), bytes)
            }
        }
    }

    /// Asks all adapters for wake-ups. Returns false if there is something already.
    pub(super) fn arm_supplies(&mut self) -> bool {
        self.supplies.iter_mut().all(|adopted| adopted.watched && adopted.supply.arm())
    }

    pub(super) fn disarm_supplies(&mut self) {
        for adopted in &mut self.supplies {
            adopted.supply.disarm();
        }
    }

    /// Memory of the slots whose packets were not taken yet.
    pub(super) fn supplied_bytes_in_use(&self) -> usize {
        let in_use = |adopted: &AdoptedSupply| {
            adopted.supply.slots_in_use() * adopted.supply.size().packet_bytes as usize
        };
        self.supplies.iter().map(in_use).sum()
    }
}
