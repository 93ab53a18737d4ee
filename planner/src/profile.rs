//! What does a scan need, and what do the engine and the nodes have to offer?
//!
//! Plain numbers, gathered by the engine from zone maps, segment directories and the load reports that travel with
//! every reply. Estimates may be wrong; a wrong one costs time, never an answer.

use rackscan_format::{ids::NodeId, message::LoadReport};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Pages to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageDemand {
    /// How many, each one device read.
    pub pages: u32,
    /// Their stored bytes.
    pub bytes: u64,
}

/// What scanning one segment needs, whoever does it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScanProfile {
    /// The node whose devices hold the segment.
    pub node: NodeId,
    /// Rows in blocks that zone maps could not rule out.
    pub rows: u64,
    /// Pages of filter columns in those blocks: all of them are read.
    pub filter: PageDemand,
    /// Pages of the other columns that are expected to hold a selected row.
    pub payload: PageDemand,
    /// Expected fraction of `rows` that passes the filter, 0 to 1.
    pub selectivity: f64,
    /// Values unpacked or computed for each row, weighted: 1 is an integer compared with a constant.
    pub filter_values_per_row: f64,
    /// The same for each selected row.
    pub output_values_per_row: f64,
    /// Rows (or groups) that are expected to come out.
    pub output_rows: f64,
    /// Arrow bytes of one of them.
    pub output_row_bytes: f64,
}

impl ScanProfile {
    /// A scan that needs nothing, for a decision that does not depend on what it needs.
    #[must_use]
    pub fn of_nothing(node: NodeId) -> Self {
        Self {
            node,
            rows: 0,
            filter: PageDemand::default(),
            payload: PageDemand::default(),
            selectivity: 0.0,
            filter_values_per_row: 0.0,
            output_values_per_row: 0.0,
            output_rows: 0.0,
            output_row_bytes: 0.0,
        }
    }

    /// All pages that are expected to be read.
    #[must_use]
    pub fn pages(&self) -> PageDemand {
        PageDemand {
            pages: self.filter.pages.saturating_add(self.payload.pages),
            bytes: self.filter.bytes.saturating_add(self.payload.bytes),
        }
    }

    /// Values to unpack or compute in all.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
    pub fn values(&self) -> f64 {
        let rows = self.rows as f64;
        rows * self.filter_values_per_row + rows * self.selectivity * self.output_values_per_row
    }

    /// Bytes that come out.
    #[must_use]
    pub fn output_bytes(&self) -> f64 {
        self.output_rows * self.output_row_bytes
    }

    /// How often a fetch goes to the node: once for the filter's pages, once for the payload's.
    #[must_use]
    pub fn fetch_round_trips(&self) -> u32 {
        u32::from(self.filter.pages > 0) + u32::from(self.payload.pages > 0)
    }
}

/// Which wire leads to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    /// Shared memory on one machine.
    Shm,
    /// Sockets.
    Tcp,
    /// RDMA.
    Verbs,
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Verbs => "verbs",
        })
    }
}

/// Whether the engine can read a node's devices itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attachment {
    /// They are open on the engine's host.
    Attached,
    /// They are not, for this reason.
    Detached(String),
}

/// One storage node as a scan sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeProfile {
    /// The wire that leads there.
    pub wire: Wire,
    /// Whether its devices can be read without it.
    pub attachment: Attachment,
    /// How busy it said it was, in its last reply.
    pub load: LoadReport,
}

/// The engine as a scan sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineProfile {
    /// Threads that scan.
    pub cores: u16,
    /// Scans that run on them now, this one not counted.
    pub scans_running: u16,
}

/// Everyone who could run a scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterProfile {
    /// The engine.
    pub engine: EngineProfile,
    /// The nodes by id.
    pub nodes: BTreeMap<NodeId, NodeProfile>,
}
