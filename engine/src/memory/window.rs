//! Counts the memory of window operators.
//!
//! DataFusion's window operators hold rows without reserving memory. Each is wrapped in an operator
//! that counts the rows that have entered and not left, and fails when their memory exceeds the
//! limit.

use crate::{rules::physical_rule, visitors::Tree};
use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use datafusion::{
    arrow::{array::RecordBatch, datatypes::SchemaRef},
    common::{
        tree_node::{Transformed, TransformedResult},
        utils::memory::RecordBatchMemoryCounter,
    },
    error::Result,
    execution::{
        RecordBatchStream, SendableRecordBatchStream, TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
    },
    physical_plan::{
        ExecutionPlan, ExecutionPlanProperties,
        windows::{BoundedWindowAggExec, WindowAggExec},
    },
};
use futures::{Stream, StreamExt};

use super::wrapper::{StreamWrapper, WrapperExec, with_like_children};
use crate::functions::WindowResults;

/// Rows are held as they arrived, and once more in one batch.
const COPIES: usize = 2;

/// The rule that counts what window operators hold.
#[derive(Debug)]
pub(crate) struct MeteredWindows;

physical_rule!(MeteredWindows, "metered_windows");

impl MeteredWindows {
    fn optimized(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            if plan.is::<WindowAggExec>() || plan.is::<BoundedWindowAggExec>() {
                return metered(plan).map(Transformed::yes);
            }
            Ok(Transformed::no(plan))
        })
        .data()
    }
}

/// The operator, wrapped so that what it holds is counted.
fn metered(window: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let input = Arc::clone(window.children()[0]);
    let partitions = input.output_partitioning().partition_count();
    let meters = Arc::new(Mutex::new(vec![None; partitions]));
    let input = WrapperExec::new(input, Arc::new(WindowInput { meters: Arc::clone(&meters) }));
    let columns = input.schema().fields().len();
    let functions = match window.downcast_ref::<WindowAggExec>() {
        Some(window) => window.window_expr(),
        None => window.downcast_ref::<BoundedWindowAggExec>().map_or(&[][..], |window| window.window_expr()),
    };
    let results = functions
        .iter()
        .enumerate()
        .filter_map(|(function, window)| Some((columns + function, WindowResults::of(window.as_ref())?)));
    let results = results.collect();
    let window = with_like_children(window, vec![Arc::new(input)])?;
    Ok(Arc::new(WrapperExec::new(window, Arc::new(WindowOutput { meters, results }))))
}

/// What a partition of a window operator holds.
#[derive(Debug)]
struct Held {
    rows: usize,
    /// Bytes and rows of everything that has gone in.
    came: (usize, usize),
    /// Batches may share buffers, so memory is counted by buffer.
    counter: RecordBatchMemoryCounter,
    memory: MemoryReservation,
}

impl Held {
    /// Counts rows that have gone in and come out.
    fn change(&mut self, came: usize, went: usize) -> Result<()> {
        self.rows = (self.rows + came).saturating_sub(went);
        let (bytes, rows) = self.came;
        self.memory.try_resize(COPIES * bytes.div_ceil(rows.max(1)) * self.rows)
    }
}

type Meter = Arc<Mutex<Held>>;
/// The meters by partition, from the start of the operator until its input starts.
type Meters = Arc<Mutex<Vec<Option<Meter>>>>;

fn held(meter: &Meter) -> MutexGuard<'_, Held> {
    meter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the rows that come out.
#[derive(Debug)]
struct WindowOutput {
    meters: Meters,
    /// The functions whose values have no fixed size, with their columns.
    results: Vec<(usize, Arc<WindowResults>)>,
}

/// Counts the rows that go in.
#[derive(Debug)]
struct WindowInput {
    meters: Meters,
}

impl StreamWrapper for WindowOutput {
    fn execute(
        &self,
        window: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let memory = MemoryConsumer::new(window.name()).register(context.memory_pool());
        let counter = RecordBatchMemoryCounter::new();
        let meter = Arc::new(Mutex::new(Held { rows: 0, came: (0, 0), counter, memory }));
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)[partition] = Some(Arc::clone(&meter));
        let results = self
            .results
            .iter()
            .map(|(column, results)| (*column, Arc::clone(results), results.begin(window.name(), &context)));
        let results = results.collect();
        let stream = window.execute(partition, context)?;
        Ok(Box::pin(MeteredStream { stream, meter: Some(meter), results, is_input: false }))
    }

    fn reset(self: Arc<Self>) -> Arc<dyn StreamWrapper> {
        self
    }
}

impl StreamWrapper for WindowInput {
    fn execute(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let meter = self.meters.lock().unwrap_or_else(PoisonError::into_inner)[partition].take();
        let stream = input.execute(partition, context)?;
        Ok(Box::pin(MeteredStream { stream, meter, results: Vec::new(), is_input: true }))
    }

    fn reset(self: Arc<Self>) -> Arc<dyn StreamWrapper> {
        self
    }
}

/// Rows that are counted as they pass.
struct MeteredStream {
    stream: SendableRecordBatchStream,
    meter: Option<Meter>,
    /// The functions whose values come out, with their columns.
    results: Vec<(usize, Arc<WindowResults>, Arc<MemoryReservation>)>,
    is_input: bool,
}

impl MeteredStream {
    fn counted(&self, batch: RecordBatch) -> Result<RecordBatch> {
        for (column, results, memory) in &self.results {
            results.remove(batch.column(*column), memory);
        }
        if let Some(meter) = &self.meter {
            let held = &mut *held(meter);
            if self.is_input {
                held.came.0 += held.counter.count_batch(&batch);
                held.came.1 += batch.num_rows();
                held.change(batch.num_rows(), 0)?;
            } else {
                held.change(0, batch.num_rows())?;
            }
        }
        Ok(batch)
    }
}

impl Stream for MeteredStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.stream.poll_next_unpin(context);
        next.map(|next| next.map(|batch| batch.and_then(|batch| self.counted(batch))))
    }
}

impl RecordBatchStream for MeteredStream {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}
