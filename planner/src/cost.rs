//! How many seconds would a segment's scan take under each placement?
//!
//! ```text
//! resource        local    remote-fetch    remote-process
//! device          pages    pages           pages              reads of the node's devices
//! wire                     pages           result
//! scan workers                             pages, then scan   a worker reads and computes by turns
//! node's cores                             scan               slowed down by what keeps the node from computing
//! node's share             pages           messages, scan     all that the node's processors do, of what it may use of them
//! engine's cores  scan     scan            decode
//! latency                  1-2 trips       1 trip
//! ```
//!
//! Segments follow each other, so that the stages of one overlap with those of others: a placement
//! costs what its slowest stage costs, and a little of what that hides. Before a stage begins, the
//! work that its resource was given earlier must be done. A node whose devices are attached runs on
//! the engine's host: its scans and the engine's share one set of cores, so that moving work
//! between them frees nothing.
//!
//! Invariants
//! - A price never falls when there is more to do, or more to be done before.

use crate::{
    calibration::{Calibration, CpuCosts},
    placement::Placement,
    profile::{Attachment, ClusterProfile, NodeProfile, PageDemand, ScanProfile, Wire},
};
use serde::{Deserialize, Serialize};

/// The part of the stages hidden by the slowest one that is paid all the same: they never overlap
/// perfectly, and of two placements with one bottleneck the one that does less besides is better.
const HIDDEN_SHARE: f64 = 0.2;

/// The same among many segments, whose stages overlap better.
const PACE_HIDDEN_SHARE: f64 = 0.02;

/// Round trips that take as much of a host's processors as handing a scan to a node and one of its
/// workers and back: five threads wake each other, who then find their caches cold. Measured on
/// Q15, whose scans take 0.1 ms a segment more of the processors in nodes than in the engine.
const SCAN_TRIPS: f64 = 4.0;

/// Seconds of a node's processors to take a request for a scan, hand it to a worker and answer.
/// Measured beside [`SCAN_TRIPS`]: 31 us over `shm`, 50 us over `tcp`, of a scan whose pages zone
/// maps rule out.
const NODE_SCAN_S: f64 = 40e-6;
/// The same for a fetch, its pages not counted: 10 us a segment over `shm`.
const NODE_FETCH_S: f64 = 10e-6;
/// Seconds of a node's processors for a byte that it sends over `tcp`: the kernel copies it. 0.16
/// to 0.23 ns with 470 KB to 1.1 MB a segment and a quota of a tenth of a processor. Elsewhere the
/// reader or an adapter takes it.
const NODE_TCP_BYTE_S: f64 = 0.2e-9;

/// Seconds of the engine's processors for a byte that it takes from a survivor's cell: copied out
/// of registered memory, XORed, and both at a few GB/s.
const SURVIVOR_BYTE_S: f64 = 0.4e-9;

/// Why a placement cannot apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhyNot {
    /// The node's devices are not on the engine's host, for this reason.
    NotAttached(String),
    /// The node has no scan workers.
    NoScanWorkers,
    /// The cluster has no such node.
    UnknownNode,
    /// The node was lost, and is done without.
    NodeLost,
}

impl std::fmt::Display for WhyNot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotAttached(reason) => write!(f, "not attached: {reason}"),
            Self::NoScanWorkers => f.write_str("the node has no scan workers"),
            Self::UnknownNode => f.write_str("no such node in the cluster"),
            Self::NodeLost => f.write_str("node lost"),
        }
    }
}

/// Seconds, or why not.
pub type Price = Result<f64, WhyNot>;

/// A segment's price under each placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// The engine reads the device itself.
    pub local: Price,
    /// The node sends pages.
    pub remote_fetch: Price,
    /// The node sends rows.
    pub remote_process: Price,
}

impl Prices {
    /// The price of `placement`.
    pub fn of(&self, placement: Placement) -> &Price {
        match placement {
            Placement::Local => &self.local,
            Placement::RemoteFetch => &self.remote_fetch,
            Placement::RemoteProcess => &self.remote_process,
        }
    }

