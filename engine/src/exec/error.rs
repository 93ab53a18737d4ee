//! Why can a scan not go on?

use datafusion::{arrow::error::ArrowError, error::DataFusionError};
use rackscan_client::{ClientError, LocalError};
use rackscan_format::ids::SegmentId;
use rackscan_planner::PlacementError;
use std::sync::Arc;

/// Why a scan cannot go on. Each names the node, page or table at fault.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ScanError {
    /// The placement that was asked for cannot apply.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// A node was lost, refused, or sent what cannot be.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A device that the engine reads itself failed.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// A page of a node is wrong, or the computation over its rows failed.
    #[error("node {node}: {source}")]
    Scan {
        /// The node whose segment was scanned here.
        node: rackscan_format::ids::NodeId,
        /// What is wrong.
        source: Arc<rackscan_scan::ScanError>,
    },
    /// A result has another form than the plan says.
    #[error("a scan's result: {0}")]
    Result(Arc<ArrowError>),
    /// Pages came in another number than was asked for.
    #[error("{found} pages came from node {node}, expected {wanted}; is it another version of rackscan?")]
    Pages {
        /// The node.
        node: rackscan_format::ids::NodeId,
        /// How many came.
        found: usize,
        /// How many were asked for.
        wanted: usize,
    },
    /// A node says that it has not come further than it was.
    #[error(
        "node {node} answered blocks from {first_block} on with none; is it another version of rackscan?"
    )]
    NoProgress {
        /// The node.
        node: rackscan_format::ids::NodeId,
        /// Where it was asked to begin.
        first_block: u32,
    },
    /// A node says that it read a page which its segment does not have.
    #[error(
        "node {node} read page {page} of column {column}, which the segment does not have; is it another version of rackscan?"
    )]
    UnknownPage {
        /// The node.
        node: rackscan_format::ids::NodeId,
        /// The column.
        column: rackscan_format::ids::ColumnId,
        /// The page.
        page: rackscan_format::ids::PageNumber,
    },
    /// Rows that were inserted, updated or deleted cannot be scanned.
    #[error("the changed rows of table {table}: {why}")]
    Changes {
        /// The table.
        table: String,
        /// What is wrong.
        why: String,
    },
    /// A request names a segment that its table does not have.
    #[error(
        "table {table} has no segment {segment}; it may have been loaded anew since the query was planned"
    )]
    UnknownSegment {
        /// The table.
        table: String,
        /// The segment.
        segment: SegmentId,
    },
}

impl ScanError {
    /// Whether a value of the computation is beyond its type.
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
