//! Defines the bounds of what is derived from rows.
//!
//! The size of the delta store itself is bounded by the memory budgets of the participants, which
//! include derived entries.
//!
//! Invariant: every bound of this crate is here; relations are asserted at compile time.

use rackscan_ramp::limits::KEY_BYTES_MAX;

/// The maximum bytes of a derived item's key beside the value: prefix 2, table 4, number 2, role 1,
/// identity 17.
pub const ENTRY_OVERHEAD_BYTES: usize = 26;

// A number always fits into the key of an entry, and so does a short text.
const _: () = assert!(ENTRY_OVERHEAD_BYTES + 9 <= KEY_BYTES_MAX / 8);
