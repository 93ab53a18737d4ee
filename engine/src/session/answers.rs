//! Builds answers that do not come from a scan, as rows: explanations, numbers of changed rows,
//! outcomes of transactions.

use super::QueryOutcome;
use crate::{changes::Verb, error::EngineError, explain::Explanation, report::QueryReport};
use datafusion::{
    arrow::{
        array::{ArrayRef, RecordBatch, StringArray, UInt64Array},
        datatypes::{DataType, Field, Schema},
    },
    logical_expr::ExplainFormat,
};
use std::{sync::Arc, time::Instant};

/// The text of an explanation in the format that the statement asks for.
pub(super) fn formatted(explanation: &Explanation, format: &ExplainFormat) -> Result<String, EngineError> {
    match format {
        ExplainFormat::Indent => Ok(explanation.to_string()),
        ExplainFormat::PostgresJSON => match explanation.to_json() {
            Ok(json) => Ok(format!("{json:#}")),
            Err(error) => {
                Err(EngineError::Execution(format!("the explanation cannot be written as JSON: {error}")))
            }
        },
        other => Err(EngineError::Statement {
            found: format!("EXPLAIN in format {other}"),
            way_out: "the formats are indent and pgjson",
        }),
    }
}

/// Text as an answer of one column.
pub(super) fn lines(text: &str, started: Instant) -> QueryOutcome {
    let rows = StringArray::from(text.lines().collect::<Vec<_>>());
    one_column(Field::new("plan", DataType::Utf8, false), Arc::new(rows), started)
}

/// An answer with one number.
pub(super) fn counted(verb: Verb, rows: u64, started: Instant) -> QueryOutcome {
    let rows = UInt64Array::from(vec![rows]);
    one_column(Field::new(verb.done(), DataType::UInt64, false), Arc::new(rows), started)
}

/// An answer with one text about the transaction.
pub(super) fn said(text: &str, started: Instant) -> QueryOutcome {
    let rows = StringArray::from(vec![text]);
    one_column(Field::new("transaction", DataType::Utf8, false), Arc::new(rows), started)
}

fn one_column(field: Field, rows: ArrayRef, started: Instant) -> QueryOutcome {
    let schema = Arc::new(Schema::new(vec![field]));
    // The column has the type and length of the schema, so this cannot fail. If it did, the answer
    // would be empty, which shows.
    let batches = RecordBatch::try_new(Arc::clone(&schema), vec![rows]).into_iter().collect();
    let report = QueryReport { elapsed: started.elapsed(), ..QueryReport::default() };
    QueryOutcome { schema, batches, report, plan: None }
}