    /// The placements that apply and what they cost, in the order of [`Placement::ALL`].
    pub fn applicable(&self) -> impl Iterator<Item = (Placement, f64)> {
        Placement::ALL.into_iter().filter_map(|placement| {
            let seconds = self.of(placement).as_ref().ok()?;
            Some((placement, *seconds))
        })
    }

    /// The cheapest placement that applies; of equal ones the first in the order of
    /// [`Placement::ALL`].
    #[must_use]
    pub fn cheapest(&self) -> Option<Placement> {
        let best = self.applicable().reduce(|best, next| if next.1 < best.1 { next } else { best });
        best.map(|(placement, _)| placement)
    }
}

/// Seconds of each resource that a segment's scan takes under one placement: seconds of one core,
/// of the whole device, of the whole wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Of the node's devices.
    pub device_s: f64,
    /// Of the wire to the node.
    pub wire_s: f64,
    /// Of a scan worker, which also waits for what it reads.
    pub worker_s: f64,
    /// Of a core of the node.
    pub node_s: f64,
    /// Of what the node may use of its processors: all that its threads compute, messages included,
    /// however long they are kept from it.
    pub node_cpu_s: f64,
    /// Of a core of the engine.
    pub engine_s: f64,
    /// Of waiting for messages.
    pub latency_s: f64,
    /// Of a core, to pass messages from thread to thread and reads to devices: counted where all
    /// are on one host, elsewhere each has its own cores.
    pub messages_s: f64,
}

impl Demand {
    /// Of all resources together.
    fn own_s(&self) -> f64 {
        self.device_s + self.wire_s + self.node_s + self.engine_s
    }
}

/// Of the bytes of the pages that a node is asked for, as pages or as rows, the share that comes
/// from devices: as this scan found it, as others did lately, or as the node's cache lets expect;
/// no more than what is not known to lie in a cache.
fn from_disk(profile: &ScanProfile, node: &NodeProfile) -> f64 {
    let found = profile.measured.from_disk.or(node.pace.from_disk);
    let expected = found.unwrap_or(1.0 - node.cached.clamp(0.0, 1.0));
    expected.min(1.0 - profile.cached.clamp(0.0, 1.0))
}

/// What a segment's scan takes under `placement`, nobody else being there. A node that the cluster
/// does not have takes as much as an unknown one: [`price`] says that it is not there.
#[must_use]
pub fn demand(
    profile: &ScanProfile,
    node: &NodeProfile,
    calibration: &Calibration,
    placement: Placement,
) -> Demand {
    let wire = calibration.wire(node.wire);
    let wire_seconds = |bytes: f64| bytes / wire.bytes_per_s.value * node.pace.wire;
    let trip_s = wire.round_trip_us.value * 1e-6;
    let device_s = device_seconds(profile.pages(), calibration) * node.pace.device;
    let not_cached_s = device_s * from_disk(profile, node);
    // Small reads are bounded by what each takes of processors.
    let reads_s = f64::from(profile.pages().pages) * calibration.device.page_us.value * 1e-6;
    let not_cached_reads_s = reads_s * from_disk(profile, node);
    let engine_s = scan_seconds(profile, &calibration.engine) * profile.measured.engine_cpu;
    // For a page of a lost node the same ranges of several cells are read, from devices side by
    // side, and all of them come here.
    let (survivors, rebuilt_s) = match profile.is_degraded(node) {
        true => (profile.rebuilt_from, bytes(profile.pages()) * profile.rebuilt_from * SURVIVOR_BYTE_S),
        false => (1.0, 0.0),
    };
    match placement {
        Placement::Local => Demand { device_s, engine_s, messages_s: reads_s, ..Demand::default() },
        Placement::RemoteFetch => Demand {
            device_s: not_cached_s,
            wire_s: wire_seconds(bytes(profile.pages()) * profile.measured.fetched_over_wire * survivors),
            node_cpu_s: NODE_FETCH_S
                + sent_s(bytes(profile.pages()) * profile.measured.fetched_over_wire * survivors, node.wire),
            engine_s: engine_s + rebuilt_s,
            latency_s: f64::from(profile.fetch_round_trips()) * trip_s,
            // Pages that are known to lie in a cache are taken from there without a message.
            messages_s: f64::from(profile.fetch_round_trips())
                * trip_s
                * (1.0 - profile.cached.clamp(0.0, 1.0))
                + not_cached_reads_s,
            ..Demand::default()
        },
        Placement::RemoteProcess => {
            let scan_s = scan_seconds(profile, &calibration.node) * profile.measured.node_cpu;
            let node_s = scan_s * node.pace.cpu;
            Demand {
                device_s: not_cached_s,
                wire_s: wire_seconds(profile.output_bytes()),
                worker_s: not_cached_s + node_s,
                node_s,
                node_cpu_s: NODE_SCAN_S + scan_s + sent_s(profile.output_bytes(), node.wire),
                engine_s: profile.output_bytes() * calibration.engine.output_byte_ns.value * 1e-9,
                latency_s: trip_s,
                messages_s: SCAN_TRIPS * trip_s + not_cached_reads_s,
            }
        }
    }
}

