//! Which integers does an expression need, and what are its values?
//!
//! `l_extendedprice * (1 - l_discount)` is a decimal of 38 digits by type, but a few dozen bits by
//! what the pages hold. Bounds of the columns are carried through the expression by interval
//! arithmetic; each step is then computed on whole blocks in the narrowest integer that holds it, 8
//! to 128 bits.
//!
//! Invariants
//! - A step's value is the unscaled integer of its node's type, so scales are made equal by
//!   explicit factors.
//! - [`NarrowProgram::reaches`] answers only when no step can leave its node's type (where arrow
//!   would fail), for any number the packed bits can hold, honest or not. Then no step overflows in
//!   the integer chosen for it.
//! - A step is NULL where a column below it is; its lanes hold something within bounds there.

use super::{
    int::{Int, Lanes, Width, at_width},
    kernels::{Combine, Compare, Side, Widen, decode},
};
use crate::{
    predicate::{stored_integer, unscaled},
    selection::RowBytes,
};
use rackscan_format::{
    encoding::{bitpack::Scratch, integer::IntegerBlock},
    limits::BLOCK_ROWS,
    program::{Arithmetic, Comparison, Node, NodeIndex, ValueType, VerifiedProgram},
    simd::Level,
};

/// The smallest and the largest value.
pub(crate) type Interval = (i128, i128);

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Step(usize),
    Constant(i128),
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Column { input: usize },
    Combine { op: Arithmetic, left: Operand, right: Operand },
}

#[derive(Clone, Copy, Debug)]
struct Step {
    operation: Operation,
    /// The bounds of the node's type.
    allowed: Interval,
}

/// Some of a program's nodes as steps, each after those it needs.
#[derive(Clone, Debug)]
pub(crate) struct NarrowProgram {
    steps: Vec<Step>,
    step_of_node: Vec<Option<Operand>>,
}

/// How far each step's values can reach over some rows, and the integers that hold them.
#[derive(Clone, Debug)]
pub(crate) struct Reaches {
    bounds: Vec<Interval>,
    widths: Vec<Width>,
}

impl Reaches {
    /// The largest magnitude of a step; `None` beyond 127 bits.
    pub(crate) fn magnitude(&self, step: usize) -> Option<i128> {
        let (low, high) = self.bounds[step];
        Some(low.checked_abs()?.max(high.checked_abs()?))
    }

    /// The integer that a step is computed in.
    pub(crate) fn width(&self, step: usize) -> Width {
        self.widths[step]
    }

    /// How far an operand reaches.
    pub(crate) fn of(&self, operand: Operand) -> Interval {
        match operand {
            Operand::Step(step) => self.bounds[step],
            Operand::Constant(value) => (value, value),
        }
    }

    fn width_of(&self, operand: Operand) -> Width {
        match operand {
            Operand::Step(step) => self.widths[step],
            Operand::Constant(value) => Width::of((value, value)),
        }
    }
}

/// Room for the steps of one program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room {
    steps: Vec<Lanes>,
    spare: Vec<Lanes>,
}

impl Room {
    /// Room for so many steps.
    pub(crate) fn make(&mut self, steps: usize) {
        if self.steps.len() < steps {
            self.steps.resize(steps, Lanes::NONE);
        }
        self.spare.resize(2, Lanes::NONE);
    }

    /// The room of operands that are not in the width wanted.
    pub(crate) fn pair(&mut self) -> Option<&mut [Lanes; 2]> {
        self.spare.first_chunk_mut()
    }

    pub(crate) fn step(&self, step: usize) -> &Lanes {
        &self.steps[step]
    }
}

impl NarrowProgram {
    /// No steps yet.
    pub(crate) fn new(program: &VerifiedProgram) -> Self {
        Self { steps: Vec::new(), step_of_node: vec![None; program.node_types().len()] }
    }

