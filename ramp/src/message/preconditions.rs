//! Defines the conditions that a request attaches to a part, in addition to the checks that a
//! participant always makes.
//!
//! Invariants
//! - A write without conditions carries a clock reading and an empty list.
//! - Conditions are checked when the participant votes, and never again. The log does not contain
//!   them: a prepared version implies that its conditions held.

use crate::{limits::WRITE_KEYS_MAX, list, timestamp::Timestamp};
use serde::{Deserialize, Serialize};

/// Conditions of a part. By default there are none, and the clock reading is 0, which is not ahead
/// of any clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preconditions {
    /// The wall clock of the client when it made the timestamp, in milliseconds since 1970. The
    /// participant compares this reading with its own clock. It does not compare the timestamp,
    /// which may correctly be ahead of all clocks if the client has heard of a newer one.
    pub wall_ms: u64,
    /// Positions of items in the part, ascending, each with the timestamp that the newest version
    /// of its key, prepared or committed, must have; [`Timestamp::FIRST`] if there must be no
    /// version.
    #[serde(deserialize_with = "list::at_most::<_, _, WRITE_KEYS_MAX>")]
    pub expected: Vec<(u32, Timestamp)>,
}
