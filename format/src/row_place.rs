//! Defines the number by which results of scans identify a row of a table's segments: one 64-bit
//! integer of the segment's number and the row's number in it.
//!
//! Invariant: such a number belongs to one table version. Segments never change, so it identifies
//! the same row as long as the segment exists.

use crate::ids::SegmentId;

/// The position of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowPlace {
    /// Its segment.
    pub segment: SegmentId,
    /// Its number in the segment, counted from 0.
    pub row: u32,
}

impl RowPlace {
    /// The place as scans output it: the segment in the upper half, the row in the lower half.
    /// Negative for segments whose top bit is set.
    #[must_use]
    pub fn number(self) -> i64 {
        i64::from(self.segment.0) << 32 | i64::from(self.row)
    }

    /// The inverse of [`Self::number`].
    #[must_use]
    pub fn of_number(number: i64) -> Self {
        let [r0, r1, r2, r3, s0, s1, s2, s3] = number.to_le_bytes();
        Self {
            segment: SegmentId(u32::from_le_bytes([s0, s1, s2, s3])),
            row: u32::from_le_bytes([r0, r1, r2, r3]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_a_number_of_its_own() {
        for segment in [0, 1, 77, u32::MAX / 2 + 1, u32::MAX] {
            for row in [0, 1, 1 << 22, u32::MAX] {
                let place = RowPlace { segment: SegmentId(segment), row };
                assert_eq!(RowPlace::of_number(place.number()), place);
            }
        }
        assert_eq!(RowPlace { segment: SegmentId(3), row: 9 }.number(), (3 << 32) + 9);
    }
}
