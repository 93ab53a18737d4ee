//! Defines the inputs of a decision: what a scan needs, and what the engine and the nodes can
//! offer.
//!
//! The engine takes them from zone maps, segment directories, its own measurements, and the load
//! reports (how busy a node is) that nodes send with every reply. A wrong estimate makes a query
//! slower, never its answer wrong.

use crate::{
    demand::{Ahead, Demand},
    placement::Placement,
};
use rackscan_fabric::Wire;
use rackscan_format::{ids::NodeId, message::LoadReport};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Pages to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageDemand {
    /// How many pages. Each is one device read.
    pub pages: u32,
    /// Their stored bytes.
    pub bytes: u64,
}

/// What scanning one segment needs, independent of where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScanProfile {
    /// The node whose devices hold the segment.
    pub node: NodeId,
    /// Rows in blocks that zone maps could not rule out.
    pub rows: u64,
    /// Pages of filter columns in those blocks. All of them are read.
    pub filter: PageDemand,
    /// Pages of the other columns that are expected to hold a selected row.
    pub payload: PageDemand,
    /// Expected fraction of `rows` that passes the filter, 0 to 1.
    pub selectivity: f64,
    /// Values unpacked or computed for each row, weighted: an integer compared with a constant
    /// counts as 1.
    pub filter_values_per_row: f64,
    /// The same for each selected row.
    pub output_values_per_row: f64,
    /// Rows (or groups) that the scan is expected to return.
    pub output_rows: f64,
    /// Arrow bytes of one of them.
    pub output_row_bytes: f64,
    /// Share of its pages' bytes that is known to be in the cache of the engine or of the node.
    pub cached: f64,
    /// Whether its pages were recently read past all caches, and its node has a cache that may keep
    /// them.
    pub repeated: bool,
    /// While its node is unavailable: bytes that are read at other nodes for each byte of its
    /// pages. 0 if they cannot be reconstructed.
    pub rebuilt_from: f64,
    /// Corrections from measurements of the same scan.
    pub measured: Measured,
}

/// Ratios of measured to estimated work of one scan. Before anything was measured they are 1 or
/// `None`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Ratio of the engine's CPU time for values, pages and bytes.
    pub engine_cpu: f64,
    /// The same ratio of a node.
    pub node_cpu: f64,
    /// Bytes read from devices per byte of the pages that nodes were asked for, if there were any.
    /// Below 1 where caches help.
    pub from_disk: Option<f64>,
    /// Bytes that fetches moved over the wire per byte of the pages.
    pub fetched_over_wire: f64,
}

impl Default for Measured {
    fn default() -> Self {
        Self { engine_cpu: 1.0, node_cpu: 1.0, from_disk: None, fetched_over_wire: 1.0 }
    }
}

impl ScanProfile {
    /// A profile of zeros, for a decision that does not depend on the scan.
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
            cached: 0.0,
            repeated: false,
            rebuilt_from: 0.0,
            measured: Measured::default(),
        }
    }

    /// Whether its pages must be reconstructed from cells of other nodes: its node was lost, and
    /// the engine cannot read the devices itself.
    #[must_use]
    pub fn is_degraded(&self, node: &NodeProfile) -> bool {
        node.lost && self.rebuilt_from > 0.0 && node.attachment != Attachment::Attached
    }

    /// All pages that are expected to be read.
    #[must_use]
    pub fn pages(&self) -> PageDemand {
        PageDemand {
            pages: self.filter.pages.saturating_add(self.payload.pages),
            bytes: self.filter.bytes.saturating_add(self.payload.bytes),
        }
    }

    /// Weighted values to unpack or compute in all.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
    pub fn values(&self) -> f64 {
        let rows = self.rows as f64;
        rows * self.filter_values_per_row + rows * self.selectivity * self.output_values_per_row
    }

    /// Arrow bytes that the scan is expected to return.
    #[must_use]
    pub fn output_bytes(&self) -> f64 {
        self.output_rows * self.output_row_bytes
    }

    /// How many requests a fetch sends: one for the filter's pages, one for the payload's.
    #[must_use]
    pub fn fetch_round_trips(&self) -> u32 {
        u32::from(self.filter.pages > 0) + u32::from(self.payload.pages > 0)
    }
}

/// Whether the engine can read a node's devices itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attachment {
    /// The engine has them open on its own host.
    Attached,
    /// It does not, for this reason.
    Detached(String),
}

