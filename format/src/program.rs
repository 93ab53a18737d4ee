//! What should a scan compute? The scan program: a small, versioned, verified instruction set.
//!
//! A program is a list of expression nodes, each naming only earlier nodes, so it cannot recurse or
//! loop; filters and outputs name nodes. The engine writes programs, `scan` runs them, at whichever
//! end.
//!
//! Invariants (held by [`ScanProgram::verify`]; nothing runs an unverified program)
//! - Node `i` names only nodes below `i`; inputs are columns of the table with the types the
//!   program states.
//! - Every node has one type, worked out here; comparisons are between equal types.
//! - NULL follows SQL: three-valued logic, a filter keeps a row only when it is true.
//! - Integer arithmetic wraps, as DataFusion's does; decimal arithmetic is exact or an error.

use crate::{
    ids::{ColumnId, TableId},
    key_filter::{KeyFilter, KeyFilterName},
    schema::ColumnType,
};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// The instruction set's version, the first thing in an encoded program.
pub const PROGRAM_VERSION: u16 = 5;
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

/// A constant. Text is compared by code point, floats by IEEE total order of `arrow`'s kernels, but
/// that comparisons take the two zeros for equal; a set tells them apart. All of this is
/// DataFusion's way.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// Of two numbers; for decimals the result type is arrow's: add (max integer digits + max
    /// scale + 1), multiply (p1 + p2 + 1, s1 + s2), capped at 38 digits.
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
    /// May be among the keys of a filter: false or null only if it is not. A conjunct of the filter
    /// and nothing else, because what may say yes too often cannot be negated.
    InKeys {
        /// A column that is stored as integers.
        item: NodeIndex,
        /// A position in [`ScanProgram::key_filters`].
        keys: u16,
    },
    /// Where the row lies, as [`RowPlace::number`](crate::row_place::RowPlace::number) says. An
    /// output of [`Output::Rows`] and nothing else: no operand, filter or group.
    RowNumber,
}

impl Node {
    /// Calls `visit` with each node that this one names.
    pub fn for_each_operand(&self, visit: &mut impl FnMut(NodeIndex)) {
        match self {
            Self::Column(_) | Self::Literal(_) | Self::RowNumber => {}
            Self::Compare { left, right, .. } | Self::Arithmetic { left, right, .. } => {
                visit(*left);
                visit(*right);
            }
            Self::And(items) | Self::Or(items) => items.iter().copied().for_each(visit),
            Self::Not(item)
            | Self::IsNull(item)
            | Self::InSet { item, .. }
            | Self::Like { item, .. }
            | Self::Negate(item)
            | Self::Cast { item, .. }
            | Self::DatePart { item, .. }
            | Self::Substring { item, .. }
            | Self::InKeys { item, .. } => visit(*item),
            Self::Case { branches, otherwise } => {
                for (condition, value) in branches {
                    visit(*condition);
                    visit(*value);
                }
                otherwise.iter().copied().for_each(visit);
            }
        }
    }
}

/// How rows of a group become one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AggregateFunction {
    /// Rows, whatever they hold; takes no argument. `Int64`.
    CountRows,
    /// Rows where the argument has a value. `Int64`.
    Count,
    /// Their sum, null when no row has a value. `Int64` (wrapping), `Float64`, or decimal with ten
    /// digits more.
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
    /// The rows that pass the filter, as these nodes' values. May be empty: then only the number of
    /// rows counts.
    Rows(Vec<NodeIndex>),
    /// One row per group, unique within one batch: the keys, then the aggregates. A scan whose
    /// table of groups grows beyond its memory puts it out and begins anew, so groups may repeat in
    /// later batches; whoever asked merges them.
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

/// A whole scan of one table, the same for each of its segments, whichever table they were written
/// under.
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
    /// Boolean nodes; a row passes when all are true. Cheapest or most selective first, in the
    /// writer's opinion.
    pub filter: Vec<NodeIndex>,
    /// What comes out of the rows that pass.
    pub output: Output,
    /// Stop after this many rows of a segment; `Output::Rows` only.
    pub limit_rows: Option<u32>,
    /// The filters that [`Node::InKeys`] asks; they travel beside the program.
    pub key_filters: Vec<KeyFilterName>,
}

/// What is wrong with a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("scan program: {}{what}: found {found}, expected {expected}", place(*.instruction))]
pub struct ProgramError {
    /// The offending node, if one is: its position in [`ScanProgram::nodes`].
    pub instruction: Option<NodeIndex>,
    /// The part at fault, beginning with what the node does.
    pub what: String,
    /// What is there.
    pub found: String,
    /// What would be right.
    pub expected: String,
}

fn place(instruction: Option<NodeIndex>) -> String {
    instruction.map_or_else(String::new, |node| format!("instruction {node}, "))
}

/// A program whose every claim was checked, with the type of each node and output.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifiedProgram {
    program: ScanProgram,
    node_types: Vec<ValueType>,
    output_types: Vec<ValueType>,
    key_filters: Vec<Arc<KeyFilter>>,
}

impl VerifiedProgram {
    /// The same program with the filters that it names.
    ///
    /// # Errors
    /// When they are others.
    pub fn with_key_filters(self, key_filters: Vec<Arc<KeyFilter>>) -> Result<Self, ProgramError> {
        let found: Vec<KeyFilterName> = key_filters.iter().map(|filter| filter.name()).collect();
        if found != self.program.key_filters {
            let (what, found) = ("its key filters".to_owned(), format!("{found:?}"));
            let expected = format!("{:?}", self.program.key_filters);
            return Err(ProgramError { instruction: None, what, found, expected });
        }
        Ok(Self { key_filters, ..self })
    }

    /// The filters that the program names. None before they were given: then [`Node::InKeys`] keeps
    /// every key.
    #[must_use]
    pub fn key_filters(&self) -> &[Arc<KeyFilter>] {
        &self.key_filters
    }

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

    /// The type of each column that comes out: of `Rows`' nodes, or of `Groups`' keys and then
    /// aggregates.
    #[must_use]
    pub fn output_types(&self) -> &[ValueType] {
        &self.output_types
    }
}

mod verify;

#[cfg(test)]
mod tests;
