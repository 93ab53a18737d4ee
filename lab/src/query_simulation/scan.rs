//! Filters one segment in a given placement.
//!
//! Invariants
//! - All placements run the same program over the same pages. Each of them materializes the rows
//!   that pass, and this file counts those rows.
//! - A request that a busy node refuses is repeated, but not longer than `NODE_PATIENCE`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rackscan_client::{Cluster, LocalDevices, OfferedProgram, PlacedSegment, ProcessAnswer, SegmentPart};
use rackscan_format::program::VerifiedProgram;
use rackscan_scan::{PageWanted, ScanLimits, SegmentScan, Step};

use super::error::SimulationError;
use crate::limits::NODE_PATIENCE;

/// How long to wait before a busy node is asked again.
const ASK_AGAIN: Duration = Duration::from_micros(200);

/// A query over a table.
pub(super) struct Work {
    pub(super) program: Arc<VerifiedProgram>,
    pub(super) segments: Vec<PlacedSegment>,
}

/// Counts of the scans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) segments: u64,
    /// Rows that pass, as the scans returned them.
    pub(super) rows: u64,
    /// Pages read from devices, and their bytes.
    pub(super) pages: u64,
    pub(super) page_bytes: u64,
    /// Bytes that crossed the wire.
    pub(super) wire_bytes: u64,
    /// How often a node refused a scan as busy.
    pub(super) bounces: u64,
}

impl Counters {
    pub(super) fn add(&mut self, other: &Self) {
        self.segments += other.segments;
        self.rows += other.rows;
        self.pages += other.pages;
        self.page_bytes += other.page_bytes;
        self.wire_bytes += other.wire_bytes;
        self.bounces += other.bounces;
    }
}

/// Who reads and who filters.
pub(super) enum Way<'a> {
    Local(&'a LocalDevices),
    Fetch(&'a Cluster),
    Process(&'a Cluster),
}

/// Filters one segment.
pub(super) async fn scan(
    way: &Way<'_>,
    work: &Work,
    segment: &PlacedSegment,
    stop: &AtomicBool,
    counters: &mut Counters,
) -> Result<(), SimulationError> {
    let PlacedSegment { node, directory, .. } = segment;
    let node = *node;
    match way {
        Way::Local(devices) => {
            let read = async |wanted: &[PageWanted], _: &mut Counters| {
                let extents: Vec<_> = wanted.iter().map(|page| page.extent).collect();
                Ok(devices.read(node, &extents).await?)
            };
            here(work, segment, counters, read).await?;
        }
        Way::Fetch(cluster) => {
            let read = async |wanted: &[PageWanted], counters: &mut Counters| {
                let fetched = cluster.fetch(node, directory.table, directory.segment, wanted).await?;
                counters.wire_bytes += fetched.wire_bytes;
                Ok(fetched.pages)
            };
            here(work, segment, counters, read).await?;
        }
        Way::Process(cluster) => there(cluster, work, segment, stop, counters).await?,
    }
    counters.segments += u64::from(!stop.load(Ordering::Relaxed));
    Ok(())
}

/// Filters pages from `read` on this thread.
async fn here<P: AsRef<[u8]>>(
    work: &Work,
    segment: &PlacedSegment,
    counters: &mut Counters,
    read: impl AsyncFn(&[PageWanted], &mut Counters) -> Result<Vec<P>, SimulationError>,
) -> Result<(), SimulationError> {
    let PlacedSegment { node, directory, .. } = segment;
    let node = *node;
    let here = |source| SimulationError::Scan { node, source: Box::new(source) };
    let (program, directory) = (Arc::clone(&work.program), Arc::clone(directory));
    let mut scan = SegmentScan::new(program, directory, 0, ScanLimits::default()).map_err(here)?;
    loop {
        match scan.step().map_err(here)? {
            Step::Read(wanted) => {
                let pages = read(&wanted, counters).await?;
                if pages.len() != wanted.len() {
                    let (found, expected) = (pages.len(), wanted.len());
                    return Err(SimulationError::Pages { node, found, expected });
                }
                for (wanted, page) in wanted.iter().zip(pages) {
                    scan.supply(wanted.column, wanted.page, page).map_err(here)?;
                }
            }
            Step::Batch(found) => counters.rows += found.batch.num_rows() as u64,
            Step::Done => break,
        }
    }
    let stats = scan.stats();
    counters.pages += stats.pages_read;
    counters.page_bytes += stats.bytes_read;
    Ok(())
}

/// Lets the node filter.
async fn there(
    cluster: &Cluster,
    work: &Work,
    segment: &PlacedSegment,
    stop: &AtomicBool,
    counters: &mut Counters,
) -> Result<(), SimulationError> {
    let node = segment.node;
    let (mut first_block, mut busy_since) = (0, None);
    let program = OfferedProgram::plain(Arc::clone(&work.program));
    while !stop.load(Ordering::Relaxed) {
        match cluster
            .process(node, &program, &SegmentPart::from_block(&segment.directory, first_block))
            .await?
        {
            ProcessAnswer::Processed(processed) => {
                busy_since = None;
                counters.rows += processed.batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>();
                // Pages from the node's cache count, too.
                let cost = &processed.cost;
                counters.pages += u64::from(cost.pages_read) + u64::from(cost.pages_cached);
                counters.page_bytes += cost.disk_bytes + cost.cached_bytes;
                counters.wire_bytes += processed.wire_bytes;
                // The client has checked that this block is after the previous one.
                let Some(next) = processed.next_block else { break };
                first_block = next;
            }
            ProcessAnswer::Bounced { text: reason, .. } => {
                counters.bounces += 1;
                let after = busy_since.get_or_insert_with(Instant::now).elapsed();
                if after > NODE_PATIENCE {
                    return Err(SimulationError::Busy { node, after, reason });
                }
                // The thread has nothing else to do.
                std::thread::sleep(ASK_AGAIN);
            }
        }
    }
    Ok(())
}