    pub(crate) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The column steps with their inputs.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.steps.iter().enumerate().filter_map(|(step, Step { operation, .. })| match operation {
            Operation::Column { input } => Some((step, *input)),
            Operation::Combine { .. } => None,
        })
    }

    /// The operand that is a node's value, its steps added; `None` when it cannot be computed this
    /// way. Recursion follows a verified program, whose nodes name only earlier ones.
    pub(crate) fn operand(&mut self, program: &VerifiedProgram, node: NodeIndex) -> Option<Operand> {
        let index = usize::from(node);
        if let Some(known) = self.step_of_node[index] {
            return Some(known);
        }
        let type_of = |node: NodeIndex| program.node_types()[usize::from(node)];
        let value_type = type_of(node);
        let allowed = range_of(value_type)?;
        let operand = match &program.program().nodes[index] {
            Node::Column(input) => self.push(Operation::Column { input: usize::from(*input) }, allowed),
            Node::Literal(literal) => Operand::Constant(unscaled(literal)?),
            Node::Arithmetic { op, left, right } => {
                let types = [type_of(*left), type_of(*right)];
                let mut left = self.operand(program, *left)?;
                let mut right = self.operand(program, *right)?;
                if *op != Arithmetic::Multiply {
                    left = self.rescale(left, types[0], value_type, ANY)?;
                    right = self.rescale(right, types[1], value_type, ANY)?;
                }
                self.combine(*op, left, right, allowed)?
            }
            Node::Negate(item) => {
                let item = self.operand(program, *item)?;
                self.combine(Arithmetic::Subtract, Operand::Constant(0), item, allowed)?
            }
            Node::Cast { item, to } => {
                let from = type_of(*item);
                let exact = matches!(to, ValueType::Int32 | ValueType::Int64 | ValueType::Decimal { .. })
                    && matches!(from, ValueType::Int32 | ValueType::Int64 | ValueType::Decimal { .. })
                    && scale_of(from) <= scale_of(*to);
                if !exact {
                    return None;
                }
                let item = self.operand(program, *item)?;
                // Also without a factor, because the new type may hold less.
                let factor = 10_i128.checked_pow(u32::from(scale_of(*to) - scale_of(from)))?;
                self.combine(Arithmetic::Multiply, item, Operand::Constant(factor), digits_of(*to)?)?
            }
            _ => return None,
        };
        self.step_of_node[index] = Some(operand);
        Some(operand)
    }

    /// The step of a text column's codes, which compare as its texts do within one page's
    /// dictionary.
    pub(crate) fn codes(&mut self, input: usize) -> usize {
        let known = self.columns().find(|(_, known)| *known == input);
        known.map_or_else(
            || {
                self.steps.push(Step { operation: Operation::Column { input }, allowed: ANY });
                self.steps.len() - 1
            },
            |(step, _)| step,
        )
    }

    fn push(&mut self, operation: Operation, allowed: Interval) -> Operand {
        self.steps.push(Step { operation, allowed });
        Operand::Step(self.steps.len() - 1)
    }

    fn combine(
        &mut self,
        op: Arithmetic,
        left: Operand,
        right: Operand,
        allowed: Interval,
    ) -> Option<Operand> {
        if let (Operand::Constant(left), Operand::Constant(right)) = (left, right) {
            let value = of_two(op, left, right)?;
            return (allowed.0..=allowed.1).contains(&value).then_some(Operand::Constant(value));
        }
        Some(self.push(Operation::Combine { op, left, right }, allowed))
    }

    /// The same decimal with the digits after the point that the result has.
    fn rescale(
        &mut self,
        operand: Operand,
        from: ValueType,
        to: ValueType,
        allowed: Interval,
    ) -> Option<Operand> {
        let digits = scale_of(to).checked_sub(scale_of(from))?;
        if digits == 0 {
            return Some(operand);
        }
        let factor = 10_i128.checked_pow(u32::from(digits))?;
        self.combine(Arithmetic::Multiply, operand, Operand::Constant(factor), allowed)
    }

    /// How far values reach when columns reach as far as `column` says; `None` when some step could
    /// overflow.
    pub(crate) fn reaches(&self, column: impl Fn(usize) -> Interval) -> Option<Reaches> {
        let mut reaches = Reaches { bounds: Vec::new(), widths: Vec::new() };
        for Step { operation, allowed } in &self.steps {
            let (bounds, width) = match *operation {
                Operation::Column { input } => {
                    let bounds = column(input);
                    (bounds, Width::of(bounds))
                }
                Operation::Combine { op, left, right } => {
                    let bounds = interval_of(op, reaches.of(left), reaches.of(right))?;
                    // The operands are computed in it too, so it holds them as well.
                    let operands = reaches.width_of(left).max(reaches.width_of(right));
                    (bounds, Width::of(bounds).max(operands))
                }
            };
            if bounds.0 < allowed.0 || bounds.1 > allowed.1 {
                return None;
            }
            reaches.bounds.push(bounds);
            reaches.widths.push(width);
        }
        Some(reaches)
    }

    /// Puts a block's column into its step: all rows, or only `rows`.
    pub(crate) fn fill(
        reaches: &Reaches,
        step: usize,
        block: &IntegerBlock<'_>,
        rows: Option<&[usize]>,
        scratch: &mut Scratch,
        room: &mut Room,
    ) {
        let level = scratch.level();
        let numbers = block.unpack(scratch);
        let out = &mut room.steps[step];
        at_width!(reaches.width(step), T => {
            let out = out.get_mut::<T>();
            match rows {
                None => decode(level, block, numbers, out),
                Some(rows) => {
                    for (out, row) in out.iter_mut().zip(rows) {
                        *out = T::cut(block.value_of(numbers.get(*row)).into());
                    }
                }
            }
        });
    }

    /// Computes all steps but the columns, which are there, for the first `rows` rows.
    pub(crate) fn compute(&self, level: Level, reaches: &Reaches, room: &mut Room, rows: usize) {
        for (index, Step { operation, .. }) in self.steps.iter().enumerate() {
            let Operation::Combine { op, left, right } = *operation else { continue };
            let (before, rest) = room.steps.split_at_mut(index);
            let (Some(out), [first, second]) = (rest.first_mut(), room.spare.as_mut_slice()) else { return };
            let width = reaches.width(index);
            let operands = reaches.width_of(left).max(reaches.width_of(right));
            let sides = Sides { level, reaches, before, rows };
            // Products of halves are one vector instruction where products of wholes are many.
            macro_rules! widening {
                ($half:ident $whole:ident) => {{
                    let (left, right) = (sides.of::<$half>(left, first), sides.of::<$half>(right, second));
                    let out = &mut out.get_mut::<$whole>()[..rows];
                    level.run(Combine { op, left, right, out });
                }};
            }
            match (width, operands) {
                (Width::W16, Width::W8) => widening!(i8 i16),
                (Width::W32, Width::W8 | Width::W16) => widening!(i16 i32),
                (Width::W64, Width::W8 | Width::W16 | Width::W32) => widening!(i32 i64),
                (Width::W128, operands) if operands < Width::W128 => widening!(i64 i128),
                _ => at_width!(width, T => widening!(T T)),
            }
        }
    }

    /// Compares two operands of a whole block.
    pub(crate) fn compare(
        level: Level,
        op: Comparison,
        (left, right): (Operand, Operand),
        reaches: &Reaches,
        room: &mut Room,
        answers: &mut RowBytes,
    ) {
        let sides = Sides { level, reaches, before: &room.steps, rows: BLOCK_ROWS };
        let [first, second] = room.spare.as_mut_slice() else { return };
        at_width!(reaches.width_of(left).max(reaches.width_of(right)), T => {
            let (left, right) = (sides.of::<T>(left, first), sides.of::<T>(right, second));
            level.run(Compare { op, left, right, answers });
        });
    }
}

