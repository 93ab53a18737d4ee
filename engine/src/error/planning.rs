//! Which SQLSTATE and which words have DataFusion's errors of planning?
//!
//! Its messages name its own types, and list candidates over many lines. A user's types and one
//! line are shown instead.

use datafusion::common::SchemaError;

use super::EngineError;

/// What messages of a kind contain, and its SQLSTATE.
const KINDS: [(&str, &str); 8] = [
    ("Invalid function ", "42883"),
    ("No function matches", "42883"),
    ("Cannot coerce", "42883"),
    ("Cannot infer common argument type", "42883"),
    ("must appear in the GROUP BY", "42803"),
    ("must be in GROUP BY", "42803"),
    ("Aggregate functions are not allowed", "42803"),
    ("Projections require unique expression names", "42701"),
];

/// Types as messages name them, and as users do. Those that begin like others come first.
const TYPES: [(&str, &str); 20] = [
    ("LargeUtf8", "text"),
    ("Utf8View", "text"),
    ("Utf8", "text"),
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
];

/// Of a message of DataFusion's.
pub(super) fn of_message(message: &str) -> EngineError {
    let kind = KINDS.iter().find(|(words, _)| message.contains(words));
    let message = in_words_of_users(message);
    match kind {
        Some((_, sqlstate)) => EngineError::Invalid { sqlstate, message },
        None => EngineError::Plan(message),
    }
}

/// Of a name that is none, or that of several things.
pub(super) fn of_schema(error: &SchemaError) -> EngineError {
    let sqlstate = match error {
        SchemaError::AmbiguousReference { .. } => "42702",
        SchemaError::FieldNotFound { .. } => "42703",
        SchemaError::DuplicateQualifiedField { .. } | SchemaError::DuplicateUnqualifiedField { .. } => {
            "42701"
        }
    };
    let message = error.to_string().replace("No field named ", "there is no column ");
    EngineError::Invalid { sqlstate, message: message.replace(".\nValid fields are", "; there are") }
}

/// One line of a message of DataFusion's or arrow's, with the names that users have for types.
pub(super) fn in_words_of_users(message: &str) -> String {
    // What was tried for each signature, and the list of candidates, are for developers.
    let message = match message.find("No function matches") {
        Some(at) => &message[at..],
        None => message,
    };
    let message = message.split("\n\tCandidate functions").next().unwrap_or(message);
    if let Some(name) = between(message, "Invalid function '", "'") {
        return format!("there is no function {name:?}");
    }
    if let Some(column) = between(message, "While expanding wildcard, column ", " must appear") {
        return format!("column {column} must be in GROUP BY, or within an aggregate function");
    }
    let message = message.replace('\n', " ");
    TYPES.iter().fold(message, |message, (theirs, ours)| message.replace(theirs, ours))
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
            ("Table function 'x' not found", "42000", "Table function 'x' not found"),
        ] {
            let error = of_message(message);
            assert_eq!((error.sqlstate(), error.to_string().as_str()), (code, shown));
        }
    }
}