/// Seconds of a node's processors to send so many bytes.
fn sent_s(bytes: f64, wire: Wire) -> f64 {
    match wire {
        Wire::Tcp => bytes * NODE_TCP_BYTE_S,
        Wire::Shm | Wire::Verbs => 0.0,
    }
}

/// Seconds a segment of the node that follows many others: what its busiest resource takes, if
/// nobody else has work for it. Every node has its part of the engine.
pub(crate) fn pace_s(demand: &Demand, node: &NodeProfile, cluster: &ClusterProfile) -> f64 {
    let nodes = f64::from(u32::try_from(cluster.nodes.len().max(1)).unwrap_or(u32::MAX));
    let cores = f64::from(cluster.engine.cores.max(1)) / nodes;
    let on_host_s = match node.attachment {
        Attachment::Attached => demand.engine_s + demand.node_s + demand.messages_s,
        Attachment::Detached(_) => demand.engine_s,
    };
    let worker_s = demand.worker_s / f64::from(node.load.scan_workers.max(1));
    let stages =
        [demand.device_s, demand.wire_s, worker_s, demand.node_cpu_s / node.cpus(), on_host_s / cores];
    stages.into_iter().fold(0.0, f64::max) + PACE_HIDDEN_SHARE * demand.own_s()
}

/// Prices one segment's scan under each placement.
#[must_use]
pub fn price(profile: &ScanProfile, cluster: &ClusterProfile, calibration: &Calibration) -> Prices {
    let Some(node) = cluster.nodes.get(&profile.node) else {
        let unknown = || Err(WhyNot::UnknownNode);
        return Prices { local: unknown(), remote_fetch: unknown(), remote_process: unknown() };
    };
    let priced = |placement| {
        let demand = demand(profile, node, calibration, placement);
        seconds(&demand, profile, cluster, node, calibration)
    };
    let is_degraded = profile.is_degraded(node);
    let is_without = node.is_done_without();
    Prices {
        local: match &node.attachment {
            Attachment::Attached => Ok(priced(Placement::Local)),
            Attachment::Detached(_) if is_degraded => Err(WhyNot::NodeLost),
            Attachment::Detached(reason) => Err(WhyNot::NotAttached(reason.clone())),
        },
        remote_fetch: if is_without { Err(WhyNot::NodeLost) } else { Ok(priced(Placement::RemoteFetch)) },
        remote_process: match node.load.scan_workers {
            _ if is_without || is_degraded => Err(WhyNot::NodeLost),
            0 => Err(WhyNot::NoScanWorkers),
            _ => Ok(priced(Placement::RemoteProcess)),
        },
    }
}

