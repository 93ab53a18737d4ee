//! What should a scan compute? The scan program: a small, versioned, verified instruction set.
//!
//! A program is a list of expression nodes, each naming only earlier nodes, so it cannot recurse or loop; filters and
//! outputs name nodes. The engine writes programs, `scan` runs them, at whichever end.
//!
//! Invariants (held by [`ScanProgram::verify`]; nothing runs an unverified program)
//! - Node `i` names only nodes below `i`; inputs are columns of the table with the types the program states.
//! - Every node has one type, worked out here; comparisons are between equal types.
//! - NULL follows SQL: three-valued logic, a filter keeps a row only when it is true.
//! - Integer arithmetic wraps, as DataFusion's does; decimal arithmetic is exact or an error.

use crate::{
    ids::{ColumnId, TableId},
    limits::{
        PROGRAM_INPUTS_MAX, PROGRAM_LITERAL_BYTES_MAX, PROGRAM_NODES_MAX, PROGRAM_OUTPUTS_MAX,
        PROGRAM_SET_MAX,
    },
    schema::{ColumnType, TableDefinition},
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The instruction set's version, the first thing in an encoded program.
pub const PROGRAM_VERSION: u16 = 1;
/// Digits of a computed decimal: its unscaled value fits 128 bits.
pub const COMPUTED_DIGITS_MAX: u8 = 38;

/// The type of a node's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ValueType {
    /// True, false or null.
    Boolean,
    /// A signed 32-bit integer.
    Int32,
    /// A signed 64-bit integer.
    Int64,
    /// Days since 1970-01-01.
    Date32,
    /// Microseconds since 1970-01-01T00:00:00.
    TimestampMicros,
    /// An exact decimal of up to 38 digits.
    Decimal {
        /// All digits.
        precision: u8,
        /// Digits after the point.
        scale: u8,
    },
    /// An IEEE 754 double.
    Float64,
    /// UTF-8 text.
    Text,
}

impl From<ColumnType> for ValueType {
    fn from(column_type: ColumnType) -> Self {
        match column_type {
            ColumnType::Boolean => Self::Boolean,
            ColumnType::Int32 => Self::Int32,
            ColumnType::Int64 => Self::Int64,
            ColumnType::Date32 => Self::Date32,
            ColumnType::TimestampMicros => Self::TimestampMicros,
            ColumnType::Decimal { precision, scale } => Self::Decimal { precision, scale },
            ColumnType::Float64 => Self::Float64,
            ColumnType::Text => Self::Text,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            other => write!(f, "{}", format!("{other:?}").to_lowercase()),
        }
    }
}

/// A constant. Text is compared by code point, floats by IEEE total order of `arrow`'s kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Literal {
    /// No value, of a type.
    Null(ValueType),
    /// See [`ValueType::Boolean`].
    Boolean(bool),
    /// See [`ValueType::Int32`].
    Int32(i32),
    /// See [`ValueType::Int64`].
    Int64(i64),
    /// See [`ValueType::Date32`].
    Date32(i32),
    /// See [`ValueType::TimestampMicros`].
    TimestampMicros(i64),
    /// See [`ValueType::Decimal`].
    Decimal {
        /// The value times `10^scale`.
        unscaled: i128,
        /// All digits of the type.
        precision: u8,
        /// Digits after the point.
        scale: u8,
    },
    /// See [`ValueType::Float64`].
    Float64(f64),
    /// See [`ValueType::Text`].
    Text(String),
}

impl Literal {
    /// The constant's type.
    #[must_use]
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::Null(value_type) => *value_type,
            Self::Boolean(_) => ValueType::Boolean,
            Self::Int32(_) => ValueType::Int32,
            Self::Int64(_) => ValueType::Int64,
            Self::Date32(_) => ValueType::Date32,
            Self::TimestampMicros(_) => ValueType::TimestampMicros,
            Self::Decimal { precision, scale, .. } => {
                ValueType::Decimal { precision: *precision, scale: *scale }
            }
            Self::Float64(_) => ValueType::Float64,
            Self::Text(_) => ValueType::Text,
        }
    }
}

/// The position of a node in [`ScanProgram::nodes`].
pub type NodeIndex = u16;

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// How two numbers become one. Division stays above the scan: it can fail, and order matters there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
}

