//! Makes the errors that end the rewriting of a statement.

use crate::error::EngineError;
use std::ops::ControlFlow;

/// Whether the rewriting goes on, or ends with an error.
pub(super) type Flow = ControlFlow<Box<EngineError>>;

/// The error that ends the rewriting: `what` is not supported.
pub(super) fn refuse(what: &str, way_out: &str) -> Box<EngineError> {
    Box::new(EngineError::NotSupported(format!("{what} is not supported; {way_out}")))
}

/// Ends the rewriting if there is an error.
pub(super) fn flow(refused: Option<Box<EngineError>>) -> Flow {
    refused.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}
