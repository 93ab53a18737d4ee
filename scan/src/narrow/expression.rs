//! Computes integer expressions on whole blocks, in the narrowest integers (8 to 128 bits) that are
//! wide enough for the values.
//!
//! For example, `l_extendedprice * (1 - l_discount)` is a decimal of 38 digits by type, but the
//! values in the pages need only a few dozen bits. The bounds of each step of the expression are
//! computed from the bounds of the columns (interval arithmetic). Then each step is computed in the
//! narrowest integers that its bounds allow.
//!
//! Invariants
//! - The value of a step is the unscaled integer of its type in the program; explicit factors make
//!   scales equal.
//! - [`NarrowProgram::step_bounds`] returns bounds only if no step can exceed its type (where arrow
//!   would fail), for any number that the packed bits can represent, even in a forged page. So no
//!   step overflows the integers chosen for it.
//! - A step is NULL in the rows in which one of its columns is NULL. Its value in these rows is
//!   arbitrary, but within its bounds.

use super::{
    int::{Int, Lanes, Width, at_width},
    kernels::{Combine, Compare, Side, Widen, decode},
};
use crate::{
    selection::RowBytes,
    stored::{stored_integer, unscaled},
};
use rackscan_format::{
    encoding::{bitpack::Scratch, integer::IntegerBlock},
    limits::BLOCK_ROWS,
    program::{Arithmetic, Comparison, Node, NodeIndex, ValueType, VerifiedProgram},
    simd::Level,
};

/// The minimum and the maximum.
pub(crate) type Interval = (i128, i128);

/// The source of a value.
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
struct NarrowStep {
    operation: Operation,
    /// The bounds of the node's type.
    allowed: Interval,
}

/// Some nodes of a program as steps, each after the steps it depends on.
#[derive(Clone, Debug)]
pub(crate) struct NarrowProgram {
    steps: Vec<NarrowStep>,
    step_of_node: Vec<Option<Operand>>,
}

/// The bounds of each step's values over some rows, and the integers that hold them.
#[derive(Clone, Debug)]
pub(crate) struct StepBounds {
    bounds: Vec<Interval>,
    widths: Vec<Width>,
}

impl StepBounds {
    /// The maximum absolute value of a step; `None` if it exceeds 127 bits.
    pub(crate) fn magnitude(&self, step: usize) -> Option<i128> {
        let (low, high) = self.bounds[step];
        Some(low.checked_abs()?.max(high.checked_abs()?))
    }

    /// The integer that a step is computed in.
    pub(crate) fn width(&self, step: usize) -> Width {
        self.widths[step]
    }

    /// The bounds of an operand.
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

/// Buffers for the steps of one program.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepBuffers {
    steps: Vec<Lanes>,
    spare: Vec<Lanes>,
}

impl StepBuffers {
    /// Makes buffers for `steps` steps.
    pub(crate) fn make(&mut self, steps: usize) {
        if self.steps.len() < steps {
            self.steps.resize(steps, Lanes::NONE);
        }
        self.spare.resize(2, Lanes::NONE);
    }

    /// Buffers for two operands that must be widened.
    pub(crate) fn pair(&mut self) -> Option<&mut [Lanes; 2]> {
        self.spare.first_chunk_mut()
    }

    pub(crate) fn step(&self, step: usize) -> &Lanes {
        &self.steps[step]
    }
}

impl NarrowProgram {
    /// A program without steps.
    pub(crate) fn new(program: &VerifiedProgram) -> Self {
        Self { steps: Vec::new(), step_of_node: vec![None; program.node_types().len()] }
    }

