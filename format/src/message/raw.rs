//! Defines raw reads and writes of devices, which do not refer to tables.
//!
//! The lab and the replay of traces name parts of devices by their offsets. They may read anywhere
//! on a device, but write only into the scratch area, which the node has reserved for this.
//!
//! Invariants
//! - Before it begins, the node checks that the device exists, that each part is aligned, and that
//!   writes are within the scratch area.

use serde::{Deserialize, Serialize};

use crate::ids::DeviceId;

/// A part of a device to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawRead {
    /// The device.
    pub device: DeviceId,
    /// Its offset on the device, a multiple of the device's alignment.
    pub offset_bytes: u64,
    /// Its length, a positive multiple of the device's alignment and at most `RAW_BYTES_MAX`.
    pub length_bytes: u32,
    /// The offset in the target to write it to.
    pub target_offset_bytes: u64,
}

/// A part of the scratch area to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawWrite {
    /// The device.
    pub device: DeviceId,
    /// Its offset on the device, a multiple of the device's alignment.
    pub offset_bytes: u64,
    /// Its length, a positive multiple of the device's alignment and at most `RAW_BYTES_MAX`.
    pub length_bytes: u32,
    /// The offset of its bytes in the source.
    pub source_offset_bytes: u64,
}

/// A part of a device that raw writes may overwrite. It holds arbitrary bytes: not zeroes when the
/// node has just reserved it, and never a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScratchArea {
    /// Its offset on the device.
    pub offset_bytes: u64,
    /// Its length.
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
