//! Defines workloads: the operations of transactions, the distribution of their keys, and the share
//! of each operation.
//!
//! - `micro`, the paper's own: a transaction is n GETs or n PUTs of distinct keys out of K ("RAMP
//!   with RDMA", Murata, Kawashima and Tatebe 2017, section 5).
//! - `ycsb-a` to `ycsb-f`: the core workloads of the Yahoo! Cloud Serving Benchmark (Cooper et al.,
//!   SoCC 2010), with the shares and distributions of its files `workloada` to `workloadf`. As in
//!   the paper, a transaction does to n distinct records what YCSB does to one. A record is one
//!   value, and an update writes all of it.
//!
//! Invariants
//! - The same seed gives the same transactions, as long as no other session inserts.
//! - The keys of one transaction are distinct. They were written before, except those that the
//!   transaction inserts.
//! - A read and the write that modifies its result are two transactions, because no algorithm here
//!   makes them one.

mod draw;
mod inserts;
mod names;

pub use draw::{Drawer, Kind};
pub use inserts::Inserts;
pub use names::{Names, key_name};

use crate::limits::{KEYS_MAX, TRANSACTION_KEYS_MAX, VALUE_BYTES_LEAST, VALUE_BYTES_MOST};
use serde::{Serialize, Serializer};
use std::{fmt, ops::RangeInclusive, str::FromStr};

/// The range of YCSB's scan lengths, drawn uniformly: `maxscanlength`.
pub const SCAN_KEYS: RangeInclusive<u32> = 1..=100;
/// The skew of YCSB's zipfian and latest distributions.
pub const YCSB_SKEW: f64 = 0.99;

/// Mixes of operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mix {
    /// Reads and writes.
    Micro {
        /// Share of read transactions, from 0 to 1.
        read_share: f64,
    },
    /// A core workload.
    Ycsb(Core),
}

/// YCSB's core workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Core {
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// 95 % reads of what was inserted latest, 5 % inserts.
    D,
    /// 95 % short scans, 5 % inserts.
    E,
    /// Half reads, half reads followed by a write of what was read.
    F,
}

impl Core {
    /// All core workloads.
    pub const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::D, Self::E, Self::F];

    /// The name by which users choose it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "ycsb-a",
            Self::B => "ycsb-b",
            Self::C => "ycsb-c",
            Self::D => "ycsb-d",
            Self::E => "ycsb-e",
            Self::F => "ycsb-f",
        }
    }

    /// YCSB's distribution of the keys.
    #[must_use]
    pub fn choice(self) -> Choice {
        if self == Self::D { Choice::Latest } else { Choice::Zipfian }
    }
}

impl Mix {
    /// `micro`, or the core workload's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Micro { .. } => "micro",
            Self::Ycsb(core) => core.name(),
        }
    }

    /// The share of transactions of each kind; a core workload's remainder is of its first kind.
    pub(crate) fn shares(self) -> (Kind, f64, Kind) {
        match self {
            Self::Micro { read_share } => (Kind::Read, read_share, Kind::Write),
            Self::Ycsb(Core::A) => (Kind::Read, 0.5, Kind::Write),
            Self::Ycsb(Core::B) => (Kind::Read, 0.95, Kind::Write),
            Self::Ycsb(Core::C) => (Kind::Read, 1.0, Kind::Read),
            Self::Ycsb(Core::D) => (Kind::Read, 0.95, Kind::Insert),
            Self::Ycsb(Core::E) => (Kind::Scan, 0.95, Kind::Insert),
            Self::Ycsb(Core::F) => (Kind::Read, 0.5, Kind::Modify),
        }
    }
}

/// Distributions of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Choice {
    /// All loaded keys are equally likely.
    #[default]
    Uniform,
    /// YCSB's scrambled zipfian distribution: ranks out of 10^10 with a skew of 0.99, spread over
    /// the loaded keys by a hash.
    Zipfian,
    /// The key inserted last is the most popular, the one before it next, with a skew of 0.99.
    Latest,
}

impl Choice {
    /// All distributions.
    pub const ALL: [Self; 3] = [Self::Uniform, Self::Zipfian, Self::Latest];

