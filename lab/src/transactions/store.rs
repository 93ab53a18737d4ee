//! What must a store be able to do, so that transactions can be measured and checked?
//!
//! Invariants
//! - A session belongs to one thread and runs one transaction at a time.
//! - A write that does not end well says what is known of it: a history with a write of which
//!   nobody knows that it happened proves nothing.

use rackscan_ramp::{
    item::{Key, Value, Version},
    timestamp::Timestamp,
};

/// A session of a client.
pub trait TransactionStore {
    /// Reads keys, each of which is named once. The answer names each of them, in any order.
    ///
    /// # Errors
    /// Nothing was read.
    fn read(&mut self, keys: &[Key]) -> Result<ReadDone, Failure>;

    /// Writes values under keys, together. Returns the transaction's timestamp.
    ///
    /// # Errors
    /// It was not acknowledged everywhere; [`WriteFailure::end`] says what is known.
    fn write(&mut self, items: Vec<(Key, Value)>) -> Result<Timestamp, WriteFailure>;

    /// Reads the next keys that begin with `prefix`, from `from` on, in the order of their bytes,
    /// `count` of them at most. `None`: this store has no scans; whoever asks reads the keys one by
    /// one.
    ///
    /// # Errors
    /// Nothing was read.
    fn scan(&mut self, prefix: &[u8], from: &Key, count: usize) -> Result<Option<ReadDone>, Failure> {
        let _ = (prefix, from, count);
        Ok(None)
    }
}

/// What a read gave.
#[derive(Clone, Debug, Default)]
pub struct ReadDone {
    /// What was found at each key.
    pub items: Vec<(Key, Version)>,
    /// Round trips, 1 at least; a reader that copied slots of a local process counts one for all of
    /// them.
    pub rounds: u32,
    /// Keys whose versions were taken without asking a node.
    pub one_sided: u32,
}

/// Why a transaction did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Failure {
    /// Its kind, one of few, in a word or two: failures are counted by it.
    pub kind: &'static str,
    /// In words.
    pub why: String,
    /// The session is of no use any more: open another one.
    pub session_over: bool,
}

/// Why a write did not succeed, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{failure}")]
pub struct WriteFailure {
    /// Why.
    pub failure: Failure,
    /// What is known.
    pub end: WriteEnd,
}

/// What is known of a write that was not acknowledged everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEnd {
    /// No home was asked: nobody can ever see it.
    NotBegun,
    /// Nobody can ever see it.
    Aborted(Timestamp),
    /// It may be seen, now or later, wholly or not at all.
    Unknown(Timestamp),
}

/// Opens the session of a thread, on that thread. It is opened anew when it fails in a way that
/// ends it.
pub type OpenSession<'a> = dyn Fn(u32) -> Result<Box<dyn TransactionStore + 'a>, Failure> + Sync + 'a;