/// Seconds until `demand` is satisfied, behind everything that its resources have to do before.
fn seconds(
    demand: &Demand,
    profile: &ScanProfile,
    cluster: &ClusterProfile,
    node: &NodeProfile,
    calibration: &Calibration,
) -> f64 {
    let others = f64::from(node.load.scans_running) + f64::from(node.load.scans_queued);
    // Nothing is known of other engines' scans but their number: they are taken for scans like this
    // one.
    let others_s = others * scan_seconds(profile, &calibration.node) * node.pace.cpu;
    let segments = f64::from(node.ahead.segments);
    let shared = |ahead_s| Capacity { parallel: 1.0, segments, ahead_s };
    let workers = Capacity {
        parallel: f64::from(node.load.scan_workers.max(1)),
        segments: segments + others,
        ahead_s: node.ahead.demand.worker_s + others_s,
    };
    let in_node = Capacity {
        parallel: node.cpus(),
        segments: segments + others,
        ahead_s: node.ahead.demand.node_cpu_s + others_s,
    };
    let (in_engine, in_engine_s) = (cluster.engine.ahead, demand.engine_s);
    let mut on_host = Capacity {
        parallel: f64::from(cluster.engine.cores.max(1)),
        segments: in_engine.segments.into(),
        ahead_s: in_engine.demand.engine_s,
    };
    let on_host_s = match node.attachment {
        Attachment::Detached(_) => in_engine_s,
        Attachment::Attached => {
            on_host.segments += others;
            on_host.ahead_s += others_s + attached_ahead_s(cluster);
            in_engine_s + demand.node_s + demand.messages_s
        }
    };
    let stages = [
        shared(node.ahead.demand.device_s).until_done(demand.device_s),
        shared(node.ahead.demand.wire_s).until_done(demand.wire_s),
        // Of one worker's turns at reading and computing, the other workers' hide the shorter.
        demand.node_s.max(workers.turn_s(demand.worker_s)),
        in_node.turn_s(demand.node_cpu_s),
        on_host.until_done(on_host_s),
    ];
    let slowest = stages.into_iter().fold(0.0, f64::max);
    slowest + HIDDEN_SHARE * demand.own_s() + demand.latency_s
}

/// What the nodes on the engine's host were asked to compute.
fn attached_ahead_s(cluster: &ClusterProfile) -> f64 {
    let attached = cluster.nodes.values().filter(|node| node.attachment == Attachment::Attached);
    attached.map(|node| node.ahead.demand.node_s + node.ahead.demand.messages_s).sum()
}

/// A resource that does `parallel` things at a time and has those of `segments` segments to do
/// already.
#[derive(Clone, Copy)]
struct Capacity {
    parallel: f64,
    segments: f64,
    ahead_s: f64,
}

impl Capacity {
    /// Seconds until work that comes now is done: at least its own, which one core does.
    fn until_done(self, work_s: f64) -> f64 {
        work_s.max(self.turn_s(work_s))
    }

    /// Seconds until the resource has done the work and what is before it. It takes turns, so that
    /// little work does not wait for all of the much that was there already, but for as much as
    /// itself of each.
    fn turn_s(self, work_s: f64) -> f64 {
        let before_s = self.ahead_s.min(self.segments * work_s);
        (before_s + work_s) / self.parallel
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
fn bytes(demand: PageDemand) -> f64 {
    demand.bytes as f64
}

/// Seconds that devices take to read pages, as calibrated.
pub(crate) fn device_seconds(demand: PageDemand, calibration: &Calibration) -> f64 {
    let by_count = f64::from(demand.pages) * calibration.device.page_us.value * 1e-6;
    by_count.max(bytes(demand) / calibration.device.bytes_per_s.value)
}

/// CPU seconds of the whole scan on an idle core, as calibrated.
pub(crate) fn scan_seconds(profile: &ScanProfile, cpu: &CpuCosts) -> f64 {
    let pages = profile.pages();
    let ns = profile.values() * cpu.value_ns.value
        + f64::from(pages.pages) * cpu.page_ns.value
        + bytes(pages) * cpu.stored_byte_ns.value
        + profile.output_bytes() * cpu.output_byte_ns.value;
    ns * 1e-9
}
