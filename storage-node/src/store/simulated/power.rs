//! Counts the steps of a run, and turns the power of a party off before chosen steps. A party is a
//! node or the client.
//!
//! Invariants
//! - Every change of a device or a file is a step of its node, and every request is a step of the
//!   client. A step of a party without power does not happen.
//! - Two runs of one seed count the same steps until a party loses power in one of them.

use std::sync::{Mutex, MutexGuard};

/// The party of a step: a node by its index, or the client, after the last one.
pub(super) type Party = usize;

/// When power is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// Before this step, counted over all parties.
    OfAll(u64),
    /// Before this step of the party itself.
    OfItsOwn(u64),
}

/// The party that loses power, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) who: Party,
    pub(super) when: Moment,
}

#[derive(Debug)]
struct State {
    of_all: u64,
    own: Vec<u64>,
    is_off: Vec<bool>,
    cuts: Vec<Cut>,
    is_held: bool,
}

/// The power of all nodes and of the client.
#[derive(Debug)]
pub(super) struct Power {
    state: Mutex<State>,
}

impl Power {
    /// All parties have power, until these cuts.
    pub(super) fn new(places: usize) -> Self {
        let state = State {
            of_all: 0,
            own: vec![0; places],
            is_off: vec![false; places],
            cuts: Vec::new(),
            is_held: false,
        };
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Restarts counting, with these cuts.
    pub(super) fn count_anew(&self, cuts: Vec<Cut>) {
        let mut state = self.state();
        (state.of_all, state.cuts) = (0, cuts);
        state.own.fill(0);
    }

    /// Counts a step of a party. Returns whether it happens.
    pub(super) fn step(&self, who: Party) -> bool {
        let mut state = self.state();
        if state.is_held {
            return !state.is_off[who];
        }
        state.of_all += 1;
        state.own[who] += 1;
        let State { of_all, own, is_off, cuts, .. } = &mut *state;
        let is_now = |cut: &Cut| match cut.when {
            Moment::OfAll(step) => *of_all >= step,
            Moment::OfItsOwn(step) => own[cut.who] >= step,
        };
        cuts.iter().filter(|cut| is_now(cut)).for_each(|cut| is_off[cut.who] = true);
        cuts.retain(|cut| !is_now(cut));
        !is_off[who]
    }

    /// Sets whether steps are not counted, because the test only inspects.
    pub(super) fn hold(&self, is_held: bool) {
        self.state().is_held = is_held;
    }

    pub(super) fn is_on(&self, who: Party) -> bool {
        !self.state().is_off[who]
    }

    /// Gives a party power again.
    pub(super) fn restore(&self, who: Party) {
        self.state().is_off[who] = false;
    }

    /// The steps of all parties, and of each.
    pub(super) fn steps(&self) -> (u64, Vec<u64>) {
        let state = self.state();
        (state.of_all, state.own.clone())
    }
}
