//! The paper's queries as filters: their rows and columns.
//!
//! Invariants
//! - A query is its WHERE clause and the columns that its select list names: no sums, no groups, no
//!   order.
//! - Every placement runs the same program.

use std::fmt;
use std::str::FromStr;

use rackscan_format::ids::ColumnId;
use rackscan_format::program::{
    Comparison, Input, Literal, Node, NodeIndex, Output, PROGRAM_VERSION, ScanProgram, VerifiedProgram,
};
use rackscan_format::schema::{ColumnType, TableDefinition};
use serde::Serialize;

use super::error::SimulationError;

/// The table that all of the queries read.
pub const TABLE: &str = "lineitem";

/// A query of the paper's section 4.5, as a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SimulatedQuery {
    /// Query 1: lines shipped at the latest 120 days before 1998-12-01.
    Q01,
    /// Query 6: lines of 1995 with a discount of 4 to 6 percent and fewer than 24 pieces.
    Q06,
    /// The subquery of query 15: lines of three months from 1993-04-01 on.
    Q15,
}

impl SimulatedQuery {
    /// All queries.
    pub const ALL: [Self; 3] = [Self::Q01, Self::Q06, Self::Q15];

    /// Its name for users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Q01 => "q01",
            Self::Q06 => "q06",
            Self::Q15 => "q15",
        }
    }

    /// The selectivity as the paper's table 4.5 prints it.
    #[must_use]
    pub fn paper_selectivity(self) -> &'static str {
        match self {
            Self::Q01 => "0.97",
            Self::Q06 => "0.013",
            Self::Q15 => "0.15",
        }
    }

    /// Conditions that must all hold.
    fn conditions(self) -> Vec<(&'static str, Comparison, Constant)> {
        use Comparison::{GreaterOrEqual, Less, LessOrEqual};
        let shipped = |op, date| ("l_shipdate", op, Constant::Date(date));
        match self {
            Self::Q01 => vec![shipped(LessOrEqual, days(1998, 12, 1) - 120)],
            Self::Q06 => vec![
                shipped(GreaterOrEqual, days(1995, 1, 1)),
                shipped(Less, days(1996, 1, 1)),
                ("l_discount", GreaterOrEqual, Constant::Hundredths(4)),
                ("l_discount", LessOrEqual, Constant::Hundredths(6)),
                ("l_quantity", Less, Constant::Hundredths(2400)),
            ],
            Self::Q15 => {
                vec![shipped(GreaterOrEqual, days(1993, 4, 1)), shipped(Less, days(1993, 7, 1))]
            }
        }
    }

    /// The columns that the select list names.
    fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Q01 => {
                &["l_returnflag", "l_linestatus", "l_quantity", "l_extendedprice", "l_discount", "l_tax"]
            }
            Self::Q06 => &["l_extendedprice", "l_discount"],
            Self::Q15 => &["l_suppkey", "l_extendedprice", "l_discount"],
        }
    }

    /// The scan that every placement runs.
    pub(super) fn program(self, table: &TableDefinition) -> Result<VerifiedProgram, SimulationError> {
        let mut writer = Writer { table, inputs: Vec::new(), nodes: Vec::new() };
        let mut filter = Vec::new();
        for (column, op, constant) in self.conditions() {
            filter.push(writer.compare(column, op, constant)?);
        }
        let output = self.columns().iter().map(|column| Ok(writer.column(column)?.0));
        let output = Output::Rows(output.collect::<Result<_, SimulationError>>()?);
        let Writer { inputs, nodes, .. } = writer;
        let program = ScanProgram {
            version: PROGRAM_VERSION,
            table: table.id,
            inputs,
            nodes,
            filter,
            output,
            limit_rows: None,
            key_filters: Vec::new(),
        };
        Ok(program.verify(table)?)
    }
}

impl fmt::Display for SimulatedQuery {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A word that names no query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no query {found:?} to simulate; expected q01, q06 or q15")]
pub struct UnknownQuery {
    /// The word.
    pub found: String,
}

impl FromStr for SimulatedQuery {
    type Err = UnknownQuery;

    fn from_str(text: &str) -> Result<Self, UnknownQuery> {
        let named = Self::ALL.into_iter().find(|query| query.name() == text);
        named.ok_or_else(|| UnknownQuery { found: text.to_owned() })
    }
}

/// A constant that a column is compared with.
#[derive(Debug, Clone, Copy)]
enum Constant {
    /// Days since 1970-01-01.
    Date(i32),
    /// A decimal, in hundredths.
    Hundredths(i128),
}

struct Writer<'t> {
    table: &'t TableDefinition,
    inputs: Vec<Input>,
    nodes: Vec<Node>,
}

