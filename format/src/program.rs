//! Defines the scan program, which says what a scan computes: a small, versioned, verified
//! instruction set.
//!
//! A program is a list of expression nodes. An expression node is one operation (a column, a
//! constant, or a function of other nodes) and refers only to earlier nodes, so a program cannot
//! recurse or loop. Filters and outputs refer to nodes. The engine writes programs; the crate
//! `scan` runs them, at the engine or at a storage node.
//!
//! Invariants (checked by [`ScanProgram::verify`]; nothing runs an unverified program)
//! - Expression node `i` refers only to nodes below `i`; inputs are columns of the table with the
//!   types that the program states.
//! - Every expression node has one type, which verification computes; comparisons are between equal
//!   types.
//! - NULL follows SQL: logic has three values, and a filter keeps a row only when it is true.
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

/// A constant. As in DataFusion, text is compared by code point, and floats by the IEEE total order
/// of `arrow`'s kernels, except that comparisons treat the two zeros as equal; a set distinguishes
/// them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Literal {
    /// NULL of a type.
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

/// A comparison operator.
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

/// An arithmetic operator. Division is not pushed down to scans: it can fail, and the order of
/// evaluation matters there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
}

/// A part of a date, as in `EXTRACT`; the result is an `Int32`.
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
    /// Compares two values of one type.
    Compare {
        /// The operator.
        op: Comparison,
        /// The left side.
        left: NodeIndex,
        /// The right side.
        right: NodeIndex,
    },
    /// All items are true; one or more items.
    And(Vec<NodeIndex>),
    /// At least one item is true; one or more items.
    Or(Vec<NodeIndex>),
    /// Negation of a boolean.
    Not(NodeIndex),
    /// Whether the item is null; the result is never null.
    IsNull(NodeIndex),
    /// Whether the item equals one of a set of constants of its type, none of which is null.
    InSet {
        /// The value sought.
        item: NodeIndex,
        /// The constants.
        set: Vec<Literal>,
        /// `NOT IN`.
        negated: bool,
    },
    /// Whether a text matches a pattern with `%`, `_` and the escape `\`.
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
    /// Arithmetic on two numbers. For decimals the result type is that of arrow, capped at 38
    /// digits: sums have `max integer digits + max scale + 1` digits, products `p1 + p2 + 1` digits
    /// with scale `s1 + s2`.
    Arithmetic {
        /// The operator.
        op: Arithmetic,
        /// The left side.
        left: NodeIndex,
        /// The right side.
        right: NodeIndex,
    },
    /// `-item`
    Negate(NodeIndex),
    /// Converts to another type; a value that does not fit is an error, as in DataFusion's CAST.
    Cast {
        /// The value.
        item: NodeIndex,
        /// The target type.
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
        /// The part.
        part: DatePart,
        /// The date.
        item: NodeIndex,
    },
    /// The characters of a text from `start` on (counted from 1), at most `length` of them.
    Substring {
        /// The text.
        item: NodeIndex,
        /// The first character, 1 or more.
        start: u32,
        /// The maximum number of characters; all to the end if absent.
        length: Option<u32>,
    },
    /// Whether the item may be among the keys of a key filter: false or null only if it is not. It
    /// may only be a conjunct of the program's filter, because an approximate answer that is true
    /// too often must not be negated.
    InKeys {
        /// A column that is stored as integers.
        item: NodeIndex,
        /// A position in [`ScanProgram::key_filters`].
        keys: u16,
    },
    /// The position of the row as [`RowPlace::number`](crate::row_place::RowPlace::number). It may
    /// only be an output of [`Output::Rows`]: no operand, filter or group.
    RowNumber,
}

impl Node {
    /// Calls `visit` with each node that this one refers to.
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

    /// Whether some value of its operands can make it fail. `node_types` are those of the verified
    /// program.
    #[must_use]
    pub fn can_fail(&self, node_types: &[ValueType]) -> bool {
        match self {
            // Doubles overflow to infinity; integers and decimals are exact or an error.
            Self::Arithmetic { left: item, .. } | Self::Negate(item) => {
                node_types[usize::from(*item)] != ValueType::Float64
            }
            Self::Cast { .. } => true,
            Self::Column(_)
            | Self::Literal(_)
            | Self::Compare { .. }
            | Self::And(_)
            | Self::Or(_)
            | Self::Not(_)
            | Self::IsNull(_)
            | Self::InSet { .. }
            | Self::Like { .. }
            | Self::Case { .. }
            | Self::DatePart { .. }
            | Self::Substring { .. }
            | Self::InKeys { .. }
            | Self::RowNumber => false,
        }
    }
}

