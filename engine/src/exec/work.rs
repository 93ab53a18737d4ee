//! Defines what the scan of one segment needs ([`SegmentWork`]), and runs the steps that all
//! placements share.

use super::{
    ScanError,
    capture::Capture,
    context::QueryContext,
    counters::Counters,
    meter::{Busy, Meter},
};
use crate::{
    indexing::{Lookup, Wanted},
    report::ScanReason,
    runtime_filter::{Narrowed, RuntimeFilter},
    snapshot::TableSnapshot,
};
use datafusion::{arrow::array::RecordBatch, execution::TaskContext};
use futures::{SinkExt, channel::mpsc};
use rackscan_client::{ClientError, PageBuffer};
use rackscan_delta::run::{Run, RunPage};
use rackscan_format::{ids::NodeId, segment::SegmentDirectory, withheld::WithheldRows};
use rackscan_planner::{Placement, Policy};
use rackscan_scan::{PageWanted, ScanLimits, SegmentScan, Step};
use std::{future::Future, sync::Arc, time::Instant};

/// Everything the scan of one segment needs.
pub(super) struct SegmentWork {
    pub(super) node: NodeId,
    pub(super) directory: Arc<SegmentDirectory>,
    /// The withheld rows of the segment, under any placement: deleted, newer elsewhere, or ruled
    /// out by an index.
    pub(super) withheld: Option<Arc<WithheldRows>>,
    /// The segment's pages, if it is a run of changed rows in memory: then nothing is placed.
    pub(super) run: Option<Arc<Run>>,
    /// The program, as narrowed by the operators above when the scan of the segment began.
    pub(super) narrowed: Arc<Narrowed>,
    pub(super) runtime_filter: Arc<RuntimeFilter>,
    /// The index lookup that says which of its rows are wanted, and the context in which it runs.
    pub(super) lookup: Option<(Arc<Lookup>, Arc<TaskContext>)>,
    pub(super) snapshot: Arc<TableSnapshot>,
    pub(super) policy: Policy,
    pub(super) query: Arc<QueryContext>,
    pub(super) counters: Arc<Counters>,
    pub(super) meter: Meter,
    pub(super) capture: Option<Arc<Capture>>,
    /// The stored pages that it may hold, in bytes.
    pub(super) page_bytes: usize,
    /// The maximum rows of a batch.
    pub(super) batch_rows: usize,
}

impl SegmentWork {
    /// Withholds rows that the index rules out. Returns whether any rows are wanted.
    pub(super) async fn look_up(&mut self) -> bool {
        let Some((lookup, context)) = &self.lookup else { return true };
        let (segment, rows) = (self.directory.segment, self.directory.rows);
        match lookup.wanted(segment, rows, self.withheld.as_deref(), context).await {
            Wanted::All => {}
            Wanted::Nothing => return false,
            Wanted::AllBut(rows) => self.withheld = Some(rows),
        }
        true
    }

    /// Whether the scan can go on with pages of other nodes after this error: the node was lost,
    /// and the table is protected. If so, the segment counts as fetched and degraded from now on.
    pub(super) fn is_made_up_for(&self, error: &ClientError) -> bool {
        let can = error.is_node_lost() && self.snapshot.definition.protection.is_some();
        if can {
            self.is_degraded(&error.to_string());
        }
        can
    }

    /// Notes that pages of the segment come from other nodes, because its node is lost.
    pub(super) fn is_degraded(&self, why: &str) {
        if self.meter.reason() == Some(ScanReason::Degraded) {
            return;
        }
        tracing::debug!(node = self.node.0, why, "a node is lost; its pages are reconstructed");
        self.query.loads.lost(self.node);
        self.counters.lost(self.node, why.to_owned());
        self.meter.place(Placement::RemoteFetch, ScanReason::Degraded);
    }

