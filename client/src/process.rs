//! How does a scan run at a node, and its rows come here?
//!
//! Invariants
//! - One call is one answer: it covers whole blocks from `first_block` on, and says where to go on.

use arrow::record_batch::RecordBatch;
use rackscan_format::{
    ids::{NodeId, SegmentId},
    message::{Cost, LoadReport},
    program::ScanProgram,
};

use crate::{ClientError, Cluster};

/// What a node made of a program and a segment.
#[derive(Debug)]
pub enum ProcessAnswer {
    /// Rows or groups.
    Processed(Processed),
    /// The node is too busy to scan; the segment can be fetched instead, with the same result.
    Bounced {
        /// Why, for people.
        reason: String,
        /// How busy it is.
        load: LoadReport,
    },
}

/// The result of (a part of) one segment.
#[derive(Debug)]
pub struct Processed {
    /// The rows, or the partial groups.
    pub batches: Vec<RecordBatch>,
    /// Rows (or groups) in them.
    pub rows: u64,
    /// Where to ask again; `None` when the segment is done.
    pub next_block: Option<u32>,
    /// The node's cost.
    pub cost: Cost,
    /// Bytes that crossed the wire: requests, replies and rows.
    pub wire_bytes: u64,
    /// Requests that were answered.
    pub round_trips: u32,
    /// How busy the node is now.
    pub load: LoadReport,
}

impl Cluster {
    /// Runs `program` over `segment` from `first_block` on, at the node.
    ///
    /// # Errors
    /// A lost or refusing node; see [`ClientError`]. A busy one is [`ProcessAnswer::Bounced`].
    pub async fn process(
        &self,
        node: NodeId,
        program: &ScanProgram,
        segment: SegmentId,
        first_block: u32,
    ) -> Result<ProcessAnswer, ClientError> {
        let _ = (node, program, segment, first_block);
        todo!()
    }
}
