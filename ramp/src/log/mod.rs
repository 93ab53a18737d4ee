//! Writes the records that a participant must not lose, and recovers its store from them after a
//! crash.
//!
//! - `record`: the records and their bytes.
//! - `tail`: the header of a log, and the position of its next record.
//! - `frame`: the framing of records, and reading them up to the first damaged one.
//! - `follow`: checks a log that arrives in pieces, as at a log replica.
//! - `recover`: builds a store from the records of a log, and the records of a new log from a
//!   store.

mod follow;
mod frame;
mod record;
mod recover;
mod tail;

pub use follow::Follower;
pub use frame::{Batch, Cut, Damage, LogWriter, read};
pub use record::{Record, RecordFault};
pub use recover::{RecoverError, recover, snapshot_records};
pub use tail::{HeaderFault, Tail};

#[cfg(test)]
mod tests;
