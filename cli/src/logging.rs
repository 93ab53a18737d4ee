//! Where do logs go, and how many? Standard error; nothing below a warning unless `--log` or
//! `RUST_LOG` asks.
//!
//! A node's standard error is its `node.log`. When that has grown to `LOG_BYTES_MAX` it becomes
//! `node.log.1`, in place of an earlier one, and a new one is begun: a node's logs take at most
//! twice that.

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

/// How long a node's log may become.
const LOG_BYTES_MAX: u64 = 8 << 20;

/// Standard error, which is this file.
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

    /// Begins a new file. One that cannot be begun is tried again when as much was written once
    /// more.
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
        // Only a file can be exchanged; what is written elsewhere is not bounded here.
        if self.bytes >= self.bytes_max && fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_file())
        {
            // There is no better place to say why it was not possible.
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

/// Sets the process's log filter: `--log` wins over `RUST_LOG`; `default` is what neither says.
/// `file` is what standard error is, if it is bounded.
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
        // It would report a log that cannot be written by writing to it, and panic: on a full disk,
        // in a reactor.
        .log_internal_errors(false)
        .try_init()
        .map_err(|error| Failure::Runtime(format!("cannot start logging: {error}")))
}
