//! What does a home write down before it answers, and what of it is read again after a crash?
//!
//! - `record`: what is written down. - `frame`: how records follow each other, and where what can
//!   be read ends. - `follow`: the same, of a log that comes in pieces.
//! - `recover`: a store from what was read.

mod follow;
mod frame;
mod record;
mod recover;

pub use follow::Follower;
pub use frame::{Batch, Cut, Damage, HeaderFault, LogWriter, Tail, read};
pub use record::{Record, RecordFault};
pub use recover::{RecoverError, recover, snapshot_records};

#[cfg(test)]
mod tests;
