//! What have the slots of a run added up to?
//!
//! Invariants
//! - Rows of one slot more than there are, the discarded ones, are added to nothing that is read.
//! - A 64-bit sum is asked for only where the whole run's fits ([`super::direct`]); others are made
//!   in 128 bits.

use super::masked::{Count, Extreme, PART_ROWS, Slots, Sum};
use crate::{
    limits::MASKED_SLOTS_MAX,
    narrow::{
        expression::widen,
        int::{Int, Lanes, Width, at_width},
    },
};
use rackscan_format::{limits::BLOCK_ROWS, simd::Level};

/// The values of one block that are to be folded.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    pub(super) lanes: &'a Lanes,
    pub(super) width: Width,
    /// No value is larger, whatever its sign.
    pub(super) magnitude: i128,
}

/// Rows of a block with their slots: the first `rows` of them.
#[derive(Clone, Copy)]
pub(super) struct Slotted<'a> {
    pub(super) level: Level,
    pub(super) slots: &'a Slots,
    pub(super) rows: usize,
}

/// Counts, sums and extremes of each slot over a run of blocks.
pub(super) struct Table {
    slots: usize,
    pub(super) counts: Vec<Vec<i64>>,
    sums: Vec<Sums>,
    /// For every eight sums what was added row by row, by slot. Empty until there is such a row.
    lines: Vec<Vec<Lines>>,
    pub(super) extremes: Vec<Vec<i128>>,
}

/// The sums of one argument.
enum Sums {
    Narrow(Vec<i64>),
    Wide(Vec<i128>),
}

/// The sums of a slot that are added together: a cache line.
type Line = [i64; LINE];
const LINE: usize = 8;

/// A slot's sums, in parts: a row need not wait for the row before, which is often of the same
/// slot.
type Lines = [Line; WAYS];
const WAYS: usize = 2;

impl Table {
    /// For so many slots and sets of rows; which sums need 128 bits; which extremes are the least.
    pub(super) fn new(slots: usize, classes: usize, wide: &[bool], least: &[bool]) -> Self {
        // One more: rows that are not selected.
        let room = slots + 1;
        let sums = wide
            .iter()
            .map(|wide| if *wide { Sums::Wide(vec![0; room]) } else { Sums::Narrow(vec![0; room]) });
        let extremes = least.iter().map(|least| vec![if *least { i128::MAX } else { i128::MIN }; room]);
        let lines = vec![Vec::new(); wide.len().div_ceil(LINE)];
        let counts = vec![vec![0; room]; classes];
        Self { slots, counts, sums: sums.collect(), lines, extremes: extremes.collect() }
    }

