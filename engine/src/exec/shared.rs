//! Computes a part of a plan once for several operators that read its rows.
//!
//! The first reader starts all partitions at once. Each partition keeps its batches until the plan
//! is dropped, and every reader waits until the partition that it reads is complete. No partition
//! waits for a reader, so readers cannot wait for each other.
//!
//! The kept batches count as memory of the query. If they exceed the memory limit, the query fails,
//! as it does for an aggregation.

use datafusion::{
    arrow::array::RecordBatch,
    common::{runtime::SpawnedTask, tree_node::TreeNodeRecursion, utils::memory::RecordBatchMemoryCounter},
    error::{DataFusionError, Result},
    execution::{
        SendableRecordBatchStream, TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
    },
    physical_expr::PhysicalExpr,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{
    FutureExt, StreamExt, TryFutureExt, TryStreamExt,
    future::{BoxFuture, Shared},
    stream,
};
use std::{
    fmt,
    sync::{Arc, OnceLock},
};

type Kept = Result<Arc<Batches>, Arc<DataFusionError>>;

/// The batches of a partition, and the memory that they take.
struct Batches {
    batches: Vec<RecordBatch>,
    _memory: MemoryReservation,
}

/// A part of a plan and, once a reader has started it, its result.
struct Computed {
    number: usize,
    input: Arc<dyn ExecutionPlan>,
    partitions: OnceLock<Vec<Shared<BoxFuture<'static, Kept>>>>,
}

/// A reader of the shared result. The first one in a plan shows it as its child.
pub(crate) struct SharedExec {
    computed: Arc<Computed>,
    is_first: bool,
}

impl SharedExec {
    /// The first reader of the result of `input`; `number` is its name in plans.
    pub(crate) fn new(number: usize, input: Arc<dyn ExecutionPlan>) -> Self {
        let computed = Computed { number, input, partitions: OnceLock::new() };
        Self { computed: Arc::new(computed), is_first: true }
    }

    /// Another reader of the same result.
    pub(crate) fn another(&self) -> Self {
        Self { computed: Arc::clone(&self.computed), is_first: false }
    }
}

impl Computed {
    fn partition(
        &self,
        partition: usize,
        context: &Arc<TaskContext>,
    ) -> Result<Shared<BoxFuture<'static, Kept>>> {
        let partitions = self.partitions.get_or_init(|| {
            let count = self.input.output_partitioning().partition_count();
            (0..count).map(|partition| self.start(partition, context)).collect()
        });
        let kept = partitions.get(partition).cloned();
        kept.ok_or_else(|| DataFusionError::Internal(format!("a shared result has no partition {partition}")))
    }

    fn start(&self, partition: usize, context: &Arc<TaskContext>) -> Shared<BoxFuture<'static, Kept>> {
        let (input, context) = (Arc::clone(&self.input), Arc::clone(context));
        let task = SpawnedTask::spawn(async move {
            let memory = MemoryConsumer::new("SharedExec").register(context.memory_pool());
            let mut stream = input.execute(partition, context)?;
            let mut batches = Vec::new();
            // Batches may share buffers, so memory is counted by buffer.
            let mut counter = RecordBatchMemoryCounter::new();
            while let Some(batch) = stream.try_next().await? {
                memory.try_grow(counter.count_batch(&batch))?;
                batches.push(batch);
            }
            Ok(Arc::new(Batches { batches, _memory: memory }))
        });
        let ended = task.map(|ended| match ended {
            Ok(kept) => kept.map_err(Arc::new),
            Err(error) => Err(Arc::new(DataFusionError::ExecutionJoin(Box::new(error)))),
        });
        ended.boxed().shared()
    }
}

impl fmt::Debug for SharedExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedExec")
            .field("number", &self.computed.number)
            .field("is_first", &self.is_first)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for SharedExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.is_first { "" } else { ", computed above" };
        write!(f, "SharedExec: result {}{whose}", self.computed.number)
    }
}

impl ExecutionPlan for SharedExec {
    fn name(&self) -> &'static str {
        "SharedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.computed.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        if self.is_first { vec![&self.computed.input] } else { Vec::new() }
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true; self.children().len()]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.children().len()]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    /// Another input makes another result. Other readers stay with the old one.
    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.pop() {
            Some(input) if !Arc::ptr_eq(&input, &self.computed.input) => {
                Ok(Arc::new(Self::new(self.computed.number, input)))
            }
            _ => Ok(self),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let kept = self.computed.partition(partition, &context)?;
        let batches = kept.map_err(DataFusionError::Shared).map_ok(|kept| {
            let count = kept.batches.len();
            stream::iter(0..count).map(move |position| Ok(kept.batches[position].clone()))
        });
        let batches = batches.try_flatten_stream();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}