/// Operands in the integers that an operation wants.
struct Sides<'a> {
    level: Level,
    reaches: &'a Reaches,
    before: &'a [Lanes],
    rows: usize,
}

impl<'a> Sides<'a> {
    fn of<T: Int>(&self, operand: Operand, spare: &'a mut Lanes) -> Side<'a, T> {
        let step = match operand {
            Operand::Constant(value) => return Side::Constant(T::cut(value)),
            Operand::Step(step) => step,
        };
        let (lanes, width) = (&self.before[step], self.reaches.width(step));
        if width == T::WIDTH {
            return Side::Lanes(&lanes.get::<T>()[..self.rows]);
        }
        widen::<T>(self.level, lanes, width, spare, self.rows);
        Side::Lanes(&spare.get::<T>()[..self.rows])
    }
}

/// Widens the first `rows` values to `T`.
pub(crate) fn widen<T: Int>(level: Level, lanes: &Lanes, width: Width, to: &mut Lanes, rows: usize) {
    let to = &mut to.get_mut::<T>()[..rows];
    at_width!(width, A => level.run(Widen { from: &lanes.get::<A>()[..rows], to }));
}

/// The reach of `left op right`; `None` beyond 128 bits.
pub(crate) fn interval_of(op: Arithmetic, left: Interval, right: Interval) -> Option<Interval> {
    let corners = [(left.0, right.0), (left.0, right.1), (left.1, right.0), (left.1, right.1)];
    let mut extremes = (i128::MAX, i128::MIN);
    for (left, right) in corners {
        let corner = of_two(op, left, right)?;
        extremes = (extremes.0.min(corner), extremes.1.max(corner));
    }
    Some(extremes)
}

fn of_two(op: Arithmetic, left: i128, right: i128) -> Option<i128> {
    match op {
        Arithmetic::Add => left.checked_add(right),
        Arithmetic::Subtract => left.checked_sub(right),
        Arithmetic::Multiply => left.checked_mul(right),
    }
}

const ANY: Interval = (i128::MIN, i128::MAX);

fn scale_of(value_type: ValueType) -> u8 {
    if let ValueType::Decimal { scale, .. } = value_type { scale } else { 0 }
}

/// What a cast to a type lets through.
fn digits_of(value_type: ValueType) -> Option<Interval> {
    match value_type {
        ValueType::Decimal { precision, .. } => {
            let most = 10_i128.checked_pow(precision.into())? - 1;
            Some((-most, most))
        }
        other => range_of(other),
    }
}

/// What values of a type may be; `None` for types that are not integers. A computed decimal is
/// bounded by its 128 bits, not by its digits, as in arrow.
fn range_of(value_type: ValueType) -> Option<Interval> {
    match value_type {
        ValueType::Int32 => Some((i32::MIN.into(), i32::MAX.into())),
        ValueType::Decimal { .. } => Some(ANY),
        ValueType::Boolean => None,
        other if stored_integer(other) => Some((i64::MIN.into(), i64::MAX.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
