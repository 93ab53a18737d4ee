//! Compiles a filter into predicates that zone maps, packed blocks and dictionaries can evaluate.
//!
//! A filter keeps a row only if it is *true* for the row: false and NULL both drop the row. So each
//! part of the filter is compiled for the truth value that is wanted of it, and `NOT` is applied to
//! the leaves (the comparisons and other conditions without AND, OR or NOT). So `NOT a < b` becomes
//! `a >= b`, and both are false for NULL. The result contains leaves, ALL and ANY, which need only
//! true and false. Leaves over integer columns compare stored integers: dates are days, decimals
//! are unscaled.
//!
//! Invariants
//! - A predicate keeps exactly the rows for which its part of the filter has the wanted truth
//!   value, and no row for which that part is NULL.
//! - Compilation is bounded. If shared parts would expand to more than `PREDICATE_WEIGHT_MAX`
//!   leaves, the remaining parts become [`Predicate::General`], which evaluates each expression
//!   once.

use crate::{
    limits::PREDICATE_WEIGHT_MAX,
    narrow::expression::{NarrowProgram, Operand},
    pattern::Pattern,
    stored::{stored_integer, unscaled},
};
use rackscan_format::{
    key_filter::KeyFilter,
    program::{Comparison, Literal, Node, NodeIndex, ValueType, VerifiedProgram},
    schema::ColumnType,
};
use std::sync::Arc;

/// A condition on a row.
#[derive(Clone, Debug)]
pub(crate) enum Predicate {
    /// The same for every row.
    Constant(bool),
    /// The input is a stored integer within these bounds, both included.
    Interval { input: usize, low: i64, high: i64 },
    /// The input is a stored integer and is (or, negated, is not) one of these values, ascending.
    Set { input: usize, values: Vec<i64>, negated: bool },
    /// Two inputs of one integer type compare as `op`.
    Columns { op: Comparison, left: usize, right: usize },
    /// The input is (or is not) NULL.
    Null { input: usize, is_null: bool },
    /// The input is a text that passes `test`. `leaf` numbers the text leaves of a filter.
    Text { input: usize, leaf: usize, test: TextTest },
    /// All hold.
    All(Vec<Predicate>),
    /// One holds.
    Any(Vec<Predicate>),
    /// Two expressions over stored integers compare as `op`. Where they might overflow, arrow's
    /// kernels evaluate `node` instead.
    Expression { comparison: Arc<NarrowComparison>, node: NodeIndex, truth: bool, inputs: Vec<usize> },
    /// The input is a stored integer that may be in the program's key filter at `position`.
    Keys { input: usize, position: usize, filter: Arc<KeyFilter> },
    /// Everything else: arrow's kernels evaluate `node` to `truth`.
    General { node: NodeIndex, truth: bool, inputs: Vec<usize> },
}

/// Two expressions that are computed on blocks, and how they compare.
#[derive(Clone, Debug)]
pub(crate) struct NarrowComparison {
    pub(crate) op: Comparison,
    pub(crate) steps: NarrowProgram,
    pub(crate) left: Operand,
    pub(crate) right: Operand,
}

/// A condition on one text.
#[derive(Clone, Debug)]
pub(crate) enum TextTest {
    /// Between two bounds, each with a flag that says whether the bound itself is included.
    Interval { low: Option<(Vec<u8>, bool)>, high: Option<(Vec<u8>, bool)> },
    /// One of these texts, ascending (or, negated, none of them).
    Set { values: Vec<Vec<u8>>, negated: bool },
    /// Matches a pattern (or, negated, does not).
    Like { pattern: Pattern, negated: bool },
    /// A node that depends on this text alone evaluates to `truth`. It may also hold of NULL.
    Node { node: NodeIndex, truth: bool },
}

/// The filter of a program: conjuncts in evaluation order, and the number of text leaves.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) conjuncts: Vec<Predicate>,
    pub(crate) text_leaves: usize,
}

impl Filter {
    pub(crate) fn compile(program: &VerifiedProgram) -> Self {
        let mut compiler = Compiler { program, weight: 0, text_leaves: 0 };
        let items = program.program().filter.iter().map(|&node| compiler.compile(node, true)).collect();
        let conjuncts = match all(items) {
            Predicate::All(conjuncts) => conjuncts,
            Predicate::Constant(true) => Vec::new(),
            one => vec![one],
        };
        Self { conjuncts, text_leaves: compiler.text_leaves }
    }
}

