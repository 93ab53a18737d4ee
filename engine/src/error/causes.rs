//! Converts an error of DataFusion or arrow to the error of the engine that a user can act on,
//! which may be nested inside it.

use super::{engine_error::EngineError, wording};
use crate::exec::ScanError;
use datafusion::{arrow::error::ArrowError, error::DataFusionError};
use std::{error::Error, io::ErrorKind};

/// The message of DataFusion, and of `functions/single_row.rs`, for a scalar subquery with several
/// rows.
const MANY_ROWS: &str = "more than one row";

impl EngineError {
    /// From an IO error of spilling: the only IO that DataFusion does itself.
    fn of_spilling(error: &std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::SpillFull(error.to_string()),
            _ => Self::SpillFolder(error.to_string()),
        }
    }

    fn not_supported(message: &str) -> Self {
        if message.contains("array literal") {
            return Self::NotSupported("arrays are not supported; use rows of VALUES, or IN".to_owned());
        }
        if message.contains("not supported") {
            return Self::NotSupported(message.to_owned());
        }
        Self::NotSupported(format!("not supported: {message}"))
    }

    /// Finds the cause that a user can act on.
    pub(crate) fn from_datafusion(error: DataFusionError) -> Self {
        if let Some(cause) = inner_error::<ScanError>(&error) {
            return match cause {
                ScanError::Placement(error) => Self::Placement(error.clone()),
                other => Self::Scan(other.clone()),
            };
        }
        let text = error.find_root().strip_backtrace();
        if is_folder_full(&text) {
            let limit = text.split("allowable limit of ").nth(1).and_then(|rest| rest.split(". ").next());
            return Self::SpillFull(limit.map_or(text.clone(), |limit| format!("{limit} are written")));
        }
        match error.find_root() {
            DataFusionError::SQL(error, _) => Self::Syntax(error.to_string()),
            DataFusionError::Plan(message) => {
                wording::of_message(&without_report(message)).unwrap_or_else(Self::Plan)
            }
            DataFusionError::SchemaError(error, _) => wording::of_schema(error),
            DataFusionError::NotImplemented(message) => {
                wording::of_message(message).unwrap_or_else(|worded| Self::not_supported(&worded))
            }
            DataFusionError::ExecutionJoin(error) => Self::Internal(error.to_string()),
            DataFusionError::ResourcesExhausted(message) => Self::Memory(message.clone()),
            DataFusionError::ArrowError(error, _) => Self::from_arrow(error),
            DataFusionError::IoError(error) => Self::of_spilling(error),
            DataFusionError::Internal(message) => {
                let message = without_report(message);
                wording::of_message(&message).unwrap_or_else(|worded| Self::not_supported(&worded))
            }
            DataFusionError::Execution(message) if message.contains(MANY_ROWS) => Self::ManyRows,
            DataFusionError::Execution(message) => Self::failed(message),
            other => Self::failed(&without_report(&other.strip_backtrace())),
        }
    }

    /// From an error of a computation over values.
    pub(crate) fn from_arrow(error: &ArrowError) -> Self {
        match error {
            ArrowError::ArithmeticOverflow(what) => Self::OutOfRange(what.clone()),
            ArrowError::DivideByZero => Self::DivisionByZero,
            ArrowError::IoError(_, error) => Self::of_spilling(error),
            other => Self::failed(&other.to_string()),
        }
    }

    fn failed(message: &str) -> Self {
        wording::of_message(message).unwrap_or_else(Self::Execution)
    }
}

/// Whether a message of DataFusion's says that the folder is full.
pub(crate) fn is_folder_full(message: &str) -> bool {
    message.contains("max_temp_directory_size")
}

/// A message of DataFusion without its request to report a bug: most of these messages are about
/// statements that it does not support.
fn without_report(message: &str) -> String {
    const BEGIN: &str = "\nThis issue was likely caused by a bug in DataFusion";
    const END: &str = "apache/datafusion/issues.";
    let plain = match message.split_once(BEGIN) {
        Some((before, rest)) => {
            let after = rest.split_once(END).map_or("", |(_, after)| after);
            format!("{before}{after}")
        }
        None => message.to_owned(),
    };
    plain.replace("Internal error: ", "")
}

/// An error of type `E` inside an error of DataFusion, however deep.
pub(crate) fn inner_error<E: Error + 'static>(error: &DataFusionError) -> Option<&E> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        cause = match error.downcast_ref::<DataFusionError>() {
            Some(DataFusionError::External(inner)) => Some(inner.as_ref()),
            Some(DataFusionError::Shared(inner)) => Some(inner.as_ref()),
            Some(DataFusionError::Context(_, inner)) => Some(inner.as_ref()),
            Some(DataFusionError::ArrowError(inner, _)) => Some(inner.as_ref()),
            _ => match error.downcast_ref::<ArrowError>() {
                Some(ArrowError::ExternalError(inner)) => Some(inner.as_ref()),
                _ => error.source(),
            },
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_planner::PlacementError;

    #[test]
    fn a_scan_error_is_found_however_deep_datafusion_buries_it() {
        let error =
            ScanError::Placement(PlacementError::UnknownNode { node: rackscan_format::ids::NodeId(7) });
        let deep = DataFusionError::External(Box::new(error)).context("while joining");
        let deep = DataFusionError::Shared(std::sync::Arc::new(DataFusionError::from(
            ArrowError::ExternalError(Box::new(deep)),
        )));
        assert!(matches!(
            EngineError::from_datafusion(deep),
            EngineError::Placement(PlacementError::UnknownNode { node }) if node.0 == 7
        ));
    }
}
