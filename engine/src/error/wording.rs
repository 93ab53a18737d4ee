//! Rewords errors of DataFusion and arrow for users.
//!
//! The original messages name internal types and error kinds, and list candidates over many lines.
//! Users get SQL types and one line instead.

use datafusion::common::SchemaError;

use super::{engine_error::EngineError, kinds::sqlstate_of};

/// Prefixes that error kinds put before their messages.
const KINDS_OF_ERRORS: [&str; 8] = [
    "Arrow error: ",
    "Cast error: ",
    "Compute error: ",
    "Error during planning: ",
    "Execution error: ",
    "External error: ",
    "Invalid argument error: ",
    "Parser error: ",
];

/// For operators that do not exist for some types: the words before the operands, and the words
/// after them.
const OPERATIONS: [(&str, &str); 5] = [
    ("Cannot get result type for temporal operation ", ": "),
    ("Cannot coerce arithmetic expression ", " to valid types"),
    ("Cannot infer common argument type for comparison operation ", ""),
    ("Cannot infer common argument type for regex operation ", ""),
    ("Cannot infer common string type for string concat operation ", ""),
];

/// Types as messages name them, and as users do. A name that begins with another one comes before
/// it.
const TYPES: [(&str, &str); 25] = [
    ("LargeUtf8", "text"),
    ("Utf8View", "text"),
    ("Utf8", "text"),
    ("BinaryView", "bytea"),
    ("Binary", "bytea"),
    ("UInt64", "bigint unsigned"),
    ("UInt32", "integer unsigned"),
    ("UInt16", "smallint unsigned"),
    ("UInt8", "tinyint unsigned"),
    ("Int64", "bigint"),
    ("Int32", "integer"),
    ("Int16", "smallint"),
    ("Int8", "tinyint"),
    ("Float64", "double precision"),
    ("Float32", "real"),
    ("Decimal128", "numeric"),
    ("Decimal256", "numeric"),
    ("Boolean", "boolean"),
    ("Date32", "date"),
    ("Timestamp(\u{b5}s)", "timestamp"),
    ("Timestamp(ns)", "timestamp"),
    ("Interval(MonthDayNano)", "interval"),
    ("Interval(YearMonth)", "interval"),
    ("Duration(ns)", "interval"),
    ("Time64(ns)", "time"),
];

/// The error of a message if its kind has an SQLSTATE; otherwise the message, reworded for users.
pub(super) fn of_message(message: &str) -> Result<EngineError, String> {
    let worded = in_words_of_users(message);
    match sqlstate_of(&worded) {
        Some(sqlstate) => Ok(EngineError::Invalid { sqlstate, message: worded }),
        None => Err(worded),
    }
}

/// From an error about a name that is unknown or ambiguous.
pub(super) fn of_schema(error: &SchemaError) -> EngineError {
    let sqlstate = match error {
        SchemaError::AmbiguousReference { .. } => "42702",
        SchemaError::FieldNotFound { .. } => "42703",
        SchemaError::DuplicateQualifiedField { qualifier, name } => {
            let message = format!(
                "two tables of one FROM have the name {qualifier}, and both a column {name:?}: give one \
                 of them an alias"
            );
            return EngineError::Invalid { sqlstate: "42712", message };
        }
        SchemaError::DuplicateUnqualifiedField { .. } => "42701",
    };
    let message = error.to_string().replace("No field named ", "there is no column ");
    EngineError::Invalid { sqlstate, message: message.replace(".\nValid fields are", "; there are") }
}

/// A message of DataFusion or arrow in one line, with the type names that users know.
pub(crate) fn in_words_of_users(message: &str) -> String {
    // The attempts for each signature and the list of candidates are for developers.
    let message = match message.find("No function matches") {
        Some(at) => &message[at..],
        None => message,
    };
    let message = message.split("\n\tCandidate functions").next().unwrap_or(message);
    let message = message.split(", got Literal(").next().unwrap_or(message);
    if let Some(name) = between(message, "Invalid function '", "'") {
        return format!("there is no function {name:?}");
    }
    if let Some(column) = between(message, "While expanding wildcard, column ", " must appear") {
        return format!("column {column} must be in GROUP BY, or within an aggregate function");
    }
    if let Some((_, regex)) = message.split_once("regex parse error:")
        && let Some((_, why)) = regex.rsplit_once("error: ")
    {
        return format!("invalid regular expression: {why}");
    }
    if message.starts_with("Substring without for/from") {
        return "No function matches substr of one value; expected where it begins, too".to_owned();
    }
    if message.starts_with("Physical plan does not support logical expression Wildcard") {
        return "No function matches *; expected columns, or count(*)".to_owned();
    }
    if message.starts_with("Physical plan does not support logical expression AggregateFunction") {
        return "Aggregate functions are not allowed here; expected them in SELECT, HAVING or ORDER BY"
            .to_owned();
    }
    if message.contains("DISTINCT aggregate should have exactly one argument") {
        return "DISTINCT of an aggregate function of several columns is not supported".to_owned();
    }
    let message = message.replace('\n', " ");
    let message = KINDS_OF_ERRORS.iter().fold(message, |message, kind| message.replace(kind, ""));
    let message = TYPES.iter().fold(message, |message, (theirs, ours)| message.replace(theirs, ours));
    for (begin, end) in OPERATIONS {
        if let Some(operation) = message.strip_prefix(begin) {
            let operands = if end.is_empty() { None } else { operation.split(end).next() };
            let operands = operands.unwrap_or(operation);
            return format!("operator does not exist: {operands}; cast one of them");
        }
    }
    message
}

fn between<'a>(message: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    message.split_once(begin)?.1.split_once(end).map(|(within, _)| within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_planning_have_a_code_and_one_line_in_words_of_users() {
        for (message, code, shown) in [
            (
                "Function 'sum' failed to match any signature, errors: Error during planning: x. No function \
                 matches the given name and argument types 'sum(Utf8View)'. You might need to add explicit \
                 type casts.\n\tCandidate functions:\n\tsum(Decimal)",
                "42883",
                "No function matches the given name and argument types 'sum(text)'. You might need to add \
                 explicit type casts.",
            ),
            ("Invalid function 'nosuch'.\nDid you mean 'cosh'?", "42883", "there is no function \"nosuch\""),
            (
                "Column in SELECT must be in GROUP BY or an aggregate function: While expanding wildcard, column \
                 \"t.v\" must appear in the GROUP BY clause or must be part of an aggregate function, currently",
                "42803",
                "column \"t.v\" must be in GROUP BY, or within an aggregate function",
            ),
            (
                "External error: regex parse error:\n    (\n    ^\nerror: unclosed group",
                "2201B",
                "invalid regular expression: unclosed group",
            ),
            (
                "Cannot get result type for temporal operation Date32 * Int64: Invalid argument error: x",
                "42883",
                "operator does not exist: date * bigint; cast one of them",
            ),
            (
                "Cast error: Cannot cast string 'x' to value of Int32 type",
                "22P02",
                "Cannot cast string 'x' to value of integer type",
            ),
        ] {
            let error = of_message(message).unwrap();
            assert_eq!((error.sqlstate(), error.to_string().as_str()), (code, shown));
        }
        assert_eq!(of_message("Table function 'x' not found").unwrap_err(), "Table function 'x' not found");
    }
}
