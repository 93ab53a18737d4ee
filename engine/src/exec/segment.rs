//! Scans one segment of a table and returns its rows as record batches.
//!
//! When the scan of a segment begins, the planner decides its placement, and the file of that
//! placement does the work: `local`, `remote_fetch` or `remote_process`. If a node bounces the scan
//! or is lost, the rest of the segment is scanned under another placement. Changed rows that are in
//! memory have no placement (`beside`).

use super::{
    ScanError, beside, local, remote_fetch,
    remote_process::{self, Ended},
    steering::Steering,
    work::{SegmentWork, Sink},
};
use crate::report::{Bounce, ScanReason};
use datafusion::{
    arrow::{
        array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array},
        compute::{cast, kernels::cmp, nullif},
        datatypes::{DataType, SchemaRef},
        error::ArrowError,
    },
    error::{DataFusionError, Result},
};
use futures::{FutureExt, Stream, StreamExt, channel::mpsc, stream};
use rackscan_planner::Placement;
use std::sync::Arc;
use tracing::Instrument;

/// Scans one segment where the planner places it. The work is done while the stream is polled, on
/// the caller's thread.
pub(super) fn batches(
    work: SegmentWork,
    steering: Arc<Steering>,
) -> impl Stream<Item = Result<RecordBatch, ScanError>> {
    let (sender, receiver) = mpsc::channel(0);
    let parent = work.query.span.clone();
    let span = tracing::debug_span!(
        parent: &parent,
        "segment",
        node = work.node.0,
        segment = work.directory.segment.0,
        placement = tracing::field::Empty
    );
    let run = run(work, steering, Sink { sender }).instrument(span);
    let errors = run.into_stream().filter_map(|outcome| std::future::ready(outcome.err().map(Err)));
    stream::select(receiver.map(Ok), errors)
}

async fn run(mut work: SegmentWork, steering: Arc<Steering>, mut sink: Sink) -> Result<(), ScanError> {
    work.runtime_filter.awaited().await;
    work.narrowed = work.runtime_filter.now(&work.snapshot);
    if let Some(run) = work.run.clone() {
        return beside::scan(&work, &run, &mut sink).await;
    }
    if !work.look_up().await {
        steering.passed_over(work.node);
        work.counters.passed_over();
        return Ok(());
    }
    let placed = steering.decide(&work)?;
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
        steering.observe(&work, &placed, &work.meter);
    }
    Ok(())
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
