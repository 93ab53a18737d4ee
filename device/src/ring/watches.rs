//! Which foreign descriptors does a ring watch?
//!
//! Invariants
//! - A place is reused only after the kernel has sent the last completion of its watch, so the
//!   index alone names a watch in completions.
//! - An ended or removed watch delivers nothing; its [`WatchId`] is recognised as old by its
//!   generation.

use std::os::fd::OwnedFd;

use crate::limits::WATCHES_PER_RING_MAX;
use crate::request::{Interest, Readiness, Token, WatchId};

/// What the kernel must be told after a completion of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// Deliver this.
    Ready { token: Token, readiness: Readiness },
    /// Deliver this, and arm the watch at this place again: the kernel has dropped a repeated one.
    ReadyAndRearm { token: Token, readiness: Readiness, index: u32 },
    /// Nothing.
    Silent,
}

/// All watches of a ring.
#[derive(Debug, Default)]
pub(super) struct Watches {
    places: Vec<Place>,
    free: Vec<u32>,
    armed: u32,
}

#[derive(Debug)]
struct Place {
    generation: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    /// `again` is a descriptor of our own if the watch repeats.
    Armed {
        token: Token,
        interest: Interest,
        again: Option<OwnedFd>,
    },
    /// Removed by the caller; the kernel's last completion has not come.
    Leaving,
}

impl Watches {
    pub(super) fn armed(&self) -> u32 {
        self.armed
    }

    /// Takes a place, or `None` if all are in use.
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
        let place = &mut self.places[index as usize];
        place.state = State::Armed { token, interest, again };
        self.armed += 1;
        Some(WatchId { index, generation: place.generation })
    }

    fn grow(&mut self) -> Option<u32> {
        let index = u32::try_from(self.places.len()).ok().filter(|index| *index < WATCHES_PER_RING_MAX)?;
        self.places.push(Place { generation: 0, state: State::Free });
        Some(index)
    }

    /// Marks a watch as leaving; false if it had ended already.
    pub(super) fn leave(&mut self, watch: WatchId) -> bool {
        let Some(place) = self.places.get_mut(watch.index as usize) else { return false };
        if place.generation != watch.generation || !matches!(place.state, State::Armed { .. }) {
            return false;
        }
        place.state = State::Leaving;
        self.armed -= 1;
        true
    }

    /// Undoes `arm` when the kernel did not take the watch.
    pub(super) fn forget(&mut self, index: u32) {
        if matches!(self.places[index as usize].state, State::Armed { .. }) {
            self.armed -= 1;
        }
        self.release(index);
    }

    /// The descriptor and interest of a repeated watch that must be armed again.
    pub(super) fn rearm(&self, index: u32) -> Option<(&OwnedFd, Interest)> {
        match &self.places.get(index as usize)?.state {
            State::Armed { interest, again: Some(again), .. } => Some((again, *interest)),
            _ => None,
        }
    }

    /// Takes in one completion of the kernel for the watch at `index`.
    pub(super) fn completed(&mut self, index: u32, result: i32, more_to_come: bool) -> Report {
        let Some(place) = self.places.get(index as usize) else { return Report::Silent };
        let (token, repeats) = match &place.state {
            State::Armed { token, again, .. } => (*token, again.is_some()),
            State::Free | State::Leaving => {
                if !more_to_come && matches!(place.state, State::Leaving) {
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
        let place = &mut self.places[index as usize];
        place.state = State::Free;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(index);
    }
}

/// The poll(2) events to ask for.
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
