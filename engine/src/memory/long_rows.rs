//! Limits the memory of batches whose rows have long texts or lists.
//!
//! A join or a page repeats a long text as a view of 16 bytes, and operators that store or collect
//! rows copy the text for each row: 8,192 rows of a text of 1 MB took 8 GB before any operator
//! reserved memory. If an operator receives such a batch before the query has returned a row, the
//! query is planned again with fewer rows in each batch (`session::stream`). Batches that still
//! have too many rows, such as those of scans, are sliced. A join copies a list for each of its
//! rows, so its inputs are checked for lists.

use crate::{rules::physical_rule, visitors::Tree};
use std::{
    collections::VecDeque,
    ops::Range,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, RecordBatch},
        datatypes::{DataType, SchemaRef},
    },
    common::tree_node::{Transformed, TransformedResult},
    error::{DataFusionError, Result},
    execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext},
    physical_plan::{
        ExecutionPlan,
        aggregates::AggregateExec,
        filter::FilterExec,
        joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec},
        repartition::RepartitionExec,
        scalar_subquery::ScalarSubqueryExec,
        sorts::{sort::SortExec, sort_preserving_merge::SortPreservingMergeExec},
        unnest::UnnestExec,
        windows::{BoundedWindowAggExec, WindowAggExec},
    },
};
use futures::{Stream, StreamExt};

use super::wrapper::{StreamWrapper, WrapperExec, with_like_children};
use crate::{functions::view_bytes, limits::BATCH_COPY_BYTES_MAX};

/// The number of rows in the batches of a running query, and whether it can still be changed.
#[derive(Debug, Default)]
pub(crate) struct BatchRows {
    state: Mutex<BatchState>,
}

#[derive(Clone, Copy, Debug, Default)]
enum BatchState {
    /// The query has returned no row yet.
    #[default]
    NoRows,
    /// It has returned rows, and runs on as it was planned.
    Rows,
    /// It is to be planned again with this many rows in a batch.
    Fewer(usize),
}

impl BatchRows {
    fn state(&self) -> MutexGuard<'_, BatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for this many rows in a batch. Returns whether the query will be planned again for it.
    fn ask_for(&self, rows: usize) -> bool {
        let state = &mut *self.state();
        match state {
            BatchState::NoRows => *state = BatchState::Fewer(rows),
            BatchState::Rows => return false,
            BatchState::Fewer(fewer) => *fewer = rows.min(*fewer),
        }
        true
    }

    /// Called when the query returns a row. Returns the rows in a batch that an operator has asked
    /// for, if any; then the query must be planned again instead.
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

    /// The number of rows in a batch that was asked for, if any.
    pub(crate) fn asked_for(&self) -> Option<usize> {
        match *self.state() {
            BatchState::NoRows | BatchState::Rows => None,
            BatchState::Fewer(rows) => Some(rows),
        }
    }
}

/// The rule that watches the inputs of operators which copy texts.
#[derive(Debug)]
pub(crate) struct LongRows;

physical_rule!(LongRows, "long_rows");

impl LongRows {
    fn optimized(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let (is_watched, watch) = if repeats_rows(&plan) {
                (is_list as fn(&DataType) -> bool, Watch::Repeated)
            } else if copies_texts(&plan) {
                (is_long as fn(&DataType) -> bool, Watch::Copied)
            } else {
                return Ok(Transformed::no(plan));
            };
            let mut inputs: Vec<_> = plan.children().into_iter().cloned().collect();
            let mut changed = false;
            // The first input is the operator's own; the others compute values for it.
            let first = usize::from(plan.is::<ScalarSubqueryExec>());
            for input in inputs.iter_mut().skip(first) {
                if input.schema().fields().iter().any(|field| is_watched(field.data_type())) {
                    *input = Arc::new(WrapperExec::new(Arc::clone(input), Arc::new(watch)));
                    changed = true;
                }
            }
            if !changed {
                return Ok(Transformed::no(plan));
            }
            with_like_children(plan, inputs).map(Transformed::yes)
        })
        .data()
    }
}

fn copies_texts(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let sorts = plan.is::<SortExec>() || plan.is::<SortPreservingMergeExec>();
    let windows = plan.is::<WindowAggExec>() || plan.is::<BoundedWindowAggExec>();
    let collects = plan.is::<FilterExec>() || plan.is::<RepartitionExec>();
    sorts || windows || collects || plan.is::<AggregateExec>()
}

