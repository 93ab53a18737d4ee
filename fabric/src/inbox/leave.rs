//! Removes senders that leave, and frees the space that they had claimed.
//!
//! Invariants
//! - The departure of a sender is reported exactly once, after everything that it published;
//!   nothing from it is reported afterwards.
//! - Space that it claimed and never published is freed only when it can no longer write the
//!   memory.
//! - The memory is cleared when, and only when, there is no sender.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering},
};

use rustix::{event::epoll, io::Errno, net::RecvFlags};

use super::{
    arrival::{Arrival, ArrivalKind, SenderId},
    layout::SenderWord,
    seats::{Departure, Table},
    space::SpaceReader,
    state::{Inbox, LeavingSender},
    status::StatusReader,
};

impl Inbox {
    /// Ends the connection of a sender that has broken the rules.
    pub(super) fn report_violation(&mut self, index: u16, reason: String) {
        tracing::warn!(sender = index, reason, "a sender has broken the rules of the inbox");
        let table = self.shared.table.lock();
        if let Some(seat) = table.slots.get(usize::from(index)).and_then(|slot| slot.seat.as_ref()) {
            seat.report_violation(reason);
        }
    }

    /// Ends the connections of all senders, because nobody can tell which of them damaged the
    /// memory.
    pub(super) fn end_all_connections(&mut self, what: &str) {
        if std::mem::replace(&mut self.damaged, true) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let mut table = shared.table.lock();
        table.damaged = true;
        tracing::warn!(what, "the memory of an inbox is damaged; all of its senders must leave");
        for seat in table.slots.iter().filter_map(|slot| slot.seat.as_ref()) {
            seat.report_violation(format!("the memory of the inbox is damaged: {what}"));
        }
        self.clear_if_empty(&mut table);
    }

    /// Clears the memory if there is no sender, so that no damage stays.
    fn clear_if_empty(&mut self, table: &mut Table) {
        if table.slots.iter().any(|slot| slot.seat.is_some()) || self.map.start_afresh().is_err() {
            return;
        }
        self.status = StatusReader::new(&self.map);
        self.spaces = (0..self.spaces.len()).map(|ring| SpaceReader::new(&self.map, ring)).collect();
        self.dirty_rings.clear();
        self.damaged = false;
        table.damaged = false;
    }

    pub(super) fn take_departures(&mut self) {
        self.shared.has_news.store(false, Ordering::SeqCst);
        let departures = std::mem::take(&mut self.shared.table.lock().departures);
        for Departure { index, socket } in departures {
            self.admit_sender(index);
            match &socket {
                Some(socket) => {
                    let hang_up = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
                    // If the socket cannot be watched, it is still checked from time to time.
                    let _ = epoll::add(&self.watch, socket, epoll::EventData::new_u64(1), hang_up);
                }
                None => self.status.publish_void(&self.map, |sender| sender == index),
            }
            let mark = self.status.end(&self.map);
            self.leaving.push(LeavingSender { index, mark, socket, reported: false });
        }
    }

    /// Reports the next sender that has left, and forgets senders that can no longer write.
    /// `drained`: every published entry was taken.
    pub(super) fn next_departure(&mut self, drained: bool) -> Option<Arrival> {
        let mut at = 0;
        while at < self.leaving.len() {
            let leaving = &mut self.leaving[at];
            if !drained && !self.status.has_passed(&self.map, leaving.mark) {
                at += 1;
                continue;
            }
            let (index, gone) = (leaving.index, leaving.socket.is_none());
            let first = !std::mem::replace(&mut leaving.reported, true);
            let left = if first { self.report_left(index) } else { None };
            if gone {
                self.leaving.swap_remove(at);
                self.forget(index);
            } else {
                at += 1;
            }
            if left.is_some() {
                return left;
            }
        }
        None
    }

    fn report_left(&mut self, index: u16) -> Option<Arrival> {
        let state = self.senders.get_mut(usize::from(index)).filter(|state| state.present)?;
        state.present = false;
        let sender = SenderId { index, generation: state.generation };
        let left = Arrival { sender, message: state.messages, kind: ArrivalKind::Left };
        if let Some(incomplete) = state.incomplete.take() {
            self.assembly_bytes -= incomplete.assembly.capacity();
            self.keep_spare(incomplete.assembly);
        }
        self.free_private_ring(index);
        Some(left)
    }

    /// Frees the private ring of a sender that has left.
    fn free_private_ring(&mut self, index: u16) {
        let mut table = self.shared.table.lock();
        let private = table.slots[usize::from(index)].ring < self.shared.private_rings;
        if private && let Some(ring) = self.shared.shared_ring(usize::from(index)) {
            self.shared.assign(&mut table, index, ring);
        }
    }

    /// Gives back the claims and the index of a sender that can no longer touch the memory.
    fn forget(&mut self, index: u16) {
        for space in &mut self.spaces {
            space.sweep(&self.map, index);
            space.give_back(&self.map, 1);
        }
        self.wake_stalled();
        let line = |word| self.map.line(index, word).map_or(0, |word| word.load(Ordering::Relaxed));
        self.counters.stalls = self.counters.stalls.wrapping_add(line(SenderWord::Stalls));
        self.counters.refusals = self.counters.refusals.wrapping_add(line(SenderWord::Refusals));
        let shared = Arc::clone(&self.shared);
        // No caller can join before the lock is released.
        let mut table = shared.table.lock();
        table.slots[usize::from(index)].seat = None;
        let _ = self.map.clear_line(index);
        self.clear_if_empty(&mut table);
    }

    /// Checks whether the processes of senders that have left are gone by now.
    pub(super) fn check_hang_ups(&mut self) {
        for at in 0..self.leaving.len() {
            if let Some(socket) = self.leaving[at].socket.take_if(|socket| has_hung_up(socket)) {
                // The connection may hold the socket, too, so closing our descriptor would not end
                // the watch.
                let _ = epoll::delete(&self.watch, socket);
                let gone = self.leaving[at].index;
                self.status.publish_void(&self.map, |sender| sender == gone);
                self.leaving[at].mark = self.status.end(&self.map);
            }
        }
    }
}

/// Whether the peer of a socket is gone. Its last bytes are discarded.
fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut said = [0_u8; 256];
    for _ in 0..64 {
        match rustix::net::recv(socket, &mut said[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return true,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            Err(_) => return true,
        }
    }
    false
}