/// A part of a date, as `EXTRACT` names it; an `Int32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DatePart {
    /// The year of the Gregorian calendar.
    Year,
    /// 1 to 12.
    Month,
    /// 1 to 31.
    Day,
}

/// One expression. Fields named `left`, `right`, `item` ... are positions of earlier nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Node {
    /// A column: a position in [`ScanProgram::inputs`].
    Column(u16),
    /// A constant.
    Literal(Literal),
    /// Of two values of one type.
    Compare {
        /// How.
        op: Comparison,
        /// The left side.
        left: NodeIndex,
        /// The right side.
        right: NodeIndex,
    },
    /// All are true; one or more items.
    And(Vec<NodeIndex>),
    /// One is true; one or more items.
    Or(Vec<NodeIndex>),
    /// Not true.
    Not(NodeIndex),
    /// Has no value. Never null itself.
    IsNull(NodeIndex),
    /// Equals one of a set of constants of its own type, none of them null.
    InSet {
        /// The value sought.
        item: NodeIndex,
        /// The constants.
        set: Vec<Literal>,
        /// `NOT IN`.
        negated: bool,
    },
    /// Matches a pattern with `%`, `_` and `\` as the escape.
    Like {
        /// The text.
        item: NodeIndex,
        /// The pattern.
        pattern: String,
        /// `NOT LIKE`.
        negated: bool,
        /// `ILIKE`.
        case_insensitive: bool,
    },
    /// Of two numbers; for decimals the result type is arrow's: add (max integer digits + max scale + 1),
    /// multiply (p1 + p2 + 1, s1 + s2), capped at 38 digits.
    Arithmetic {
        /// How.
        op: Arithmetic,
        /// The left side.
        left: NodeIndex,
        /// The right side.
        right: NodeIndex,
    },
    /// `-item`
    Negate(NodeIndex),
    /// Another type; a value that does not fit is an error, as in DataFusion's CAST.
    Cast {
        /// The value.
        item: NodeIndex,
        /// The type wanted.
        to: ValueType,
    },
    /// The first branch whose condition is true, else `otherwise`, else null.
    Case {
        /// Conditions and values.
        branches: Vec<(NodeIndex, NodeIndex)>,
        /// The value when no condition is true.
        otherwise: Option<NodeIndex>,
    },
    /// `EXTRACT(part FROM item)` of a date or a timestamp.
    DatePart {
        /// Which part.
        part: DatePart,
        /// The date.
        item: NodeIndex,
    },
    /// Characters `start ..` (counted from 1) of a text, `length` of them at most.
    Substring {
        /// The text.
        item: NodeIndex,
        /// The first character, 1 or more.
        start: u32,
        /// How many, to the end if absent.
        length: Option<u32>,
    },
}

/// How rows of a group become one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AggregateFunction {
    /// Rows, whatever they hold; takes no argument. `Int64`.
    CountRows,
    /// Rows where the argument has a value. `Int64`.
    Count,
    /// Their sum, null when no row has a value. `Int64` (wrapping), `Float64`, or decimal with ten digits more.
    Sum,
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
}

/// One partial aggregate. AVG is a `Sum` and a `Count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aggregate {
    /// What is computed.
    pub function: AggregateFunction,
    /// Of what; absent for `CountRows` only.
    pub argument: Option<NodeIndex>,
}

/// What comes out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Output {
    /// The rows that pass the filter, as these nodes' values. May be empty: then only the number of rows counts.
    Rows(Vec<NodeIndex>),
    /// One row per group, unique within the answer to one request: the keys, then the aggregates.
    Groups {
        /// The keys; none means a single group, which is there even when no row passes the filter.
        keys: Vec<NodeIndex>,
        /// The aggregates.
        aggregates: Vec<Aggregate>,
    },
}

/// A column the program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Which column of the table.
    pub column: ColumnId,
    /// Its type, checked against the table's.
    pub column_type: ColumnType,
}

/// A whole scan of one table, the same for each of its segments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScanProgram {
    /// [`PROGRAM_VERSION`] of the writer.
    pub version: u16,
    /// The table it was written for.
    pub table: TableId,
    /// The columns it reads, each once.
    pub inputs: Vec<Input>,
    /// The expressions.
    pub nodes: Vec<Node>,
    /// Boolean nodes; a row passes when all are true. Cheapest or most selective first, in the writer's opinion.
    pub filter: Vec<NodeIndex>,
    /// What comes out of the rows that pass.
    pub output: Output,
    /// Stop after this many rows of a segment; `Output::Rows` only.
    pub limit_rows: Option<u32>,
}

