//! Holds what the scans of a query share: its settings, and the work in flight of the engine and of
//! each node.
//!
//! Invariants
//! - The work that the scan of a segment adds to the work in flight is subtracted when that scan
//!   ends, also if it fails or is dropped.

use super::repeats::Repeats;
use crate::trace::TraceSink;
use az::SaturatingAs;
use rackscan_client::{Cluster, LocalDevices};
use rackscan_fabric::{Address, Wire};
use rackscan_format::{
    ids::NodeId,
    message::{LoadReport, NodeStatus},
    schema::TableDefinition,
    segment::SegmentDirectory,
};
use rackscan_planner::{
    Ahead, Attachment, Calibration, ClusterProfile, Demand, EngineProfile, NodeProfile, NodeSpeed, Observed,
    Placement, Policy,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Whether `DataFusion` is told the minimum and maximum of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bounds {
    /// They are taken from zone maps.
    Told,
    /// They are left out.
    Withheld,
}

/// What all scans of one query share.
#[derive(Debug)]
pub(crate) struct QueryContext {
    pub(crate) cluster: Cluster,
    pub(crate) devices: LocalDevices,
    pub(crate) calibration: Arc<Calibration>,
    pub(crate) policy: Policy,
    pub(crate) bounds: Bounds,
    /// Number of partitions of a scan.
    pub(crate) threads: usize,
    /// Segments of one partition that are in flight at a time.
    pub(crate) segments_in_flight: usize,
    /// Bytes of stored pages that the segments of one partition hold together.
    pub(crate) partition_page_bytes: usize,
    pub(crate) loads: Arc<Loads>,
    pub(crate) span: tracing::Span,
    /// The trace that records the query's reads, if there is one.
    pub(crate) trace: Option<TraceSink>,
}

/// The load and the speed of the engine and the nodes, as far as the engine knows them. Shared by
/// all queries.
#[derive(Debug)]
pub(crate) struct Loads {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    engine: Ahead,
    nodes: BTreeMap<NodeId, NodeLoad>,
    repeats: Repeats,
}

#[derive(Clone, Copy, Debug, Default)]
struct NodeLoad {
    scan_workers: u16,
    /// Whether it has a page cache.
    caches: bool,
    /// Share of the node's stored bytes that its cache held when this engine started.
    cached: f64,
    /// Scans of other engines, as of the last reply.
    others: u16,
    /// Thousandths of a processor that it may use, as of the last reply; 0 if it reported no limit.
    cpu_milli: u32,
    /// Requests in flight, by [`Waiting`].
    asked: [u16; 3],
    ahead: Ahead,
    speed: NodeSpeed,
    lost_at: Option<Instant>,
}

/// How long a lost node is bypassed before it is asked again.
const LOST_FOR: Duration = Duration::from_secs(5);

/// What a segment waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The node's devices, read by the engine.
    Device,
    /// Pages from the node.
    Pages,
    /// A scan in the node.
    Scan,
}

