//! Collects the keys of a join's build side for its sketch, which summarises them.
//!
//! `KeyTapExec` is placed between a hash join and its build side. It returns the batches of the
//! build side unchanged and records the values of the join's keys.

use super::sketch::{Collector, KeySketch};
use datafusion::{
    arrow::array::{ArrayRef, RecordBatch},
    common::tree_node::TreeNodeRecursion,
    error::{DataFusionError, Result},
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::PhysicalExpr,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{StreamExt, stream};
use std::{fmt, sync::Arc};

/// Collects the keys of the rows that pass.
#[derive(Debug)]
pub(crate) struct KeyTapExec {
    input: Arc<dyn ExecutionPlan>,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    sketch: Arc<KeySketch>,
}

impl KeyTapExec {
    /// A tap on `input`, the build side of a join, and the sketch that it fills from `keys`.
    ///
    /// # Errors
    /// A key has no type.
    pub(crate) fn new(
        input: Arc<dyn ExecutionPlan>,
        keys: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<(Self, Arc<KeySketch>)> {
        let schema = input.schema();
        let types = keys.iter().map(|key| key.data_type(&schema)).collect::<Result<Vec<_>>>()?;
        let sketch = Arc::new(KeySketch::new(&types, input.output_partitioning().partition_count()));
        Ok((Self { input, keys, sketch: Arc::clone(&sketch) }, sketch))
    }
}

fn note(collector: &mut Collector, keys: &[Arc<dyn PhysicalExpr>], batch: &RecordBatch) -> Result<()> {
    let values = keys.iter().map(|key| key.evaluate(batch)?.into_array(batch.num_rows()));
    let values: Vec<ArrayRef> = values.collect::<Result<_>>()?;
    collector.take(&values);
    Ok(())
}

impl DisplayAs for KeyTapExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
        write!(f, "KeyTapExec: keys=[{}]", keys.join(", "))
    }
}

impl ExecutionPlan for KeyTapExec {
    fn name(&self) -> &'static str {
        "KeyTapExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for key in &self.keys {
            if f(key)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(input) = children.pop() else {
            return Err(DataFusionError::Internal("an operator that collects keys has no input".to_owned()));
        };
        Ok(Arc::new(Self { input, keys: self.keys.clone(), sketch: Arc::clone(&self.sketch) }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (schema, keys) = (self.input.schema(), self.keys.clone());
        let begun = (self.input.execute(partition, context)?, Some(self.sketch.collector()));
        let batches = stream::unfold(begun, move |(mut input, mut collector)| {
            let keys = keys.clone();
            async move {
                let next = input.next().await;
                match (&next, &mut collector) {
                    (Some(Ok(batch)), Some(into)) => {
                        if let Err(error) = note(into, &keys, batch) {
                            return Some((Err(error), (input, None)));
                        }
                    }
                    (Some(Err(_)), _) => collector = None,
                    (None, _) => {
                        if let Some(collector) = collector.take() {
                            collector.finish();
                        }
                    }
                    _ => {}
                }
                next.map(|batch| (batch, (input, collector)))
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}