/// What is wrong with a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("scan program: {what}: found {found}, expected {expected}")]
pub struct ProgramError {
    /// The part at fault.
    pub what: String,
    /// What is there.
    pub found: String,
    /// What would be right.
    pub expected: String,
}

fn fault<T>(
    what: impl Into<String>,
    found: impl ToString,
    expected: impl Into<String>,
) -> Result<T, ProgramError> {
    Err(ProgramError { what: what.into(), found: found.to_string(), expected: expected.into() })
}

/// A program whose every claim was checked, with the type of each node and output.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifiedProgram {
    program: ScanProgram,
    node_types: Vec<ValueType>,
    output_types: Vec<ValueType>,
}

impl VerifiedProgram {
    /// The program itself.
    #[must_use]
    pub fn program(&self) -> &ScanProgram {
        &self.program
    }

    /// The type of each node.
    #[must_use]
    pub fn node_types(&self) -> &[ValueType] {
        &self.node_types
    }

    /// The type of each column that comes out: of `Rows`' nodes, or of `Groups`' keys and then aggregates.
    #[must_use]
    pub fn output_types(&self) -> &[ValueType] {
        &self.output_types
    }
}

impl ScanProgram {
    /// Checks version, sizes, positions and types against the table.
    ///
    /// # Errors
    /// The first claim that does not hold.
    pub fn verify(self, table: &TableDefinition) -> Result<VerifiedProgram, ProgramError> {
        if self.version != PROGRAM_VERSION {
            return fault("its version", self.version, PROGRAM_VERSION.to_string());
        }
        if self.table != table.id {
            return fault("its table", self.table, format!("{} ({})", table.id, table.name));
        }
        self.verify_sizes()?;
        for (index, input) in self.inputs.iter().enumerate() {
            let Some(column) = table.columns.get(input.column.index()) else {
                return fault("an input column", input.column, format!("below {}", table.columns.len()));
            };
            if column.column_type != input.column_type {
                return fault(
                    format!("the type of {}", column.name),
                    input.column_type,
                    column.column_type.to_string(),
                );
            }
            if self.inputs[..index].iter().any(|other| other.column == input.column) {
                return fault("an input column", format!("{} twice", column.name), "each column once");
            }
        }
        let mut node_types = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let value_type = Typing { inputs: &self.inputs, below: &node_types }.of(node)?;
            node_types.push(value_type);
        }
        let typing = Typing { inputs: &self.inputs, below: &node_types };
        for &node in &self.filter {
            typing.expect(node, ValueType::Boolean)?;
        }
        let output_types = self.output_types(&typing)?;
        Ok(VerifiedProgram { program: self, node_types, output_types })
    }

    fn verify_sizes(&self) -> Result<(), ProgramError> {
        let outputs = match &self.output {
            Output::Rows(nodes) => nodes.len(),
            Output::Groups { keys, aggregates } => keys.len() + aggregates.len(),
        };
        for (what, found, most) in [
            ("the number of inputs", self.inputs.len(), PROGRAM_INPUTS_MAX),
            ("the number of nodes", self.nodes.len(), PROGRAM_NODES_MAX),
            ("the number of filters", self.filter.len(), PROGRAM_NODES_MAX),
            ("the number of outputs", outputs, PROGRAM_OUTPUTS_MAX),
        ] {
            if found > most {
                return fault(what, found, format!("at most {most}"));
            }
        }
        Ok(())
    }

    fn output_types(&self, typing: &Typing<'_>) -> Result<Vec<ValueType>, ProgramError> {
        match &self.output {
            Output::Rows(nodes) => nodes.iter().map(|&node| typing.at(node)).collect(),
            Output::Groups { keys, aggregates } => {
                if self.limit_rows.is_some() {
                    return fault("the row limit", "a limit on groups", "none");
                }
                let keys = keys.iter().map(|&node| typing.at(node));
                keys.chain(aggregates.iter().map(|aggregate| typing.aggregate(aggregate))).collect()
            }
        }
    }
}

/// Works out the type of a node from the types of the nodes below it.
struct Typing<'a> {
    inputs: &'a [Input],
    below: &'a [ValueType],
}

