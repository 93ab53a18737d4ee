//! What does a scan need, and what do the engine and the nodes have to offer?
//!
//! Plain numbers, gathered by the engine from zone maps, segment directories and the load reports
//! that travel with every reply. Estimates may be wrong; a wrong one costs time, never an answer.

use crate::{cost::Demand, placement::Placement};
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
    /// Values unpacked or computed for each row, weighted: 1 is an integer compared with a
    /// constant.
    pub filter_values_per_row: f64,
    /// The same for each selected row.
    pub output_values_per_row: f64,
    /// Rows (or groups) that are expected to come out.
    pub output_rows: f64,
    /// Arrow bytes of one of them.
    pub output_row_bytes: f64,
    /// Of its pages' bytes, the share that is known to lie in the engine's cache or its node's.
    pub cached: f64,
    /// Whether its pages were read past all caches lately, and its node has a cache that may keep
    /// them.
    pub repeated: bool,
    /// If its node is away: bytes that are read at other nodes for each byte of its pages. 0 if
    /// they cannot be reconstructed.
    pub rebuilt_from: f64,
    /// What was measured where a plain estimate has nothing to say.
    pub measured: Measured,
}

/// Ratios of measured to estimated work of one scan; 1 or none before anything was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Of the engine's CPU time for values, pages and bytes.
    pub engine_cpu: f64,
    /// Of a node's.
    pub node_cpu: f64,
    /// Bytes that fetches took from devices to bytes of the pages, if there were any: less than 1
    /// where caches help.
    pub from_disk: Option<f64>,
    /// Bytes that fetches took over the wire to bytes of the pages.
    pub fetched_over_wire: f64,
}

impl Default for Measured {
    fn default() -> Self {
        Self { engine_cpu: 1.0, node_cpu: 1.0, from_disk: None, fetched_over_wire: 1.0 }
    }
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
            cached: 0.0,
            repeated: false,
            rebuilt_from: 0.0,
            measured: Measured::default(),
        }
    }

    /// Whether its pages can only come from other nodes' cells: its node was lost, and nobody else
    /// reads its devices.
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

/// Segments that were placed and have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ahead {
    /// How many.
    pub segments: u32,
    /// What they take, all together.
    pub demand: Demand,
}

impl Ahead {
    /// Counts one more.
    pub fn add(&mut self, demand: &Demand) {
        self.segments = self.segments.saturating_add(1);
        self.demand.device_s += demand.device_s;
        self.demand.wire_s += demand.wire_s;
        self.demand.worker_s += demand.worker_s;
        self.demand.node_s += demand.node_s;
        self.demand.node_cpu_s += demand.node_cpu_s;
        self.demand.engine_s += demand.engine_s;
        self.demand.messages_s += demand.messages_s;
    }

    /// Counts one that has ended. When the last has, nothing is left, whatever was rounded.
    pub fn remove(&mut self, demand: &Demand) {
        self.segments = self.segments.saturating_sub(1);
        let less = |sum: f64, part: f64| if self.segments == 0 { 0.0 } else { (sum - part).max(0.0) };
        self.demand = Demand {
            device_s: less(self.demand.device_s, demand.device_s),
            wire_s: less(self.demand.wire_s, demand.wire_s),
            worker_s: less(self.demand.worker_s, demand.worker_s),
            node_s: less(self.demand.node_s, demand.node_s),
            node_cpu_s: less(self.demand.node_cpu_s, demand.node_cpu_s),
            engine_s: less(self.demand.engine_s, demand.engine_s),
            messages_s: less(self.demand.messages_s, demand.messages_s),
            latency_s: 0.0,
        };
    }
}

/// How fast a node and the way to it are, against the calibrated constants: 1 as calibrated, 2 half
/// as fast.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PaceFactors {
    /// Seconds that a scan worker takes for a second of CPU time.
    pub cpu: f64,
    /// Of the wire.
    pub wire: f64,
    /// Of the devices.
    pub device: f64,
    /// Bytes that fetches took from devices to bytes of the pages, if there were any lately.
    pub from_disk: Option<f64>,
    /// Whether it was measured lately how fast pages come.
    pub fetch_known: bool,
    /// Whether it was measured lately how fast the node scans.
    pub process_known: bool,
}

