//! Coordinates transactions: which messages they send, and what they have read or written in the
//! end.
//!
//! All algorithms have one interface: `begin_read` and `begin_write` return a [`Coordinator`] and
//! its first messages; each [`Event`] returns a [`Step`]: more messages, and finally an
//! [`Outcome`]. The owner of the connections delivers the messages. A one-sided GET looks the same
//! to a coordinator: its owner answers [`Request::Get`](crate::message::Request::Get) key by key
//! with what it read from slots, and asks the participant for the remaining keys.
//!
//! | algorithm | write | read | a version carries |
//! |---|---|---|---|
//! | `ramp-fast` | PREPARE, COMMIT | GET; then missed sibling versions, by their timestamps | its write set |
//! | `ramp-small` | PREPARE, COMMIT | timestamps; then the newest version of those timestamps | its timestamp |
//! | `ramp-hybrid` | PREPARE, COMMIT | GET; then versions that a sibling's filter may name, by their timestamps | a Bloom filter |
//! | `s2pl` | locks, PREPARE, COMMIT | locks | its timestamp |
//! | `none` | PUT | GET | its timestamp |
//!
//! - `choice`: the algorithms by name. `coordinator`: begins transactions and dispatches events.
//!   `step`: events, steps and outcomes.
//! - `read`: reads of `ramp-fast`, `ramp-hybrid` and `none`. `small`: reads of `ramp-small`.
//!   `write`: two-phase writes. `locking`: `s2pl`. `none`: writes without concurrency control.
//!   `scan`: lists keys.
//!
//! Invariants
//! - COMMIT is sent after all participants have said that they prepared, ABORT after one has
//!   refused. Nothing else decides.
//! - [`Outcome::Committed`] is returned after all participants have committed, and
//!   [`Outcome::Aborted`] only if nothing of the transaction can ever be visible. Every other
//!   outcome says what is known, and which participants have not answered.
//! - RAMP reads wait for participants only, never for other transactions, and take at most two
//!   rounds.
//! - The coordinator uses no clock, no connection and no thread.

mod choice;
mod coordinator;
mod locking;
mod none;
mod read;
mod scan;
mod small;
mod step;
mod write;

pub use crate::termination::Message;
pub use choice::{Algorithm, NoSuchAlgorithm};
pub use coordinator::{Begun, Cluster, Coordinator, KeyCount, begin_listing};
pub use step::{Abortion, Event, Interruption, Outcome, Step};

#[cfg(test)]
mod tests;
