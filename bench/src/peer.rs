//! How fast is another engine over the same rows? Runs `bench/peers/tpch_peer.py` as a child and asks it query by query,
//! so that its runs lie between ours and both meet the same noise.

use serde::Deserialize;
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

const SCRIPT: &str = include_str!("../peers/tpch_peer.py");

/// An engine that can be measured beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEngine {
    /// DataFusion on Parquet.
    DataFusion,
    /// DuckDB on Parquet.
    DuckDb,
}

impl PeerEngine {
    /// The name of its Python package.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DataFusion => "datafusion",
            Self::DuckDb => "duckdb",
        }
    }
}

/// Why a peer could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// No python3, or it could not be started.
    #[error("cannot start python3 for the peer {engine}: {source}; install Python 3 or leave --peers out")]
    Start {
        /// The peer.
        engine: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The peer ended or said something else than was asked for.
    #[error("the peer {engine} {what}; it needs the Python packages tpchgen-cli and {engine} (pip install)")]
    Answer {
        /// The peer.
        engine: &'static str,
        /// What happened.
        what: String,
    },
}

/// A running peer with its tables registered.
#[derive(Debug)]
pub struct Peer {
    engine: PeerEngine,
    /// Its version, as it says.
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
struct Run {
    ms: f64,
    rows: u64,
}

impl Peer {
    /// Starts `engine` over Parquet files of `scale` in `data`, which it generates if they are not there.
    ///
    /// # Errors
    /// When Python or a package is missing, or the data cannot be made; what the peer says goes to standard error.
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
            return Err(PeerError::Answer { engine: name, what: "has no standard input or output".into() });
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

    /// The name of its Python package.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.engine.name()
    }

    /// One run of one query: milliseconds until all rows are there, and how many.
    ///
    /// # Errors
    /// When the peer ended or refused the query.
    pub fn run(&mut self, sql: &str) -> Result<(f64, u64), PeerError> {
        let request = serde_json::json!({ "sql": sql }).to_string() + "\n";
        if let Some(requests) = &mut self.requests
            && requests.write_all(request.as_bytes()).and_then(|()| requests.flush()).is_err()
        {
            return Err(self.ended());
        }
        let run: Run = self.answer()?;
        Ok((run.ms, run.rows))
    }

    fn answer<T: for<'de> Deserialize<'de>>(&mut self) -> Result<T, PeerError> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(read) if read > 0 => serde_json::from_str(&line).map_err(|error| PeerError::Answer {
                engine: self.engine.name(),
                what: format!("said {:?}, expected a JSON line: {error}", line.trim()),
            }),
            _ => Err(self.ended()),
        }
    }

    fn ended(&mut self) -> PeerError {
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        PeerError::Answer {
            engine: self.engine.name(),
            what: format!("ended ({status}), see its message above"),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Its standard input ends, and so does its loop.
        self.requests = None;
        if let Err(error) = self.child.wait() {
            eprintln!("waiting for the peer {}: {error}", self.engine.name());
        }
    }
}
