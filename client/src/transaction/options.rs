//! Defines the options of a session: how it reads and writes keys, and how transactions are
//! isolated.

use std::{fmt, str::FromStr, time::Duration};

use rackscan_fabric::WallClock;
use rackscan_ramp::algorithm::Algorithm;

use crate::{
    LinesOptions,
    limits::{PLACES_MAX_DEFAULT, SESSION_TIMEOUT_DEFAULT},
};

/// The operations by which keys are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operations {
    /// Reads and writes by messages.
    Messages,
    /// Reads and writes by requests in post boxes, which the participant polls and answers
    /// likewise, where they fit; else by messages.
    Posted,
    /// One-sided reads of slots whose places are known; other reads, and writes, like
    /// [`Operations::Posted`].
    OneSided,
}

impl Operations {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::Messages, Self::Posted, Self::OneSided];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Messages => "get/put",
            Self::Posted => "get+/put+",
            Self::OneSided => "get*/put+",
        }
    }
}

impl fmt::Display for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error of a name that no operations have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operations '{found}' do not exist, expected one of {}", Operations::ALL.map(Operations::name).join(", "))]
pub struct NoSuchOperations {
    /// The name.
    pub found: String,
}

impl FromStr for Operations {
    type Err = NoSuchOperations;

    fn from_str(text: &str) -> Result<Self, NoSuchOperations> {
        let found = Self::ALL.into_iter().find(|operations| operations.name() == text);
        found.ok_or_else(|| NoSuchOperations { found: text.to_owned() })
    }
}

/// Options of a session.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// All nodes of the cluster, and how to reach them. With locks the patience is never shorter
    /// than the timeout; whether post boxes are used follows from the operations.
    pub lines: LinesOptions,
    /// The algorithm that isolates transactions.
    pub algorithm: Algorithm,
    /// The operations by which keys are read and written.
    pub operations: Operations,
    /// Whether the session will read. A session that only writes needs no old versions and holds no
    /// leases while it is idle; if it reads all the same, its reads find no lease and time out.
    pub reads: bool,
    /// How long a transaction may take.
    pub timeout: Duration,
    /// Maximum number of places of keys that are remembered.
    pub places_max: usize,
    /// The clock for timestamps.
    pub wall: WallClock,
}

impl SessionOptions {
    /// Options with RAMP-Fast over messages, the default timeout and number of places, and this
    /// host's clock.
    #[must_use]
    pub fn new(lines: LinesOptions) -> Self {
        let (algorithm, operations) = (Algorithm::Fast, Operations::Messages);
        let (timeout, places_max) = (SESSION_TIMEOUT_DEFAULT, PLACES_MAX_DEFAULT);
        Self { lines, algorithm, operations, reads: true, timeout, places_max, wall: WallClock::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_chosen_by_their_names() {
        for operations in Operations::ALL {
            assert_eq!(operations.name().parse(), Ok(operations));
        }
        let error = "get".parse::<Operations>().unwrap_err().to_string();
        assert!(error.contains("'get'") && error.contains("get/put, get+/put+, get*/put+"), "{error}");
    }
}
