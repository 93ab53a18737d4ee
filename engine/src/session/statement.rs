//! Determines the kind of a statement, and refuses the kinds that are not supported.

use crate::{
    changes::ChangeStatement, deriving::DerivationStatement, error::EngineError, explain::ExplainMode,
    parsing::with_stack_for,
};
use datafusion::{
    logical_expr::ExplainFormat,
    sql::{parser::Statement, sqlparser::ast::Statement as SqlStatement},
};

/// A statement of a supported kind.
pub(super) enum Parsed {
    Query(Box<Statement>),
    Explain(Box<Statement>, ExplainMode, ExplainFormat),
    Change(Box<ChangeStatement>),
    /// With its text, which a view keeps.
    Derive(Box<(DerivationStatement, String)>),
    Begin,
    Commit,
    Rollback,
}

/// Classifies a statement.
///
/// # Errors
/// A kind that is not supported, with what to do instead.
pub(super) fn classify(statement: Statement) -> Result<Parsed, EngineError> {
    if let Some(change) = ChangeStatement::of(&statement)? {
        return Ok(Parsed::Change(Box::new(change)));
    }
    if let Statement::Statement(inner) = &statement
        && let Some(derive) = DerivationStatement::of(inner)?
    {
        return Ok(Parsed::Derive(Box::new((derive, inner.to_string()))));
    }
    let way_out = match &statement {
        Statement::Explain(explain) => {
            let mode = if explain.options.analyze { ExplainMode::Analyze } else { ExplainMode::Plan };
            let format = explain.options.format.clone().unwrap_or(ExplainFormat::Indent);
            match classify(with_stack_for(&explain.statement, Statement::clone))? {
                Parsed::Query(statement) => return Ok(Parsed::Explain(statement, mode, format)),
                Parsed::Explain(statement, inner, _) => {
                    return Ok(Parsed::Explain(statement, mode.max(inner), format));
                }
                _ => "explain a query with the same tables and conditions",
            }
        }
        Statement::Statement(inner) => match inner.as_ref() {
            SqlStatement::Query(_)
            | SqlStatement::ShowTables { .. }
            | SqlStatement::ShowColumns { .. }
            | SqlStatement::ExplainTable { .. } => return Ok(Parsed::Query(Box::new(statement))),
            SqlStatement::StartTransaction { modes, statements, exception: None, .. }
                if modes.is_empty() && statements.is_empty() =>
            {
                return Ok(Parsed::Begin);
            }
            SqlStatement::StartTransaction { .. } => {
                "begin a transaction with BEGIN without options; its isolation is the session's (--isolation)"
            }
            SqlStatement::Commit { chain: false, .. } => return Ok(Parsed::Commit),
            SqlStatement::Rollback { chain: false, savepoint: None } => return Ok(Parsed::Rollback),
            SqlStatement::Commit { .. } | SqlStatement::Rollback { .. } | SqlStatement::Savepoint { .. } => {
                "use BEGIN, COMMIT and ROLLBACK without AND CHAIN; there are no savepoints"
            }
            SqlStatement::Merge { .. } | SqlStatement::Truncate { .. } => {
                "change rows with INSERT, UPDATE and DELETE"
            }
            SqlStatement::CreateTable(_) | SqlStatement::Drop { .. } => {
                "load tables with `rackscan load`, and drop them with `rackscan drop`"
            }
            _ => "see `rackscan --help` for everything else",
        },
        Statement::CreateExternalTable(_) | Statement::CopyTo(_) => {
            "load files into tables with `rackscan load parquet` or `rackscan load csv`"
        }
        Statement::Reset(_) => "see `rackscan --help` for everything else",
    };
    let text = statement.to_string();
    let kind: Vec<&str> = text.split_whitespace().take(2).collect();
    Err(EngineError::Statement { found: kind.join(" "), way_out })
}
