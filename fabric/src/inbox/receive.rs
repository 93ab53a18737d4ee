//! Implements the calls of an inbox's owner: takes arrivals, and sleeps until there are some.
//!
//! Invariants
//! - Arrivals are handed out in the order of the status ring, so the arrivals of one sender are in
//!   the order in which it sent them.
//! - `next` never waits, allocates only to assemble a message that was cut, and does bounded work
//!   for each call.
//! - No wake-up is lost. The owner announces that it sleeps, then checks once more for arrivals; a
//!   sender publishes, then checks the announcement. Each has a fence between its two steps.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::{Ordering, fence},
    time::Instant,
};

use super::{
    arrival::Arrival,
    layout::Header,
    state::{Inbox, LeavingSender},
    status::PublishedEntry,
};
use crate::{
    connection::sleep_on,
    limits::{INBOX_IDLE_POLLS_PER_LOOK, INBOX_LOOKS_PER_CALL_MAX, INBOX_SPIN_US},
    spin::spin_time_us,
};

impl Inbox {
    /// Returns the next arrival, if any. Never waits. The content of `bytes` is replaced by the
    /// payload of a message or packet; nothing is allocated if its capacity suffices.
    pub fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Arrival> {
        if self.armed {
            self.wake_up();
        }
        for _ in 0..INBOX_LOOKS_PER_CALL_MAX {
            if self.shared.has_news.load(Ordering::Relaxed) {
                self.take_departures();
                self.adopt_supplies();
            }
            if !self.leaving.is_empty()
                && let Some(left) = self.next_departure(false)
            {
                return Some(left);
            }
            if self.supplies_turn
                && let Some(arrival) = self.next_supplied(bytes)
            {
                return Some(arrival);
            }
            let next = if self.damaged { None } else { self.status.next(&self.map) };
            let Some(found) = next.or_else(|| self.search_when_idle()) else {
                return self.after_nothing_found(bytes);
            };
            if let Some(arrival) = self.arrive(found, bytes) {
                self.idle_polls = 0;
                self.supplies_turn = !self.supplies.is_empty();
                return Some(arrival);
            }
        }
        None
    }

    fn has_entries(&self) -> bool {
        !self.damaged && self.status.has_entries(&self.map)
    }

    /// The entry after the last one is not published. From time to time, looks for published
    /// entries behind it.
    fn search_when_idle(&mut self) -> Option<PublishedEntry> {
        self.idle_polls += 1;
        if self.idle_polls < INBOX_IDLE_POLLS_PER_LOOK {
            return None;
        }
        self.idle_polls = 0;
        self.check_rare_events();
        if self.damaged { None } else { self.search_beyond() }
    }

    fn search_beyond(&mut self) -> Option<PublishedEntry> {
        match self.status.next_beyond(&self.map) {
            Ok(found) => found,
            Err(nonsense) => {
                self.end_all_connections(&format!("{nonsense:?} in the status ring"));
                None
            }
        }
    }

    /// Checks what seldom changes: the word that reports damage, and the sockets of senders that
    /// leave.
    fn check_rare_events(&mut self) {
        let damaged = self.map.header(Header::Damaged).is_ok_and(|word| word.load(Ordering::Acquire) != 0);
        if damaged {
            self.end_all_connections("a sender has found impossible claims");
        }
        self.check_hang_ups();
    }

    /// Nothing was found: gives used space back, and reports a sender that has left.
    fn after_nothing_found(&mut self, bytes: &mut Vec<u8>) -> Option<Arrival> {
        self.give_back_all();
        if !self.supplies.is_empty()
            && let Some(arrival) = self.next_supplied(bytes)
        {
            return Some(arrival);
        }
        if self.leaving.is_empty() || self.has_entries() {
            return None;
        }
        self.next_departure(true)
    }

    fn give_back_all(&mut self) {
        let mut given = self.status.give_back(&self.map, 1);
        while let Some(ring) = self.dirty_rings.pop() {
            given |= self.spaces[ring].give_back(&self.map, 1);
        }
        if given {
            self.wake_stalled();
        }
    }

    /// Wakes the senders that sleep until there is room, after space was given back.
    pub(super) fn wake_stalled(&self) {
        fence(Ordering::SeqCst);
        let Ok(stalled) = self.map.header(Header::Stalled) else { return };
        if stalled.load(Ordering::Relaxed) == 0 || stalled.swap(0, Ordering::SeqCst) == 0 {
            return;
        }
        let table = self.shared.table.lock();
        for (index, slot) in (0_u16..).zip(&table.slots) {
            if let Some(seat) = &slot.seat {
                self.shared.wake_if_stalled(index, seat);
            }
        }
    }

    /// As `next`, but waits until something has arrived or the deadline has passed. It polls for a
    /// short time, then sleeps.
    pub fn wait(&mut self, bytes: &mut Vec<u8>, deadline: Instant) -> Option<Arrival> {
        let spin_until = Instant::now() + spin_time_us(INBOX_SPIN_US);
        loop {
            if let Some(arrival) = self.next(bytes) {
                return Some(arrival);
            }
            let now = Instant::now();
            if now >= deadline {
                return None;
            }
            if now < spin_until {
                std::thread::yield_now();
                continue;
            }
            if self.arm() {
                self.counters.sleeps += 1;
                sleep_on(self.wait_fd(), deadline - now);
            }
        }
    }

    /// A descriptor that a reactor can watch for reading together with others. It is meaningful
    /// only if [`Inbox::arm`] has returned true and `next` was not called since.
    #[must_use]
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Announces that the owner is about to sleep on [`Inbox::wait_fd`]. If it returns false, do
    /// not sleep but call `next`.
    pub fn arm(&mut self) -> bool {
        self.give_back_all();
        if !self.armed {
            self.armed = true;
            self.announce_sleep(true);
        }
        // Announced first, checked afterwards: see the last invariant.
        let ready = |leaving: &LeavingSender| !leaving.reported || leaving.socket.is_none();
        let something = self.shared.has_news.load(Ordering::SeqCst)
            || self.leaving.iter().any(ready)
            || self.has_entries();
        let something = something || !self.arm_supplies();
        if something {
            self.wake_up();
        }
        !something
    }

    fn announce_sleep(&self, sleeping: bool) {
        if let Ok(word) = self.map.header(Header::Sleeping) {
            word.store(u64::from(sleeping), Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    fn wake_up(&mut self) {
        self.armed = false;
        self.announce_sleep(false);
        self.shared.bell.drain();
        self.disarm_supplies();
        self.idle_polls = INBOX_IDLE_POLLS_PER_LOOK;
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wait_fd()
    }
}
