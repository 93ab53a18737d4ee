//! How much memory do window functions take?
//!
//! DataFusion's window operators hold rows without asking for memory. Each is put into an operator
//! that counts the rows which have come in and not gone out, and fails when they are too many.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use datafusion::{
    arrow::{array::RecordBatch, datatypes::SchemaRef},
    common::{
        config::ConfigOptions,
        tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion},
        utils::memory::RecordBatchMemoryCounter,
    },
    error::Result,
    execution::{
        RecordBatchStream, SendableRecordBatchStream, TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
    },
    physical_expr::PhysicalExpr,
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
        PlanProperties, ReplaceChildrenOptions,
        metrics::MetricsSet,
        windows::{BoundedWindowAggExec, WindowAggExec},
    },
};
use futures::{Stream, StreamExt};

const ANEW: ReplaceChildrenOptions = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);

/// Rows are held as they came, and once more in one piece.
const COPIES: usize = 2;

/// Counts what window operators hold.
#[derive(Debug)]
pub(crate) struct MeteredWindows;

impl PhysicalOptimizerRule for MeteredWindows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            if plan.is::<WindowAggExec>() || plan.is::<BoundedWindowAggExec>() {
                return Ok(Transformed::yes(Arc::new(MeteredWindowExec::new(plan)?)));
            }
            Ok(Transformed::no(plan))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "metered_windows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What a partition of a window operator holds.
#[derive(Debug)]
struct Held {
    rows: usize,
    /// Bytes and rows of all that has come in.
    came: (usize, usize),
    /// Batches may share buffers.
    counter: RecordBatchMemoryCounter,
    memory: MemoryReservation,
}

impl Held {
    /// So many rows have come in, and gone out.
    fn change(&mut self, came: usize, went: usize) -> Result<()> {
        self.rows = (self.rows + came).saturating_sub(went);
        let (bytes, rows) = self.came;
        self.memory.try_resize(COPIES * bytes.div_ceil(rows.max(1)) * self.rows)
    }
}

type Meter = Arc<Mutex<Held>>;

fn held(meter: &Meter) -> std::sync::MutexGuard<'_, Held> {
    meter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A window operator whose rows are counted.
struct MeteredWindowExec {
    /// Over an [`InputExec`] for each partition's meter.
    window: Arc<dyn ExecutionPlan>,
    input: Arc<InputExec>,
}

/// What the operator reads.
struct InputExec {
    input: Arc<dyn ExecutionPlan>,
    /// By partition, once it runs.
    meters: Mutex<Vec<Option<Meter>>>,
}

impl MeteredWindowExec {
    fn new(window: Arc<dyn ExecutionPlan>) -> Result<Self> {
        let input = Arc::clone(window.children()[0]);
        let partitions = input.output_partitioning().partition_count();
        let input = Arc::new(InputExec { input, meters: Mutex::new(vec![None; partitions]) });
        let window = window.replace_children(vec![Arc::clone(&input) as _], ANEW)?;
        Ok(Self { window, input })
    }
}

/// Both operators do with properties and rows what another one does.
macro_rules! like_another {
    ($exec:ident, $of:ident) => {
        impl fmt::Debug for $exec {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($exec)).field("of", &self.$of.name()).finish_non_exhaustive()
            }
        }

        impl DisplayAs for $exec {
            fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.$of.fmt_as(format, f)
            }
        }
    };
}
like_another!(MeteredWindowExec, window);
like_another!(InputExec, input);

impl ExecutionPlan for MeteredWindowExec {
    fn name(&self) -> &str {
        self.window.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.window.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.window.maintains_input_order()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.window.apply_expressions(f)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(Arc::clone(&self.window).replace_children(children, ANEW)?)?))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.window.metrics()
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let memory = MemoryConsumer::new(self.name()).register(context.memory_pool());
        let meter = Arc::new(Mutex::new(Held {
            rows: 0,
            came: (0, 0),
            counter: RecordBatchMemoryCounter::new(),
            memory,
        }));
        self.input.meters.lock().unwrap_or_else(PoisonError::into_inner)[partition] =
            Some(Arc::clone(&meter));
        let stream = self.window.execute(partition, context)?;
        Ok(Box::pin(MeteredStream { stream, meter: Some(meter), is_input: false }))
    }
}

impl ExecutionPlan for InputExec {
    fn name(&self) -> &str {
        self.input.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // The operator around it is made anew by the one around that.
        Ok(children.pop().expect("an input has one child"))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let meter = self.meters.lock().unwrap_or_else(PoisonError::into_inner)[partition].take();
        let stream = self.input.execute(partition, context)?;
        Ok(Box::pin(MeteredStream { stream, meter, is_input: true }))
    }
}

/// Rows that are counted as they pass.
struct MeteredStream {
    stream: SendableRecordBatchStream,
    meter: Option<Meter>,
    is_input: bool,
}

impl MeteredStream {
    fn counted(&self, batch: RecordBatch) -> Result<RecordBatch> {
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