impl Predicate {
    /// Calls `visit` with each input the predicate may look at, repeats included.
    pub(crate) fn for_each_input(&self, visit: &mut impl FnMut(usize)) {
        match self {
            Self::Constant(_) => {}
            Self::Interval { input, .. }
            | Self::Set { input, .. }
            | Self::Null { input, .. }
            | Self::Text { input, .. }
            | Self::Keys { input, .. } => visit(*input),
            Self::Columns { left, right, .. } => {
                visit(*left);
                visit(*right);
            }
            Self::All(items) | Self::Any(items) => items.iter().for_each(|item| item.for_each_input(visit)),
            Self::Expression { inputs, .. } | Self::General { inputs, .. } => {
                inputs.iter().copied().for_each(visit)
            }
        }
    }
}

struct Compiler<'a> {
    program: &'a VerifiedProgram,
    weight: usize,
    text_leaves: usize,
}

impl Compiler<'_> {
    fn node(&self, node: NodeIndex) -> &Node {
        &self.program.program().nodes[usize::from(node)]
    }

    /// The input that a column node reads.
    fn column(&self, node: NodeIndex) -> Option<usize> {
        match self.node(node) {
            Node::Column(input) => Some(usize::from(*input)),
            _ => None,
        }
    }

    fn value_type(&self, node: NodeIndex) -> ValueType {
        self.program.node_types()[usize::from(node)]
    }

    fn compile(&mut self, node: NodeIndex, truth: bool) -> Predicate {
        self.weight += 1;
        if self.weight > PREDICATE_WEIGHT_MAX {
            return self.general(node, truth);
        }
        let program = self.program;
        match &program.program().nodes[usize::from(node)] {
            Node::Column(input) => {
                let wanted = i64::from(truth);
                Predicate::Interval { input: usize::from(*input), low: wanted, high: wanted }
            }
            Node::Literal(Literal::Boolean(value)) => Predicate::Constant(*value == truth),
            Node::Literal(_) => Predicate::Constant(false),
            Node::Compare { op, left, right } => {
                let op = if truth { *op } else { complement(*op) };
                let known = self.compare(op, *left, *right);
                let known = known.or_else(|| self.expression(op, (*left, *right), node, truth));
                known.unwrap_or_else(|| self.leaf(node, truth))
            }
            Node::And(items) | Node::Or(items) => {
                let conjunction = matches!(self.node(node), Node::And(_)) == truth;
                let items = items.iter().map(|&item| self.compile(item, truth)).collect();
                if conjunction { all(items) } else { any(items) }
            }
            Node::Not(item) => self.compile(*item, !truth),
            Node::IsNull(item) => match self.column(*item) {
                Some(input) => Predicate::Null { input, is_null: truth },
                None => self.leaf(node, truth),
            },
            Node::InSet { item, set, negated } => {
                self.weight += set.len();
                self.in_set(*item, set, *negated == truth).unwrap_or_else(|| self.leaf(node, truth))
            }
            Node::Like { item, pattern, negated, case_insensitive: false } => {
                match (self.column(*item), Pattern::parse(pattern)) {
                    (Some(input), Some(pattern)) => {
                        self.text(input, TextTest::Like { pattern, negated: *negated == truth })
                    }
                    _ => self.leaf(node, truth),
                }
            }
            Node::InKeys { item, keys } => {
                match (self.column(*item), program.key_filters().get(usize::from(*keys))) {
                    (Some(input), Some(filter)) => {
                        Predicate::Keys { input, position: usize::from(*keys), filter: Arc::clone(filter) }
                    }
                    // Without its key filter, every row is kept.
                    _ => Predicate::Constant(true),
                }
            }
            _ => self.leaf(node, truth),
        }
    }

    fn compare(&mut self, op: Comparison, left: NodeIndex, right: NodeIndex) -> Option<Predicate> {
        let (op, input, literal) = match (self.node(left), self.node(right)) {
            (Node::Column(left), Node::Column(right)) if stored_integer(self.value_type_of(*left)) => {
                let (left, right) = (usize::from(*left), usize::from(*right));
                return Some(Predicate::Columns { op, left, right });
            }
            (Node::Column(input), Node::Literal(literal)) => (op, usize::from(*input), literal.clone()),
            (Node::Literal(literal), Node::Column(input)) => {
                (mirror(op), usize::from(*input), literal.clone())
            }
            _ => return None,
        };
        match literal {
            Literal::Null(_) => Some(Predicate::Constant(false)),
            Literal::Text(text) => Some(self.text(input, text_compare(op, text.into_bytes()))),
            literal => Some(integer_compare(op, input, unscaled(&literal)?)),
        }
    }

    fn expression(
        &self,
        op: Comparison,
        (left, right): (NodeIndex, NodeIndex),
        node: NodeIndex,
        truth: bool,
    ) -> Option<Predicate> {
        let mut steps = NarrowProgram::new(self.program);
        let (left, right) = (steps.operand(self.program, left)?, steps.operand(self.program, right)?);
        let comparison = Arc::new(NarrowComparison { op, steps, left, right });
        Some(Predicate::Expression { comparison, node, truth, inputs: inputs_of(self.program, &[node]) })
    }

    fn value_type_of(&self, input: u16) -> ValueType {
        self.program.program().inputs[usize::from(input)].column_type.into()
    }

    fn in_set(&mut self, item: NodeIndex, set: &[Literal], negated: bool) -> Option<Predicate> {
        let input = self.column(item)?;
        if self.value_type(item) == ValueType::Text {
            let texts = set.iter().filter_map(|literal| match literal {
                Literal::Text(text) => Some(text.clone().into_bytes()),
                _ => None,
            });
            let mut values: Vec<Vec<u8>> = texts.collect();
            values.sort_unstable();
            values.dedup();
            return Some(self.text(input, TextTest::Set { values, negated }));
        }
        let values: Option<Vec<i128>> = set.iter().map(unscaled).collect();
        // No stored value equals a constant beyond 64 bits.
        let mut values: Vec<i64> =
            values?.into_iter().filter_map(|value| i64::try_from(value).ok()).collect();
        values.sort_unstable();
        values.dedup();
        let contiguous = match (values.first(), values.last()) {
            (Some(&low), Some(&high)) => {
                (high.abs_diff(low) == values.len() as u64 - 1).then_some((low, high))
            }
            _ => None,
        };
        Some(match contiguous {
            Some((low, high)) if !negated => Predicate::Interval { input, low, high },
            _ => Predicate::Set { input, values, negated },
        })
    }

    fn text(&mut self, input: usize, test: TextTest) -> Predicate {
        let leaf = self.text_leaves;
        self.text_leaves += 1;
        Predicate::Text { input, leaf, test }
    }

    /// A node that no narrow leaf can express. If it depends on a single text, it is evaluated once
    /// per dictionary entry, otherwise on rows.
    fn leaf(&mut self, node: NodeIndex, truth: bool) -> Predicate {
        let inputs = inputs_of(self.program, &[node]);
        if let [input] = inputs[..]
            && self.program.program().inputs[input].column_type == ColumnType::Text
            && !may_fail(self.program, node)
        {
            return self.text(input, TextTest::Node { node, truth });
        }
        Predicate::General { node, truth, inputs }
    }

    fn general(&self, node: NodeIndex, truth: bool) -> Predicate {
        Predicate::General { node, truth, inputs: inputs_of(self.program, &[node]) }
    }
}

