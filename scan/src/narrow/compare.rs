//! Compares 1,024 unpacked numbers with constants, in plain loops that compilers vectorise.
//!
//! The result is one byte per row, 0 or 1. Rows beyond the end of a short block have a result, too,
//! which the caller ignores.

use crate::selection::RowBytes;
use az::SaturatingAs;
use rackscan_format::{
    encoding::bitpack::Narrow,
    limits::BLOCK_ROWS,
    simd::{Kernel, Level},
};

/// Sets of up to this size are compared value by value; larger sets are searched.
const SMALL_SET: usize = 8;

/// An unsigned lane type.
pub(crate) trait Lane: Copy + Ord {
    /// The number as a lane. Callers have checked that it fits; a larger one would saturate.
    fn cut(number: u64) -> Self;
    fn less(self, other: Self) -> Self;
}

macro_rules! lanes {
    ($($lane:ty)*) => {$(
        impl Lane for $lane {
            #[inline(always)]
            fn cut(number: u64) -> Self {
                number.saturating_as::<Self>()
            }

            #[inline(always)]
            fn less(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
        }
    )*};
}
lanes!(u8 u16 u32 u64);

/// `low <= number <= high`; both bounds fit the lane, and `low <= high`.
pub(crate) fn between(level: Level, numbers: Narrow<'_>, (low, high): (u64, u64), answers: &mut RowBytes) {
    match numbers {
        Narrow::Constant => answers.fill(u8::from(low == 0)),
        Narrow::U8(lanes) => level.run(Within { lanes, low, high, answers }),
        Narrow::U16(lanes) => level.run(Within { lanes, low, high, answers }),
        Narrow::U32(lanes) => level.run(Within { lanes, low, high, answers }),
        Narrow::U64(lanes) => level.run(Within { lanes, low, high, answers }),
    }
}

struct Within<'a, L> {
    lanes: &'a [L; BLOCK_ROWS],
    low: u64,
    high: u64,
    answers: &'a mut RowBytes,
}

impl<L: Lane> Kernel for Within<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        // One unsigned comparison is enough: numbers below `low` wrap to large ones.
        let (low, extent) = (L::cut(self.low), L::cut(self.high - self.low));
        for (answer, lane) in self.answers.iter_mut().zip(self.lanes) {
            *answer = u8::from(lane.less(low) <= extent);
        }
    }
}

/// Whether the number is in `set`, which is ascending and fits the lane.
pub(crate) fn in_set(level: Level, numbers: Narrow<'_>, set: &[u64], answers: &mut RowBytes) {
    match numbers {
        Narrow::Constant => answers.fill(u8::from(set.contains(&0))),
        Narrow::U8(lanes) if set.len() > SMALL_SET => {
            let mut table = [0; 256];
            set.iter().filter_map(|number| usize::try_from(*number).ok()).for_each(|number| {
                if let Some(entry) = table.get_mut(number) {
                    *entry = 1;
                }
            });
            answers.iter_mut().zip(lanes).for_each(|(answer, lane)| *answer = table[usize::from(*lane)]);
        }
        Narrow::U8(lanes) => equal_one(level, lanes, set, answers),
        Narrow::U16(lanes) => equal_one(level, lanes, set, answers),
        Narrow::U32(lanes) => equal_one(level, lanes, set, answers),
        Narrow::U64(lanes) => equal_one(level, lanes, set, answers),
    }
}

fn equal_one<L: Lane>(level: Level, lanes: &[L; BLOCK_ROWS], set: &[u64], answers: &mut RowBytes) {
    if set.len() <= SMALL_SET {
        level.run(EqualOne { lanes, set, answers });
        return;
    }
    let set: Vec<L> = set.iter().map(|number| L::cut(*number)).collect();
    for (answer, lane) in answers.iter_mut().zip(lanes) {
        *answer = u8::from(set.binary_search(lane).is_ok());
    }
}

struct EqualOne<'a, L> {
    lanes: &'a [L; BLOCK_ROWS],
    set: &'a [u64],
    answers: &'a mut RowBytes,
}

impl<L: Lane> Kernel for EqualOne<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { lanes, set, answers } = self;
        answers.fill(0);
        for number in set {
            let number = L::cut(*number);
            for (answer, lane) in answers.iter_mut().zip(lanes) {
                *answer |= u8::from(*lane == number);
            }
        }
    }
}

/// The table's entry for each number; 0 for numbers beyond the table.
pub(crate) fn look_up(numbers: Narrow<'_>, table: &[u8], answers: &mut RowBytes) {
    let entry = |number: usize| table.get(number).copied().unwrap_or(0);
    match numbers {
        Narrow::Constant => answers.fill(entry(0)),
        Narrow::U8(lanes) => {
            answers.iter_mut().zip(lanes).for_each(|(answer, lane)| *answer = entry(usize::from(*lane)));
        }
        Narrow::U16(lanes) => {
            answers.iter_mut().zip(lanes).for_each(|(answer, lane)| *answer = entry(usize::from(*lane)));
        }
        Narrow::U32(lanes) => {
            answers.iter_mut().zip(lanes).for_each(|(answer, lane)| *answer = entry(*lane as usize));
        }
        Narrow::U64(lanes) => answers.iter_mut().zip(lanes).for_each(|(answer, lane)| {
            *answer = entry(usize::try_from(*lane).expect("a usize has 64 bits"));
        }),
    }
}
