//! What happens to rows with long texts?
//!
//! A join or a page repeats a long text as a view of 16 bytes, and operators that keep or collect
//! rows copy the text for each of them: 8,192 rows of a text of 1 MB were 8 GB before any operator
//! asked for memory. When an operator meets such a batch before the first row of the answer, the
//! query is planned again with fewer rows in each batch (`session::stream`). Batches that have
//! too many rows all the same, such as those of scans, are sliced.

use std::{
    collections::VecDeque,
    ops::Range,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use datafusion::{
    arrow::{
        array::{Array, AsArray, RecordBatch},
        datatypes::{DataType, SchemaRef},
    },
    common::{
        config::ConfigOptions,
        tree_node::{Transformed, TransformedResult, TreeNode},
    },
    error::{DataFusionError, Result},
    execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext},
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        ExecutionPlan,
        aggregates::AggregateExec,
        filter::FilterExec,
        repartition::RepartitionExec,
        sorts::{sort::SortExec, sort_preserving_merge::SortPreservingMergeExec},
        windows::{BoundedWindowAggExec, WindowAggExec},
    },
};
use futures::{Stream, StreamExt};

use super::wrapper::{StreamWrapper, WrapperExec, with_like_children};
use crate::{functions::view_bytes, limits::BATCH_COPY_BYTES_MAX};

/// How many rows do the batches of a running query have, and can that change?
#[derive(Debug, Default)]
pub(crate) struct BatchRows {
    state: Mutex<BatchState>,
}

#[derive(Clone, Copy, Debug, Default)]
enum BatchState {
    /// The query has returned no row.
    #[default]
    NoRows,
    /// It has, and runs on as it was planned.
    Rows,
    /// It is to be planned again with so many rows in a batch.
    Fewer(usize),
}

impl BatchRows {
    fn state(&self) -> MutexGuard<'_, BatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the query will be planned again with so many rows in a batch.
    fn ask_for(&self, rows: usize) -> bool {
        let state = &mut *self.state();
        match state {
            BatchState::NoRows => *state = BatchState::Fewer(rows),
            BatchState::Rows => return false,
            BatchState::Fewer(fewer) => *fewer = rows.min(*fewer),
        }
        true
    }

    /// The query returns a row now, unless an operator has asked for so many rows in a batch.
    pub(crate) fn return_rows(&self) -> Option<usize> {
        let state = &mut *self.state();
        match state {
            BatchState::NoRows | BatchState::Rows => {
                *state = BatchState::Rows;
                None
            }
            BatchState::Fewer(rows) => Some(*rows),
        }
    }

    /// So many were asked for.
    pub(crate) fn asked_for(&self) -> Option<usize> {
        match *self.state() {
            BatchState::NoRows | BatchState::Rows => None,
            BatchState::Fewer(rows) => Some(rows),
        }
    }
}

/// Watches what operators read that copy texts.
#[derive(Debug)]
pub(crate) struct LongRows;

impl PhysicalOptimizerRule for LongRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            if !copies_texts(&plan) {
                return Ok(Transformed::no(plan));
            }
            let input = plan.children()[0];
            if !input.schema().fields().iter().any(|field| is_view(field.data_type())) {
                return Ok(Transformed::no(plan));
            }
            let sliced = WrapperExec::new(Arc::clone(input), Arc::new(Slicer));
            with_like_children(plan, vec![Arc::new(sliced)]).map(Transformed::yes)
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "long_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn copies_texts(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let sorts = plan.is::<SortExec>() || plan.is::<SortPreservingMergeExec>();
    let windows = plan.is::<WindowAggExec>() || plan.is::<BoundedWindowAggExec>();
    let collects = plan.is::<FilterExec>() || plan.is::<RepartitionExec>();
    sorts || windows || collects || plan.is::<AggregateExec>()
}

fn is_view(of: &DataType) -> bool {
    matches!(of, DataType::Utf8View | DataType::BinaryView)
}

#[derive(Debug)]
struct Slicer;

impl StreamWrapper for Slicer {
    fn execute(
        &self,
        inner: &dyn ExecutionPlan,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let config = context.session_config();
        let (batch_rows, rows_max) = (config.get_extension::<BatchRows>(), config.batch_size());
        let stream = inner.execute(partition, context)?;
        Ok(Box::pin(SlicedStream { stream, batch_rows, rows_max, slices: VecDeque::new() }))
    }
}

