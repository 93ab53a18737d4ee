//! Defines the errors that prevent a replay from beginning.

use rackscan_trace::TraceError;

use super::limits::{RECORDS_MAX, REQUESTS_MAX, SPEED_MAX};
use crate::limits;
use crate::target::TargetError;

/// Why a replay could not begin. Later failures are part of its report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The trace could not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// More records than the limit.
    #[error(
        "the trace has more than {RECORDS_MAX} records, which must fit into memory: replay a part with --records N"
    )]
    TooManyRecords,
    /// More requests than the limit.
    #[error(
        "the trace's records become more than {REQUESTS_MAX} requests when long ones are cut: replay a part with --records N"
    )]
    TooManyRequests,
    /// No record of the trace can be replayed.
    #[error("none of the trace's {records} records can be replayed here ({reasons}){advice}")]
    NothingToReplay {
        /// Number of records of the trace.
        records: u64,
        /// How many were left out, by reason.
        reasons: String,
        /// What to do.
        advice: &'static str,
    },
    /// A record cannot be replayed as it was recorded, and the options demand that.
    #[error("record {record}: {reason}; without --strict it would be {instead}")]
    Inexact {
        /// Number of the record in the trace, from 1.
        record: u64,
        /// The cause.
        reason: String,
        /// What happens without that demand.
        instead: &'static str,
    },
    /// The devices are invalid.
    #[error("cannot replay on {reason}")]
    BadDevices {
        /// What was found and what was expected.
        reason: String,
    },
    /// A speed outside the limits.
    #[error("a replay at {speed} times the speed is not possible; expected {least} to {SPEED_MAX}", least = 1.0 / SPEED_MAX)]
    BadSpeed {
        /// The speed asked for.
        speed: f64,
    },
    /// Connections, depth or memory outside the limits.
    #[error(
        "{lanes} connections of depth {depth} with {slot_bytes} bytes for each request are not possible; expected 1 to \
         {connections_max} connections over all nodes, a depth of 1 to {depth_max}, and at most {bytes_max} bytes \
         together", connections_max = limits::CONNECTIONS_MAX, depth_max = limits::DEPTH_MAX,
        bytes_max = limits::LOAD_MEMORY_BYTES_MAX
    )]
    BadShape {
        /// Number of connections to all nodes.
        lanes: u64,
        /// Depth of each connection.
        depth: u32,
        /// Bytes of the longest request.
        slot_bytes: u32,
    },
    /// A connection could not be made.
    #[error("connection {connection} to node {node} cannot be opened: {source}")]
    Target {
        /// Number of the node.
        node: u16,
        /// Number of the connection to that node.
        connection: u32,
        /// The cause.
        source: TargetError,
    },
    /// A thread could not be started.
    #[error("cannot start a thread for connection {connection} to node {node}: {source}")]
    Thread {
        /// Number of the node.
        node: u16,
        /// Number of the connection to that node.
        connection: u32,
        /// The system's error.
        source: std::io::Error,
    },
}
