//! Which threads of a node stand between its connections and its devices?
//!
//! Invariants
//! - The names are those of the configuration, so what a status shows can be written into a
//!   configuration.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Who serves connections, and who waits for devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BridgeKind {
    /// A few threads, each with many connections and all their device operations in flight.
    #[default]
    Reactor,
    /// A poller for each connection, which signals a fixed number of threads of its own; each of
    /// them reads and waits.
    Static,
    /// A poller for each connection, which makes a thread for each device operation.
    Dynamic,
}

/// How a reactor reads devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoKind {
    /// By an `io_uring` of its own.
    #[default]
    Uring,
    /// By threads of its own that read and wait.
    Pread,
}

/// A node's bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BridgeStatus {
    /// Which.
    pub kind: BridgeKind,
    /// What is below it.
    pub io: IoKind,
    /// Threads that read and wait for each thread that serves connections; 0 where there is no
    /// fixed number.
    pub io_threads: u16,
}

impl fmt::Display for BridgeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reactor => "reactor",
            Self::Static => "static",
            Self::Dynamic => "dynamic",
        })
    }
}

impl fmt::Display for IoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring => "uring",
            Self::Pread => "pread",
        })
    }
}

impl fmt::Display for BridgeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.io) {
            (BridgeKind::Reactor, IoKind::Uring) => write!(f, "reactor, uring"),
            (BridgeKind::Dynamic, _) => write!(f, "dynamic"),
            (kind, _) => write!(f, "{kind}, pread x {}", self.io_threads),
        }
    }
}
