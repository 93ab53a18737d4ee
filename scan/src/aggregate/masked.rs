//! What do the rows of each slot of a block add up to? Plain loops, compiled for each level of vectors.
//!
//! Where there are few slots, each is summed in a pass of its own over all rows, the others counting as nothing: vectors do
//! that several times faster than a walk from row to row.
//!
//! Invariant: a sum is made of 64 partial sums of 16 rows each, in integers that hold them; their widest sum is 64 bits.

use crate::narrow::int::Int;
use rackscan_format::{limits::BLOCK_ROWS, simd::Kernel};

/// Partial sums at a time.
const PARTS: usize = 64;
/// Rows of one partial sum.
pub(super) const PART_ROWS: i128 = (BLOCK_ROWS / PARTS) as i128;

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
        let mut parts = [0_u16; PARTS];
        for slots in self.slots.as_chunks::<PARTS>().0 {
            for (part, slot) in parts.iter_mut().zip(slots) {
                *part += u16::from(*slot == self.slot);
            }
        }
        parts.iter().map(|part| i64::from(*part)).sum()
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
        let mut parts = [self.zero; PARTS];
        let lanes = self.lanes.as_chunks::<PARTS>().0;
        for (slots, lanes) in self.slots.as_chunks::<PARTS>().0.iter().zip(lanes) {
            for (part, (slot, lane)) in parts.iter_mut().zip(slots.iter().zip(lanes)) {
                let value = if *slot == self.slot { A::cut(lane.wide()) } else { self.zero };
                *part = part.plus(value);
            }
        }
        parts.iter().fold(0, |sum, part| sum.wrapping_add((*part).into()))
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
        if least { fold(slots, slot, lanes, T::MOST, T::min) } else { fold(slots, slot, lanes, T::LEAST, T::max) }
    }
}

#[inline(always)]
fn fold<T: Int>(slots: &Slots, slot: u16, lanes: &[T; BLOCK_ROWS], none: T, of: impl Fn(T, T) -> T) -> T {
    let mut parts = [none; PARTS];
    for (slots, lanes) in slots.as_chunks::<PARTS>().0.iter().zip(lanes.as_chunks::<PARTS>().0) {
        for (part, (here, lane)) in parts.iter_mut().zip(slots.iter().zip(lanes)) {
            *part = of(*part, if *here == slot { *lane } else { none });
        }
    }
    parts.into_iter().fold(none, of)
}
