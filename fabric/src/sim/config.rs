//! Defines the configuration of a simulated network: delays, tearing, order, atomicity, random
//! faults.
//!
//! Invariants
//! - Every configuration stays within the crate's guarantees, so a correct protocol survives every
//!   one.

use std::{ops::RangeInclusive, time::Duration};

/// How a simulated network behaves. The default is as hostile as this crate's guarantees allow,
/// except that nothing is lost and no place crashes unless a test asks for it.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// How long an operation travels to the peer, and its completion back.
    pub delay: RangeInclusive<Duration>,
    /// How long after its arrival a piece of a write becomes visible to the memory's owner, or a
    /// piece of a read is read.
    pub landing: RangeInclusive<Duration>,
    /// How long a remote atomic takes from its load to its store, if [`Atomicity::AgainstAtomics`].
    pub atomic_gap: RangeInclusive<Duration>,
    /// How long a survivor takes to learn that its peer is lost.
    pub notice: RangeInclusive<Duration>,
    /// How writes and reads are cut into pieces.
    pub tearing: Tearing,
    /// The order in which pieces of writes become visible.
    pub order: Order,
    /// What a remote atomic is atomic against.
    pub atomicity: Atomicity,
    /// Random faults.
    pub chance: Chance,
    /// Whether another thread may still do something when the network is idle.
    pub threads: Threads,
}

/// How the bytes of a write or read are cut into pieces. A piece is moved at one time. Pieces begin
/// and end at multiples of the granule in the remote memory, so an aligned word of 8 bytes is never
/// torn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tearing {
    /// Not at all.
    Whole,
    /// At multiples of 8 bytes.
    At8,
    /// At multiples of 64 bytes.
    At64,
    /// One of the three ways at random for each transfer.
    Drawn,
}

/// The order in which pieces of the writes of one connection become visible, up to the next
/// message, immediate, atomic or read of that connection, which comes after all of them. Where two
/// writes overlap, the later one becomes visible last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Write by write, from the lowest address to the highest. Many adapters do this, and none has
    /// to.
    Ascending,
    /// Any order.
    Any,
}

/// What a remote atomic is atomic against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomicity {
    /// Everything.
    Full,
    /// Other remote atomics only: a store of the owner, or a remote write, between its load and its
    /// store is lost.
    AgainstAtomics,
}

/// Random faults. The default is none.
#[derive(Debug, Clone, Default)]
pub struct Chance {
    /// In how many of a million steps one connection is lost.
    pub loss_per_million: u32,
    /// In how many of a million steps one place crashes.
    pub crash_per_million: u32,
    /// Maximum number of random losses and crashes in the life of the network.
    pub faults_max: u32,
    /// The places that may crash at random; empty means all except the anonymous one.
    pub mortal: Vec<String>,
}

/// Whether another thread may still do something when the network is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// No: waiting on an idle network returns at once. Runs are deterministic.
    One,
    /// Yes: waiting on an idle network sleeps until the deadline. Safe, but the threads' races
    /// decide what happens.
    Many,
}

impl Default for SimConfig {
    fn default() -> Self {
        let us = Duration::from_micros;
        Self {
            delay: Duration::from_nanos(500)..=us(5),
            landing: us(0)..=us(5),
            atomic_gap: us(0)..=us(5),
            notice: us(10)..=us(1000),
            tearing: Tearing::Drawn,
            order: Order::Any,
            atomicity: Atomicity::AgainstAtomics,
            chance: Chance::default(),
            threads: Threads::One,
        }
    }
}

impl SimConfig {
    /// The most benign network: constant delays, no tearing, writes become visible in order,
    /// atomics are atomic against everything. If a protocol fails here, too, the cause is none of
    /// these.
    #[must_use]
    pub fn calm() -> Self {
        let us = Duration::from_micros;
        Self {
            delay: us(1)..=us(1),
            landing: us(0)..=us(0),
            atomic_gap: us(0)..=us(0),
            notice: us(10)..=us(10),
            tearing: Tearing::Whole,
            order: Order::Ascending,
            atomicity: Atomicity::Full,
            ..Self::default()
        }
    }
}
