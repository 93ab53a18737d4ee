//! Wraps an operator in another operator that observes its rows.
//!
//! The wrapper looks like the inner operator in plans, in metrics, and to rules that search for
//! operators of a type.

use std::{any::Any, fmt, sync::Arc};

use datafusion::{
    common::tree_node::TreeNodeRecursion,
    error::Result,
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::PhysicalExpr,
    physical_plan::{
        ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
        ReplaceChildrenOptions, metrics::MetricsSet,
    },
};

use crate::forward::forward;

/// Starts an operator, and sees its rows.
pub(super) trait StreamWrapper: fmt::Debug + Send + Sync {
    /// The rows of a partition of `inner`.
    fn execute(
        &self,
        inner: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream>;

    /// The wrapper in its state before the operator started: a step of WITH RECURSIVE starts again
    /// and again.
    fn reset(self: Arc<Self>) -> Arc<dyn StreamWrapper>;
}

/// An operator and its wrapper.
#[derive(Debug)]
pub(super) struct WrapperExec {
    inner: Arc<dyn ExecutionPlan>,
    wrapper: Arc<dyn StreamWrapper>,
}

impl WrapperExec {
    pub(super) fn new(inner: Arc<dyn ExecutionPlan>, wrapper: Arc<dyn StreamWrapper>) -> Self {
        Self { inner, wrapper }
    }
}

/// The operator with other children that have the same properties.
pub(super) fn with_like_children(
    plan: Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep))
}

impl DisplayAs for WrapperExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_as(format, f)
    }
}

impl ExecutionPlan for WrapperExec {
    forward! { inner =>
        fn name(&self) -> &str;
        fn properties(&self) -> &Arc<PlanProperties>;
        fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>>;
        fn maintains_input_order(&self) -> Vec<bool>;
        fn metrics(&self) -> Option<MetricsSet>;
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.inner.as_ref())
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = Arc::clone(&self.inner).replace_children(children, options)?;
        Ok(Arc::new(Self::new(inner, Arc::clone(&self.wrapper))))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    /// WITH RECURSIVE passes state to the operator that reads the rows of the step before.
    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        let inner = self.inner.with_new_state(state)?;
        Some(Arc::new(Self::new(inner, Arc::clone(&self.wrapper))))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = Arc::clone(&self.inner).reset_state()?;
        Ok(Arc::new(Self::new(inner, Arc::clone(&self.wrapper).reset())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.wrapper.execute(&self.inner, partition, context)
    }
}
