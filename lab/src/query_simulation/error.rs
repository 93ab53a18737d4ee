//! What can end a simulation?

use std::io;
use std::time::Duration;

use rackscan_client::{ClientError, LocalError};
use rackscan_format::ids::NodeId;
use rackscan_format::program::ProgramError;
use rackscan_scan::ScanError;

use super::plan::Placement;
use super::queries::SimulatedQuery;

/// Why a simulation, or a part of it, did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// An axis has no value, or too many.
    #[error("{found} {what}; expected 1 to {most}")]
    Count {
        /// Of what.
        what: &'static str,
        /// How many.
        found: u64,
        /// How many are possible.
        most: u64,
    },
    /// A page size that no load can make.
    #[error("pages of {found} bytes; expected a multiple of {step} bytes up to {most}")]
    PageSize {
        /// It.
        found: u32,
        /// The unit.
        step: u32,
        /// The largest.
        most: u32,
    },
    /// Connections would take more memory than they may.
    #[error(
        "{connections} connections with {threads} threads each need {needed} bytes of memory, at most {most} are given; ask \
         for fewer connections or threads"
    )]
    Memory {
        /// Connections.
        connections: u32,
        /// Threads of each.
        threads: u32,
        /// Bytes they need.
        needed: u64,
        /// Bytes they may have.
        most: u64,
    },
    /// Node or table are not there.
    #[error("{0}")]
    Host(String),
    /// The node does not listen on this wire.
    #[error("the node does not listen on wire {wire}")]
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
    #[error("column {column} is {found}, expected {expected}")]
    ColumnType {
        /// The column.
        column: String,
        /// Its type.
        found: String,
        /// The type of TPC-H.
        expected: &'static str,
    },
    /// A program that is not one.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The node failed or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A device could not be read here.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// A page could not be scanned here.
    #[error("a page of node {node} could not be scanned: {source}")]
    Scan {
        /// The node.
        node: NodeId,
        /// Why.
        source: Box<ScanError>,
    },
    /// Fewer pages came than were asked for.
    #[error("{found} pages came from node {node}, expected {expected}")]
    Pages {
        /// The node.
        node: NodeId,
        /// How many came.
        found: usize,
        /// How many were asked for.
        expected: usize,
    },
    /// The node had no room for a scan for a long time.
    #[error(
        "node {node} refused a scan for {after:?}: {reason}; ask for fewer threads, or give it more scan workers"
    )]
    Busy {
        /// The node.
        node: NodeId,
        /// For how long.
        after: Duration,
        /// What it says.
        reason: String,
    },
    /// Two placements, or two turns, gave different rows.
    #[error("{query} by {placement}: {found} rows pass, {expected} did before; a defect")]
    Disagree {
        /// The query.
        query: SimulatedQuery,
        /// Where it ran.
        placement: Placement,
        /// Rows that passed now.
        found: u64,
        /// Rows that passed in another turn.
        expected: u64,
    },
    /// A thread or its executor could not be made.
    #[error("a thread could not be started: {0}")]
    Thread(#[source] io::Error),
    /// Somebody asked for an end while connections were made.
    #[error("it was asked to stop")]
    Stopped,
    /// A thread ended without a word.
    #[error("a thread that scanned has ended; see the log")]
    Ended,
}
