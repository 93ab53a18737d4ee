//! Provides the loops that count, add and compare the rows of one slot of a block (a slot is an
//! entry of the table of groups), compiled for each instruction set.
//!
//! If there are few slots, each slot is summed in one pass over all rows, in which the rows of
//! other slots count as 0. Vector instructions make this several times faster than a loop that
//! looks up the slot of each row.
//!
//! Invariant: a sum consists of [`PARTS`] partial sums, in integers that are wide enough; the total
//! has 64 bits.

use crate::narrow::int::Int;
use rackscan_format::{limits::BLOCK_ROWS, simd::Kernel};

/// The number of partial sums of a block, each of every 32nd row: one for each lane of two of the
/// widest vectors.
const PARTS: usize = 32;
/// The number of rows of a partial sum, as a factor for magnitudes.
pub(super) const PART_ROWS: i128 = (BLOCK_ROWS / PARTS) as i128;

/// The slot of each row of a block.
pub(crate) type Slots = [u16; BLOCK_ROWS];

/// Adds the number of rows of each slot to its count, and appends the slots that have rows.
pub(super) struct Count<'a> {
    pub(super) slots: &'a Slots,
    pub(super) counts: &'a mut [i64],
    pub(super) present: &'a mut Vec<u16>,
}

impl Kernel for Count<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (slot, count) in (0_u16..).zip(self.counts) {
            let mut rows = 0_u16;
            for here in self.slots {
                rows += u16::from(*here == slot);
            }
            if rows > 0 {
                *count += i64::from(rows);
                self.present.push(slot);
            }
        }
    }
}

/// Adds the values of each slot that is present to its sum, in partial sums of `A`.
pub(super) struct Sum<'a, T, A> {
    pub(super) slots: &'a Slots,
    pub(super) present: &'a [u16],
    pub(super) lanes: &'a [T; BLOCK_ROWS],
    pub(super) zero: A,
    pub(super) sums: &'a mut [i64],
}

impl<T: Int, A: Int + Into<i64>> Kernel for Sum<'_, T, A> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { slots, present, lanes, zero, sums } = self;
        for slot in present {
            let mut parts = [zero; PARTS];
            for (slots, lanes) in slots.as_chunks::<PARTS>().0.iter().zip(lanes.as_chunks::<PARTS>().0) {
                for (part, (here, lane)) in parts.iter_mut().zip(slots.iter().zip(lanes)) {
                    *part = part.plus(if here == slot { A::cut(lane.wide()) } else { zero });
                }
            }
            if let Some(sum) = sums.get_mut(usize::from(*slot)) {
                *sum = parts.into_iter().fold(*sum, |sum, part| sum.wrapping_add(part.into()));
            }
        }
    }
}

/// The minimum (or maximum) of one slot's values. For an empty slot, the type's largest (or
/// smallest) value.
pub(super) struct Extreme<'a, T> {
    pub(super) slots: &'a Slots,
    pub(super) slot: u16,
    pub(super) lanes: &'a [T; BLOCK_ROWS],
    pub(super) least: bool,
}

impl<T: Int> Kernel for Extreme<'_, T> {
    type Output = T;

    #[inline(always)]
    fn run(self) -> T {
        let Self { slots, slot, lanes, least } = self;
        if least {
            fold(slots, slot, lanes, T::MOST, T::min)
        } else {
            fold(slots, slot, lanes, T::LEAST, T::max)
        }
    }
}

#[inline(always)]
fn fold<T: Int>(slots: &Slots, slot: u16, lanes: &[T; BLOCK_ROWS], none: T, of: impl Fn(T, T) -> T) -> T {
    let mut known = none;
    for (here, lane) in slots.iter().zip(lanes) {
        known = of(known, if *here == slot { *lane } else { none });
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_format::simd::Level;

    fn sums<A: Int + Into<i64>>(level: Level, slots: &Slots, lanes: &[i32; BLOCK_ROWS], zero: A) -> [i64; 3] {
        let mut sums = [0; 3];
        level.run(Sum { slots, present: &[0, 1], lanes, zero, sums: &mut sums });
        sums
    }

    #[test]
    fn a_slot_of_the_largest_values_that_partial_sums_hold_adds_up_at_every_level() {
        let most = i32::MAX / i32::try_from(PART_ROWS).unwrap();
        let slots: Slots = std::array::from_fn(|row| u16::from(row % 5 == 3));
        for value in [most, -most] {
            let lanes = [value; BLOCK_ROWS];
            let rows = |slot: u16| slots.iter().filter(|here| **here == slot).count() as i64;
            let wanted = [rows(0) * i64::from(value), rows(1) * i64::from(value), 0];
            for level in Level::available() {
                let (mut counts, mut present) = ([0; 3], Vec::new());
                level.run(Count { slots: &slots, counts: &mut counts, present: &mut present });
                assert_eq!((counts, present.as_slice()), ([rows(0), rows(1), 0], &[0, 1][..]), "{level}");
                assert_eq!(sums(level, &slots, &lanes, 0_i32), wanted, "{level}");
                assert_eq!(sums(level, &slots, &lanes, 0_i64), wanted, "{level}");
            }
        }
        // All rows of one slot: each partial sum comes to its bound.
        for level in Level::available() {
            let found = sums(level, &[1; BLOCK_ROWS], &[most; BLOCK_ROWS], 0_i32);
            assert_eq!(found, [0, i64::from(most) * 1024, 0], "{level}");
        }
    }
}
