//! Which step of a run is this, and who has no power any more?
//!
//! Invariants
//! - Whatever changes a device or a file is a step of the node whose it is, and so is every request
//!   of the client. A step of who has no power does not happen.
//! - Steps are counted the same in two runs of one seed until somebody loses power in one of them.

use std::sync::{Mutex, MutexGuard};

/// Whose step: a node by its place, or the client, behind the last one.
pub(super) type Place = usize;

/// When power is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// Before this step of all.
    OfAll(u64),
    /// Before this step of its own.
    OfItsOwn(u64),
}

/// Who loses power when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) who: Place,
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
    /// Everybody has power, until the cuts.
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

    /// Counts anew, with these cuts.
    pub(super) fn count_anew(&self, cuts: Vec<Cut>) {
        let mut state = self.state();
        (state.of_all, state.cuts) = (0, cuts);
        state.own.fill(0);
    }

    /// A step of somebody; whether it happens.
    pub(super) fn step(&self, who: Place) -> bool {
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

    /// Whether steps do not count now, because somebody only looks.
    pub(super) fn hold(&self, is_held: bool) {
        self.state().is_held = is_held;
    }

    pub(super) fn is_on(&self, who: Place) -> bool {
        !self.state().is_off[who]
    }

    /// Somebody has power again.
    pub(super) fn restore(&self, who: Place) {
        self.state().is_off[who] = false;
    }

    /// Steps of all, and of each.
    pub(super) fn steps(&self) -> (u64, Vec<u64>) {
        let state = self.state();
        (state.of_all, state.own.clone())
    }
}
