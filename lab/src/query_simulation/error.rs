//! Defines the errors of a query simulation.

use std::io;
use std::time::Duration;

use rackscan_client::{ClientError, LocalError};
use rackscan_format::ids::NodeId;
use rackscan_format::program::ProgramError;
use rackscan_scan::ScanError;

use super::placement::Placement;
use super::queries::SimulatedQuery;

/// Why a simulation, or a part of it, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// An axis has no value, or one that is too large.
    #[error("{found} {what} are not possible; expected 1 to {most}")]
    Count {
        /// Name of the axis.
        what: &'static str,
        /// The number.
        found: u64,
        /// The maximum.
        most: u64,
    },
    /// A page size that no load can create.
    #[error("pages of {found} bytes are not possible; expected a multiple of {step} bytes, at most {most}")]
    PageSize {
        /// The page size.
        found: u32,
        /// The unit.
        step: u32,
        /// The maximum.
        most: u32,
    },
    /// Connections would need more memory than the limit.
    #[error(
        "{connections} connections with {threads} threads each need {needed} bytes of memory, at most {most} are allowed; give \
         fewer connections or threads"
    )]
    Memory {
        /// Connections.
        connections: u32,
        /// Threads of each connection.
        threads: u32,
        /// Bytes they need.
        needed: u64,
        /// The maximum.
        most: u64,
    },
    /// The node or the table is not available.
    #[error("{0}")]
    Host(String),
    /// The node does not listen on this wire.
    #[error("the node does not listen on wire {wire}; choose one of the wires of its `listen` addresses")]
    NoWire {
        /// The wire.
        wire: String,
    },
    /// The table has no such column.
    #[error("table {table} has no column {column}; expected TPC-H's lineitem")]
    NoColumn {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A column has another type.
    #[error("column {column} has type {found}, expected {expected}")]
    ColumnType {
        /// The column.
        column: String,
        /// Its type.
        found: String,
        /// The type of TPC-H.
        expected: &'static str,
    },
    /// A scan program is invalid.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The node failed or refused the request.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// This process could not read a device.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// This process could not scan a page.
    #[error("a page of node {node} could not be scanned: {source}")]
    Scan {
        /// The node.
        node: NodeId,
        /// The cause.
        source: Box<ScanError>,
    },
    /// Fewer pages arrived than were requested.
    #[error("found {found} pages in an answer of node {node}, expected {expected}; please report this")]
    Pages {
        /// The node.
        node: NodeId,
        /// Pages that arrived.
        found: usize,
        /// Pages that were requested.
        expected: usize,
    },
    /// The node refused a scan as busy for too long.
    #[error(
        "node {node} refused a scan for {after:?}: {reason}; give fewer threads to this command, or more scan workers to the node"
    )]
    Busy {
        /// The node.
        node: NodeId,
        /// How long it refused.
        after: Duration,
        /// The reason that it gave.
        reason: String,
    },
    /// Two placements, or two turns, returned different rows.
    #[error(
        "query {query} returned {found} rows with placement {placement}, expected {expected} as in earlier runs; please report this"
    )]
    Disagree {
        /// The query.
        query: SimulatedQuery,
        /// Where it ran.
        placement: Placement,
        /// Rows that passed in this turn.
        found: u64,
        /// Rows that passed in an earlier turn.
        expected: u64,
    },
    /// A thread or its executor could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(#[source] io::Error),
    /// The caller stopped it while connections were made.
    #[error("the simulation was stopped")]
    Stopped,
    /// A thread ended without a report.
    #[error("a scanning thread has panicked; see the log, and please report this")]
    Ended,
}
