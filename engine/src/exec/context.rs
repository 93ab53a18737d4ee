//! What does a scan know of its query, and of how busy everyone is?

use crate::trace::TraceSink;
use rackscan_client::{Cluster, LocalDevices};
use rackscan_fabric::Address;
use rackscan_format::{ids::NodeId, message::LoadReport};
use rackscan_planner::{Attachment, Calibration, ClusterProfile, EngineProfile, NodeProfile, Policy, Wire};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
};

/// What all scans of one query share.
#[derive(Debug)]
pub(crate) struct QueryContext {
    pub(crate) cluster: Cluster,
    pub(crate) devices: LocalDevices,
    pub(crate) calibration: Arc<Calibration>,
    pub(crate) policy: Policy,
    /// Partitions of a scan.
    pub(crate) threads: usize,
    /// Segments of one partition that are on their way at a time.
    pub(crate) segments_in_flight: usize,
    pub(crate) loads: Arc<Loads>,
    pub(crate) span: tracing::Span,
    /// Where the query's reads are recorded, if they are.
    pub(crate) trace: Option<TraceSink>,
}

/// How busy the engine and the nodes are, as far as the engine knows. Shared by all queries.
#[derive(Debug)]
pub(crate) struct Loads {
    engine_scans: AtomicU16,
    nodes: Mutex<BTreeMap<NodeId, NodeLoad>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct NodeLoad {
    reported: LoadReport,
    /// Scans this engine has asked for and not heard of: the last report may be older.
    asked: u16,
}

impl Loads {
    /// Idle nodes with the scan workers they said they have.
    pub(crate) fn new(workers: impl IntoIterator<Item = (NodeId, u16)>) -> Self {
        let nodes = workers.into_iter().map(|(node, scan_workers)| {
            let reported = LoadReport { scan_workers, ..LoadReport::default() };
            (node, NodeLoad { reported, asked: 0 })
        });
        Self { engine_scans: AtomicU16::new(0), nodes: Mutex::new(nodes.collect()) }
    }

    /// Takes the report that came with a node's reply.
    pub(crate) fn report(&self, node: NodeId, reported: LoadReport) {
        self.update(node, |load| load.reported = reported);
    }

    /// Counts a scan that runs on the engine's threads until the guard is dropped.
    pub(crate) fn scanning(self: &Arc<Self>) -> LoadGuard {
        self.engine_scans.fetch_add(1, Ordering::Relaxed);
        LoadGuard { loads: Arc::clone(self), node: None }
    }

    /// Counts a scan that a node was asked for until the guard is dropped.
    pub(crate) fn asking(self: &Arc<Self>, node: NodeId) -> LoadGuard {
        self.update(node, |load| load.asked = load.asked.saturating_add(1));
        LoadGuard { loads: Arc::clone(self), node: Some(node) }
    }

    fn update(&self, node: NodeId, change: impl FnOnce(&mut NodeLoad)) {
        change(self.nodes.lock().unwrap_or_else(PoisonError::into_inner).entry(node).or_default());
    }
}

/// One scan under way.
pub(crate) struct LoadGuard {
    loads: Arc<Loads>,
    node: Option<NodeId>,
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        match self.node {
            Some(node) => self.loads.update(node, |load| load.asked = load.asked.saturating_sub(1)),
            None => {
                self.loads.engine_scans.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl QueryContext {
    /// The wire that leads to a node.
    fn wire(&self, node: NodeId) -> Wire {
        match self.cluster.address(node).map(Address::wire) {
            Some(rackscan_fabric::Wire::Tcp) => Wire::Tcp,
            Some(rackscan_fabric::Wire::Verbs) => Wire::Verbs,
            Some(rackscan_fabric::Wire::Shm | rackscan_fabric::Wire::Sim) | None => Wire::Shm,
        }
    }

    /// Everyone who could run a scan, and how busy they are now.
    pub(crate) fn cluster_profile(&self) -> ClusterProfile {
        let engine = EngineProfile {
            cores: u16::try_from(self.threads).unwrap_or(u16::MAX),
            scans_running: self.loads.engine_scans.load(Ordering::Relaxed),
        };
        let loads = self.loads.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let nodes = loads.iter().map(|(&node, load)| {
            let attachment = match self.devices.attached(node) {
                Ok(()) => Attachment::Attached,
                Err(rackscan_client::LocalError::NotAttached { reason, .. }) => Attachment::Detached(reason),
                Err(other) => Attachment::Detached(other.to_string()),
            };
            let mut known = load.reported;
            let reported = known.scans_running.saturating_add(known.scans_queued);
            known.scans_running = reported.max(load.asked);
            known.scans_queued = 0;
            (node, NodeProfile { wire: self.wire(node), attachment, load: known })
        });
        ClusterProfile { engine, nodes: nodes.collect() }
    }
}
