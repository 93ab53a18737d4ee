//! Can an argument be computed in 64-bit lanes, and how far can its values reach?
//!
//! `l_extendedprice * (1 - l_discount)` is a decimal of 38 digits by type, but a few dozen bits by what the pages
//! hold. Bounds of the columns are carried through the expression by interval arithmetic; where every step fits, plain
//! 64-bit arithmetic on whole blocks is exact.
//!
//! Invariants
//! - A step's value is the unscaled integer of its node's type, so scales are made equal by explicit factors.
//! - [`NarrowProgram::reaches`] answers only when no step can leave 64 bits (or 32, for `Int32`, where arrow would wrap),
//!   for any number the packed bits can hold, honest or not.

use super::Grouping;
use crate::predicate::{stored_integer, unscaled};
use rackscan_format::{
    limits::BLOCK_ROWS,
    program::{Arithmetic, Node, NodeIndex, ValueType, VerifiedProgram},
};

/// Values of one step for the rows of a block.
pub(super) type Lanes = [i64; BLOCK_ROWS];

/// Where a step's operand comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operand {
    Step(usize),
    Constant(i64),
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
    allowed: (i128, i128),
}

/// The narrow arguments of a grouping.
pub(super) struct NarrowProgram {
    steps: Vec<Step>,
    step_of_node: Vec<Option<Operand>>,
}

/// How far each step's values can reach over some rows.
pub(super) struct Reaches {
    bounds: Vec<(i128, i128)>,
}

impl Reaches {
    /// The largest magnitude of a step.
    pub(super) fn magnitude(&self, step: usize) -> i128 {
        let (low, high) = self.bounds[step];
        low.abs().max(high.abs())
    }

    /// Whether an operand is within `0 .. 2^32`, so that a product is one vector instruction.
    fn is_u32(&self, operand: Operand) -> bool {
        let (low, high) = match operand {
            Operand::Step(step) => self.bounds[step],
            Operand::Constant(value) => (value.into(), value.into()),
        };
        low >= 0 && high <= u32::MAX.into()
    }
}

impl NarrowProgram {
    /// The arguments of all aggregates; `None` when one cannot be computed this way.
    pub(super) fn compile(program: &VerifiedProgram, grouping: &Grouping) -> Option<Self> {
        let mut narrow = Self { steps: Vec::new(), step_of_node: vec![None; program.node_types().len()] };
        let arguments = grouping.aggregates.iter().filter_map(|aggregate| aggregate.argument);
        for argument in arguments {
            match narrow.operand(program, argument)? {
                Operand::Step(_) => {}
                Operand::Constant(_) => return None,
            }
        }
        Some(narrow)
    }

    /// The step that computes an argument.
    pub(super) fn step_of(&self, argument: NodeIndex) -> Option<usize> {
        match self.step_of_node[usize::from(argument)] {
            Some(Operand::Step(step)) => Some(step),
            _ => None,
        }
    }

    pub(super) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The column steps with their inputs.
    pub(super) fn columns(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.steps.iter().enumerate().filter_map(|(step, Step { operation, .. })| match operation {
            Operation::Column { input } => Some((step, *input)),
            Operation::Combine { .. } => None,
        })
    }

    /// Recursion follows a verified program, whose nodes name only earlier ones.
    fn operand(&mut self, program: &VerifiedProgram, node: NodeIndex) -> Option<Operand> {
        let index = usize::from(node);
        if let Some(known) = self.step_of_node[index] {
            return Some(known);
        }
        let value_type = program.node_types()[index];
        let allowed = range_of(value_type)?;
        let operand = match &program.program().nodes[index] {
            Node::Column(input) => self.push(Operation::Column { input: usize::from(*input) }, allowed),
            Node::Literal(literal) => Operand::Constant(i64::try_from(unscaled(literal)?).ok()?),
            Node::Arithmetic { op, left, right } => {
                let types = [left, right].map(|node| program.node_types()[usize::from(*node)]);
                let mut left = self.operand(program, *left)?;
                let mut right = self.operand(program, *right)?;
                if *op != Arithmetic::Multiply {
                    left = self.rescale(left, types[0], value_type)?;
                    right = self.rescale(right, types[1], value_type)?;
                }
                self.combine(*op, left, right, allowed)?
            }
            Node::Negate(item) => {
                let item = self.operand(program, *item)?;
                self.combine(Arithmetic::Subtract, Operand::Constant(0), item, allowed)?
            }
            _ => return None,
        };
        self.step_of_node[index] = Some(operand);
        Some(operand)
    }

    fn push(&mut self, operation: Operation, allowed: (i128, i128)) -> Operand {
        self.steps.push(Step { operation, allowed });
        Operand::Step(self.steps.len() - 1)
    }

    fn combine(
        &mut self,
        op: Arithmetic,
        left: Operand,
        right: Operand,
        allowed: (i128, i128),
    ) -> Option<Operand> {
        if let (Operand::Constant(left), Operand::Constant(right)) = (left, right) {
            let value = of_two(op, left.into(), right.into())?;
            return Some(Operand::Constant(i64::try_from(value).ok()?));
        }
        Some(self.push(Operation::Combine { op, left, right }, allowed))
    }

