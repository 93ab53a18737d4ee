//! Defines signed integers of 8 to 128 bits, and buffers for the values of a block in any of these
//! widths.
//!
//! Invariants
//! - [`Width::of`] is the narrowest width that contains every value between its bounds.
//! - [`Lanes`] are 1,024 values of one width; the code that filled them knows the width.

use bytemuck::{Pod, Zeroable};
use rackscan_format::limits::BLOCK_ROWS;

/// Bytes of a signed integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Width {
    W8,
    W16,
    W32,
    W64,
    W128,
}

impl Width {
    /// The narrowest integer that holds `low ..= high`.
    pub(crate) fn of((low, high): (i128, i128)) -> Self {
        let fits = |least: i128, most: i128| low >= least && high <= most;
        if fits(i8::MIN.into(), i8::MAX.into()) {
            Self::W8
        } else if fits(i16::MIN.into(), i16::MAX.into()) {
            Self::W16
        } else if fits(i32::MIN.into(), i32::MAX.into()) {
            Self::W32
        } else if fits(i64::MIN.into(), i64::MAX.into()) {
            Self::W64
        } else {
            Self::W128
        }
    }
}

/// A signed integer of some width. Arithmetic wraps; callers have proved that it does not overflow.
pub(crate) trait Int: Copy + Ord + Pod {
    const WIDTH: Width;
    const LEAST: Self;
    const MOST: Self;
    fn cut(value: i128) -> Self;
    fn cut_number(number: u64) -> Self;
    fn wide(self) -> i128;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

macro_rules! ints {
    ($($int:ident $width:ident [$(#[$cut:meta])?] [$(#[$number:meta])?])*) => {$(
        impl Int for $int {
            const WIDTH: Width = Width::$width;
            const LEAST: Self = Self::MIN;
            const MOST: Self = Self::MAX;

            #[inline(always)]
            $(#[$cut])?
            fn cut(value: i128) -> Self {
                value as Self
            }

            #[inline(always)]
            $(#[$number])?
            fn cut_number(number: u64) -> Self {
                number as Self
            }

            #[inline(always)]
            fn wide(self) -> i128 {
                self.into()
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }
    )*};
}
ints! {
    i8 W8
        [#[expect(clippy::cast_possible_truncation, reason = "cutting is what it is for")]]
        [#[expect(clippy::cast_possible_truncation, reason = "cutting is what it is for")]]
    i16 W16
        [#[expect(clippy::cast_possible_truncation, reason = "cutting is what it is for")]]
        [#[expect(clippy::cast_possible_truncation, reason = "cutting is what it is for")]]
    i32 W32
        [#[expect(clippy::cast_possible_truncation, reason = "cutting is what it is for")]]
        [#[expect(clippy::cast_possible_truncation, reason = "cutting is what it is for")]]
    i64 W64
        [#[expect(clippy::cast_possible_truncation, reason = "cutting is what it is for")]]
        []
    i128 W128 [] []
}

/// Evaluates an expression with a type's name standing for the integer of a width.
macro_rules! at_width {
    ($width:expr, $int:ident => $body:expr) => {
        match $width {
            $crate::narrow::int::Width::W8 => {
                type $int = i8;
                $body
            }
            $crate::narrow::int::Width::W16 => {
                type $int = i16;
                $body
            }
            $crate::narrow::int::Width::W32 => {
                type $int = i32;
                $body
            }
            $crate::narrow::int::Width::W64 => {
                type $int = i64;
                $body
            }
            $crate::narrow::int::Width::W128 => {
                type $int = i128;
                $body
            }
        }
    };
}
pub(crate) use at_width;

/// A buffer for a block's values in integers of any width. The padding after the values keeps
/// neighbouring buffers from beginning at the same sets of the L1 cache, which they would fill.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Lanes([i128; BLOCK_ROWS], [[u64; 8]; APART_LINES]);

/// An odd number of cache lines, so that buffers begin at the same sets as rarely as possible.
const APART_LINES: usize = 5;

impl Lanes {
    pub(crate) const NONE: Self = Self([0; BLOCK_ROWS], [[0; 8]; APART_LINES]);

    pub(crate) fn get<T: Int>(&self) -> &[T; BLOCK_ROWS] {
        bytemuck::cast_slice(&self.0).first_chunk().expect("no integer is wider than the buffer's")
    }

    pub(crate) fn get_mut<T: Int>(&mut self) -> &mut [T; BLOCK_ROWS] {
        bytemuck::cast_slice_mut(&mut self.0)
            .first_chunk_mut()
            .expect("no integer is wider than the buffer's")
    }
}