struct SlicedStream {
    stream: SendableRecordBatchStream,
    /// Absent if the query cannot be planned again.
    batch_rows: Option<Arc<BatchRows>>,
    /// Rows in a batch, as the query was planned.
    rows_max: usize,
    slices: VecDeque<RecordBatch>,
}

impl SlicedStream {
    /// The batch in parts that an operator may copy.
    ///
    /// # Errors
    /// When the query is planned again.
    fn slice(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let lengths = Lengths::new(&batch);
        let bytes = lengths.sum();
        if bytes <= BATCH_COPY_BYTES_MAX {
            return Ok(batch);
        }
        // Half of it, so that rows which are a bit longer do not begin it again.
        let rows = (BATCH_COPY_BYTES_MAX / 2 / bytes.div_ceil(batch.num_rows())).max(1);
        if rows < self.rows_max && self.batch_rows.as_ref().is_some_and(|batches| batches.ask_for(rows)) {
            let message =
                format!("{bytes} bytes of texts in a batch; planned again with {rows} rows in each");
            return Err(DataFusionError::ResourcesExhausted(message));
        }
        let mut slices = lengths.slices(BATCH_COPY_BYTES_MAX).into_iter();
        let first = slices.next().expect("the batch has a row");
        self.slices.extend(slices.map(|rows| batch.slice(rows.start, rows.len())));
        Ok(batch.slice(first.start, first.len()))
    }
}

impl Stream for SlicedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(slice) = self.slices.pop_front() {
            return Poll::Ready(Some(Ok(slice)));
        }
        let next = ready!(self.stream.poll_next_unpin(context));
        Poll::Ready(next.map(|batch| batch.and_then(|batch| self.slice(batch))))
    }
}

impl RecordBatchStream for SlicedStream {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}

/// Bytes of the texts of a batch.
struct Lengths<'a> {
    /// Of each column of texts.
    views: Vec<&'a [u128]>,
    rows: usize,
}

impl<'a> Lengths<'a> {
    fn new(batch: &'a RecordBatch) -> Self {
        let views = batch.columns().iter().filter_map(|column| match column.data_type() {
            DataType::Utf8View => Some(&column.as_string_view().views()[..]),
            DataType::BinaryView => Some(&column.as_binary_view().views()[..]),
            _ => None,
        });
        Self { views: views.collect(), rows: batch.num_rows() }
    }

    fn sum(&self) -> usize {
        self.views.iter().flat_map(|views| views.iter()).map(view_bytes).sum()
    }

    /// Ranges of rows whose texts have at most so many bytes, or of one row.
    fn slices(&self, bytes_max: usize) -> Vec<Range<usize>> {
        let mut slices = Vec::new();
        let (mut begin, mut bytes) = (0, 0);
        for row in 0..self.rows {
            let of_row: usize = self.views.iter().map(|views| view_bytes(&views[row])).sum();
            if row > begin && bytes + of_row > bytes_max {
                slices.push(begin..row);
                (begin, bytes) = (row, 0);
            }
            bytes += of_row;
        }
        slices.push(begin..self.rows);
        slices
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, StringViewArray};

    #[test]
    fn slices_hold_few_texts_and_all_rows() {
        let texts = ["a", "bcd", "", "efghijklmnopqrstuvwxyz", "ab", "c"];
        let column: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
        let batch = RecordBatch::try_from_iter([("s", column)]).unwrap();
        let lengths = Lengths::new(&batch);
        assert_eq!(lengths.sum(), 29);
        assert_eq!(lengths.slices(4), [0..3, 3..4, 4..6]);
        assert_eq!(lengths.slices(1 << 20), vec![0..6]);
    }

    #[test]
    fn a_query_that_has_returned_rows_runs_on() {
        let rows = BatchRows::default();
        assert_eq!(rows.return_rows(), None);
        assert!(!rows.ask_for(8));
        let rows = BatchRows::default();
        assert!(rows.ask_for(8) && rows.ask_for(16));
        assert_eq!((rows.return_rows(), rows.asked_for()), (Some(8), Some(8)));
    }
}
