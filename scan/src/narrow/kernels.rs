//! Provides the loops that decode, widen, combine and compare the values of a block, compiled for
//! each instruction set.
//!
//! Invariant: the loops do not check for overflow; [`super::expression`] has proved that there is
//! none.

use super::int::Int;
use crate::selection::RowBytes;
use rackscan_format::{
    encoding::{bitpack::Narrow, integer::IntegerBlock},
    limits::BLOCK_ROWS,
    program::{Arithmetic, Comparison},
    simd::{Kernel, Level},
};

/// Decodes the values of a block, `reference + divisor * number`, into integers that hold them all.
pub(crate) fn decode<T: Int>(
    level: Level,
    block: &IntegerBlock<'_>,
    numbers: Narrow<'_>,
    out: &mut [T; BLOCK_ROWS],
) {
    let (reference, divisor) = (T::cut(block.reference().into()), T::cut_number(block.divisor()));
    match numbers {
        Narrow::Constant => out.fill(reference),
        Narrow::U8(lanes) => level.run(Decode { lanes, reference, divisor, out }),
        Narrow::U16(lanes) => level.run(Decode { lanes, reference, divisor, out }),
        Narrow::U32(lanes) => level.run(Decode { lanes, reference, divisor, out }),
        Narrow::U64(lanes) => level.run(Decode { lanes, reference, divisor, out }),
    }
}

struct Decode<'a, L, T> {
    lanes: &'a [L; BLOCK_ROWS],
    reference: T,
    divisor: T,
    out: &'a mut [T; BLOCK_ROWS],
}

impl<L: Copy + Into<u64>, T: Int> Kernel for Decode<'_, L, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { lanes, reference, divisor, out } = self;
        if divisor == T::cut(1) {
            for (out, lane) in out.iter_mut().zip(lanes) {
                *out = reference.plus(T::cut_number((*lane).into()));
            }
        } else {
            for (out, lane) in out.iter_mut().zip(lanes) {
                *out = reference.plus(divisor.times(T::cut_number((*lane).into())));
            }
        }
    }
}

/// Copies values into integers of the same or a larger width.
pub(crate) struct Widen<'a, A, B> {
    pub(crate) from: &'a [A],
    pub(crate) to: &'a mut [B],
}

impl<A: Int, B: Int> Kernel for Widen<'_, A, B> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (to, from) in self.to.iter_mut().zip(self.from) {
            *to = B::cut(from.wide());
        }
    }
}

/// One side of an operation.
#[derive(Clone, Copy)]
pub(crate) enum Side<'a, T> {
    Lanes(&'a [T]),
    Constant(T),
}

/// `left op right`, computed in `T` from operands in `H`, which is `T` or narrower.
pub(crate) struct Combine<'a, H, T> {
    pub(crate) op: Arithmetic,
    pub(crate) left: Side<'a, H>,
    pub(crate) right: Side<'a, H>,
    pub(crate) out: &'a mut [T],
}

impl<H: Int, T: Int> Kernel for Combine<'_, H, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { op, left, right, out } = self;
        match op {
            Arithmetic::Add => apply(left, right, out, T::plus),
            Arithmetic::Subtract => apply(left, right, out, T::minus),
            Arithmetic::Multiply => apply(left, right, out, T::times),
        }
    }
}

#[inline(always)]
fn apply<H: Int, T: Int>(left: Side<'_, H>, right: Side<'_, H>, out: &mut [T], of: impl Fn(T, T) -> T) {
    let widen = |value: H| T::cut(value.wide());
    match (left, right) {
        (Side::Lanes(left), Side::Lanes(right)) => {
            for (out, (left, right)) in out.iter_mut().zip(left.iter().zip(right)) {
                *out = of(widen(*left), widen(*right));
            }
        }
        (Side::Lanes(left), Side::Constant(right)) => {
            let right = widen(right);
            out.iter_mut().zip(left).for_each(|(out, left)| *out = of(widen(*left), right));
        }
        (Side::Constant(left), Side::Lanes(right)) => {
            let left = widen(left);
            out.iter_mut().zip(right).for_each(|(out, right)| *out = of(left, widen(*right)));
        }
        (Side::Constant(left), Side::Constant(right)) => out.fill(of(widen(left), widen(right))),
    }
}

/// `left op right`, one byte for each row.
pub(crate) struct Compare<'a, T> {
    pub(crate) op: Comparison,
    pub(crate) left: Side<'a, T>,
    pub(crate) right: Side<'a, T>,
    pub(crate) answers: &'a mut RowBytes,
}

impl<T: Int> Kernel for Compare<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { op, left, right, answers } = self;
        match op {
            Comparison::Equal => answer(left, right, answers, |left, right| left == right),
            Comparison::NotEqual => answer(left, right, answers, |left, right| left != right),
            Comparison::Less => answer(left, right, answers, |left, right| left < right),
            Comparison::LessOrEqual => answer(left, right, answers, |left, right| left <= right),
            Comparison::Greater => answer(left, right, answers, |left, right| left > right),
            Comparison::GreaterOrEqual => answer(left, right, answers, |left, right| left >= right),
        }
    }
}

#[inline(always)]
fn answer<T: Copy>(left: Side<'_, T>, right: Side<'_, T>, answers: &mut RowBytes, of: impl Fn(T, T) -> bool) {
    match (left, right) {
        (Side::Lanes(left), Side::Lanes(right)) => {
            for (answer, (left, right)) in answers.iter_mut().zip(left.iter().zip(right)) {
                *answer = u8::from(of(*left, *right));
            }
        }
        (Side::Lanes(left), Side::Constant(right)) => {
            answers.iter_mut().zip(left).for_each(|(answer, left)| *answer = u8::from(of(*left, right)));
        }
        (Side::Constant(left), Side::Lanes(right)) => {
            answers.iter_mut().zip(right).for_each(|(answer, right)| *answer = u8::from(of(left, *right)));
        }
        (Side::Constant(left), Side::Constant(right)) => answers.fill(u8::from(of(left, right))),
    }
}