    /// The name by which users choose it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipfian => "zipfian",
            Self::Latest => "latest",
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Choice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A name that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {what} '{found}' does not exist, expected one of {expected}")]
pub struct NoSuchName {
    /// What it should name.
    pub what: &'static str,
    /// The name.
    pub found: String,
    /// The names that exist.
    pub expected: String,
}

pub(super) fn named<T: Copy>(
    what: &'static str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
    text: &str,
) -> Result<T, NoSuchName> {
    let found = all.iter().copied().find(|one| name(*one) == text);
    found.ok_or_else(|| {
        let expected = all.iter().map(|one| name(*one)).collect::<Vec<_>>().join(", ");
        NoSuchName { what, found: text.to_owned(), expected }
    })
}

impl FromStr for Choice {
    type Err = NoSuchName;

    fn from_str(text: &str) -> Result<Self, NoSuchName> {
        named("distribution", &Self::ALL, Self::name, text)
    }
}

impl FromStr for Core {
    type Err = NoSuchName;

    fn from_str(text: &str) -> Result<Self, NoSuchName> {
        named("core workload", &Self::ALL, Self::name, text)
    }
}

/// A range from a minimum to a maximum; equal if all numbers are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The minimum.
    pub least: u32,
    /// The maximum.
    pub most: u32,
}

impl Span {
    /// A span that contains only `value`.
    #[must_use]
    pub fn of(value: u32) -> Self {
        Self { least: value, most: value }
    }

    fn within(self, least: u32, most: u32) -> bool {
        least <= self.least && self.least <= self.most && self.most <= most
    }

    pub(crate) fn draw(self, random: &mut fastrand::Rng) -> u32 {
        if self.least == self.most { self.least } else { random.u32(self.least..=self.most) }
    }
}

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// The operations.
    pub mix: Mix,
    /// Distribution of the keys.
    pub choice: Choice,
    /// Number of keys to load first.
    pub keys: u32,
    /// Keys per transaction, except of scans.
    pub size: Span,
    /// Bytes of each value.
    pub value_bytes: Span,
}

/// Why a workload is not possible.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// A share outside of 0 to 1.
    #[error("a read share of {found} is not possible; expected 0 to 1")]
    Share {
        /// The share.
        found: f64,
    },
    /// Transactions without keys, with too many, or with more than there are.
    #[error(
        "transactions of {least} to {most} keys out of {keys} are not possible; expected 1 to {TRANSACTION_KEYS_MAX} keys in each transaction, \
         and twice as many loaded keys: give more keys, at most {KEYS_MAX}, or smaller transactions"
    )]
    Keys {
        /// Keys of the smallest transaction.
        least: u32,
        /// Keys of the largest transaction.
        most: u32,
        /// Number of loaded keys.
        keys: u32,
    },
    /// Values that are too short or too long.
    #[error(
        "values of {least} to {most} bytes are not possible; expected {VALUE_BYTES_LEAST} to {VALUE_BYTES_MOST} bytes"
    )]
    Values {
        /// Bytes of the shortest.
        least: u32,
        /// Bytes of the longest.
        most: u32,
    },
}

impl Workload {
    /// The paper's benchmark: `size` GETs or PUTs per transaction, uniform keys, values of 1 KB.
    #[must_use]
    pub fn micro(read_share: f64, size: u32, keys: u32) -> Self {
        let (size, value_bytes) = (Span::of(size), Span::of(1000));
        Self { mix: Mix::Micro { read_share }, choice: Choice::Uniform, keys, size, value_bytes }
    }

    /// A core workload with the distribution that YCSB gives it, and values of 1 KB.
    #[cfg(test)]
    pub(super) fn ycsb(core: Core, size: u32, keys: u32) -> Self {
        let (size, value_bytes) = (Span::of(size), Span::of(1000));
        Self { mix: Mix::Ycsb(core), choice: core.choice(), keys, size, value_bytes }
    }

    /// Checks that the workload is possible.
    ///
    /// # Errors
    /// [`WorkloadError`].
    pub fn check(&self) -> Result<(), WorkloadError> {
        let Self { mix, keys, size, value_bytes, .. } = *self;
        if let Mix::Micro { read_share } = mix
            && !(0.0..=1.0).contains(&read_share)
        {
            return Err(WorkloadError::Share { found: read_share });
        }
        // Twice as many keys, so that distinct ones are drawn quickly.
        if !size.within(1, TRANSACTION_KEYS_MAX) || keys > KEYS_MAX || keys < 2 * size.most {
            return Err(WorkloadError::Keys { least: size.least, most: size.most, keys });
        }
        if !value_bytes.within(VALUE_BYTES_LEAST, VALUE_BYTES_MOST) {
            return Err(WorkloadError::Values { least: value_bytes.least, most: value_bytes.most });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
