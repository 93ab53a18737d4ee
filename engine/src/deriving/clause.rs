//! Makes the errors for refused clauses, and normalises names for lookups.

use crate::error::EngineError;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, ObjectNamePart};

pub(super) fn refused(found: &str, way_out: &'static str) -> EngineError {
    EngineError::Statement { found: found.to_owned(), way_out }
}

pub(super) fn only(is_plain: bool, found: &str) -> Result<(), EngineError> {
    if is_plain { Ok(()) } else { Err(refused(found, "leave them out")) }
}

/// The last part of a name.
pub(super) fn last(name: &ObjectName) -> Result<String, EngineError> {
    match name.0.last() {
        Some(ObjectNamePart::Identifier(name)) => Ok(normal(name)),
        _ => Err(EngineError::Plan(format!("{name} is no name of a table, column, index or view"))),
    }
}

/// A name in the form in which it is looked up: lower case unless it is quoted.
pub(super) fn normal(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}
