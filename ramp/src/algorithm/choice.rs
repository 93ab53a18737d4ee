//! Defines the algorithms by name, and which metadata the versions carry that each of them writes.

use crate::{
    bloom::Bloom,
    item::{Fingerprint, Key, Metadata},
};
use std::{fmt, str::FromStr};

/// An algorithm for concurrency control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RAMP-Fast: a read takes one round, or two if it overlaps a write.
    Fast,
    /// RAMP-Small: the least metadata; a read always takes two rounds.
    Small,
    /// RAMP-Hybrid: RAMP-Fast with filters in place of write sets.
    Hybrid,
    /// Strict two-phase locking.
    Locking,
    /// No concurrency control.
    None,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 5] = [Self::Fast, Self::Small, Self::Hybrid, Self::Locking, Self::None];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "ramp-fast",
            Self::Small => "ramp-small",
            Self::Hybrid => "ramp-hybrid",
            Self::Locking => "s2pl",
            Self::None => "none",
        }
    }

    /// The metadata of versions that a transaction writes to these keys.
    #[must_use]
    pub fn metadata(self, keys: &[Key]) -> Metadata {
        let mut set: Vec<Fingerprint> = keys.iter().map(Key::fingerprint).collect();
        set.sort_unstable();
        match self {
            // A transaction with one key has no siblings.
            _ if keys.len() <= 1 => Metadata::Timestamp,
            Self::Fast => Metadata::WriteSet(set),
            Self::Hybrid => Metadata::Filter(Bloom::of(&set)),
            Self::Small | Self::Locking | Self::None => Metadata::Timestamp,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no algorithm of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the algorithm '{found}' does not exist, expected one of {}", Algorithm::ALL.map(Algorithm::name).join(", "))]
pub struct NoSuchAlgorithm {
    /// The name.
    pub found: String,
}

impl FromStr for Algorithm {
    type Err = NoSuchAlgorithm;

    fn from_str(text: &str) -> Result<Self, NoSuchAlgorithm> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name() == text);
        found.ok_or_else(|| NoSuchAlgorithm { found: text.to_owned() })
    }
}
