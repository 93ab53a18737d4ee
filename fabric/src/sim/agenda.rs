//! Keeps the events of a simulated network, in the order of virtual time.
//!
//! Invariants
//! - Time never goes back. Events that are due at the same time happen in the order in which they
//!   were entered.

use std::collections::BTreeMap;

use super::fault::Fault;

/// One of the two ends of a link: 0 is the caller, 1 the listener's side.
pub(super) type EndNumber = usize;

/// Something that will happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Due {
    /// The first waiting operation of an end reaches the peer.
    Arrive { link: u64, end: EndNumber },
    /// A piece of a write or read is moved.
    Move { transfer: u64, piece: usize },
    /// A remote atomic stores.
    Store { update: u64 },
    /// The first executed operation of an end completes.
    Complete { link: u64, end: EndNumber, serial: u64 },
    /// An end learns that its peer is lost.
    Notice { link: u64, end: EndNumber },
    /// A planned fault happens.
    Fail(Fault),
}

/// All future events, by time.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    now_ns: u64,
    entered: u64,
    entries: BTreeMap<(u64, u64), Due>,
}

impl Agenda {
    /// Virtual nanoseconds since the network was made.
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Enters an event for `due_ns`, or for now if that is past.
    pub(super) fn enter(&mut self, due_ns: u64, due: Due) {
        self.entered += 1;
        self.entries.insert((due_ns.max(self.now_ns), self.entered), due);
    }

    /// The next event and its time.
    pub(super) fn first(&self) -> Option<(u64, &Due)> {
        self.entries.first_key_value().map(|((due_ns, _), due)| (*due_ns, due))
    }

    /// Removes the next event without moving the clock, because it has become void.
    pub(super) fn discard_first(&mut self) {
        self.entries.pop_first();
    }

    /// Removes the next event and moves the clock to its time.
    pub(super) fn advance(&mut self) -> Option<Due> {
        let ((due_ns, _), due) = self.entries.pop_first()?;
        self.now_ns = due_ns;
        Some(due)
    }

    /// Moves the clock forward to `time_ns`, but not beyond the next event.
    pub(super) fn pass_time(&mut self, time_ns: u64) {
        let next_ns = self.first().map_or(u64::MAX, |(due_ns, _)| due_ns);
        self.now_ns = self.now_ns.max(time_ns.min(next_ns));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_happen_in_the_order_of_time_and_ties_keep_their_order() {
        let mut agenda = Agenda::default();
        let store = |update| Due::Store { update };
        for (due_ns, update) in [(30, 1), (10, 2), (30, 3), (20, 4)] {
            agenda.enter(due_ns, store(update));
        }
        agenda.pass_time(15);
        assert_eq!(agenda.now_ns(), 10, "time does not pass over what is due");
        assert_eq!(agenda.advance(), Some(store(2)));
        agenda.enter(0, store(5));
        let order: Vec<_> =
            std::iter::from_fn(|| agenda.advance().map(|due| (agenda.now_ns(), due))).collect();
        assert_eq!(order, [(10, store(5)), (20, store(4)), (30, store(1)), (30, store(3))]);
    }
}
