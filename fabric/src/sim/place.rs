//! Keeps the places of a simulated network: who listens at each, and which of them are cut off from
//! each other. A *place* stands for a process.
//!
//! Invariants
//! - A place has at most one listener. Callers that wait for it are bounded by `ACCEPT_QUEUE_MAX`.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use crate::{doorbell::Doorbell, error::ConnectError, key::ClusterKey};

/// The place that plain [`crate::connect`] calls from.
pub const ANONYMOUS: &str = "anonymous";

/// A listener at a place.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) number: u64,
    pub(super) key: ClusterKey,
    /// Links whose listening end waits to be accepted, and refusals of callers.
    pub(super) arrivals: VecDeque<Result<u64, ConnectError>>,
    pub(super) bell: Arc<Doorbell>,
}

/// One place.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) listening: Option<Listening>,
    pub(super) crashes: u64,
}

/// All places, in the order in which they were first named.
#[derive(Debug, Default)]
pub(super) struct Places {
    all: Vec<Place>,
    cuts: BTreeSet<(usize, usize)>,
}

fn pair(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
}

impl Places {
    /// The number of the place with this name; a new one if there was none.
    pub(super) fn number(&mut self, name: &str) -> usize {
        self.find(name).unwrap_or_else(|| {
            self.all.push(Place { name: name.to_owned(), listening: None, crashes: 0 });
            self.all.len() - 1
        })
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|place| place.name == name)
    }

    pub(super) fn get(&mut self, number: usize) -> Option<&mut Place> {
        self.all.get_mut(number)
    }

    pub(super) fn name(&self, number: usize) -> &str {
        self.all.get(number).map_or("?", |place| place.name.as_str())
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.all.iter().map(|place| place.name.as_str()).collect()
    }

    pub(super) fn cut(&mut self, one: usize, other: usize) {
        self.cuts.insert(pair(one, other));
    }

    pub(super) fn repair(&mut self, one: usize, other: usize) {
        self.cuts.remove(&pair(one, other));
    }

    pub(super) fn is_cut(&self, one: usize, other: usize) -> bool {
        self.cuts.contains(&pair(one, other))
    }
}
