//! What do the rows of each slot of a block add up to? Plain loops, compiled for each level of vectors.
//!
//! Where there are few slots, each is summed in a pass of its own over all rows, the others counting as nothing: vectors do
//! that several times faster than a walk from row to row.
//!
//! Invariant: a sum is made of partial sums of 128 rows each, in integers that hold them; their sum has 64 bits.

use crate::narrow::int::Int;
use rackscan_format::{limits::BLOCK_ROWS, simd::Kernel};

/// Rows of one partial sum: enough for every level's vectors.
const ROWS: usize = 128;
/// As many, to multiply magnitudes with.
pub(super) const PART_ROWS: i128 = ROWS as i128;

/// The slot of each row of a block.
pub(crate) type Slots = [u16; BLOCK_ROWS];

/// Rows of one slot.
pub(super) struct Count<'a> {
    pub(super) slots: &'a Slots,
    pub(super) slot: u16,
}

impl Kernel for Count<'_> {
    type Output = i64;

    #[inline(always)]
    fn run(self) -> i64 {
        let mut rows = 0_u16;
        for slot in self.slots {
            rows += u16::from(*slot == self.slot);
        }
        rows.into()
    }
}

/// The sum of one slot's values, in partial sums of `A`.
pub(super) struct Sum<'a, T, A> {
    pub(super) slots: &'a Slots,
    pub(super) slot: u16,
    pub(super) lanes: &'a [T; BLOCK_ROWS],
    pub(super) zero: A,
}

impl<T: Int, A: Int + Into<i64>> Kernel for Sum<'_, T, A> {
    type Output = i64;

    #[inline(always)]
    fn run(self) -> i64 {
        let Self { slots, slot, lanes, zero } = self;
        let mut sum = 0_i64;
        for (slots, lanes) in slots.as_chunks::<ROWS>().0.iter().zip(lanes.as_chunks::<ROWS>().0) {
            let mut part = zero;
            for (here, lane) in slots.iter().zip(lanes) {
                part = part.plus(if *here == slot { A::cut(lane.wide()) } else { zero });
            }
            sum = sum.wrapping_add(part.into());
        }
        sum
    }
}

/// The smallest (or largest) of one slot's values; of an empty slot, the type's largest (or smallest).
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
