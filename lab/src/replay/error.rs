//! Why can a trace not be replayed?

use rackscan_trace::TraceError;

use super::limits::{RECORDS_MAX, REQUESTS_MAX, SPEED_MAX};
use crate::limits;
use crate::target::TargetError;

/// Why a replay did not begin. What goes wrong on the way is part of its report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The trace could not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// More records than fit into memory.
    #[error(
        "the trace has more than {RECORDS_MAX} records, which must fit into memory: replay a part with --records N"
    )]
    TooManyRecords,
    /// More requests than fit into memory.
    #[error(
        "the trace's records become more than {REQUESTS_MAX} requests when long ones are cut: replay a part with --records N"
    )]
    TooManyRequests,
    /// Nothing is left of the trace.
    #[error("nothing of the trace's {records} records can be replayed here ({reasons}){advice}")]
    NothingToReplay {
        /// Records of the trace.
        records: u64,
        /// How many were left out for which reason.
        reasons: String,
        /// What to do.
        advice: &'static str,
    },
    /// A record cannot be replayed as it was recorded, and that was demanded.
    #[error("record {record}: {reason}; without --strict it would be {instead}")]
    Inexact {
        /// Its position in the trace, from 1.
        record: u64,
        /// Why.
        reason: String,
        /// What happens without the demand.
        instead: &'static str,
    },
    /// The devices make no sense.
    #[error("cannot replay on {reason}")]
    BadGround {
        /// What was found and what was expected.
        reason: String,
    },
    /// A speed that no schedule can have.
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
        /// Connections over all nodes.
        lanes: u64,
        /// Depth of each.
        depth: u32,
        /// Longest request.
        slot_bytes: u32,
    },
    /// A connection could not be made.
    #[error("connection {connection} to node {node}: {source}")]
    Target {
        /// To which node.
        node: u16,
        /// Which of the node's.
        connection: u32,
        /// Why.
        source: TargetError,
    },
    /// No more threads.
    #[error("cannot start a thread for connection {connection} to node {node}: {source}")]
    Thread {
        /// To which node.
        node: u16,
        /// Which of the node's.
        connection: u32,
        /// The system's answer.
        source: std::io::Error,
    },
}
