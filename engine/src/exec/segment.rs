//! Turns one segment into batches.
//!
//! The placement is decided when the scan of the segment begins. Then the code of that placement
//! runs: `local`, `remote_fetch` or `remote_process`.

use super::{
    ScanError, beside,
    capture::Capture,
    context::QueryContext,
    counters::Counters,
    local,
    meter::{Busy, Meter},
    remote_fetch,
    remote_process::{self, Ended},
    steering::Steering,
};
use crate::{
    indexing::{Lookup, Wanted},
    report::{Bounce, ScanReason},
    runtime_filter::{Narrowed, RuntimeFilter},
    snapshot::TableSnapshot,
};
use datafusion::{
    arrow::{
        array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array},
        compute::{cast, kernels::cmp, nullif},
        datatypes::{DataType, SchemaRef},
        error::ArrowError,
    },
    error::{DataFusionError, Result},
    execution::TaskContext,
};
use futures::{FutureExt, SinkExt, Stream, StreamExt, channel::mpsc, stream};
use rackscan_client::{ClientError, PageBuffer};
use rackscan_delta::run::{Run, RunPage};
use rackscan_format::{ids::NodeId, segment::SegmentDirectory, withheld::WithheldRows};
use rackscan_planner::{Placement, Policy};
use rackscan_scan::{PageWanted, ScanLimits, ScanStats, SegmentScan, Step};
use std::{future::Future, sync::Arc, time::Instant};
use tracing::Instrument;

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
    pub(super) steering: Arc<Steering>,
    pub(super) meter: Meter,
    pub(super) capture: Option<Arc<Capture>>,
    /// The stored pages that it may hold, in bytes.
    pub(super) page_bytes: usize,
    /// The maximum rows of a batch.
    pub(super) batch_rows: usize,
}

impl SegmentWork {
    /// Withholds rows that the index rules out. Returns whether any rows are wanted.
    async fn look_up(&mut self) -> bool {
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
        tracing::warn!(node = self.node.0, %error, "a node was lost; its devices are read without it");
        self.query.loads.lost(self.node);
        self.counters.lost(self.node, error.to_string());
        self.meter.place(Placement::Local, ScanReason::NodeLost);
        true
    }
}

/// Where a segment's batches go.
pub(super) struct Sink {
    sender: mpsc::Sender<RecordBatch>,
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

/// Scans one segment where the planner places it. The work is done while the stream is polled, on
/// the caller's thread.
pub(super) fn batches(work: SegmentWork) -> impl Stream<Item = Result<RecordBatch, ScanError>> {
    let (sender, receiver) = mpsc::channel(0);
    let parent = work.query.span.clone();
    let span = tracing::debug_span!(
        parent: &parent,
        "segment",
        node = work.node.0,
        segment = work.directory.segment.0,
        placement = tracing::field::Empty
    );
    let run = run(work, Sink { sender }).instrument(span);
    let errors = run.into_stream().filter_map(|outcome| std::future::ready(outcome.err().map(Err)));
    stream::select(receiver.map(Ok), errors)
}

async fn run(mut work: SegmentWork, mut sink: Sink) -> Result<(), ScanError> {
    work.runtime_filter.awaited().await;
    work.narrowed = work.runtime_filter.now(&work.snapshot);
    if let Some(run) = work.run.clone() {
        return beside::scan(&work, &run, &mut sink).await;
    }
    if !work.look_up().await {
        work.steering.passed_over(work.node);
        work.counters.passed_over();
        return Ok(());
    }
    let placed = work.steering.decide(&work)?;
    let decision = &placed.decision;
    tracing::Span::current().record("placement", decision.placement.name());
    let _ahead = work.query.loads.begin(work.node, decision.demand);
    work.meter.place(decision.placement, decision.reason.into());
    match decision.placement {
        Placement::Local => local::scan(&work, 0, &mut sink).await?,
        Placement::RemoteFetch => remote_fetch::scan(&work, 0, &mut sink).await?,
        Placement::RemoteProcess => match remote_process::scan(&work, &mut sink).await? {
            Ended::Here => {}
            Ended::Bounced { first_block, reason, text } => {
                tracing::debug!(%reason, text, "bounced");
                work.counters.bounced(Bounce::new(work.node, work.directory.segment, reason, text));
                work.meter.place(Placement::RemoteFetch, reason.into());
                remote_fetch::scan(&work, first_block, &mut sink).await?;
            }
            Ended::NodeLost { first_block } => local::scan(&work, first_block, &mut sink).await?,
            Ended::Degraded { first_block } => remote_fetch::scan(&work, first_block, &mut sink).await?,
        },
    }
    // A scan that changed its placement on the way is no measurement of either.
    if work.meter.is_placed(decision.placement) && work.meter.reason() != Some(ScanReason::Degraded) {
        work.steering.observe(&work, &placed, &work.meter);
    }
    Ok(())
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

/// Scans a segment in the engine, with pages from `read`.
pub(super) async fn scan_here<Bytes, Read, Pages>(
    work: &SegmentWork,
    first_block: u32,
    sink: &mut Sink,
    mut read: Read,
) -> Result<ScanStats, ScanError>
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
                    break;
                }
            }
            Step::Done => break,
        }
    }
    let stats = scan.stats();
    work.runtime_filter.searched(stats.keys_tested, stats.keys_kept);
    work.meter.scanned(&stats);
    Ok(stats)
}

/// The count in the state of an average, the only count that is unsigned in DataFusion. A count of
/// 0 becomes NULL, because DataFusion would compute the average of no values for it.
fn count_of_average(counts: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    nullif(counts, &cmp::eq(counts, &UInt64Array::new_scalar(0))?)
}

/// A scan's batch with the plan's names and types: the state of a partial aggregate may have wider
/// types than the scan's.
pub(super) fn conform(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let shape = |error: ArrowError| DataFusionError::from(ScanError::Result(Arc::new(error)));
    if batch.num_columns() != schema.fields().len() {
        let (found, wanted) = (batch.num_columns(), schema.fields().len());
        return Err(shape(ArrowError::SchemaError(format!("{found} columns, expected {wanted}"))));
    }
    let rows = batch.num_rows();
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        if column.data_type() == field.data_type() {
            return Ok(Arc::clone(column));
        }
        let column = cast(column, field.data_type())?;
        match column.data_type() {
            DataType::UInt64 => count_of_average(&column),
            _ => Ok(column),
        }
    });
    let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>().map_err(shape)?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(shape)
}
