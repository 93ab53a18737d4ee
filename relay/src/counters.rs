//! Counts what a node or a writer has sent, received, summed and stored.
//!
//! Invariant: counters are plain numbers, compiled into every build and never reset. The difference
//! of two copies is what happened between them.

/// Totals of a node or a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Stripes that were stored.
    pub stripes: u64,
    /// Bytes of slices sent.
    pub sent_bytes: u64,
    /// Bytes of slices received.
    pub received_bytes: u64,
    /// Bytes of slices that were inputs of sums.
    pub xored_bytes: u64,
    /// Bytes of kept cells whose checksum was found right.
    pub kept_bytes: u64,
    /// Bytes given to devices.
    pub stored_bytes: u64,
    /// Bytes of held cells asked of devices.
    pub read_bytes: u64,
    /// How often a slice had to wait for room at its receiver.
    pub waits_for_credit: u64,
    /// Bytes that the fabric counts as written by one-sided writes: slices, their names, and
    /// credits.
    pub written_bytes: u64,
    /// Messages sent.
    pub messages: u64,
}
