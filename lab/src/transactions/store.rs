//! Defines the interface of a store whose transactions can be measured and checked.
//!
//! Invariants
//! - A session belongs to one thread and runs one transaction at a time.
//! - A failed write reports whether it was aborted, never began, or has an unknown outcome, because
//!   a check must know which writes later reads may find.

use rackscan_ramp::{
    item::{Key, Value, Version},
    timestamp::Timestamp,
};

/// A session of a client.
pub trait TransactionStore {
    /// Reads distinct keys. The answer has each of them, in any order.
    ///
    /// # Errors
    /// Nothing was read.
    fn read(&mut self, keys: &[Key]) -> Result<ReadDone, Failure>;

    /// Writes values under keys in one transaction. Returns its timestamp.
    ///
    /// # Errors
    /// It was not acknowledged everywhere; [`WriteFailure::end`] says what is known.
    fn write(&mut self, items: Vec<(Key, Value)>) -> Result<Timestamp, WriteFailure>;

    /// Reads at most `count` keys that begin with `prefix`, starting at `from`, in byte order.
    /// `None` if this store has no scans; the caller then reads the keys one by one.
    ///
    /// # Errors
    /// Nothing was read.
    fn scan(&mut self, prefix: &[u8], from: &Key, count: usize) -> Result<Option<ReadDone>, Failure> {
        let _ = (prefix, from, count);
        Ok(None)
    }
}

/// Result of a read.
#[derive(Clone, Debug, Default)]
pub struct ReadDone {
    /// The version found for each key.
    pub items: Vec<(Key, Version)>,
    /// Number of round trips, at least 1; a reader that copied slots of a process on this host
    /// counts one for all of them.
    pub rounds: u32,
    /// Keys that were read one-sidedly.
    pub one_sided: u32,
}

/// Why a transaction failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Failure {
    /// Kind of the failure, one of a few, in a word or two: failures are counted by it.
    pub kind: &'static str,
    /// Message.
    pub why: String,
    /// Whether the session can no longer be used and another one must be opened.
    pub session_over: bool,
}

/// Why a write failed, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{failure}")]
pub struct WriteFailure {
    /// The cause.
    pub failure: Failure,
    /// What is known of its outcome.
    pub end: WriteEnd,
}

/// What is known of a write that was not acknowledged everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEnd {
    /// No participant was asked: nobody can ever read it.
    NotBegun,
    /// Nobody can ever read it.
    Aborted(Timestamp),
    /// It may become visible, now or later, as a whole or not at all.
    Unknown(Timestamp),
}

/// Opens the session of a thread, on that thread. It is called again after a failure that ended the
/// session.
pub type OpenSession<'a> = dyn Fn(u32) -> Result<Box<dyn TransactionStore + 'a>, Failure> + Sync + 'a;