    /// Whether the scan can go on without its node after this error: the node was lost, its devices
    /// can be read here, and no other placement is forced. If so, the segment counts as local from
    /// now on.
    pub(super) fn goes_on_without_node(&self, error: &ClientError) -> bool {
        let can = error.is_node_lost() && self.query.devices.attached(self.node).is_ok();
        if !can || self.policy != Policy::Auto {
            return false;
        }
        tracing::warn!(node = self.node.0, %error, "a node was lost; the engine reads its devices directly");
        self.query.loads.lost(self.node);
        self.counters.lost(self.node, error.to_string());
        self.meter.place(Placement::Local, ScanReason::NodeLost);
        true
    }
}

/// Where a segment's batches go.
pub(super) struct Sink {
    pub(super) sender: mpsc::Sender<RecordBatch>,
}

/// The batches are no longer read: the scan ends early, which is not an error.
#[derive(Debug)]
pub(super) struct Abandoned;

impl Sink {
    /// Waits until there is room for a batch.
    pub(super) async fn put(&mut self, work: &SegmentWork, batch: RecordBatch) -> Result<(), Abandoned> {
        work.meter.put(&batch);
        self.sender.send(batch).await.map_err(|_| Abandoned)
    }
}

/// A page that can be scanned.
pub(super) trait Page: AsRef<[u8]> {
    /// Whether its checksum was verified, and it has not been written to since.
    fn is_right(&self) -> bool;
}

impl Page for PageBuffer {
    fn is_right(&self) -> bool {
        Self::is_right(self)
    }
}

impl Page for RunPage {
    fn is_right(&self) -> bool {
        // The engine made the page itself.
        true
    }
}

/// A scan in the engine whose figures are counted when it ends, also when nobody reads on: above a
/// LIMIT the scan is dropped while it waits.
struct CountedScan<'work, Bytes: AsRef<[u8]>> {
    scan: SegmentScan<Bytes>,
    work: &'work SegmentWork,
}

impl<Bytes: AsRef<[u8]>> Drop for CountedScan<'_, Bytes> {
    fn drop(&mut self) {
        let (stats, work) = (self.scan.stats(), self.work);
        work.runtime_filter.searched(stats.keys_tested, stats.keys_kept);
        work.meter.scanned(&stats);
        if work.run.is_some() {
            work.counters.changed_rows(&stats);
        }
    }
}

/// Scans a segment in the engine, with pages from `read`.
pub(super) async fn scan_here<Bytes, Read, Pages>(
    work: &SegmentWork,
    first_block: u32,
    sink: &mut Sink,
    mut read: Read,
) -> Result<(), ScanError>
where
    Bytes: Page,
    Read: FnMut(Vec<PageWanted>) -> Pages,
    Pages: Future<Output = Result<Vec<Bytes>, ScanError>>,
{
    let (program, directory) = (Arc::clone(&work.narrowed.program), Arc::clone(&work.directory));
    let limits = ScanLimits { memory_bytes: work.page_bytes, batch_rows: work.batch_rows };
    let here = |source| ScanError::Scan { node: work.node, source: Arc::new(source) };
    let mut scan = SegmentScan::<Bytes>::new(program, directory, first_block, limits).map_err(here)?;
    if let Some(withheld) = &work.withheld {
        scan = scan.withholding(Arc::clone(withheld));
    }
    let mut counted = CountedScan { scan, work };
    let scan = &mut counted.scan;
    loop {
        let began = Busy::now();
        let step = scan.step().map_err(here)?;
        work.meter.engine_scanned(&began);
        match step {
            Step::Read(wanted) => {
                let began = Instant::now();
                let pages = read(wanted.clone()).await?;
                work.meter.waited(began);
                if pages.len() != wanted.len() {
                    let (found, wanted) = (pages.len(), wanted.len());
                    return Err(ScanError::Pages { node: work.node, found, wanted });
                }
                let began = Busy::now();
                for (wanted, page) in wanted.iter().zip(pages) {
                    let supplied = match page.is_right() {
                        true => scan.supply_unchanged(wanted.column, wanted.page, page),
                        false => scan.supply(wanted.column, wanted.page, page),
                    };
                    supplied.map_err(here)?;
                }
                work.meter.engine_scanned(&began);
            }
            Step::Batch(found) => {
                if sink.put(work, found.batch).await.is_err() {
                    return Ok(());
                }
            }
            Step::Done => return Ok(()),
        }
    }
}
