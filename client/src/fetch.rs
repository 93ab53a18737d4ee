//! How do raw pages come from a node?
//!
//! Invariants
//! - Pages are answered in the order they were asked for; their bytes are not verified here (`scan` opens them).

use rackscan_format::{
    ids::{ColumnId, NodeId, PageNumber, SegmentId, TableId},
    message::{Cost, LoadReport},
    segment::Extent,
};

use crate::{ClientError, Cluster, PageBuffer};

/// A page that is wanted, as its segment's directory describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedPage {
    /// Its column.
    pub column: ColumnId,
    /// Its number in the column's chunk.
    pub page: PageNumber,
    /// Where the directory says that it is stored; only its length matters to a fetch.
    pub extent: Extent,
}

/// Pages of one segment, and what it took to get them.
#[derive(Debug)]
pub struct FetchedPages {
    /// The pages, in the order they were asked for.
    pub pages: Vec<PageBuffer>,
    /// The node's cost, summed over all requests.
    pub cost: Cost,
    /// Bytes that crossed the wire: requests, replies and pages.
    pub wire_bytes: u64,
    /// Requests that were answered.
    pub round_trips: u32,
    /// How busy the node was at the end; `None` when no page was asked for.
    pub load: Option<LoadReport>,
}

impl Cluster {
    /// Pages of one segment as they are stored.
    ///
    /// # Errors
    /// A lost or refusing node; see [`ClientError`].
    pub async fn fetch(
        &self,
        node: NodeId,
        table: TableId,
        segment: SegmentId,
        pages: &[WantedPage],
    ) -> Result<FetchedPages, ClientError> {
        let _ = (node, table, segment, pages);
        todo!()
    }
}
