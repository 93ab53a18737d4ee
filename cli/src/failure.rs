//! Defines errors as the user sees them, and their exit codes.
//!
//! Invariants
//! - Each error prints one message on standard error that names the thing, what was found, what was
//!   expected and what to do.
//! - Exit code 1 is a failure at run time, 2 is wrong usage (the argument parser clap uses 2 as
//!   well).

use std::{fmt, path::Path};

/// A failed command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Valid arguments that make no sense together: exit code 2.
    Usage(String),
    /// A failure at run time: exit code 1.
    Runtime(String),
    /// A failure at run time that was already reported to the process that started this one: no
    /// message.
    Said,
    /// The reader closed the output: no message, and exit code 0, as for any filter in a pipeline.
    ClosedPipe,
}

impl Failure {
    /// A failure at run time with the messages of all its causes.
    pub(crate) fn of(error: &dyn std::error::Error) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(source) = cause {
            let more = source.to_string();
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = source.source();
        }
        Self::Runtime(text)
    }
}

/// Adds the path to an error about a file.
pub(crate) fn at_path(path: &Path) -> impl Fn(std::io::Error) -> Failure + '_ {
    move |error| Failure::Runtime(format!("{}: {error}", path.display()))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Runtime(text) => f.write_str(text),
            Self::Said => f.write_str("the error was reported before"),
            Self::ClosedPipe => f.write_str("the reader of the output has closed it"),
        }
    }
}

impl From<rackscan_engine::EngineError> for Failure {
    fn from(error: rackscan_engine::EngineError) -> Self {
        match Self::of(&error) {
            Self::Runtime(text) => Self::Runtime(format!("{text} (SQLSTATE {})", error.sqlstate())),
            other => other,
        }
    }
}

macro_rules! from_error {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::of(&error)
            }
        })*
    };
}

impl From<crate::output::PrintError> for Failure {
    fn from(error: crate::output::PrintError) -> Self {
        if error.is_closed_pipe() { Self::ClosedPipe } else { Self::of(&error) }
    }
}

impl From<rackscan_datasets::LoadError> for Failure {
    fn from(error: rackscan_datasets::LoadError) -> Self {
        match Self::of(&error) {
            Self::Runtime(text) => Self::Runtime(format!("{text} (SQLSTATE {})", error.sqlstate())),
            other => other,
        }
    }
}

from_error!(
    rackscan_bench::PeerError,
    rackscan_bench::calibrate::CalibrateError,
    rackscan_bench::cold::ColdError,
    rackscan_bench::degraded::DegradedError,
    rackscan_bench::fabric::FabricBenchError,
    rackscan_bench::refresh::RefreshError,
    rackscan_bench::tpch::TpchError,
    rackscan_client::ClientError,
    rackscan_figures::FigureError,
    rackscan_lab::replay::ReplayError,
    rackscan_trace::TraceError,
);
