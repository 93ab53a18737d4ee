//! Where do logs go, and how many? Standard error; nothing below a warning unless `--log` or `RUST_LOG` asks.

use crate::failure::Failure;
use std::io::IsTerminal;
use tracing_subscriber::{EnvFilter, fmt::time::SystemTime};

/// Sets the process's log filter: `--log` wins over `RUST_LOG`; `default` is what neither says.
pub(crate) fn start(asked: Option<&str>, default: &str) -> Result<(), Failure> {
    let from_environment = std::env::var(EnvFilter::DEFAULT_ENV).ok();
    let text = asked.or(from_environment.as_deref()).unwrap_or(default);
    let filter = EnvFilter::try_new(text).map_err(|error| {
        Failure::Usage(format!(
            "log filter {text:?}: {error}; expected e.g. info or rackscan_engine=debug,warn"
        ))
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_timer(SystemTime)
        // It would report a log that cannot be written by writing to it, and panic: on a full disk, in a reactor.
        .log_internal_errors(false)
        .try_init()
        .map_err(|error| Failure::Runtime(format!("cannot start logging: {error}")))
}
