//! What becomes of a sender that leaves, and of what it had claimed?
//!
//! Invariants
//! - A sender's leaving is reported after everything that it published, exactly once, and nothing
//!   of it is reported afterwards.
//! - What it claimed and never published is given back only when it can touch the memory no more.
//! - The memory is cleared when, and only when, there is no sender.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering},
};

use rustix::{event::epoll, io::Errno, net::RecvFlags};

use super::{
    Arrival, ArrivalKind, Inbox, SenderId,
    layout::Line,
    seats::{Departure, Table},
    space::SpaceReader,
    status::StatusReader,
};

/// A sender that sends no more.
#[derive(Debug)]
pub(super) struct Leaving {
    index: u16,
    /// All that it published lies before this entry.
    mark: u64,
    /// Its process may still write until this socket hangs up.
    pub(super) socket: Option<OwnedFd>,
    pub(super) reported: bool,
}

impl Inbox {
    /// A sender has broken the rules.
    pub(super) fn accuse(&mut self, index: u16, reason: String) {
        tracing::warn!(sender = index, reason, "a sender has broken the rules of the inbox");
        let table = self.shared.table.lock();
        if let Some(seat) = table.slots.get(usize::from(index)).and_then(|slot| slot.seat.as_ref()) {
            seat.accuse(reason);
        }
    }

    /// Nobody can tell who has damaged the memory.
    pub(super) fn all_must_leave(&mut self, what: &str) {
        if std::mem::replace(&mut self.damaged, true) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let mut table = shared.table.lock();
        table.damaged = true;
        tracing::warn!(what, "the memory of an inbox is damaged; all of its senders must leave");
        for seat in table.slots.iter().filter_map(|slot| slot.seat.as_ref()) {
            seat.accuse(format!("the memory of the inbox is damaged: {what}"));
        }
        self.clear_if_empty(&mut table);
    }

    /// Without senders the memory begins anew, so that nothing that one of them may have done to it
    /// stays.
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
        self.shared.news.store(false, Ordering::SeqCst);
        let departures = std::mem::take(&mut self.shared.table.lock().departures);
        for Departure { index, socket } in departures {
            self.learn(index);
            match &socket {
                Some(socket) => {
                    let hang_up = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
                    // Without the watch it is looked at now and then.
                    let _ = epoll::add(&self.watch, socket, epoll::EventData::new_u64(1), hang_up);
                }
                None => self.status.void(&self.map, |sender| sender == index),
            }
            let mark = self.status.end(&self.map);
            self.leaving.push(Leaving { index, mark, socket, reported: false });
        }
    }

    /// Reports the next sender that has left, and forgets those who cannot write any more.
    /// `drained`: nothing that is published was left untaken.
    pub(super) fn depart(&mut self, drained: bool) -> Option<Arrival> {
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
        self.stop_private(index);
        Some(left)
    }

    /// A sender that has left needs no private ring.
    fn stop_private(&mut self, index: u16) {
        let mut table = self.shared.table.lock();
        let private = table.slots[usize::from(index)].ring < self.shared.private_rings;
        if private && let Some(ring) = self.shared.shared_ring(usize::from(index)) {
            self.shared.assign(&mut table, index, ring);
        }
    }

    /// A sender cannot touch the memory any more: what it had claimed is given back, and its index
    /// is free.
    fn forget(&mut self, index: u16) {
        for space in &mut self.spaces {
            space.sweep(&self.map, index);
            space.give_back(&self.map, 1);
        }
        self.wake_stalled();
        let line = |word| self.map.line(index, word).map_or(0, |word| word.load(Ordering::Relaxed));
        self.counters.stalls = self.counters.stalls.wrapping_add(line(Line::Stalls));
        self.counters.refusals = self.counters.refusals.wrapping_add(line(Line::Refusals));
        let shared = Arc::clone(&self.shared);
        // Nobody joins before the lock is released.
        let mut table = shared.table.lock();
        table.slots[usize::from(index)].seat = None;
        let _ = self.map.clear_line(index);
        self.clear_if_empty(&mut table);
    }

    /// Whether those who left and might still have been writing are gone by now.
    pub(super) fn look_for_hang_ups(&mut self) {
        for at in 0..self.leaving.len() {
            if let Some(socket) = self.leaving[at].socket.take_if(|socket| has_hung_up(socket)) {
                // The connection may hold the socket too, so closing ours would not end the watch.
                let _ = epoll::delete(&self.watch, socket);
                let gone = self.leaving[at].index;
                self.status.void(&self.map, |sender| sender == gone);
                self.leaving[at].mark = self.status.end(&self.map);
            }
        }
    }
}

/// Whether the peer of a socket is gone. What it still said is of no interest.
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
