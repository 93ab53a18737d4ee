//! Encodes blocks of sorted values as increments, and decodes them.
//!
//! A block of non-decreasing values is stored as 1,024 bit-packed increments, of which the first is
//! 0. Their prefix sums are the numbers that a block without increments would store: `(value -
//! reference) / divisor`, where `reference` is the block's first value.
//!
//! Invariants
//! - Prefix sums are computed in the lane type (an unsigned integer) that is wide enough for the
//!   difference between the block's bounds. If corrupt bytes give other bounds, sums wrap and are
//!   only wrong.
//! - A block is stored as increments only if that saves at least [`SAVED_BITS_MIN`] bits per row:
//!   computing prefix sums is serial, and takes about as long as reading that many more bits from a
//!   device.

use super::bitpack::{Lane, Narrow, Words, lanes_of, narrow};
use crate::limits::BLOCK_ROWS;

/// Bits per row that increments must save over packed values to be chosen.
pub const SAVED_BITS_MIN: u8 = 4;

/// The prefix sums of increments, in lanes of type `lane`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "sums of a lying block wrap, as its bytes are wrong anyway"
)]
pub(crate) fn sum_up<'s>(increments: Narrow<'_>, lane: Lane, sums: &'s mut Words) -> Narrow<'s> {
    match lane {
        Lane::U8 => into(increments, lanes_of(sums), |sum| sum as u8),
        Lane::U16 => into(increments, lanes_of(sums), |sum| sum as u16),
        Lane::U32 => into(increments, lanes_of(sums), |sum| sum as u32),
        Lane::U64 => into(increments, sums, |sum| sum),
    }
    narrow(lane, sums)
}

fn into<L: Default + Copy>(increments: Narrow<'_>, sums: &mut [L; BLOCK_ROWS], cut: impl Fn(u64) -> L) {
    match increments {
        Narrow::Constant => sums.fill(L::default()),
        Narrow::U8(lanes) => run(lanes, sums, cut),
        Narrow::U16(lanes) => run(lanes, sums, cut),
        Narrow::U32(lanes) => run(lanes, sums, cut),
        Narrow::U64(lanes) => run(lanes, sums, cut),
    }
}

fn run<I: Copy + Into<u64>, L>(
    increments: &[I; BLOCK_ROWS],
    sums: &mut [L; BLOCK_ROWS],
    cut: impl Fn(u64) -> L,
) {
    let mut sum = 0_u64;
    for (to, increment) in sums.iter_mut().zip(increments) {
        sum = sum.wrapping_add((*increment).into());
        *to = cut(sum);
    }
}

/// The largest increment of non-decreasing values; `None` when a value is below its predecessor.
pub(crate) fn largest_increment(values: &[i64]) -> Option<u64> {
    let mut largest = 0;
    for pair in values.windows(2) {
        if pair[1] < pair[0] {
            return None;
        }
        largest = largest.max(pair[1].wrapping_sub(pair[0]).cast_unsigned());
    }
    Some(largest)
}

/// Replaces non-decreasing `numbers` by their increments; the first becomes 0.
pub(crate) fn differences(numbers: &mut Words) {
    let mut before = numbers[0];
    for number in numbers {
        let this = *number;
        *number = this - before;
        before = this;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_differences_are_the_numbers() {
        let mut numbers: Words = std::array::from_fn(|row| (row * row) as u64);
        let before = numbers;
        differences(&mut numbers);
        let mut sums = [0; BLOCK_ROWS];
        let narrow = sum_up(Narrow::U64(&numbers), Lane::U32, &mut sums);
        assert!((0..BLOCK_ROWS).all(|row| narrow.get(row) == before[row]));
    }

    #[test]
    fn the_largest_increment_may_span_all_of_64_bits() {
        assert_eq!(largest_increment(&[i64::MIN, i64::MAX]), Some(u64::MAX));
        assert_eq!(largest_increment(&[1, 0]), None);
    }
}
