//! Computes counts, sums, minima and maxima for each slot (a combination of group keys), over a run
//! of blocks.
//!
//! Invariants
//! - Discarded rows belong to one extra slot, whose values are never read.
//! - A 64-bit sum is used only if it cannot overflow in the whole run ([`super::direct`]); other
//!   sums have 128 bits.

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
    /// The maximum absolute value.
    pub(super) magnitude: i128,
}

/// The first `rows` rows of a block with their slots.
#[derive(Clone, Copy)]
pub(super) struct SlottedRows<'a> {
    pub(super) level: Level,
    pub(super) slots: &'a Slots,
    pub(super) rows: usize,
}

/// Counts, sums and extremes of each slot over a run of blocks.
pub(super) struct Table {
    slots: usize,
    pub(super) counts: Vec<Vec<i64>>,
    sums: Vec<Sums>,
    /// For each group of eight sums, what was added row by row, by slot. Empty until a row is
    /// added.
    lines: Vec<Vec<SlotLines>>,
    pub(super) extremes: Vec<Vec<i128>>,
}

/// The sums of one argument.
enum Sums {
    Narrow(Vec<i64>),
    Wide(Vec<i128>),
}

/// Sums of one slot that are added together: one cache line.
type SumLine = [i64; LINE_SUMS];
const LINE_SUMS: usize = 8;

/// A slot's sums in two interleaved parts, so that a row does not wait for the row before it, which
/// often belongs to the same slot.
type SlotLines = [SumLine; LINES_PER_SLOT];
const LINES_PER_SLOT: usize = 2;

impl Table {
    /// A table for `slots` slots and `classes` sets of rows. `wide` says which sums need 128 bits,
    /// `least` which extremes are minima.
    pub(super) fn new(slots: usize, classes: usize, wide: &[bool], least: &[bool]) -> Self {
        // One extra slot for rows that are not selected.
        let slots_and_discarded = slots + 1;
        let sums = wide.iter().map(|wide| {
            if *wide {
                Sums::Wide(vec![0; slots_and_discarded])
            } else {
                Sums::Narrow(vec![0; slots_and_discarded])
            }
        });
        let extremes =
            least.iter().map(|least| vec![if *least { i128::MAX } else { i128::MIN }; slots_and_discarded]);
        let lines = vec![Vec::new(); wide.len().div_ceil(LINE_SUMS)];
        let counts = vec![vec![0; slots_and_discarded]; classes];
        Self { slots, counts, sums: sums.collect(), lines, extremes: extremes.collect() }
    }

