//! Estimates the price of scanning a segment: the seconds that the scan would take under each
//! placement.
//!
//! ```text
//! resource        local    remote-fetch    remote-process
//! device          pages    pages           pages              reads of the node's devices
//! wire                     pages           result
//! scan workers                             pages, then scan   a worker waits for its reads, then computes
//! node's cores                             scan               longer where the node may not compute all the time
//! node's CPU quota         pages           messages, scan     all CPU time of the node, divided by the processors it may use
//! engine's cores  scan     scan            decode
//! latency                  1-2 trips       1 trip
//! ```
//!
//! A cell of the table is the work that the resource does under the placement. Segments are scanned
//! one after the other, so the stages of one overlap with those of others. The price of a placement
//! is the time of its slowest stage plus a small share of the others. Work that was assigned to a
//! resource earlier is added before. A node whose devices are attached runs on the engine's host:
//! both share one set of cores, so moving work between them frees nothing.
//!
//! Invariants
//! - A price never falls when there is more to do or more work in flight.

use crate::{
    calibration::{Calibration, CpuCosts},
    demand::Demand,
    placement::Placement,
    profile::{Attachment, ClusterProfile, NodeProfile, PageDemand, ScanProfile},
};
use rackscan_fabric::Wire;
use serde::{Deserialize, Serialize};

/// Share of a segment's total work that is added to its slowest stage: stages never overlap
/// perfectly, and of two placements with the same bottleneck the one with less other work is
/// better.
const HIDDEN_SHARE: f64 = 0.2;

/// The same share where many segments are in flight, whose stages overlap better.
const PACE_HIDDEN_SHARE: f64 = 0.02;

/// CPU cost of passing a scan from the engine to a node, to one of its workers and back, in round
/// trips: five threads wake each other, each with cold CPU caches. Measured on Q15, whose scans
/// take 0.1 ms more CPU time a segment in nodes than in the engine.
const SCAN_TRIPS: f64 = 4.0;

/// CPU seconds of a node to receive a scan request, hand it to a worker and answer. Measured
/// together with [`SCAN_TRIPS`], with scans whose pages zone maps rule out: 31 us over `shm`, 50 us
/// over `tcp`.
const NODE_SCAN_S: f64 = 40e-6;
/// The same for a fetch, its pages not counted: 10 us a segment over `shm`.
const NODE_FETCH_S: f64 = 10e-6;
/// CPU seconds of a node for a byte that it sends over `tcp`, where the kernel copies it. Measured:
/// 0.16 to 0.23 ns with 470 KB to 1.1 MB a segment and a quota of a tenth of a processor. On the
/// other wires the receiver or the adapter moves the bytes.
const NODE_TCP_BYTE_S: f64 = 0.2e-9;

/// CPU seconds of the engine for a byte of a surviving cell: it is copied out of registered memory
/// and XORed, both at a few GB/s.
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
    /// The node was lost, and its pages are read without it.
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

/// The seconds a placement would take, or why it cannot apply.
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

/// The share of a segment's page bytes that the node must read from devices. The first of these
/// that is known: what this scan measured, what other scans measured recently, what the node's
/// cache leaves. At most the share that is not known to be in a cache.
fn from_disk(profile: &ScanProfile, node: &NodeProfile) -> f64 {
    let measured = profile.measured.from_disk.or(node.speed.from_disk);
    let expected = measured.unwrap_or(1.0 - node.cached.clamp(0.0, 1.0));
    expected.min(1.0 - profile.cached.clamp(0.0, 1.0))
}

