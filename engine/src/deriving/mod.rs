//! Defines indexes, foreign keys and materialised views, which are derived from a table's rows, and
//! computes the rows of views.
//!
//! ```text
//! CREATE INDEX, ALTER TABLE ... FOREIGN KEY, CREATE MATERIALIZED VIEW
//!                 -> [statement] -> a definition -> a table version with that definition   (flushing)
//! changed rows    -> derived entries, in the same transaction                              (changes/derive)
//! flush           -> the view's sums over all segments, in a table of its own: its base    [base]
//! SELECT          -> base and entries of one point in time -> the rows of a view           [view], [amounts]
//! ```
//!
//! Invariant: a table's definition lists everything that is derived from it. The contents of bases
//! can be computed again from the table's rows.

mod aggregate;
mod amounts;
mod base;
mod clause;
mod range;
#[cfg(test)]
mod samples;
mod source;
mod statement;
mod view;

use crate::error::EngineError;
use datafusion::sql::sqlparser::{
    dialect::GenericDialect,
    parser::{Parser, ParserError},
};
use rackscan_format::{
    derived::{Factor, SumDefinition},
    ids::ColumnId,
    schema::TableDefinition,
};

pub(crate) use aggregate::Aggregate;
pub(crate) use amounts::{of_base, of_rows};
pub(crate) use base::{BaseName, NewBase, VIEW_NAME_BYTES_MAX};
pub(crate) use statement::DerivationStatement;
pub(crate) use view::{Changed, Sums, View};

/// The query of the statement that created a view.
fn parsed_view(source: &str) -> Result<Aggregate, EngineError> {
    let syntax = |error: ParserError| EngineError::Syntax(error.to_string());
    let statements = Parser::parse_sql(&GenericDialect {}, source).map_err(syntax)?;
    match statements.as_slice() {
        [statement] => match DerivationStatement::of(statement)? {
            Some(DerivationStatement::CreateView { aggregate, .. }) => Ok(*aggregate),
            _ => Err(EngineError::Plan(format!("{source:?} creates no materialized view"))),
        },
        _ => Err(EngineError::Plan(format!("{source:?} is not one statement"))),
    }
}

/// A statement that would create a view of this sum, without its range. Its columns are called
/// group, sum and rows.
pub(crate) fn generated_source(view: &str, table: &TableDefinition, sum: &SumDefinition) -> String {
    let quoted = crate::changes::quoted;
    let column = |column: ColumnId| {
        table.columns.get(column.index()).map_or_else(String::new, |column| quoted(&column.name))
    };
    let factors = sum.factors.iter().map(|factor| match factor {
        Factor::Column(of) => column(*of),
        Factor::OneMinus(of) => format!("(1 - {})", column(*of)),
        Factor::OnePlus(of) => format!("(1 + {})", column(*of)),
    });
    let factors: Vec<String> = factors.collect();
    let total =
        if factors.is_empty() { String::new() } else { format!("sum({}) AS \"sum\", ", factors.join(" * ")) };
    let group = column(sum.group);
    format!(
        "CREATE MATERIALIZED VIEW {} AS SELECT {group}, {total}count(*) AS \"rows\" FROM {} GROUP BY {group}",
        quoted(view),
        quoted(&table.name)
    )
}
