//! How much may be derived from a row?
//!
//! What lies beside segments is bounded by the budgets of the homes; a derived item is one of
//! theirs.
//!
//! Invariants
//! - Every bound of this crate is here; relations are asserted at compile time.

use rackscan_ramp::limits::KEY_BYTES_MAX;

/// The most bytes of a derived item's key beside the value: prefix 2, table 4, number 2, role 1,
/// identity 17.
pub const ENTRY_OVERHEAD_BYTES: usize = 26;

// A number fits the key of an entry, whatever else is in it, and so does a short text.
const _: () = assert!(ENTRY_OVERHEAD_BYTES + 9 <= KEY_BYTES_MAX / 8);