/// What the scan of a segment takes under `placement` on an otherwise idle cluster. Does not check
/// that the placement applies; [`price`] does.
#[must_use]
pub fn demand(
    profile: &ScanProfile,
    node: &NodeProfile,
    calibration: &Calibration,
    placement: Placement,
) -> Demand {
    let wire = calibration.wire(node.wire);
    let wire_seconds = |bytes: f64| bytes / wire.bytes_per_s.value * node.speed.wire;
    let trip_s = wire.round_trip_us.value * 1e-6;
    let device_s = device_seconds(profile.pages(), calibration) * node.speed.device;
    let not_cached_s = device_s * from_disk(profile, node);
    // The CPU time of reads is counted per read: it bounds small reads.
    let reads_s = f64::from(profile.pages().pages) * calibration.device.page_us.value * 1e-6;
    let not_cached_reads_s = reads_s * from_disk(profile, node);
    let engine_s = scan_seconds(profile, &calibration.engine) * profile.measured.engine_cpu;
    // A page of a lost node is reconstructed from the same ranges of several cells. Their devices
    // are read in parallel, and all of the bytes travel to the engine.
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
            // Pages that are known to be in a cache take no message.
            messages_s: f64::from(profile.fetch_round_trips())
                * trip_s
                * (1.0 - profile.cached.clamp(0.0, 1.0))
                + not_cached_reads_s,
            ..Demand::default()
        },
        Placement::RemoteProcess => {
            let scan_s = scan_seconds(profile, &calibration.node) * profile.measured.node_cpu;
            let node_s = scan_s * node.speed.cpu;
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

/// CPU seconds of a node to send `bytes`.
fn sent_s(bytes: f64, wire: Wire) -> f64 {
    match wire {
        Wire::Tcp => bytes * NODE_TCP_BYTE_S,
        Wire::Shm | Wire::Sim | Wire::Verbs => 0.0,
    }
}

/// Seconds between the ends of two segments of the node when many of them are in flight: the time
/// of the busiest resource, other scans aside. Each node gets an equal share of the engine's cores.
pub(crate) fn bottleneck_s(demand: &Demand, node: &NodeProfile, cluster: &ClusterProfile) -> f64 {
    let nodes = u32::try_from(cluster.nodes.len()).expect("node ids have 16 bits: their number fits in u32");
    let nodes = f64::from(nodes.max(1));
    let cores = f64::from(cluster.engine.cores.max(1)) / nodes;
    let on_host_s = match node.attachment {
        Attachment::Attached => demand.engine_s + demand.node_s + demand.messages_s,
        Attachment::Detached(_) => demand.engine_s,
    };
    let worker_s = demand.worker_s / f64::from(node.load.scan_workers.max(1));
    let stages =
        [demand.device_s, demand.wire_s, worker_s, demand.node_cpu_s / node.cpus(), on_host_s / cores];
    stages.into_iter().fold(0.0, f64::max) + PACE_HIDDEN_SHARE * demand.total_s()
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

/// Seconds until `demand` is satisfied, including the work that its resources have in flight.
fn seconds(
    demand: &Demand,
    profile: &ScanProfile,
    cluster: &ClusterProfile,
    node: &NodeProfile,
    calibration: &Calibration,
) -> f64 {
    let others = f64::from(node.load.scans_running) + f64::from(node.load.scans_queued);
    // Only the number of other engines' scans is known: each is assumed to be like this one.
    let others_s = others * scan_seconds(profile, &calibration.node) * node.speed.cpu;
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
        // While one worker waits for its reads, others compute, so the shorter of the two is
        // hidden.
        demand.node_s.max(workers.turn_s(demand.worker_s)),
        in_node.turn_s(demand.node_cpu_s),
        on_host.until_done(on_host_s),
    ];
    let slowest = stages.into_iter().fold(0.0, f64::max);
    slowest + HIDDEN_SHARE * demand.total_s() + demand.latency_s
}

/// CPU seconds of this engine's work in flight at the nodes on its host.
fn attached_ahead_s(cluster: &ClusterProfile) -> f64 {
    let attached = cluster.nodes.values().filter(|node| node.attachment == Attachment::Attached);
    attached.map(|node| node.ahead.demand.node_s + node.ahead.demand.messages_s).sum()
}

/// A resource that works on `parallel` segments at a time and has `ahead_s` seconds of work from
/// `segments` segments in flight.
#[derive(Clone, Copy)]
struct Capacity {
    parallel: f64,
    segments: f64,
    ahead_s: f64,
}

impl Capacity {
    /// Seconds until new work is done: at least its own time, as a segment uses one core.
    fn until_done(self, work_s: f64) -> f64 {
        work_s.max(self.turn_s(work_s))
    }

    /// Seconds until the resource has done new work and its share of the earlier work. The resource
    /// is shared fairly: new work waits for at most its own length of each earlier segment.
    fn turn_s(self, work_s: f64) -> f64 {
        let waits_s = self.ahead_s.min(self.segments * work_s);
        (waits_s + work_s) / self.parallel
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
fn bytes(demand: PageDemand) -> f64 {
    demand.bytes as f64
}

/// Seconds that a node's devices take to read pages, as calibrated.
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
