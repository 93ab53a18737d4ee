//! How many seconds would a segment's scan take under each placement?
//!
//! ```text
//! local           max(device, engine CPU)
//! remote-fetch    max(device, wire(pages), engine CPU)                  + round trips
//! remote-process  max(device, node CPU)  + wire(result), engine decode  + round trip
//! ```
//!
//! Stages that are pipelined over segments (the next one's pages are read while this one is scanned) cost what the
//! slowest of them costs. A CPU that already runs scans is shared with them: the work takes longer by the number of
//! scans per core. A node whose devices are attached runs on the engine's host: its scans and the engine's share one
//! set of cores, so that moving work between them frees nothing. The result of a remote scan is decoded as it arrives,
//! so wire and decode are pipelined as well.

use crate::{
    calibration::{Calibration, CpuCosts},
    placement::Placement,
    profile::{Attachment, ClusterProfile, EngineProfile, NodeProfile, PageDemand, ScanProfile},
};
use serde::{Deserialize, Serialize};

/// Why a placement cannot apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhyNot {
    /// The node's devices are not on the engine's host, for this reason.
    NotAttached(String),
    /// The node has no scan workers.
    NoScanWorkers,
    /// The cluster has no such node.
    UnknownNode,
}

impl std::fmt::Display for WhyNot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotAttached(reason) => write!(f, "not attached: {reason}"),
            Self::NoScanWorkers => f.write_str("the node has no scan workers"),
            Self::UnknownNode => f.write_str("no such node in the cluster"),
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

    /// The cheapest placement that applies; of equal ones the first in the order of [`Placement::ALL`].
    #[must_use]
    pub fn cheapest(&self) -> Option<Placement> {
        let priced = Placement::ALL.into_iter().filter_map(|placement| {
            let seconds = self.of(placement).as_ref().ok()?;
            Some((placement, *seconds))
        });
        priced.reduce(|best, next| if next.1 < best.1 { next } else { best }).map(|(placement, _)| placement)
    }
}

/// Prices one segment's scan under each placement.
#[must_use]
pub fn price(profile: &ScanProfile, cluster: &ClusterProfile, calibration: &Calibration) -> Prices {
    let Some(node) = cluster.nodes.get(&profile.node) else {
        let unknown = || Err(WhyNot::UnknownNode);
        return Prices { local: unknown(), remote_fetch: unknown(), remote_process: unknown() };
    };
    let device_s = device_seconds(profile.pages(), calibration);
    let (engine_ahead, node_ahead) = scans_ahead(&cluster.engine, node);
    let engine_s =
        scan_seconds(profile, &calibration.engine) * crowding(engine_ahead, cluster.engine.cores.into());
    Prices {
        local: match &node.attachment {
            Attachment::Attached => Ok(device_s.max(engine_s)),
            Attachment::Detached(reason) => Err(WhyNot::NotAttached(reason.clone())),
        },
        remote_fetch: Ok(fetch_seconds(profile, node, calibration, device_s.max(engine_s))),
        remote_process: process_seconds(profile, node, calibration, device_s, node_ahead),
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
fn fetch_seconds(
    profile: &ScanProfile,
    node: &NodeProfile,
    calibration: &Calibration,
    read_and_scan_s: f64,
) -> f64 {
    let wire = calibration.wire(node.wire);
    let wire_s = profile.pages().bytes as f64 / wire.bytes_per_s.value;
    let round_trips_s = f64::from(profile.fetch_round_trips()) * wire.round_trip_us.value * 1e-6;
    read_and_scan_s.max(wire_s) + round_trips_s
}

fn process_seconds(
    profile: &ScanProfile,
    node: &NodeProfile,
    calibration: &Calibration,
    device_s: f64,
    node_ahead: u32,
) -> Price {
    let workers = u32::from(node.load.scan_workers);
    if workers == 0 {
        return Err(WhyNot::NoScanWorkers);
    }
    let wire = calibration.wire(node.wire);
    let node_s = scan_seconds(profile, &calibration.node) * crowding(node_ahead, workers);
    let wire_s = profile.output_bytes() / wire.bytes_per_s.value;
    let decode_s = profile.output_bytes() * calibration.engine.output_byte_ns.value * 1e-9;
    Ok(device_s.max(node_s) + wire_s.max(decode_s) + wire.round_trip_us.value * 1e-6)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
fn device_seconds(demand: PageDemand, calibration: &Calibration) -> f64 {
    let by_count = f64::from(demand.pages) * calibration.device.page_us.value * 1e-6;
    by_count.max(demand.bytes as f64 / calibration.device.bytes_per_s.value)
}

/// CPU seconds of the whole scan on an idle core.
#[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
fn scan_seconds(profile: &ScanProfile, cpu: &CpuCosts) -> f64 {
    let pages = profile.pages();
    let ns = profile.values() * cpu.value_ns.value
        + f64::from(pages.pages) * cpu.page_ns.value
        + pages.bytes as f64 * cpu.stored_byte_ns.value
        + profile.output_bytes() * cpu.output_byte_ns.value;
    ns * 1e-9
}

/// Scans that run or wait before this one, where the engine scans and where the node does.
fn scans_ahead(engine: &EngineProfile, node: &NodeProfile) -> (u32, u32) {
    let in_engine = u32::from(engine.scans_running);
    let in_node = u32::from(node.load.scans_running) + u32::from(node.load.scans_queued);
    match node.attachment {
        Attachment::Attached => (in_engine + in_node, in_engine + in_node),
        Attachment::Detached(_) => (in_engine, in_node),
    }
}

/// How much longer work takes on `cores` cores where `ahead` other scans run or wait: 1 while a core is free.
fn crowding(ahead: u32, cores: u32) -> f64 {
    (f64::from(ahead + 1) / f64::from(cores.max(1))).max(1.0)
}
