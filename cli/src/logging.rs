//! Writes the log to standard error: warnings and errors only, unless `--log` or `RUST_LOG` asks
//! for more.
//!
//! A node's standard error is its `node.log`. When that file has grown to `LOG_BYTES_MAX`, it is
//! renamed to `node.log.1`, replacing an earlier one, and a new file begins: a node's logs take at
//! most twice that size.

use crate::{failure::Failure, private};
use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    sync::Mutex,
};
use tracing_subscriber::{
    EnvFilter,
    fmt::{time::SystemTime, writer::BoxMakeWriter},
};

/// Maximum size of a node's log in bytes.
const LOG_BYTES_MAX: u64 = 8 << 20;

/// Standard error, redirected to this file.
struct NodeLog {
    path: PathBuf,
    bytes: u64,
    bytes_max: u64,
}

impl NodeLog {
    fn new(path: &Path, bytes_max: u64) -> Self {
        let bytes = fs::metadata(path).map_or(0, |found| found.len());
        Self { path: path.to_owned(), bytes, bytes_max }
    }

    /// Begins a new file. On failure, tries again after another `bytes_max` bytes.
    fn exchange(&mut self) -> io::Result<()> {
        self.bytes = 0;
        let mut before = self.path.clone().into_os_string();
        before.push(".1");
        fs::rename(&self.path, before)?;
        let file = private::options().append(true).open(&self.path)?;
        rustix::stdio::dup2_stderr(&file)?;
        Ok(())
    }
}

impl Write for NodeLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Only a regular file can be rotated; other outputs are not limited here.
        if self.bytes >= self.bytes_max && fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_file())
        {
            // There is no better place to report the failure.
            let _ = self.exchange();
        }
        let written = io::stderr().write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Sets the process's log filter: `--log`, otherwise `RUST_LOG`, otherwise `default`. `file` is the
/// file behind standard error, if its size is limited.
pub(crate) fn start(asked: Option<&str>, default: &str, file: Option<&Path>) -> Result<(), Failure> {
    let from_environment = std::env::var(EnvFilter::DEFAULT_ENV).ok();
    let text = asked.or(from_environment.as_deref()).unwrap_or(default);
    let filter = EnvFilter::try_new(text).map_err(|error| {
        Failure::Usage(format!(
            "log filter {text:?}: {error}; expected e.g. info or rackscan_engine=debug,warn"
        ))
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(match file {
            Some(file) => BoxMakeWriter::new(Mutex::new(NodeLog::new(file, LOG_BYTES_MAX))),
            None => BoxMakeWriter::new(io::stderr),
        })
        .with_ansi(io::stderr().is_terminal())
        .with_timer(SystemTime)
        // The subscriber would report a failed write by writing to the same log, and panic: on a
        // full disk, in a reactor.
        .log_internal_errors(false)
        .try_init()
        .map_err(|error| Failure::Runtime(format!("cannot start logging: {error}")))
}