impl Writer<'_> {
    /// The node of a column; it is read once, however often the query names it.
    fn column(&mut self, name: &str) -> Result<(NodeIndex, ColumnType), SimulationError> {
        let missing =
            || SimulationError::NoColumn { table: self.table.name.clone(), column: name.to_owned() };
        let position = self.table.columns.iter().position(|column| column.name == name);
        let position = position.ok_or_else(missing)?;
        let column = ColumnId(u16::try_from(position).map_err(|_| missing())?);
        let column_type = self.table.columns[position].column_type;
        let known = self.inputs.iter().position(|input| input.column == column);
        let input = known.unwrap_or(self.inputs.len());
        let input = u16::try_from(input).map_err(|_| missing())?;
        if known.is_none() {
            self.inputs.push(Input { column, column_type });
        }
        let there = self.nodes.iter().position(|node| *node == Node::Column(input));
        match there.and_then(|node| NodeIndex::try_from(node).ok()) {
            Some(node) => Ok((node, column_type)),
            None => Ok((self.push(Node::Column(input)), column_type)),
        }
    }

    fn compare(
        &mut self,
        column: &str,
        op: Comparison,
        constant: Constant,
    ) -> Result<NodeIndex, SimulationError> {
        let (left, column_type) = self.column(column)?;
        let literal = match (constant, column_type) {
            (Constant::Date(days), ColumnType::Date32) => Literal::Date32(days),
            (Constant::Hundredths(unscaled), ColumnType::Decimal { precision, scale: 2 }) => {
                Literal::Decimal { unscaled, precision, scale: 2 }
            }
            (constant, found) => {
                return Err(SimulationError::ColumnType {
                    column: column.to_owned(),
                    found: found.to_string(),
                    expected: match constant {
                        Constant::Date(_) => "date",
                        Constant::Hundredths(_) => "a decimal with two digits after the point",
                    },
                });
            }
        };
        let right = self.push(Node::Literal(literal));
        Ok(self.push(Node::Compare { op, left, right }))
    }

    /// Appends a node. Programs of this file have a few dozen nodes.
    fn push(&mut self, node: Node) -> NodeIndex {
        self.nodes.push(node);
        NodeIndex::try_from(self.nodes.len() - 1).unwrap_or(NodeIndex::MAX)
    }
}

/// Days from 1970-01-01 to a date of the years 1970 to 2099, in which every fourth year is a leap
/// year.
const fn days(year: i32, month: i32, day: i32) -> i32 {
    // Years begin in March, so that a leap day is the last day of its year; any five months from
    // there have 153 days.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    // 1969-03-01 is 306 days before 1970-01-01.
    let years = year - 1969;
    years * 365 + (years + 1) / 4 + (153 * month + 2) / 5 + day - 1 - 306
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_format::ids::{NodeId, TableId};
    use rackscan_format::schema::ColumnDefinition;

    fn table(quantity: ColumnType) -> TableDefinition {
        let money = ColumnType::Decimal { precision: 15, scale: 2 };
        let columns = [
            ("l_suppkey", ColumnType::Int64),
            ("l_quantity", quantity),
            ("l_extendedprice", money),
            ("l_discount", money),
            ("l_tax", money),
            ("l_returnflag", ColumnType::Text),
            ("l_linestatus", ColumnType::Text),
            ("l_shipdate", ColumnType::Date32),
        ];
        let column = |(name, column_type): (&str, ColumnType)| ColumnDefinition {
            name: name.to_owned(),
            column_type,
            nullable: false,
        };
        TableDefinition {
            id: TableId(3),
            name: TABLE.to_owned(),
            columns: columns.map(column).to_vec(),
            partition_key: ColumnId(0),
            sorted_by: None,
            page_size: 4096,
            segment_rows: 1024,
            nodes: vec![NodeId(0)],
            rows: 1,
            source: String::new(),
            succeeds: None,
            derived: Vec::new(),
            protection: None,
        }
    }

    #[test]
    fn dates_are_counted_from_1970() {
        assert_eq!(days(1970, 1, 1), 0);
        assert_eq!(days(1972, 2, 29), 789);
        assert_eq!(days(1998, 12, 1), 10_561);
        assert_eq!(days(1998, 12, 1) - 120, days(1998, 8, 3));
        assert_eq!(days(1996, 1, 1) - days(1995, 1, 1), 365);
    }

    #[test]
    fn every_query_is_a_program_that_reads_each_column_once() {
        let table = table(ColumnType::Decimal { precision: 15, scale: 2 });
        for (query, inputs, outputs) in
            [(SimulatedQuery::Q01, 7, 6), (SimulatedQuery::Q06, 4, 2), (SimulatedQuery::Q15, 4, 3)]
        {
            let program = query.program(&table).unwrap();
            assert_eq!(program.program().inputs.len(), inputs, "{query}");
            assert_eq!(program.output_types().len(), outputs, "{query}");
            assert_eq!(query.name().parse(), Ok(query));
        }
        assert!("q02".parse::<SimulatedQuery>().unwrap_err().to_string().contains("q01, q06 or q15"));
    }

    #[test]
    fn a_table_of_another_shape_is_refused_by_the_column() {
        let error = SimulatedQuery::Q06.program(&table(ColumnType::Int64)).unwrap_err().to_string();
        assert!(error.contains("l_quantity") && error.contains("bigint"), "{error}");
        let mut short = table(ColumnType::Int64);
        short.columns.pop();
        let error = SimulatedQuery::Q01.program(&short).unwrap_err().to_string();
        assert!(error.contains("l_shipdate"), "{error}");
    }
}
