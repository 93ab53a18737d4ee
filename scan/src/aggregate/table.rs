//! What have the slots of a run added up to?
//!
//! Invariants
//! - Rows of one slot more than there are, the discarded ones, are added to nothing that is read.
//! - A 64-bit sum is asked for only where the whole run's fits ([`super::direct`]); others are made in 128 bits.

use super::masked::{Count, Extreme, PART_ROWS, Slots, Sum};
use crate::{
    limits::MASKED_SLOTS_MAX,
    narrow::int::{Int, Lanes, Width, at_width},
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
    pub(super) sums: Vec<Sums>,
    pub(super) extremes: Vec<Vec<i128>>,
}

/// The sums of one argument.
pub(super) enum Sums {
    Narrow(Vec<i64>),
    Wide(Vec<i128>),
}

impl Sums {
    pub(super) fn of(&self, slot: usize) -> i128 {
        match self {
            Self::Narrow(sums) => sums[slot].into(),
            Self::Wide(sums) => sums[slot],
        }
    }
}

impl Table {
    /// For so many slots and sets of rows; which sums need 128 bits; which extremes are the least.
    pub(super) fn new(slots: usize, classes: usize, wide: &[bool], least: &[bool]) -> Self {
        // One more: rows that are not selected.
        let room = slots + 1;
        let sums = wide.iter().map(|wide| {
            if *wide { Sums::Wide(vec![0; room]) } else { Sums::Narrow(vec![0; room]) }
        });
        let extremes = least.iter().map(|least| vec![if *least { i128::MAX } else { i128::MIN }; room]);
        Self { slots, counts: vec![vec![0; room]; classes], sums: sums.collect(), extremes: extremes.collect() }
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
        rows.rows == BLOCK_ROWS && self.slots <= MASKED_SLOTS_MAX
    }

    /// Counts the rows of each slot, and says which slots have some.
    pub(super) fn count(&mut self, class: usize, rows: &Slotted<'_>) -> Vec<u16> {
        let masked = self.masked(rows);
        let counts = &mut self.counts[class];
        if !masked {
            rows.slots[..rows.rows].iter().for_each(|slot| counts[usize::from(*slot)] += 1);
            return Vec::new();
        }
        let mut present = Vec::with_capacity(self.slots);
        for (slot, count) in (0_u16..).zip(&mut counts[..self.slots]) {
            let here = rows.level.run(Count { slots: rows.slots, slot });
            *count += here;
            if here > 0 {
                present.push(slot);
            }
        }
        present
    }

    /// Adds values to their slots; `present` is what [`Self::count`] said of these rows.
    pub(super) fn add(&mut self, sum: usize, values: Values<'_>, rows: &Slotted<'_>, present: &[u16]) {
        let masked = self.masked(rows);
        let Values { lanes, width, magnitude } = values;
        match &mut self.sums[sum] {
            Sums::Narrow(sums) if masked => {
                for slot in present {
                    let here = at_width!(width, T => {
                        let of_slot = (rows.slots, *slot, lanes.get::<T>());
                        slot_sum(rows.level, of_slot, magnitude)
                    });
                    let sum = &mut sums[usize::from(*slot)];
                    *sum = sum.wrapping_add(here);
                }
            }
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

/// The sum of a slot in the narrowest integers.
fn slot_sum<T: Int>(level: Level, (slots, slot, lanes): (&Slots, u16, &[T; BLOCK_ROWS]), magnitude: i128) -> i64 {
    if magnitude.saturating_mul(PART_ROWS) <= i32::MAX.into() {
        level.run(Sum { slots, slot, lanes, zero: 0_i32 })
    } else {
        level.run(Sum { slots, slot, lanes, zero: 0_i64 })
    }
}