    /// The slot of rows that are not selected.
    pub(super) fn discarded(&self) -> u16 {
        u16::try_from(self.slots)
            .expect("the slot of discarded rows: there are at most DIRECT_SLOTS_MAX others")
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Whether one pass per slot is fastest for these rows.
    fn uses_masks(&self, rows: &SlottedRows<'_>) -> bool {
        // Below AVX-512 a masked addition takes several instructions, and the loop over rows is
        // faster.
        rows.level >= Level::V4 && rows.rows == BLOCK_ROWS && self.slots <= MASKED_SLOTS_MAX
    }

    /// Counts the rows of each slot, and returns the slots that have rows (nothing where rows are
    /// not counted slot by slot).
    pub(super) fn count(&mut self, class: usize, rows: &SlottedRows<'_>) -> Vec<u16> {
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

    /// Adds the values of some sums, in ascending order, to their slots. `present` is the result of
    /// [`Self::count`] for these rows.
    pub(super) fn add(
        &mut self,
        sums: &[(usize, Values<'_>)],
        rows: &SlottedRows<'_>,
        present: &[u16],
        widened: &mut Vec<Lanes>,
    ) {
        if self.uses_masks(rows) || rows.rows < BLOCK_ROWS {
            sums.iter().for_each(|(sum, values)| self.add_one(*sum, *values, rows, present));
            return;
        }
        widened.resize(LINE_SUMS, Lanes::NONE);
        for group in sums.chunk_by(|(one, _), (next, _)| one / LINE_SUMS == next / LINE_SUMS) {
            let (mut at, mut members) = ([0; LINE_SUMS], 0);
            for (sum, values) in group {
                match self.sums[*sum] {
                    Sums::Wide(_) => self.add_one(*sum, *values, rows, present),
                    Sums::Narrow(_) => {
                        widen::<i64>(
                            rows.level,
                            values.lanes,
                            values.width,
                            &mut widened[members],
                            BLOCK_ROWS,
                        );
                        at[members] = sum % LINE_SUMS;
                        members += 1;
                    }
                }
            }
            let Some(line) = group.first().and_then(|(sum, _)| self.lines.get_mut(sum / LINE_SUMS)) else {
                return;
            };
            if line.is_empty() {
                *line = vec![[[0; LINE_SUMS]; LINES_PER_SLOT]; self.slots + 1];
            }
            match members {
                0 => {}
                1 => add_lines::<1>(rows.slots, &at, widened, line),
                2 => add_lines::<2>(rows.slots, &at, widened, line),
                3 => add_lines::<3>(rows.slots, &at, widened, line),
                4 => add_lines::<4>(rows.slots, &at, widened, line),
                5 => add_lines::<5>(rows.slots, &at, widened, line),
                6 => add_lines::<6>(rows.slots, &at, widened, line),
                7 => add_lines::<7>(rows.slots, &at, widened, line),
                _ => add_lines::<8>(rows.slots, &at, widened, line),
            }
        }
    }

    fn add_one(&mut self, sum: usize, values: Values<'_>, rows: &SlottedRows<'_>, present: &[u16]) {
        let masked = self.uses_masks(rows);
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

    /// The value of a sum in a slot.
    pub(super) fn sum(&self, sum: usize, slot: usize) -> i128 {
        let sums = match &self.sums[sum] {
            Sums::Narrow(sums) => sums[slot],
            Sums::Wide(sums) => return sums[slot],
        };
        let lines = self.lines[sum / LINE_SUMS].get(slot).map_or(&[][..], |lines| lines);
        lines.iter().fold(sums, |sums, line| sums.wrapping_add(line[sum % LINE_SUMS])).into()
    }

    /// Keeps the minimum (or maximum) of each slot.
    pub(super) fn extreme(
        &mut self,
        (extreme, least): (usize, bool),
        values: Values<'_>,
        rows: &SlottedRows<'_>,
        present: &[u16],
    ) {
        let masked = self.uses_masks(rows);
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

/// Adds each row's values to the sums of its slot.
fn add_lines<const SUMS: usize>(
    slots: &Slots,
    at: &[usize; LINE_SUMS],
    widened: &[Lanes],
    lines: &mut [SlotLines],
) {
    let lanes: [&[i64; BLOCK_ROWS]; SUMS] = std::array::from_fn(|sum| widened[sum].get());
    let at: [usize; SUMS] = std::array::from_fn(|sum| at[sum] % LINE_SUMS);
    if at.iter().enumerate().all(|(sum, at)| sum == *at) {
        add_rows_to_lines(slots, lanes, std::array::from_fn(|sum| sum), lines);
    } else {
        add_rows_to_lines(slots, lanes, at, lines);
    }
}

/// Inlined twice: where the sums lie one after the other, their positions are constants.
#[inline(always)]
fn add_rows_to_lines<const SUMS: usize>(
    slots: &Slots,
    lanes: [&[i64; BLOCK_ROWS]; SUMS],
    at: [usize; SUMS],
    lines: &mut [SlotLines],
) {
    for (first, slots) in slots.as_chunks::<LINES_PER_SLOT>().0.iter().enumerate() {
        for (part, slot) in slots.iter().enumerate() {
            let row = first * LINES_PER_SLOT % BLOCK_ROWS + part;
            let Some(lines) = lines.get_mut(usize::from(*slot)) else { continue };
            for (at, lanes) in at.iter().zip(lanes) {
                let sum = &mut lines[part][*at];
                *sum = sum.wrapping_add(lanes[row]);
            }
        }
    }
}
