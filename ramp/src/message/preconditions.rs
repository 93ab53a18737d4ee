//! What must be so for a part to be prepared, beside what is always checked?
//!
//! Invariants
//! - A write without conditions carries a clock reading and an empty list.
//! - Conditions count when the participant votes, and never again: they are in no log, because a
//!   prepared version says that they held.

use crate::{limits::WRITE_KEYS_MAX, list, timestamp::Timestamp};
use serde::{Deserialize, Serialize};

/// Conditions of a part. By default there are none, and the client's clock is not ahead of
/// anybody's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preconditions {
    /// What the wall clock of the client said when it made the timestamp, in milliseconds
    /// since 1970. The participant compares this reading with its own clock, and not the timestamp,
    /// which is rightly ahead of all clocks where the client has heard of one that is.
    pub wall_ms: u64,
    /// Items by their positions in the part, ascending, and the timestamp of what must be the
    /// newest version of each one's key, prepared or committed; [`Timestamp::FIRST`] where there
    /// must be none.
    #[serde(deserialize_with = "list::at_most::<_, _, WRITE_KEYS_MAX>")]
    pub expected: Vec<(u32, Timestamp)>,
}
