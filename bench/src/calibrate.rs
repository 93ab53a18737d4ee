//! Measures every constant of the price model on the current cluster: the costs of a page, a byte
//! and a value, by which the planner places scans.
//!
//! ```text
//! wires    echoes without IO: 0 bytes for the round trip, 4 MiB for the bandwidth
//! device   the first sector of every page for the cost of one more read, whole pages for the bandwidth
//! engine   checksums, opening, counting and building over pages already in memory
//! node     the same counting and building scans, by the CPU time that the node reports
//! ```
//!
//! Invariants
//! - Each figure is the best of several runs, because noise only ever adds time.
//! - A constant that cannot be measured keeps its default, and is marked as such. An example is the
//!   cost of a wire that some node does not listen on.

mod cpu;
mod error;

pub use error::CalibrateError;

use cpu::RUNS;
use rackscan_client::{ClientError, Cluster, ClusterTable, LocalDevices, LocalError};
use rackscan_fabric::Wire;
use rackscan_format::{ids::NodeId, limits::SECTOR_BYTES, segment::Extent};
use rackscan_planner::{Calibration, Constant};
use std::time::{Duration, Instant};

/// Empty echoes: enough for a steady minimum.
const ROUND_TRIPS: u32 = 300;
const ECHO_BYTES: usize = 4 << 20;
const ECHOES: u32 = 24;
/// Maximum number of pages read per run.
const PAGES_MAX: usize = 2048;
/// Reads in flight together.
const READS_TOGETHER: usize = 64;

/// Measures on `table`, over one cluster connection per wire that all nodes listen on.
///
/// # Errors
/// A node or a device fails, or the table does not serve as a sample.
pub async fn run(
    wires: &[(Wire, Cluster)],
    table: &ClusterTable,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<Calibration, CalibrateError> {
    let mut calibration = Calibration::default();
    for (wire, cluster) in wires {
        let costs = match wire {
            Wire::Shm => &mut calibration.shm,
            Wire::Tcp => &mut calibration.tcp,
            Wire::Verbs => &mut calibration.verbs,
            // Storage nodes do not listen on it, so it has no costs.
            Wire::Sim => continue,
        };
        progress("measuring the wires");
        let (round_trip_us, bytes_per_s) = measure_wire(cluster).await?;
        costs.round_trip_us =
            Constant::measured(round_trip_us, format!("best of {ROUND_TRIPS} echoes of 0 bytes"));
        costs.bytes_per_s = Constant::measured(
            bytes_per_s,
            format!("best of {ECHOES} echoes of {ECHO_BYTES} bytes, one at a time"),
        );
    }
    let Some((_, cluster)) = wires.first() else { return Ok(calibration) };
    progress("reading devices");
    measure_device(cluster, table, &mut calibration).await?;
    progress("scanning");
    cpu::measure(cluster, table, &mut calibration).await?;
    Ok(calibration)
}

/// Returns microseconds per round trip, and bytes per second.
async fn measure_wire(cluster: &Cluster) -> Result<(f64, f64), ClientError> {
    let nodes: Vec<NodeId> = cluster.nodes().collect();
    let mut round_trip = Duration::MAX;
    for turn in 0..ROUND_TRIPS as usize {
        let start = Instant::now();
        cluster.echo(nodes[turn % nodes.len()], 0).await?;
        round_trip = round_trip.min(start.elapsed());
    }
    let mut bulk = Duration::MAX;
    for turn in 0..ECHOES as usize {
        let start = Instant::now();
        cluster.echo(nodes[turn % nodes.len()], ECHO_BYTES).await?;
        bulk = bulk.min(start.elapsed());
    }
    let seconds = bulk.saturating_sub(round_trip).as_secs_f64().max(1e-9);
    #[expect(clippy::cast_precision_loss, reason = "4 MiB is exact")]
    let bytes_per_s = ECHO_BYTES as f64 / seconds;
    Ok((round_trip.as_secs_f64() * 1e6, bytes_per_s))
}

async fn measure_device(
    cluster: &Cluster,
    table: &ClusterTable,
    calibration: &mut Calibration,
) -> Result<(), CalibrateError> {
    let devices = LocalDevices::attach(cluster.statuses());
    let attached = |node: NodeId| devices.attached(node).is_ok();
    let extents: Vec<(NodeId, Extent)> = table
        .segments
        .iter()
        .filter(|segment| attached(segment.node))
        .flat_map(|segment| {
            let pages = segment.directory.chunks.iter().flat_map(|chunk| &chunk.pages);
            pages.map(|page| (segment.node, page.extent))
        })
        .take(PAGES_MAX)
        .collect();
    if extents.is_empty() {
        // Only the nodes can read their devices: the defaults stay, and are marked as such.
        return Ok(());
    }
    let sectors: Vec<(NodeId, Extent)> = extents
        .iter()
        .map(|(node, extent)| (*node, Extent { length_bytes: SECTOR_BYTES, ..*extent }))
        .collect();
    let mut best = (Duration::MAX, Duration::MAX);
    for _ in 0..RUNS {
        best.0 = best.0.min(read_all(&devices, &sectors).await?);
        best.1 = best.1.min(read_all(&devices, &extents).await?);
    }
    let pages = extents.len();
    let bytes: u64 = extents.iter().map(|(_, extent)| u64::from(extent.length_bytes)).sum();
    #[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
    let (page_us, bytes_per_s) =
        (best.0.as_secs_f64() * 1e6 / pages as f64, bytes as f64 / best.1.as_secs_f64());
    let how =
        |what: &str| format!("best of {RUNS} runs over {pages} pages, {READS_TOGETHER} in flight: {what}");
    calibration.device.page_us = Constant::measured(page_us, how("the first sector of each"));
    calibration.device.bytes_per_s = Constant::measured(bytes_per_s, how("whole pages"));
    Ok(())
}

async fn read_all(devices: &LocalDevices, extents: &[(NodeId, Extent)]) -> Result<Duration, LocalError> {
    let start = Instant::now();
    for together in extents.chunk_by(|a, b| a.0 == b.0).flat_map(|same_node| same_node.chunks(READS_TOGETHER))
    {
        let wanted: Vec<Extent> = together.iter().map(|(_, extent)| *extent).collect();
        devices.read(together[0].0, &wanted).await?;
    }
    Ok(start.elapsed())
}
