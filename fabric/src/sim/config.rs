//! What may a simulated network do to a protocol?
//!
//! Invariants
//! - Everything here stays inside what the crate promises on every wire; a correct protocol
//!   survives every value.

use std::{ops::RangeInclusive, time::Duration};

/// How a simulated network behaves. The default is as hostile as the promises of this crate allow,
/// except that nothing is lost and nobody crashes unless a test says so.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// How long an operation travels to the peer, and its completion back.
    pub delay: RangeInclusive<Duration>,
    /// How long after its arrival a piece of a write is seen by the memory's owner, or a piece of a
    /// read is taken.
    pub landing: RangeInclusive<Duration>,
    /// How long a remote atomic takes from its load to its store, if [`Atomicity::AgainstAtomics`].
    pub atomic_gap: RangeInclusive<Duration>,
    /// How long a survivor takes to learn that its peer is lost.
    pub notice: RangeInclusive<Duration>,
    /// Into which pieces writes and reads fall.
    pub tearing: Tearing,
    /// In which order the pieces of writes are seen.
    pub order: Order,
    /// What a remote atomic is atomic against.
    pub atomicity: Atomicity,
    /// What goes wrong by chance.
    pub chance: Chance,
    /// Whether another thread may still do something when the network is idle.
    pub threads: Threads,
}

/// Into which pieces the bytes of a write or read fall. A piece is moved at one time; pieces begin
/// and end at multiples of the granule in the remote memory, so nothing smaller than an aligned
/// word of 8 bytes is ever torn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tearing {
    /// Not at all.
    Whole,
    /// At multiples of 8 bytes.
    At8,
    /// At multiples of 64 bytes.
    At64,
    /// Each transfer in one of the three ways.
    Drawn,
}

/// In which order the pieces of the writes of one connection are seen, up to the next message,
/// immediate, atomic or read of that connection, which comes after all of them. Where two writes
/// overlap, the later one is seen last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Write by write, from the lowest address to the highest. Many adapters do this and none has
    /// to.
    Ascending,
    /// In any.
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

/// What goes wrong by chance. The default: nothing.
#[derive(Debug, Clone, Default)]
pub struct Chance {
    /// In how many of a million steps one connection is lost.
    pub loss_per_million: u32,
    /// In how many of a million steps one place crashes.
    pub crash_per_million: u32,
    /// At most so many losses and crashes by chance in the life of the network.
    pub faults_max: u32,
    /// The places that may crash by chance; empty means all but the anonymous one.
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
    /// The kindest network: the same delay always, no tearing, writes are seen in order, atomics
    /// are atomic. A protocol that fails here too is wrong for another reason than those.
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