/// How slow a node and its wire are against the calibrated constants: 1 is as calibrated, 2 is half
/// as fast.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpeedFactors {
    /// Seconds that a scan worker takes for a second of CPU time.
    pub cpu: f64,
    /// Factor of the wire.
    pub wire: f64,
    /// Factor of the devices.
    pub device: f64,
    /// Bytes read from devices per byte of the pages that the node was asked for, if that was
    /// measured recently.
    pub from_disk: Option<f64>,
    /// Whether the speed of the wire was measured recently.
    pub fetch_known: bool,
    /// Whether the speed of the node's scans was measured recently.
    pub process_known: bool,
}

impl SpeedFactors {
    /// Whether the speed of this node under `placement` was measured recently. Always false for
    /// local scans, which use only the node's devices.
    #[must_use]
    pub fn is_known(&self, placement: Placement) -> bool {
        match placement {
            Placement::Local => false,
            Placement::RemoteFetch => self.fetch_known,
            Placement::RemoteProcess => self.process_known,
        }
    }
}

impl Default for SpeedFactors {
    fn default() -> Self {
        Self { cpu: 1.0, wire: 1.0, device: 1.0, from_disk: None, fetch_known: false, process_known: false }
    }
}

/// The state of one storage node, as far as the engine knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeProfile {
    /// The wire between the engine and the node.
    pub wire: Wire,
    /// Whether the engine can read the node's devices itself.
    pub attachment: Attachment,
    /// From its last reply: how busy it is with scans of other engines, and how much of its
    /// processors it may use.
    pub load: LoadReport,
    /// What this engine has asked of it and got no answer to yet.
    pub ahead: Ahead,
    /// How fast it was measured to be.
    pub speed: SpeedFactors,
    /// Share of the bytes it stores that its page cache held when it last reported that, 0 to 1.
    pub cached: f64,
    /// Whether it was lost recently. That changes placements only where its devices are attached or
    /// other nodes have parity: elsewhere its pages can only be had by asking it again.
    pub lost: bool,
}

/// The period of a control group's CPU quota: the default of Linux.
const QUOTA_PERIOD_S: f64 = 0.1;

impl NodeProfile {
    /// How many processors the node may use; infinitely many if it reported no limit.
    #[must_use]
    pub fn cpus(&self) -> f64 {
        match self.load.cpu_milli {
            0 => f64::INFINITY,
            milli => f64::from(milli) * 1e-3,
        }
    }

    /// For how many seconds a CPU quota may stop the node: once the quota of a period is used up,
    /// the node waits for the next period. 0 if it may use a whole processor or more.
    #[must_use]
    pub fn held_s(&self) -> f64 {
        QUOTA_PERIOD_S * (1.0 - self.cpus()).max(0.0)
    }

    /// Whether scans bypass the node: it was lost, but the engine can read its devices itself.
    #[must_use]
    pub fn is_done_without(&self) -> bool {
        self.lost && self.attachment == Attachment::Attached
    }
}

/// The state of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineProfile {
    /// Threads that scan.
    pub cores: u16,
    /// The segments of this engine's scans that are in flight, under any placement.
    pub ahead: Ahead,
}

/// The engine and all nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterProfile {
    /// The engine.
    pub engine: EngineProfile,
    /// The nodes by id.
    pub nodes: BTreeMap<NodeId, NodeProfile>,
}

impl ClusterProfile {
    /// The same cluster without load and without measurements. A lost node stays lost unless its
    /// devices are attached.
    #[must_use]
    pub fn unknown(&self) -> Self {
        let mut unknown = self.idle();
        unknown.nodes.values_mut().for_each(|node| {
            (node.speed, node.lost) = (SpeedFactors::default(), node.lost && !node.is_done_without());
        });
        unknown
    }

    /// The same cluster without the work that this engine has in flight.
    #[must_use]
    pub fn idle(&self) -> Self {
        let mut idle = self.clone();
        idle.engine.ahead = Ahead::default();
        idle.nodes.values_mut().for_each(|node| node.ahead = Ahead::default());
        idle
    }

    /// Counts a placed segment as work in flight.
    pub fn add(&mut self, node: NodeId, demand: &Demand) {
        self.engine.ahead.add(demand);
        if let Some(node) = self.nodes.get_mut(&node) {
            node.ahead.add(demand);
        }
    }
}
