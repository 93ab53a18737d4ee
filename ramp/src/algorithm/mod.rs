//! Coordinates transactions: decides which messages a transaction sends, and what it has read or
//! written in the end.
//!
//! All algorithms have one interface: `begin_read` and `begin_write` return a [`Coordinator`] and
//! its first messages; each [`Event`] returns a [`Step`]: more messages, and finally an
//! [`Outcome`]. The owner of the connections delivers the messages. A coordinator does not notice
//! whether a GET was one-sided: the owner of the connections reads slots, answers
//! [`Request::Get`](crate::message::Request::Get) key by key from them, and asks the participant
//! only for the remaining keys.
//!
//! | algorithm | write | read | a version carries |
//! |---|---|---|---|
//! | `ramp-fast` | PREPARE, COMMIT | GET; then missed sibling versions, by their timestamps | its write set |
//! | `ramp-small` | PREPARE, COMMIT | timestamps; then the newest version of those timestamps | its timestamp |
//! | `ramp-hybrid` | PREPARE, COMMIT | GET; then versions that a sibling's filter may name, by their timestamps | a Bloom filter |
//! | `s2pl` | locks, PREPARE, COMMIT | locks | its timestamp |
//! | `none` | PUT | GET | its timestamp |
//!
//! Sibling versions are the versions that one transaction wrote, at different keys.
//!
//! - `choice`: the algorithms by name, and the metadata of the versions that each of them writes.
//!   `coordinator`: begins transactions and dispatches events. `step`: events, steps and outcomes.
//! - `read`: reads of `ramp-fast`, `ramp-hybrid` and `none`. `small`: reads of `ramp-small`.
//!   `write`: two-phase writes. `locking`: `s2pl`. `none`: writes without concurrency control.
//!   `scan`: lists keys.
//!
//! Invariants
//! - COMMIT is sent only when it is known that all participants have prepared, ABORT only after one
//!   has refused.
//! - [`Outcome::Committed`] is returned after all participants have committed, and
//!   [`Outcome::Aborted`] only if no version of the transaction can ever be visible. Every other
//!   outcome reports what is known, and which participants have not answered.
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
