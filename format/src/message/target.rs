//! Describes registered memory of the requester, which a node reads or writes one-sidedly.

use serde::{Deserialize, Serialize};

/// Registered memory of the requester, as the fabric identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The region's key.
    pub key: u64,
    /// Offset from the region's beginning.
    pub offset_bytes: u64,
    /// Bytes that may be used from there.
    pub length_bytes: u64,
}
