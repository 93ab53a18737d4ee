//! What is read and written where no table is?
//!
//! Laboratory and replay ask for parts of devices by their place alone. Reads may go anywhere on a
//! device, writes only into the area that the node has set aside for them.
//!
//! Invariants
//! - A part says only what is wanted; the node holds it against device, alignment and scratch area
//!   before it begins.

use serde::{Deserialize, Serialize};

use crate::ids::DeviceId;

/// A part of a device to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawRead {
    /// The device.
    pub device: DeviceId,
    /// Where it begins there; a multiple of the device's alignment.
    pub offset_bytes: u64,
    /// How long it is; a positive multiple of the device's alignment, at most `RAW_BYTES_MAX`.
    pub length_bytes: u32,
    /// Where it goes, in bytes from the target's beginning.
    pub target_offset_bytes: u64,
}

/// A part of the scratch area to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawWrite {
    /// The device.
    pub device: DeviceId,
    /// Where it begins there; a multiple of the device's alignment.
    pub offset_bytes: u64,
    /// How long it is; a positive multiple of the device's alignment, at most `RAW_BYTES_MAX`.
    pub length_bytes: u32,
    /// Where its bytes are, in bytes from the source's beginning.
    pub source_offset_bytes: u64,
}

/// A part of a device that holds bytes of no meaning, never zeroes when the node has just set it
/// aside, and never a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScratchArea {
    /// Where it begins.
    pub offset_bytes: u64,
    /// How long it is.
    pub length_bytes: u64,
}

impl ScratchArea {
    /// Whether a part of the device lies wholly inside.
    #[must_use]
    pub fn holds(&self, offset_bytes: u64, length_bytes: u64) -> bool {
        let end = |begin: u64, length: u64| begin.checked_add(length);
        let Some(area_end) = end(self.offset_bytes, self.length_bytes) else { return false };
        offset_bytes >= self.offset_bytes
            && end(offset_bytes, length_bytes).is_some_and(|end| end <= area_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_reaches_out_of_the_scratch_area_is_not_inside() {
        let area = ScratchArea { offset_bytes: 4096, length_bytes: 8192 };
        assert!(area.holds(4096, 8192) && area.holds(12_288 - 512, 512));
        for (offset, length) in [(0, 4096), (4095, 2), (12_288, 512), (8192, 4608), (u64::MAX, 2)] {
            assert!(!area.holds(offset, length), "{offset}+{length}");
        }
    }
}