    /// The slot of rows that are not selected.
    pub(super) fn discarded(&self) -> u16 {
        u16::try_from(self.slots).unwrap_or(u16::MAX)
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Whether a pass per slot is the way for these rows.
    fn masked(&self, rows: &Slotted<'_>) -> bool {
        // Below AVX-512 a masked addition is several instructions, and the walk from row to row
        // wins.
        rows.level >= Level::V4 && rows.rows == BLOCK_ROWS && self.slots <= MASKED_SLOTS_MAX
    }

    /// Counts the rows of each slot, and says which slots have some.
    pub(super) fn count(&mut self, class: usize, rows: &Slotted<'_>) -> Vec<u16> {
        let few = rows.rows == BLOCK_ROWS && self.slots <= MASKED_SLOTS_MAX;
        let counts = &mut self.counts[class];
        if !few {
            rows.slots[..rows.rows].iter().for_each(|slot| counts[usize::from(*slot)] += 1);
            return Vec::new();
        }
        let mut present = Vec::with_capacity(self.slots);
        let counts = &mut counts[..self.slots];
        rows.level.run(Count { slots: rows.slots, counts, present: &mut present });
        present
    }

    /// Adds the values of some sums, ascending, to their slots; `present` is what [`Self::count`]
    /// said of these rows.
    pub(super) fn add(
        &mut self,
        sums: &[(usize, Values<'_>)],
        rows: &Slotted<'_>,
        present: &[u16],
        spread: &mut Vec<Lanes>,
    ) {
        if self.masked(rows) || rows.rows < BLOCK_ROWS {
            sums.iter().for_each(|(sum, values)| self.add_one(*sum, *values, rows, present));
            return;
        }
        spread.resize(LINE, Lanes::NONE);
        for group in sums.chunk_by(|(one, _), (next, _)| one / LINE == next / LINE) {
            let (mut at, mut members) = ([0; LINE], 0);
            for (sum, values) in group {
                match self.sums[*sum] {
                    Sums::Wide(_) => self.add_one(*sum, *values, rows, present),
                    Sums::Narrow(_) => {
                        widen::<i64>(
                            rows.level,
                            values.lanes,
                            values.width,
                            &mut spread[members],
                            BLOCK_ROWS,
                        );
                        at[members] = sum % LINE;
                        members += 1;
                    }
                }
            }
            let Some(line) = group.first().and_then(|(sum, _)| self.lines.get_mut(sum / LINE)) else {
                return;
            };
            if line.is_empty() {
                *line = vec![[[0; LINE]; WAYS]; self.slots + 1];
            }
            match members {
                0 => {}
                1 => add_lines::<1>(rows.slots, &at, spread, line),
                2 => add_lines::<2>(rows.slots, &at, spread, line),
                3 => add_lines::<3>(rows.slots, &at, spread, line),
                4 => add_lines::<4>(rows.slots, &at, spread, line),
                5 => add_lines::<5>(rows.slots, &at, spread, line),
                6 => add_lines::<6>(rows.slots, &at, spread, line),
                7 => add_lines::<7>(rows.slots, &at, spread, line),
                _ => add_lines::<8>(rows.slots, &at, spread, line),
            }
        }
    }

    fn add_one(&mut self, sum: usize, values: Values<'_>, rows: &Slotted<'_>, present: &[u16]) {
        let masked = self.masked(rows);
        let Values { lanes, width, magnitude } = values;
        match &mut self.sums[sum] {
            Sums::Narrow(sums) if masked => at_width!(width, T => {
                let (slots, lanes) = (rows.slots, lanes.get::<T>());
                if magnitude.saturating_mul(PART_ROWS) <= i32::MAX.into() {
                    rows.level.run(Sum { slots, present, lanes, zero: 0_i32, sums });
                } else {
                    rows.level.run(Sum { slots, present, lanes, zero: 0_i64, sums });
                }
            }),
            Sums::Narrow(sums) => at_width!(width, T => {
                for (slot, lane) in rows.slots[..rows.rows].iter().zip(lanes.get::<T>()) {
                    let sum = &mut sums[usize::from(*slot)];
                    *sum = sum.wrapping_add(i64::cut(lane.wide()));
                }
            }),
            Sums::Wide(sums) => at_width!(width, T => {
                for (slot, lane) in rows.slots[..rows.rows].iter().zip(lanes.get::<T>()) {
                    let sum = &mut sums[usize::from(*slot)];
                    *sum = sum.wrapping_add(lane.wide());
                }
            }),
        }
    }

    /// What a sum has come to in a slot.
    pub(super) fn sum(&self, sum: usize, slot: usize) -> i128 {
        let sums = match &self.sums[sum] {
            Sums::Narrow(sums) => sums[slot],
            Sums::Wide(sums) => return sums[slot],
        };
        let lines = self.lines[sum / LINE].get(slot).map_or(&[][..], |lines| lines);
        lines.iter().fold(sums, |sums, line| sums.wrapping_add(line[sum % LINE])).into()
    }

    /// Keeps the smallest (or largest) values of each slot.
    pub(super) fn extreme(
        &mut self,
        (extreme, least): (usize, bool),
        values: Values<'_>,
        rows: &Slotted<'_>,
        present: &[u16],
    ) {
        let masked = self.masked(rows);
        let known = &mut self.extremes[extreme];
        let keep = |known: &mut i128, value: i128| {
            *known = if least { (*known).min(value) } else { (*known).max(value) };
        };
        at_width!(values.width, T => {
            let lanes = values.lanes.get::<T>();
            if masked {
                for slot in present {
                    let here = rows.level.run(Extreme { slots: rows.slots, slot: *slot, lanes, least });
                    keep(&mut known[usize::from(*slot)], here.wide());
                }
            } else {
                for (slot, lane) in rows.slots[..rows.rows].iter().zip(lanes) {
                    keep(&mut known[usize::from(*slot)], lane.wide());
                }
            }
        });
    }
}

/// Adds each row's values to its slot's line.
fn add_lines<const SUMS: usize>(slots: &Slots, at: &[usize; LINE], spread: &[Lanes], lines: &mut [Lines]) {
    let lanes: [&[i64; BLOCK_ROWS]; SUMS] = std::array::from_fn(|sum| spread[sum].get());
    let at: [usize; SUMS] = std::array::from_fn(|sum| at[sum] % LINE);
    if at.iter().enumerate().all(|(sum, at)| sum == *at) {
        walk(slots, lanes, std::array::from_fn(|sum| sum), lines);
    } else {
        walk(slots, lanes, at, lines);
    }
}

/// Inlined twice: where the sums lie one after the other, their places are constants.
#[inline(always)]
fn walk<const SUMS: usize>(
    slots: &Slots,
    lanes: [&[i64; BLOCK_ROWS]; SUMS],
    at: [usize; SUMS],
    lines: &mut [Lines],
) {
    for (first, slots) in slots.as_chunks::<WAYS>().0.iter().enumerate() {
        for (way, slot) in slots.iter().enumerate() {
            let row = first * WAYS % BLOCK_ROWS + way;
            let Some(lines) = lines.get_mut(usize::from(*slot)) else { continue };
            for (at, lanes) in at.iter().zip(lanes) {
                let sum = &mut lines[way][*at];
                *sum = sum.wrapping_add(lanes[row]);
            }
        }
    }
}
