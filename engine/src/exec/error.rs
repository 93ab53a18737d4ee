//! Defines the errors of a scan.

use datafusion::{arrow::error::ArrowError, error::DataFusionError};
use rackscan_client::{ClientError, LocalError};
use rackscan_format::ids::SegmentId;
use rackscan_planner::PlacementError;
use std::sync::Arc;

/// Why a scan failed. Each error names the node, page or table at fault.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ScanError {
    /// The forced placement cannot apply.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// A node was lost, refused, or sent an invalid answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A device that the engine reads itself failed.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// A page of a node is wrong, or the computation over its rows failed, in a scan by the engine.
    #[error("scanning pages of node {node} failed: {source}")]
    Scan {
        /// The node whose segment was scanned.
        node: rackscan_format::ids::NodeId,
        /// What is wrong.
        source: Arc<rackscan_scan::ScanError>,
    },
    /// A result has another schema than the plan says.
    #[error("the result of a scan does not have the schema of the plan: {0}; please report this")]
    Result(Arc<ArrowError>),
    /// Another number of pages arrived than was requested.
    #[error(
        "node {node} sent {found} pages, expected {wanted}: check that it runs the same version of rackscan"
    )]
    Pages {
        /// The node.
        node: rackscan_format::ids::NodeId,
        /// How many arrived.
        found: usize,
        /// How many were requested.
        wanted: usize,
    },
    /// A node's answer reports no progress.
    #[error(
        "node {node} answered a scan request without scanning any block, expected at least block {first_block}: check that it runs the same version of rackscan"
    )]
    NoProgress {
        /// The node.
        node: rackscan_format::ids::NodeId,
        /// The first block of the request.
        first_block: u32,
    },
    /// A node reports that it read a page which its segment does not have.
    #[error(
        "node {node} reports that it read page {page} of column {column}, which the segment does not have: check that it runs the same version of rackscan"
    )]
    UnknownPage {
        /// The node.
        node: rackscan_format::ids::NodeId,
        /// The column.
        column: rackscan_format::ids::ColumnId,
        /// The page.
        page: rackscan_format::ids::PageNumber,
    },
    /// Changed rows of a table cannot be scanned.
    #[error("the changed rows of table {table} cannot be scanned: {why}")]
    Changes {
        /// The table.
        table: String,
        /// What is wrong.
        why: String,
    },
    /// A request names a segment that its table does not have.
    #[error(
        "table {table} has no segment {segment}; the table may have been replaced since the query was planned: run the query again"
    )]
    UnknownSegment {
        /// The table.
        table: String,
        /// The segment.
        segment: SegmentId,
    },
}

impl ScanError {
    /// Whether the error is that a computed value is beyond its type.
    pub(crate) fn is_overflow(&self) -> bool {
        match self {
            Self::Scan { source, .. } => source.is_overflow(),
            _ => false,
        }
    }
}

impl From<ScanError> for DataFusionError {
    fn from(error: ScanError) -> Self {
        Self::External(Box::new(error))
    }
}
