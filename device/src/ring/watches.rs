//! The table of descriptors that a ring watches.
//!
//! Invariants
//! - An entry is reused only after the kernel has sent the last completion of its watch, so the
//!   index alone identifies a watch in completions.
//! - A watch that has ended or was removed delivers nothing; the generation in its [`WatchId`]
//!   shows that the id is old.

use std::os::fd::OwnedFd;

use crate::limits::WATCHES_PER_RING_MAX;
use crate::request::{Interest, Readiness, Token, WatchId};

/// What the ring does after a completion of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// Deliver an event.
    Ready { token: Token, readiness: Readiness },
    /// Deliver an event and arm the watch at `index` again: it repeats, and the kernel has dropped
    /// it.
    ReadyAndRearm { token: Token, readiness: Readiness, index: u32 },
    /// Nothing.
    Silent,
}

/// All watches of a ring.
#[derive(Debug, Default)]
pub(super) struct Watches {
    entries: Vec<Entry>,
    free: Vec<u32>,
    armed: u32,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    /// `again` is a duplicate of the descriptor if the watch repeats.
    Armed {
        token: Token,
        interest: Interest,
        again: Option<OwnedFd>,
    },
    /// Removed by the caller; the kernel's last completion has not arrived.
    Leaving,
}

impl Watches {
    pub(super) fn armed(&self) -> u32 {
        self.armed
    }

    /// Allocates an entry; `None` if all are in use.
    pub(super) fn arm(
        &mut self,
        token: Token,
        interest: Interest,
        again: Option<OwnedFd>,
    ) -> Option<WatchId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow()?,
        };
        let entry = &mut self.entries[index as usize];
        entry.state = State::Armed { token, interest, again };
        self.armed += 1;
        Some(WatchId { index, generation: entry.generation })
    }

    fn grow(&mut self) -> Option<u32> {
        let index = u32::try_from(self.entries.len()).ok().filter(|index| *index < WATCHES_PER_RING_MAX)?;
        self.entries.push(Entry { generation: 0, state: State::Free });
        Some(index)
    }

    /// Marks a watch as removed; false if it had ended already.
    pub(super) fn leave(&mut self, watch: WatchId) -> bool {
        let Some(entry) = self.entries.get_mut(watch.index as usize) else { return false };
        if entry.generation != watch.generation || !matches!(entry.state, State::Armed { .. }) {
            return false;
        }
        entry.state = State::Leaving;
        self.armed -= 1;
        true
    }

    /// Undoes `arm` when the kernel did not accept the watch.
    pub(super) fn forget(&mut self, index: u32) {
        if matches!(self.entries[index as usize].state, State::Armed { .. }) {
            self.armed -= 1;
        }
        self.release(index);
    }

    /// The descriptor and interest of a repeating watch that must be armed again.
    pub(super) fn rearm(&self, index: u32) -> Option<(&OwnedFd, Interest)> {
        match &self.entries.get(index as usize)?.state {
            State::Armed { interest, again: Some(again), .. } => Some((again, *interest)),
            _ => None,
        }
    }

    /// Processes one completion of the kernel for the watch at `index`.
    pub(super) fn completed(&mut self, index: u32, result: i32, more_to_come: bool) -> Report {
        let Some(entry) = self.entries.get(index as usize) else { return Report::Silent };
        let (token, repeats) = match &entry.state {
            State::Armed { token, again, .. } => (*token, again.is_some()),
            State::Free | State::Leaving => {
                if !more_to_come && matches!(entry.state, State::Leaving) {
                    self.release(index);
                }
                return Report::Silent;
            }
        };
        let readiness = readiness_of(result);
        if more_to_come {
            return Report::Ready { token, readiness };
        }
        if repeats && !readiness.failed {
            return Report::ReadyAndRearm { token, readiness, index };
        }
        self.forget(index);
        Report::Ready { token, readiness }
    }

    fn release(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        entry.state = State::Free;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
    }
}

/// The poll(2) events of an interest.
pub(super) fn events_of(interest: Interest) -> u32 {
    let events = match interest {
        Interest::Readable => libc::POLLIN | libc::POLLRDHUP,
        Interest::Writable => libc::POLLOUT,
    };
    u32::from(events.cast_unsigned())
}

fn readiness_of(result: i32) -> Readiness {
    let Ok(events) = u32::try_from(result) else { return Readiness { failed: true, ..Readiness::default() } };
    let has = |event: libc::c_short| events & u32::from(event.cast_unsigned()) != 0;
    Readiness {
        readable: has(libc::POLLIN),
        writable: has(libc::POLLOUT),
        hung_up: has(libc::POLLHUP) || has(libc::POLLRDHUP),
        failed: has(libc::POLLERR) || has(libc::POLLNVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_watch_is_silent_and_its_place_is_reused_only_after_its_last_completion() {
        let mut watches = Watches::default();
        let first = watches.arm(Token(1), Interest::Readable, None).unwrap();
        assert!(watches.leave(first));
        assert_eq!(watches.armed(), 0);
        let second = watches.arm(Token(2), Interest::Readable, None).unwrap();
        assert_ne!(first.index, second.index, "the first watch's last completion is still to come");
        assert_eq!(watches.completed(first.index, -libc::ECANCELED, false), Report::Silent);
        let third = watches.arm(Token(3), Interest::Readable, None).unwrap();
        assert_eq!(third.index, first.index);
        assert!(!watches.leave(first), "an old id must not remove the new watch");
        assert_eq!(watches.armed(), 2);
    }

    #[test]
    fn watches_are_bounded() {
        let mut watches = Watches::default();
        for token in 0..u64::from(WATCHES_PER_RING_MAX) {
            assert!(watches.arm(Token(token), Interest::Readable, None).is_some());
        }
        assert_eq!(watches.arm(Token(0), Interest::Readable, None), None);
    }
}
