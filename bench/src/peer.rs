//! Measures another engine over the same rows: runs `bench/peers/tpch_peer.py` as a child process,
//! query by query, so that its runs alternate with those of this engine and noise affects both.

use serde::Deserialize;
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

const SCRIPT: &str = include_str!("../peers/tpch_peer.py");

/// An engine to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEngine {
    /// DataFusion on Parquet.
    DataFusion,
    /// DuckDB on Parquet.
    DuckDb,
    /// DuckDB on its own tables.
    DuckDbNative,
}

impl PeerEngine {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DataFusion => "datafusion",
            Self::DuckDb => "duckdb",
            Self::DuckDbNative => "duckdb-native",
        }
    }

    /// The name of its Python package.
    #[must_use]
    pub fn package(self) -> &'static str {
        match self {
            Self::DataFusion => "datafusion",
            Self::DuckDb | Self::DuckDbNative => "duckdb",
        }
    }

    /// What it reads.
    #[must_use]
    pub fn reads(self) -> &'static str {
        match self {
            Self::DataFusion | Self::DuckDb => "parquet",
            Self::DuckDbNative => "native tables",
        }
    }
}

/// Why a peer could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// There is no python3, or it could not be started.
    #[error("cannot start python3 for the peer {engine}: {source}; install Python 3 or leave --peers out")]
    Start {
        /// The peer.
        engine: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// The peer ended, or gave an unexpected answer.
    #[error("the peer {engine} {what}; it needs the Python packages tpchgen-cli and {package} (pip install)")]
    Answer {
        /// The peer.
        engine: &'static str,
        /// Its package.
        package: &'static str,
        /// What happened.
        what: String,
    },
}

/// A running peer with its tables registered.
#[derive(Debug)]
pub struct Peer {
    engine: PeerEngine,
    /// Its version, as it reports it.
    pub version: String,
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct Hello {
    version: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reopened {
    #[serde(rename = "reopened")]
    _reopened: bool,
}

#[derive(Deserialize)]
struct Run {
    ms: f64,
    rows: u64,
}

impl Peer {
    /// Starts `engine` over Parquet files of `scale` in `data`, which are generated if they do not
    /// exist. An engine's own tables are created from them once, and kept next to them.
    ///
    /// # Errors
    /// Python or a package is missing, or the data cannot be generated; the peer's messages go to
    /// standard error.
    pub fn start(engine: PeerEngine, scale: f64, threads: usize, data: &Path) -> Result<Self, PeerError> {
        let name = engine.name();
        let mut child = Command::new("python3")
            .args([
                "-c",
                SCRIPT,
                "--engine",
                name,
                "--scale",
                &scale.to_string(),
                "--threads",
                &threads.to_string(),
            ])
            .arg("--data")
            .arg(data)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|source| PeerError::Start { engine: name, source })?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(engine, "has no standard input or output".to_owned()));
        };
        let mut peer = Self {
            engine,
            version: String::new(),
            child,
            requests: Some(requests),
            answers: BufReader::new(answers),
        };
        let hello: Hello = peer.answer()?;
        peer.version = hello.version;
        Ok(peer)
    }

    /// The engine of this peer.
    #[must_use]
    pub fn engine(&self) -> PeerEngine {
        self.engine
    }

    /// Makes the peer drop everything that it keeps in memory of its tables, and open them again.
    ///
    /// # Errors
    /// The peer ended, or cannot open them.
    pub fn reopen(&mut self) -> Result<(), PeerError> {
        self.ask(&serde_json::json!({ "reopen": true }))?;
        self.answer::<Reopened>().map(drop)
    }

    /// Runs a query once. Returns the milliseconds until all rows had arrived, and their number.
    ///
    /// # Errors
    /// The peer ended, or refused the query.
    pub fn run(&mut self, sql: &str) -> Result<(f64, u64), PeerError> {
        self.ask(&serde_json::json!({ "sql": sql }))?;
        let run: Run = self.answer()?;
        Ok((run.ms, run.rows))
    }

    fn ask(&mut self, request: &serde_json::Value) -> Result<(), PeerError> {
        let request = request.to_string() + "\n";
        if let Some(requests) = &mut self.requests
            && requests.write_all(request.as_bytes()).and_then(|()| requests.flush()).is_err()
        {
            return Err(self.ended());
        }
        Ok(())
    }

    fn answer<T: for<'de> Deserialize<'de>>(&mut self) -> Result<T, PeerError> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(read) if read > 0 => serde_json::from_str(&line).map_err(|error| {
                failed(self.engine, format!("said {:?}, expected a JSON line: {error}", line.trim()))
            }),
            _ => Err(self.ended()),
        }
    }

    fn ended(&mut self) -> PeerError {
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        failed(self.engine, format!("ended ({status}), see its message above"))
    }
}

fn failed(engine: PeerEngine, what: String) -> PeerError {
    PeerError::Answer { engine: engine.name(), package: engine.package(), what }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Closing its standard input ends its loop.
        self.requests = None;
        if let Err(error) = self.child.wait() {
            eprintln!("waiting for the peer {}: {error}", self.engine.name());
        }
    }
}