/// Whether a row of an input can be in many output rows: lists are copied for each of them, texts
/// are not.
fn repeats_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let joins = plan.is::<CrossJoinExec>() || plan.is::<HashJoinExec>() || plan.is::<NestedLoopJoinExec>();
    let repeated = plan.is::<UnnestExec>() || plan.is::<ScalarSubqueryExec>();
    joins || plan.is::<SortMergeJoinExec>() || repeated
}

fn is_list(of: &DataType) -> bool {
    matches!(of, DataType::List(_))
}

/// Whether values have no fixed length.
fn is_long(of: &DataType) -> bool {
    matches!(of, DataType::Utf8View | DataType::BinaryView) || is_list(of)
}

/// What an operator does with the rows that are watched.
#[derive(Clone, Copy, Debug)]
enum Watch {
    /// It copies their texts and lists.
    Copied,
    /// It repeats their lists.
    Repeated,
}

impl StreamWrapper for Watch {
    fn execute(
        &self,
        inner: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let config = context.session_config();
        let (batch_rows, rows_max) = (config.get_extension::<BatchRows>(), config.batch_size());
        let stream = inner.execute(partition, context)?;
        Ok(Box::pin(SlicedStream { watch: *self, stream, batch_rows, rows_max, slices: VecDeque::new() }))
    }

    fn reset(self: Arc<Self>) -> Arc<dyn StreamWrapper> {
        self
    }
}

struct SlicedStream {
    watch: Watch,
    stream: SendableRecordBatchStream,
    /// `None` if the query cannot be planned again.
    batch_rows: Option<Arc<BatchRows>>,
    /// The rows in a batch with which the query was planned.
    rows_max: usize,
    slices: VecDeque<RecordBatch>,
}

impl SlicedStream {
    fn check(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        match self.watch {
            Watch::Copied => self.slice(batch),
            Watch::Repeated => self.check_repeated(&batch).map(|()| batch),
        }
    }

    /// The next part of the batch that an operator may copy.
    ///
    /// # Errors
    /// The query is planned again.
    fn slice(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let lengths = Lengths::new(&batch, is_long);
        let bytes = lengths.sum();
        if bytes <= BATCH_COPY_BYTES_MAX {
            return Ok(batch);
        }
        // Half of the limit, so that rows which are slightly longer do not restart the query once
        // more.
        let rows = (BATCH_COPY_BYTES_MAX / 2 / bytes.div_ceil(batch.num_rows())).max(1);
        if self.is_planned_again(rows) {
            let message =
                format!("{bytes} bytes of texts in a batch; planned again with {rows} rows in each");
            return Err(DataFusionError::Execution(message));
        }
        let mut slices = lengths.slices(BATCH_COPY_BYTES_MAX).into_iter();
        let first = slices.next().expect("the batch has a row");
        self.slices.extend(slices.map(|rows| batch.slice(rows.start, rows.len())));
        Ok(batch.slice(first.start, first.len()))
    }

    /// Checks that a batch takes little memory even if each row has the longest list, or that it
    /// has only one row.
    ///
    /// # Errors
    /// The query is planned again; or the batch takes too much and rows were already returned.
    fn check_repeated(&self, batch: &RecordBatch) -> Result<()> {
        let bytes = Lengths::new(batch, is_list).longest();
        if self.rows_max == 1 || bytes.saturating_mul(self.rows_max) <= BATCH_COPY_BYTES_MAX {
            return Ok(());
        }
        let rows = (BATCH_COPY_BYTES_MAX / bytes).max(1);
        let what = if self.is_planned_again(rows) { "planned again" } else { "the answer has begun" };
        Err(DataFusionError::ResourcesExhausted(format!(
            "a list of {bytes} bytes is copied in batches of {} rows, expected at most {rows}; {what}",
            self.rows_max
        )))
    }

    fn is_planned_again(&self, rows: usize) -> bool {
        rows < self.rows_max && self.batch_rows.as_ref().is_some_and(|batches| batches.ask_for(rows))
    }
}

impl Stream for SlicedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(slice) = self.slices.pop_front() {
            return Poll::Ready(Some(Ok(slice)));
        }
        let next = ready!(self.stream.poll_next_unpin(context));
        Poll::Ready(next.map(|batch| batch.and_then(|batch| self.check(batch))))
    }
}