/// The nodes that must be evaluated for `roots`, as a mask by node.
pub(crate) fn nodes_below(program: &VerifiedProgram, roots: &[NodeIndex]) -> Vec<bool> {
    let nodes = &program.program().nodes;
    let mut needed = vec![false; nodes.len()];
    for &root in roots {
        needed[usize::from(root)] = true;
    }
    // Operands precede the nodes that use them, so one pass from the end reaches all.
    for index in (0..nodes.len()).rev() {
        if needed[index] {
            nodes[index].for_each_operand(&mut |operand| needed[usize::from(operand)] = true);
        }
    }
    needed
}

/// The inputs that `roots` depend on, ascending.
pub(crate) fn inputs_of(program: &VerifiedProgram, roots: &[NodeIndex]) -> Vec<usize> {
    let needed = nodes_below(program, roots);
    let nodes = program.program().nodes.iter().zip(&needed);
    let mut inputs: Vec<usize> = nodes
        .filter_map(|(node, needed)| match node {
            Node::Column(input) if *needed => Some(usize::from(*input)),
            _ => None,
        })
        .collect();
    inputs.sort_unstable();
    inputs.dedup();
    inputs
}

/// Whether some value can make the node fail, or a node below it: a cast that does not fit, or an
/// exact number that overflows.
pub(crate) fn may_fail(program: &VerifiedProgram, root: NodeIndex) -> bool {
    let (needed, types) = (nodes_below(program, &[root]), program.node_types());
    program.program().nodes.iter().zip(&needed).any(|(node, needed)| *needed && node.can_fail(types))
}

