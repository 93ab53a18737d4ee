//! Defines the kinds of bridges of a node: which threads work between its connections and its
//! devices.
//!
//! Invariants
//! - The names are those of the configuration, so a name from a status can be used in a
//!   configuration.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How requests get from connections to devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BridgeKind {
    /// A few threads, each of which serves many connections and keeps all their device operations
    /// in flight.
    #[default]
    Reactor,
    /// A polling thread for each connection, with a fixed number of IO threads of its own, each of
    /// which reads and waits.
    Static,
    /// A polling thread for each connection, which creates a thread for each device operation.
    Dynamic,
}

/// How a reactor reads devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoKind {
    /// Through its own `io_uring`.
    #[default]
    Uring,
    /// Through its own threads that read and wait.
    Pread,
}

/// A node's bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BridgeStatus {
    /// The kind of bridge.
    pub kind: BridgeKind,
    /// How a reactor reads devices.
    pub io: IoKind,
    /// IO threads per thread that serves connections; 0 where there is no fixed number.
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