impl Typing<'_> {
    fn at(&self, node: NodeIndex) -> Result<ValueType, ProgramError> {
        match self.below.get(usize::from(node)) {
            Some(value_type) => Ok(*value_type),
            None => fault("the position of a node", node, format!("below {}", self.below.len())),
        }
    }

    fn expect(&self, node: NodeIndex, wanted: ValueType) -> Result<(), ProgramError> {
        let found = self.at(node)?;
        if found == wanted {
            Ok(())
        } else {
            fault(format!("the type of node {node}"), found, wanted.to_string())
        }
    }

    fn of(&self, node: &Node) -> Result<ValueType, ProgramError> {
        match node {
            Node::Column(input) => match self.inputs.get(usize::from(*input)) {
                Some(input) => Ok(input.column_type.into()),
                None => fault("the position of an input", input, format!("below {}", self.inputs.len())),
            },
            Node::Literal(literal) => literal_type(literal),
            Node::Compare { left, right, .. } => {
                self.expect(*right, self.at(*left)?).map(|()| ValueType::Boolean)
            }
            Node::And(items) | Node::Or(items) => {
                if items.is_empty() || items.len() > PROGRAM_NODES_MAX {
                    return fault("the items of AND/OR", items.len(), format!("1 to {PROGRAM_NODES_MAX}"));
                }
                items.iter().try_for_each(|&item| self.expect(item, ValueType::Boolean))?;
                Ok(ValueType::Boolean)
            }
            Node::Not(item) => self.expect(*item, ValueType::Boolean).map(|()| ValueType::Boolean),
            Node::IsNull(item) => self.at(*item).map(|_| ValueType::Boolean),
            Node::InSet { item, set, .. } => self.in_set(*item, set),
            Node::Like { item, pattern, .. } => {
                if pattern.len() > PROGRAM_LITERAL_BYTES_MAX {
                    return fault(
                        "the bytes of a pattern",
                        pattern.len(),
                        format!("<= {PROGRAM_LITERAL_BYTES_MAX}"),
                    );
                }
                self.expect(*item, ValueType::Text).map(|()| ValueType::Boolean)
            }
            Node::Arithmetic { op, left, right } => arithmetic_type(*op, self.at(*left)?, self.at(*right)?),
            Node::Negate(item) => self.number(*item),
            Node::Cast { item, to } => self.cast(*item, *to),
            Node::Case { branches, otherwise } => self.case(branches, *otherwise),
            Node::DatePart { item, .. } => match self.at(*item)? {
                ValueType::Date32 | ValueType::TimestampMicros => Ok(ValueType::Int32),
                found => fault("the argument of EXTRACT", found, "a date or a timestamp"),
            },
            Node::Substring { item, start, .. } => {
                if *start == 0 {
                    return fault("the first character of a substring", 0, "1 or more");
                }
                self.expect(*item, ValueType::Text).map(|()| ValueType::Text)
            }
        }
    }

    fn in_set(&self, item: NodeIndex, set: &[Literal]) -> Result<ValueType, ProgramError> {
        if set.is_empty() || set.len() > PROGRAM_SET_MAX {
            return fault("the size of an IN set", set.len(), format!("1 to {PROGRAM_SET_MAX}"));
        }
        let wanted = self.at(item)?;
        for literal in set {
            let found = literal_type(literal)?;
            if found != wanted || matches!(literal, Literal::Null(_)) {
                return fault("a value of an IN set", format!("{literal:?}"), format!("a {wanted}"));
            }
        }
        Ok(ValueType::Boolean)
    }

    fn number(&self, item: NodeIndex) -> Result<ValueType, ProgramError> {
        match self.at(item)? {
            number @ (ValueType::Int32
            | ValueType::Int64
            | ValueType::Float64
            | ValueType::Decimal { .. }) => Ok(number),
            found => fault(format!("the type of node {item}"), found, "a number"),
        }
    }

    fn cast(&self, item: NodeIndex, to: ValueType) -> Result<ValueType, ProgramError> {
        use ValueType::{Date32, Decimal, Float64, Int32, Int64, TimestampMicros};
        check_digits(to)?;
        match (self.at(item)?, to) {
            (from, to) if from == to => Ok(to),
            (Int32 | Int64 | Decimal { .. } | Float64, Int32 | Int64 | Decimal { .. } | Float64)
            | (Date32, TimestampMicros)
            | (TimestampMicros, Date32) => Ok(to),
            (from, to) => {
                fault("a cast", format!("{from} to {to}"), "a cast between numbers, or dates and timestamps")
            }
        }
    }

    fn case(
        &self,
        branches: &[(NodeIndex, NodeIndex)],
        otherwise: Option<NodeIndex>,
    ) -> Result<ValueType, ProgramError> {
        let Some((_, first)) = branches.first() else {
            return fault("the branches of CASE", 0, "one or more");
        };
        if branches.len() > PROGRAM_NODES_MAX {
            return fault("the branches of CASE", branches.len(), format!("at most {PROGRAM_NODES_MAX}"));
        }
        let wanted = self.at(*first)?;
        for (condition, value) in branches {
            self.expect(*condition, ValueType::Boolean)?;
            self.expect(*value, wanted)?;
        }
        otherwise.map_or(Ok(()), |node| self.expect(node, wanted))?;
        Ok(wanted)
    }

    fn aggregate(&self, aggregate: &Aggregate) -> Result<ValueType, ProgramError> {
        match (aggregate.function, aggregate.argument) {
            (AggregateFunction::CountRows, None) => Ok(ValueType::Int64),
            (AggregateFunction::Count, Some(argument)) => self.at(argument).map(|_| ValueType::Int64),
            (AggregateFunction::Min | AggregateFunction::Max, Some(argument)) => self.at(argument),
            (AggregateFunction::Sum, Some(argument)) => match self.at(argument)? {
                ValueType::Int64 => Ok(ValueType::Int64),
                ValueType::Float64 => Ok(ValueType::Float64),
                ValueType::Decimal { precision, scale } => {
                    Ok(ValueType::Decimal { precision: (precision + 10).min(COMPUTED_DIGITS_MAX), scale })
                }
                found => fault("the argument of a sum", found, "a bigint, a double or a decimal"),
            },
            (function, argument) => fault(
                "an aggregate",
                format!("{function:?} of {argument:?}"),
                "an argument, but none for CountRows",
            ),
        }
    }
}