fn complement(op: Comparison) -> Comparison {
    match op {
        Comparison::Equal => Comparison::NotEqual,
        Comparison::NotEqual => Comparison::Equal,
        Comparison::Less => Comparison::GreaterOrEqual,
        Comparison::LessOrEqual => Comparison::Greater,
        Comparison::Greater => Comparison::LessOrEqual,
        Comparison::GreaterOrEqual => Comparison::Less,
    }
}

fn mirror(op: Comparison) -> Comparison {
    match op {
        Comparison::Equal | Comparison::NotEqual => op,
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
    }
}

fn integer_compare(op: Comparison, input: usize, constant: i128) -> Predicate {
    let (least, most) = (i128::from(i64::MIN), i128::from(i64::MAX));
    let (low, high) = match op {
        Comparison::Equal => (constant, constant),
        Comparison::NotEqual => {
            let values = i64::try_from(constant).into_iter().collect();
            return Predicate::Set { input, values, negated: true };
        }
        Comparison::Less => (least, constant.saturating_sub(1)),
        Comparison::LessOrEqual => (least, constant),
        Comparison::Greater => (constant.saturating_add(1), most),
        Comparison::GreaterOrEqual => (constant, most),
    };
    let (low, high) = (low.max(least), high.min(most));
    match (i64::try_from(low), i64::try_from(high)) {
        (Ok(low), Ok(high)) if low <= high => Predicate::Interval { input, low, high },
        _ => Predicate::Constant(false),
    }
}

fn text_compare(op: Comparison, text: Vec<u8>) -> TextTest {
    match op {
        Comparison::Equal => TextTest::Set { values: vec![text], negated: false },
        Comparison::NotEqual => TextTest::Set { values: vec![text], negated: true },
        Comparison::Less => TextTest::Interval { low: None, high: Some((text, false)) },
        Comparison::LessOrEqual => TextTest::Interval { low: None, high: Some((text, true)) },
        Comparison::Greater => TextTest::Interval { low: Some((text, false)), high: None },
        Comparison::GreaterOrEqual => TextTest::Interval { low: Some((text, true)), high: None },
    }
}

/// The conjunction of `items`, flattened. All intervals of one input become one interval, so that
/// BETWEEN unpacks a block only once.
fn all(items: Vec<Predicate>) -> Predicate {
    let mut flat: Vec<Predicate> = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Predicate::Constant(true) => {}
            Predicate::Constant(false) => return Predicate::Constant(false),
            Predicate::All(inner) => flat.extend(inner),
            other => flat.push(other),
        }
    }
    let mut merged: Vec<Predicate> = Vec::with_capacity(flat.len());
    for item in flat {
        let Predicate::Interval { input, low, high } = item else {
            merged.push(item);
            continue;
        };
        let earlier = merged.iter_mut().find_map(|predicate| match predicate {
            Predicate::Interval { input: other, low, high } if *other == input => Some((low, high)),
            _ => None,
        });
        match earlier {
            Some((other_low, other_high)) => {
                *other_low = low.max(*other_low);
                *other_high = high.min(*other_high);
                if other_low > other_high {
                    return Predicate::Constant(false);
                }
            }
            None => merged.push(Predicate::Interval { input, low, high }),
        }
    }
    match merged.len() {
        0 => Predicate::Constant(true),
        1 => merged.swap_remove(0),
        _ => Predicate::All(merged),
    }
}

fn any(items: Vec<Predicate>) -> Predicate {
    let mut flat: Vec<Predicate> = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Predicate::Constant(false) => {}
            Predicate::Constant(true) => return Predicate::Constant(true),
            Predicate::Any(inner) => flat.extend(inner),
            other => flat.push(other),
        }
    }
    match flat.len() {
        0 => Predicate::Constant(false),
        1 => flat.swap_remove(0),
        _ => Predicate::Any(flat),
    }
}