impl Loads {
    /// Loads of all nodes of the cluster: idle ones, with the scan workers and caches that they
    /// reported, and lost ones that have not reported.
    ///
    /// A node that did not answer in time may have become available since, so availability as of
    /// now does not tell whether it has reported.
    pub(crate) fn new<'a>(
        all: impl IntoIterator<Item = NodeId>,
        reported: impl IntoIterator<Item = &'a NodeStatus>,
    ) -> Self {
        let load = |status: &NodeStatus| NodeLoad {
            scan_workers: status.scan_workers,
            caches: status.cache.budget_bytes > 0,
            cached: cached_share(status),
            ..NodeLoad::default()
        };
        let lost = || NodeLoad { lost_at: Some(Instant::now()), ..NodeLoad::default() };
        let mut nodes: BTreeMap<_, _> = all.into_iter().map(|node| (node, lost())).collect();
        nodes.extend(reported.into_iter().map(|status| (status.node, load(status))));
        Self { began: Instant::now(), state: Mutex::new(State { nodes, ..State::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seconds of the clock that dates the measurements of [`NodeSpeed`].
    fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Takes the load report of a node's reply. Our own scans are subtracted from it, as their
    /// number is known better here.
    pub(crate) fn report(&self, node: NodeId, reported: LoadReport) {
        let mut state = self.state();
        let load = state.nodes.entry(node).or_default();
        let ours = load.asked[Waiting::Scan as usize];
        load.others = reported.scans_running.saturating_add(reported.scans_queued).saturating_sub(ours);
        load.scan_workers = reported.scan_workers;
        load.cpu_milli = reported.cpu_milli;
        load.lost_at = None;
    }

    /// Notes that a node was lost.
    pub(crate) fn lost(&self, node: NodeId) {
        self.state().nodes.entry(node).or_default().lost_at = Some(Instant::now());
    }

    /// Whether these pages were read past the node's cache before, and should now be read through
    /// it.
    pub(crate) fn is_repeated(&self, node: NodeId, pages: u64) -> bool {
        let state = self.state();
        state.nodes.get(&node).is_some_and(|load| load.caches) && state.repeats.is_due(pages, Instant::now())
    }

    /// Notes that these pages are read past their node's cache, or through it if not `is_past`, so
    /// that it keeps them.
    pub(crate) fn read_past(&self, pages: u64, is_past: bool) {
        self.state().repeats.note(pages, is_past, Instant::now());
    }

    /// Learns from a segment of the node that ended.
    pub(crate) fn observe(
        &self,
        (node, placement): (NodeId, Placement),
        observed: &Observed,
        wire: Wire,
        calibration: &Calibration,
    ) {
        let now_s = self.now_s();
        let mut state = self.state();
        state.nodes.entry(node).or_default().speed.observe(placement, observed, wire, calibration, now_s);
    }

    /// Counts what a segment takes as work in flight until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>, node: NodeId, demand: Demand) -> AheadGuard {
        let mut state = self.state();
        state.engine.add(&demand);
        state.nodes.entry(node).or_default().ahead.add(&demand);
        drop(state);
        AheadGuard { loads: Arc::clone(self), node, demand }
    }

    /// Counts a wait until the guard is dropped.
    pub(crate) fn wait(self: &Arc<Self>, node: NodeId, waiting: Waiting) -> WaitGuard {
        let mut state = self.state();
        let asked = &mut state.nodes.entry(node).or_default().asked[waiting as usize];
        *asked = asked.saturating_add(1);
        let together = (*asked).into();
        drop(state);
        WaitGuard { loads: Arc::clone(self), node, waiting, together }
    }

    /// The position of the segment whose node has the fewest segments in flight; of equal ones the
    /// first.
    pub(crate) fn least_busy(&self, nodes: impl Iterator<Item = NodeId>) -> Option<usize> {
        let state = self.state();
        let ahead = |node: NodeId| state.nodes.get(&node).map_or(0, |load| load.ahead.segments);
        let positions = nodes.enumerate().map(|(position, node)| (ahead(node), position));
        positions.min().map(|(_, position)| position)
    }
}

/// The share of a node's stored bytes that its cache holds.
#[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
fn cached_share(status: &NodeStatus) -> f64 {
    let stored: u64 = status.devices.iter().map(|device| device.used_bytes).sum();
    (status.cache.used_bytes as f64 / stored.max(1) as f64).min(1.0)
}

/// A segment in flight.
pub(crate) struct AheadGuard {
    loads: Arc<Loads>,
    node: NodeId,
    demand: Demand,
}

impl Drop for AheadGuard {
    fn drop(&mut self) {
        let mut state = self.loads.state();
        state.engine.remove(&self.demand);
        state.nodes.entry(self.node).or_default().ahead.remove(&self.demand);
    }
}

/// A wait for devices or a node.
pub(crate) struct WaitGuard {
    loads: Arc<Loads>,
    node: NodeId,
    waiting: Waiting,
    /// How many waited for the same node and kind when this wait began, itself included.
    pub(crate) together: u32,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let mut state = self.loads.state();
        let asked = &mut state.nodes.entry(self.node).or_default().asked[self.waiting as usize];
        *asked = asked.saturating_sub(1);
    }
}

impl QueryContext {
    /// The wire to a node.
    pub(crate) fn wire(&self, node: NodeId) -> Wire {
        self.cluster.address(node).map_or(Wire::Shm, Address::wire)
    }

    /// Bytes that are read at other nodes for each byte of a segment, if its node is unavailable
    /// and the table is protected; else 0.
    pub(crate) fn rebuilt_from(
        &self,
        definition: &TableDefinition,
        node: NodeId,
        directory: &SegmentDirectory,
    ) -> f64 {
        if self.cluster.unavailable_max() == 0
            || definition.protection.is_none()
            || !self.cluster.is_unavailable(node)
        {
            return 0.0;
        }
        // Before its map is read, it is only known that there is parity.
        self.cluster.rebuilt_from(directory.table, directory.segment).unwrap_or(1.0)
    }

    /// The engine and all nodes, with their present load.
    pub(crate) fn cluster_profile(&self) -> ClusterProfile {
        let now_s = self.loads.now_s();
        let unavailable =
            if self.cluster.unavailable_max() > 0 { self.cluster.unavailable() } else { Vec::new() };
        let state = self.loads.state();
        let cores = self.threads.saturating_as::<u16>();
        let nodes = state.nodes.iter().map(|(&node, load)| {
            let attachment = match self.devices.attached(node) {
                Ok(()) => Attachment::Attached,
                Err(rackscan_client::LocalError::NotAttached { reason, .. }) => Attachment::Detached(reason),
                Err(other) => Attachment::Detached(other.to_string()),
            };
            let (scans_running, cpu_milli) = (load.others, load.cpu_milli);
            // A node that was connected to later has not reported to this engine, but any reply
            // says how many workers it has.
            let scan_workers = match load.scan_workers {
                0 => self.cluster.load_report(node).map_or(0, |report| report.scan_workers),
                workers => workers,
            };
            let speed = load.speed.factors(now_s);
            let others = LoadReport { scans_running, scan_workers, cpu_milli, ..LoadReport::default() };
            let lost = load.lost_at.is_some_and(|at| at.elapsed() < LOST_FOR) || unavailable.contains(&node);
            let (wire, ahead, cached) = (self.wire(node), load.ahead, load.cached);
            (node, NodeProfile { wire, attachment, load: others, ahead, speed, cached, lost })
        });
        let nodes = nodes.collect();
        ClusterProfile { engine: EngineProfile { cores, ahead: state.engine }, nodes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_has_not_reported_counts_as_lost_and_not_as_unknown() {
        let loads = Loads::new([NodeId(1), NodeId(2)], []);
        let state = loads.state();
        let lost: Vec<_> = state.nodes.iter().map(|(node, load)| (*node, load.lost_at.is_some())).collect();
        assert_eq!(lost, [(NodeId(1), true), (NodeId(2), true)]);
    }
}