impl PaceFactors {
    /// Whether what a placement takes on this node was measured lately. Local reads take nothing
    /// but the devices.
    #[must_use]
    pub fn is_known(&self, placement: Placement) -> bool {
        match placement {
            Placement::Local => false,
            Placement::RemoteFetch => self.fetch_known,
            Placement::RemoteProcess => self.process_known,
        }
    }
}

impl Default for PaceFactors {
    fn default() -> Self {
        Self { cpu: 1.0, wire: 1.0, device: 1.0, from_disk: None, fetch_known: false, process_known: false }
    }
}

/// One storage node as a scan sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeProfile {
    /// The wire that leads there.
    pub wire: Wire,
    /// Whether its devices can be read without it.
    pub attachment: Attachment,
    /// How busy with others' scans it said it was, in its last reply, and how much of its
    /// processors it may use.
    pub load: LoadReport,
    /// What this engine has asked of it and not heard of: device, wire and scan workers.
    pub ahead: Ahead,
    /// How fast it was found to be.
    pub pace: PaceFactors,
    /// Of the bytes that it stores, the share that its page cache held when it said so, 0 to 1.
    pub cached: f64,
    /// Whether it was lost lately. It matters where its devices are attached or others have parity:
    /// elsewhere nobody has its pages, and asking it again is all that can be done.
    pub lost: bool,
}

/// The period of a control group's quota, as Linux sets it unless told otherwise.
const QUOTA_PERIOD_S: f64 = 0.1;

impl NodeProfile {
    /// How many processors it may use: as many as it likes if it did not say.
    #[must_use]
    pub fn cpus(&self) -> f64 {
        match self.load.cpu_milli {
            0 => f64::INFINITY,
            milli => f64::from(milli) * 1e-3,
        }
    }

    /// For how many seconds it may do nothing at all: who has used up the part of a processor that
    /// a quota leaves him waits for the next period.
    #[must_use]
    pub fn held_s(&self) -> f64 {
        QUOTA_PERIOD_S * (1.0 - self.cpus()).max(0.0)
    }

    /// Whether scans do without it: it was lost, and its devices can be read all the same.
    #[must_use]
    pub fn is_done_without(&self) -> bool {
        self.lost && self.attachment == Attachment::Attached
    }
}

/// The engine as a scan sees it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineProfile {
    /// Threads that scan.
    pub cores: u16,
    /// The segments of this engine's scans that have begun and have not ended, wherever they are
    /// scanned.
    pub ahead: Ahead,
}

/// Everyone who could run a scan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterProfile {
    /// The engine.
    pub engine: EngineProfile,
    /// The nodes by id.
    pub nodes: BTreeMap<NodeId, NodeProfile>,
}

impl ClusterProfile {
    /// The same cluster when nothing is known of it but who is there, and who cannot be done
    /// without and is lost.
    #[must_use]
    pub fn unknown(&self) -> Self {
        let mut unknown = self.idle();
        unknown.nodes.values_mut().for_each(|node| {
            (node.pace, node.lost) = (PaceFactors::default(), node.lost && !node.is_done_without());
        });
        unknown
    }

    /// The same cluster when nothing of this engine's is ahead of anything.
    #[must_use]
    pub fn idle(&self) -> Self {
        let mut idle = self.clone();
        idle.engine.ahead = Ahead::default();
        idle.nodes.values_mut().for_each(|node| node.ahead = Ahead::default());
        idle
    }

    /// Counts a segment that was placed as work that is ahead of the next.
    pub fn add(&mut self, node: NodeId, demand: &Demand) {
        self.engine.ahead.add(demand);
        if let Some(node) = self.nodes.get_mut(&node) {
            node.ahead.add(demand);
        }
    }
}