impl RecordBatchStream for SlicedStream {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}

/// Bytes of the texts and lists of a batch.
struct Lengths<'a> {
    columns: Vec<Values<'a>>,
    rows: usize,
}

/// The values of a column, or those of its lists.
enum Values<'a> {
    /// Texts.
    Views(&'a [u128]),
    /// The offsets at which the lists begin and end among their values.
    Lists(&'a [i32], Box<Values<'a>>),
    /// Values of this many bytes each.
    OfWidth(usize),
}

impl<'a> Values<'a> {
    fn new(array: &'a ArrayRef) -> Self {
        match array.data_type() {
            DataType::Utf8View => Self::Views(array.as_string_view().views()),
            DataType::BinaryView => Self::Views(array.as_binary_view().views()),
            DataType::List(_) => {
                let lists = array.as_list::<i32>();
                Self::Lists(lists.value_offsets(), Box::new(Self::new(lists.values())))
            }
            of => Self::OfWidth(of.primitive_width().unwrap_or(size_of::<u128>())),
        }
    }

    fn bytes(&self, rows: Range<usize>) -> usize {
        match self {
            Self::Views(views) => views[rows].iter().map(view_bytes).sum(),
            Self::Lists(offsets, values) => {
                values.bytes(offsets[rows.start] as usize..offsets[rows.end] as usize)
            }
            Self::OfWidth(width) => width * rows.len(),
        }
    }
}

impl<'a> Lengths<'a> {
    fn new(batch: &'a RecordBatch, is_counted: fn(&DataType) -> bool) -> Self {
        let columns = batch.columns().iter().filter(|column| is_counted(column.data_type()));
        Self { columns: columns.map(Values::new).collect(), rows: batch.num_rows() }
    }

    fn bytes(&self, rows: &Range<usize>) -> usize {
        self.columns.iter().map(|column| column.bytes(rows.clone())).sum()
    }

    fn sum(&self) -> usize {
        self.bytes(&(0..self.rows))
    }

    /// The bytes of the longest row.
    fn longest(&self) -> usize {
        (0..self.rows).map(|row| self.bytes(&(row..row + 1))).max().unwrap_or(0)
    }

    /// Ranges of rows whose texts together have at most `bytes_max` bytes; a longer row is alone.
    fn slices(&self, bytes_max: usize) -> Vec<Range<usize>> {
        let mut slices = Vec::new();
        let (mut begin, mut bytes) = (0, 0);
        for row in 0..self.rows {
            let of_row = self.bytes(&(row..row + 1));
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
    use datafusion::arrow::{
        array::{ListArray, StringViewArray},
        buffer::OffsetBuffer,
        datatypes::{Field, Int64Type},
    };

    #[test]
    fn slices_hold_few_texts_and_all_rows() {
        let texts = ["a", "bcd", "", "efghijklmnopqrstuvwxyz", "ab", "c"];
        let column: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
        let batch = RecordBatch::try_from_iter([("s", column)]).unwrap();
        let lengths = Lengths::new(&batch, is_long);
        assert_eq!(lengths.sum(), 29);
        assert_eq!(lengths.slices(4), [0..3, 3..4, 4..6]);
        assert_eq!(lengths.slices(1 << 20), vec![0..6]);
    }

    #[test]
    fn lists_are_as_long_as_what_they_hold() {
        let numbers = [vec![Some(1); 2], vec![], vec![Some(2); 5], vec![None]];
        let numbers: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(numbers.map(Some)));
        let texts = StringViewArray::from_iter_values(["a", "bcd", "efghijklmnopqrstuvwxyz"]);
        let offsets = OffsetBuffer::from_lengths([1, 0, 2, 0]);
        let field = Arc::new(Field::new_list_field(DataType::Utf8View, true));
        let texts: ArrayRef = Arc::new(ListArray::new(field, offsets, Arc::new(texts), None));
        let batch = RecordBatch::try_from_iter([("numbers", numbers), ("texts", texts)]).unwrap();
        assert_eq!(Lengths::new(&batch, is_long).sum(), 8 * 8 + 26);
        assert_eq!(Lengths::new(&batch.slice(1, 2), is_long).sum(), 5 * 8 + 25);
        assert_eq!(Lengths::new(&batch, is_long).slices(40), [0..2, 2..3, 3..4]);
        assert_eq!(Lengths::new(&batch, is_list).longest(), 5 * 8 + 25);
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
