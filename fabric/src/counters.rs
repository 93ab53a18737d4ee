//! Defines the counters of a connection.
//!
//! Invariants
//! - The counters are always compiled in, plain numbers, and never reset. The difference between
//!   two copies is what happened between them.

/// Totals of one connection, counted by this side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Writes posted, of every kind.
    pub writes: u64,
    /// Bytes in them.
    pub written_bytes: u64,
    /// Reads posted.
    pub reads: u64,
    /// Bytes in them.
    pub read_bytes: u64,
    /// Messages posted.
    pub sends: u64,
    /// Bytes in them.
    pub sent_bytes: u64,
    /// Fetch-adds and compare-swaps posted.
    pub atomics: u64,
    /// Messages received.
    pub messages: u64,
    /// Bytes in them.
    pub received_bytes: u64,
    /// Immediates received.
    pub immediates: u64,
    /// Operations that completed with success.
    pub completed: u64,
    /// Operations that completed with an error.
    pub failed: u64,
    /// Times that `wait` went to sleep in the kernel.
    pub sleeps: u64,
}
