//! Marks an input that several operators of a plan read and that must return the same rows to all
//! of them. The last optimizer rule replaces the marked inputs by one shared result.

use std::{fmt, sync::Arc};

use datafusion::{
    common::tree_node::TreeNodeRecursion,
    error::{DataFusionError, Result},
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
        execution_plan::{Boundedness, EmissionType},
    },
};

/// One partition of rows of which only the columns are known. All readers of one number get the
/// same rows, however their own copy of the input was planned.
#[derive(Debug)]
pub(crate) struct SharedRowsExec {
    number: usize,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl SharedRowsExec {
    /// The rows with this number.
    pub(crate) fn new(number: usize, input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { number, input, properties: Arc::new(properties) }
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    pub(crate) fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }
}

impl DisplayAs for SharedRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SharedRowsExec: {}", self.number)
    }
}

impl ExecutionPlan for SharedRowsExec {
    fn name(&self) -> &'static str {
        "SharedRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.pop() {
            Some(input) => Ok(Arc::new(Self::new(self.number, input))),
            None => Err(DataFusionError::Internal("an operator of shared rows has no input".to_owned())),
        }
    }

    /// The last rule has replaced it by a shared result, so it never runs.
    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Err(DataFusionError::Internal(format!(
            "the shared rows with number {} were not replaced by one shared result",
            self.number
        )))
    }
}