fn literal_type(literal: &Literal) -> Result<ValueType, ProgramError> {
    if let Literal::Text(text) = literal
        && text.len() > PROGRAM_LITERAL_BYTES_MAX
    {
        return fault(
            "the bytes of a text constant",
            text.len(),
            format!("at most {PROGRAM_LITERAL_BYTES_MAX}"),
        );
    }
    check_digits(literal.value_type())
}

fn check_digits(value_type: ValueType) -> Result<ValueType, ProgramError> {
    match value_type {
        ValueType::Decimal { precision, scale }
            if precision == 0 || precision > COMPUTED_DIGITS_MAX || scale > precision =>
        {
            fault("a type", value_type, format!("1 to {COMPUTED_DIGITS_MAX} digits with scale <= precision"))
        }
        fine => Ok(fine),
    }
}

/// Arrow's result types (`arrow-arith`, `numeric.rs`), so that the engine's plan and the scan agree.
fn arithmetic_type(op: Arithmetic, left: ValueType, right: ValueType) -> Result<ValueType, ProgramError> {
    use ValueType::{Decimal, Float64, Int32, Int64};
    match (left, right) {
        (Int32, Int32) => Ok(Int32),
        (Int64, Int64) => Ok(Int64),
        (Float64, Float64) => Ok(Float64),
        (Decimal { precision: p1, scale: s1 }, Decimal { precision: p2, scale: s2 }) => {
            let (precision, scale) = match op {
                Arithmetic::Multiply => (p1 + p2 + 1, s1 + s2),
                Arithmetic::Add | Arithmetic::Subtract => {
                    let scale = s1.max(s2);
                    ((p1 - s1).max(p2 - s2) + scale + 1, scale)
                }
            };
            if scale > COMPUTED_DIGITS_MAX {
                return fault("the scale of a product", scale, format!("at most {COMPUTED_DIGITS_MAX}"));
            }
            Ok(Decimal { precision: precision.min(COMPUTED_DIGITS_MAX), scale })
        }
        (left, right) => fault("arithmetic", format!("{left} and {right}"), "two numbers of one type"),
    }
}

#[cfg(test)]
mod tests;