    /// The same decimal with the digits after the point that the result has.
    fn rescale(&mut self, operand: Operand, from: ValueType, to: ValueType) -> Option<Operand> {
        let (ValueType::Decimal { scale: from, .. }, ValueType::Decimal { scale: to, .. }) = (from, to)
        else {
            return Some(operand);
        };
        if from == to {
            return Some(operand);
        }
        let factor = 10_i64.checked_pow(u32::from(to.checked_sub(from)?))?;
        let allowed = (i64::MIN.into(), i64::MAX.into());
        self.combine(Arithmetic::Multiply, operand, Operand::Constant(factor), allowed)
    }

    /// How far values reach when columns reach as far as `column` says; `None` when some step could overflow.
    pub(super) fn reaches(&self, column: impl Fn(usize) -> (i128, i128)) -> Option<Reaches> {
        let mut bounds: Vec<(i128, i128)> = Vec::with_capacity(self.steps.len());
        for Step { operation, allowed } in &self.steps {
            let of = |operand: Operand| match operand {
                Operand::Step(step) => bounds[step],
                Operand::Constant(value) => (value.into(), value.into()),
            };
            let (low, high) = match *operation {
                Operation::Column { input } => column(input),
                Operation::Combine { op, left, right } => {
                    let (left, right) = (of(left), of(right));
                    let corners =
                        [(left.0, right.0), (left.0, right.1), (left.1, right.0), (left.1, right.1)];
                    let mut extremes = (i128::MAX, i128::MIN);
                    for (left, right) in corners {
                        let corner = of_two(op, left, right)?;
                        extremes = (extremes.0.min(corner), extremes.1.max(corner));
                    }
                    extremes
                }
            };
            if low < allowed.0 || high > allowed.1 {
                return None;
            }
            bounds.push((low, high));
        }
        Some(Reaches { bounds })
    }

    /// Computes all steps but the columns, which are there, for the first `rows` rows.
    pub(super) fn compute(&self, reaches: &Reaches, lanes: &mut [Lanes], rows: usize) {
        for (index, Step { operation, .. }) in self.steps.iter().enumerate() {
            let Operation::Combine { op, left, right } = *operation else { continue };
            let (before, rest) = lanes.split_at_mut(index);
            let Some(out) = rest.first_mut() else { return };
            let small = reaches.is_u32(left) && reaches.is_u32(right);
            let out = &mut out[..rows];
            match (left, right) {
                (Operand::Step(left), Operand::Step(right)) => {
                    two(op, small, &before[left][..rows], &before[right][..rows], out);
                }
                (Operand::Step(left), Operand::Constant(right)) => {
                    one(op, small, &before[left][..rows], out, right, Side::Right);
                }
                (Operand::Constant(left), Operand::Step(right)) => {
                    one(op, small, &before[right][..rows], out, left, Side::Left);
                }
                (Operand::Constant(_), Operand::Constant(_)) => {}
            }
        }
    }
}

/// Which operand the constant is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

fn of_two(op: Arithmetic, left: i128, right: i128) -> Option<i128> {
    match op {
        Arithmetic::Add => left.checked_add(right),
        Arithmetic::Subtract => left.checked_sub(right),
        Arithmetic::Multiply => left.checked_mul(right),
    }
}

/// A product of values proved to be within 32 bits.
#[inline(always)]
fn product_u32(left: i64, right: i64) -> i64 {
    const LOW: u64 = 0xffff_ffff;
    ((left.cast_unsigned() & LOW) * (right.cast_unsigned() & LOW)).cast_signed()
}

fn two(op: Arithmetic, small: bool, left: &[i64], right: &[i64], out: &mut [i64]) {
    fn each(left: &[i64], right: &[i64], out: &mut [i64], of: impl Fn(i64, i64) -> i64) {
        for (out, (left, right)) in out.iter_mut().zip(left.iter().zip(right)) {
            *out = of(*left, *right);
        }
    }
    match op {
        Arithmetic::Add => each(left, right, out, i64::wrapping_add),
        Arithmetic::Subtract => each(left, right, out, i64::wrapping_sub),
        Arithmetic::Multiply if small => each(left, right, out, product_u32),
        Arithmetic::Multiply => each(left, right, out, i64::wrapping_mul),
    }
}

fn one(op: Arithmetic, small: bool, values: &[i64], out: &mut [i64], constant: i64, side: Side) {
    fn each(values: &[i64], out: &mut [i64], of: impl Fn(i64) -> i64) {
        out.iter_mut().zip(values).for_each(|(out, value)| *out = of(*value));
    }
    match op {
        Arithmetic::Add => each(values, out, |value| value.wrapping_add(constant)),
        Arithmetic::Subtract if side == Side::Left => each(values, out, |value| constant.wrapping_sub(value)),
        Arithmetic::Subtract => each(values, out, |value| value.wrapping_sub(constant)),
        Arithmetic::Multiply if small => each(values, out, |value| product_u32(value, constant)),
        Arithmetic::Multiply => each(values, out, |value| value.wrapping_mul(constant)),
    }
}

/// What values of a type may be in 64-bit lanes; `None` for types that are not integers.
fn range_of(value_type: ValueType) -> Option<(i128, i128)> {
    match value_type {
        ValueType::Int32 => Some((i32::MIN.into(), i32::MAX.into())),
        ValueType::Boolean => None,
        other if stored_integer(other) => Some((i64::MIN.into(), i64::MAX.into())),
        _ => None,
    }
}