    pub(crate) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The column steps with their inputs.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.steps.iter().enumerate().filter_map(|(step, NarrowStep { operation, .. })| match operation {
            Operation::Column { input } => Some((step, *input)),
            Operation::Combine { .. } => None,
        })
    }

    /// The operand that holds the value of `node`; adds the steps it needs. `None` if the node
    /// cannot be computed on blocks. The recursion ends because nodes of a verified program refer
    /// only to earlier nodes.
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
                // Also where the factor is 1, because the new type may have a smaller range.
                let factor = 10_i128.checked_pow(u32::from(scale_of(*to) - scale_of(from)))?;
                self.combine(Arithmetic::Multiply, item, Operand::Constant(factor), digits_of(*to)?)?
            }
            _ => return None,
        };
        self.step_of_node[index] = Some(operand);
        Some(operand)
    }

    /// The step of a text column's codes. Within one page's dictionary, codes compare as their
    /// texts do.
    pub(crate) fn codes(&mut self, input: usize) -> usize {
        let known = self.columns().find(|(_, known)| *known == input);
        known.map_or_else(
            || {
                self.steps.push(NarrowStep { operation: Operation::Column { input }, allowed: ANY });
                self.steps.len() - 1
            },
            |(step, _)| step,
        )
    }

    fn push(&mut self, operation: Operation, allowed: Interval) -> Operand {
        self.steps.push(NarrowStep { operation, allowed });
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

    /// Multiplies a decimal so that it has the scale of the result.
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

    /// The bounds of all steps, if `column` gives the bounds of an input. `None` if some step could
    /// overflow.
    pub(crate) fn step_bounds(&self, column: impl Fn(usize) -> Interval) -> Option<StepBounds> {
        let mut step_bounds = StepBounds { bounds: Vec::new(), widths: Vec::new() };
        for NarrowStep { operation, allowed } in &self.steps {
            let (bounds, width) = match *operation {
                Operation::Column { input } => {
                    let bounds = column(input);
                    (bounds, Width::of(bounds))
                }
                Operation::Combine { op, left, right } => {
                    let bounds = interval_of(op, step_bounds.of(left), step_bounds.of(right))?;
                    // The operands are computed in this width too, so it must hold them as well.
                    let operands = step_bounds.width_of(left).max(step_bounds.width_of(right));
                    (bounds, Width::of(bounds).max(operands))
                }
            };
            if bounds.0 < allowed.0 || bounds.1 > allowed.1 {
                return None;
            }
            step_bounds.bounds.push(bounds);
            step_bounds.widths.push(width);
        }
        Some(step_bounds)
    }

    /// Writes a block's column into its step: all rows, or only `rows`.
    pub(crate) fn fill(
        step_bounds: &StepBounds,
        step: usize,
        block: &IntegerBlock<'_>,
        rows: Option<&[usize]>,
        scratch: &mut Scratch,
        buffers: &mut StepBuffers,
    ) {
        let level = scratch.level();
        let numbers = block.unpack(scratch);
        let out = &mut buffers.steps[step];
        at_width!(step_bounds.width(step), T => {
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

    /// Computes all other steps for the first `rows` rows; the column steps are already filled.
    pub(crate) fn compute(
        &self,
        level: Level,
        step_bounds: &StepBounds,
        buffers: &mut StepBuffers,
        rows: usize,
    ) {
        for (index, NarrowStep { operation, .. }) in self.steps.iter().enumerate() {
            let Operation::Combine { op, left, right } = *operation else { continue };
            let (before, rest) = buffers.steps.split_at_mut(index);
            let (Some(out), [first, second]) = (rest.first_mut(), buffers.spare.as_mut_slice()) else {
                return;
            };
            let width = step_bounds.width(index);
            let operands = step_bounds.width_of(left).max(step_bounds.width_of(right));
            let sides = Sides { level, step_bounds, before, rows };
            // A product of integers of half the width is one vector instruction, a product of full
            // width is many.
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
        step_bounds: &StepBounds,
        buffers: &mut StepBuffers,
        answers: &mut RowBytes,
    ) {
        let sides = Sides { level, step_bounds, before: &buffers.steps, rows: BLOCK_ROWS };
        let [first, second] = buffers.spare.as_mut_slice() else { return };
        at_width!(step_bounds.width_of(left).max(step_bounds.width_of(right)), T => {
            let (left, right) = (sides.of::<T>(left, first), sides.of::<T>(right, second));
            level.run(Compare { op, left, right, answers });
        });
    }
}

/// Provides operands in the width that an operation needs.
struct Sides<'a> {
    level: Level,
    step_bounds: &'a StepBounds,
    before: &'a [Lanes],
    rows: usize,
}

impl<'a> Sides<'a> {
    fn of<T: Int>(&self, operand: Operand, spare: &'a mut Lanes) -> Side<'a, T> {
        let step = match operand {
            Operand::Constant(value) => return Side::Constant(T::cut(value)),
            Operand::Step(step) => step,
        };
        let (lanes, width) = (&self.before[step], self.step_bounds.width(step));
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

/// The bounds of `left op right`; `None` beyond 128 bits.
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

/// The values that a cast to the type accepts.
fn digits_of(value_type: ValueType) -> Option<Interval> {
    match value_type {
        ValueType::Decimal { precision, .. } => {
            let most = 10_i128.checked_pow(precision.into())? - 1;
            Some((-most, most))
        }
        other => range_of(other),
    }
}

/// The range of a type; `None` for types that are not integers. A computed decimal is bounded by
/// its 128 bits, not by its digits, as in arrow.
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