/// An aggregate function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AggregateFunction {
    /// The number of rows; takes no argument. `Int64`.
    CountRows,
    /// The number of rows where the argument is not null. `Int64`.
    Count,
    /// The sum, null when every row is null. `Int64` (wrapping), `Float64`, or decimal with ten
    /// more digits.
    Sum,
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
}

/// One partial aggregate. AVG is a `Sum` and a `Count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aggregate {
    /// The function.
    pub function: AggregateFunction,
    /// Its argument; absent for `CountRows` only.
    pub argument: Option<NodeIndex>,
}

/// The output of a scan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Output {
    /// The values of these nodes for each row that passes the filter. May be empty: then only the
    /// number of rows matters.
    Rows(Vec<NodeIndex>),
    /// One row per group: the keys, then the aggregates. A group is unique within one batch. A scan
    /// whose table of groups exceeds its memory outputs the table and starts with an empty one, so
    /// groups may repeat in later batches; the requester merges them.
    Groups {
        /// The keys; none means a single group, which exists even when no row passes the filter.
        keys: Vec<NodeIndex>,
        /// The aggregates.
        aggregates: Vec<Aggregate>,
    },
}

/// A column the program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The column of the table.
    pub column: ColumnId,
    /// Its type, checked against the table's.
    pub column_type: ColumnType,
}

/// The program of a scan of one table. It is the same for each segment of the table, whichever
/// version of the table wrote the segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScanProgram {
    /// The writer's [`PROGRAM_VERSION`].
    pub version: u16,
    /// The table that it was written for.
    pub table: TableId,
    /// The columns it reads, each once.
    pub inputs: Vec<Input>,
    /// The expressions.
    pub nodes: Vec<Node>,
    /// Boolean nodes; a row passes when all are true. The writer puts those first that it estimates
    /// to be cheap or selective.
    pub filter: Vec<NodeIndex>,
    /// The output for the rows that pass.
    pub output: Output,
    /// The scan stops after this many rows of a segment; for `Output::Rows` only.
    pub limit_rows: Option<u32>,
    /// The key filters that [`Node::InKeys`] uses; their bytes travel beside the program.
    pub key_filters: Vec<KeyFilterName>,
}

/// Why a program is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the scan program is invalid: {}{what}: found {found}, expected {expected}", place(*.instruction))]
pub struct ProgramError {
    /// The node at fault, if there is one: its position in [`ScanProgram::nodes`].
    pub instruction: Option<NodeIndex>,
    /// The part at fault, with a description of the node in front.
    pub what: String,
    /// The value found.
    pub found: String,
    /// The valid values.
    pub expected: String,
}

fn place(instruction: Option<NodeIndex>) -> String {
    instruction.map_or_else(String::new, |node| format!("instruction {node}, "))
}

/// A verified program, with the type of each node and output.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifiedProgram {
    program: ScanProgram,
    node_types: Vec<ValueType>,
    output_types: Vec<ValueType>,
    key_filters: Vec<Arc<KeyFilter>>,
}

impl VerifiedProgram {
    /// The same program with the key filters that it names.
    ///
    /// # Errors
    /// When they are not the named ones, in order.
    pub fn with_key_filters(self, key_filters: Vec<Arc<KeyFilter>>) -> Result<Self, ProgramError> {
        let found: Vec<KeyFilterName> = key_filters.iter().map(|filter| filter.name()).collect();
        if found != self.program.key_filters {
            let (what, found) = ("its key filters".to_owned(), format!("{found:?}"));
            let expected = format!("{:?}", self.program.key_filters);
            return Err(ProgramError { instruction: None, what, found, expected });
        }
        Ok(Self { key_filters, ..self })
    }

    /// The key filters of the program. Empty before [`Self::with_key_filters`]; then
    /// [`Node::InKeys`] is true for every key.
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

    /// The type of each output column: the nodes of `Rows`, or the keys and then the aggregates of
    /// `Groups`.
    #[must_use]
    pub fn output_types(&self) -> &[ValueType] {
        &self.output_types
    }
}

mod verify;

#[cfg(test)]
mod tests;
