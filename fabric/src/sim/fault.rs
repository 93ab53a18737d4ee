//! Defines the faults that can be planned for a simulated network, and when they happen.

use std::{collections::BTreeMap, time::Duration};

/// A fault of the network or of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// All connections of a place are lost, and its listener is gone. The place may listen and
    /// connect again.
    Crash {
        /// Name of the place.
        place: String,
    },
    /// Two places lose their connections to each other and cannot make new ones.
    Cut {
        /// Name of one.
        one: String,
        /// Name of the other.
        other: String,
    },
    /// Two places can make connections to each other again. If it is planned for the same moment as
    /// a cut, and after it, the two places lose only their present connections.
    Repair {
        /// Name of one.
        one: String,
        /// Name of the other.
        other: String,
    },
}

/// When a fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before the step with this number, counted from 0. [`super::SimNet::steps`] of a run without
    /// faults is the upper bound of useful numbers.
    Step(u64),
    /// After so many operations were accepted anywhere in the network.
    Post(u64),
    /// At this virtual time.
    Time(Duration),
}

/// Faults that were planned for a step or a post, and the number of random faults so far.
#[derive(Debug, Default)]
pub(super) struct Plans {
    pub(super) by_step: BTreeMap<u64, Vec<Fault>>,
    pub(super) by_post: BTreeMap<u64, Vec<Fault>>,
    pub(super) by_chance: u32,
}
