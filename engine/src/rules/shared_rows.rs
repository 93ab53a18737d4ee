//! Marks rows that a statement reads twice and that might differ if they were computed twice.
//!
//! The rows of a window function, or of LIMIT, may differ each time they are computed. A rule that
//! makes a plan read such rows twice marks both readers with one number. The last rule computes the
//! rows once for all readers with that number ([`crate::rules::CommonAggregateRule`]).

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use datafusion::{
    catalog::Session,
    common::DFSchemaRef,
    error::{DataFusionError, Result},
    execution::context::QueryPlanner,
    logical_expr::{
        Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
        physical_planning_context::PhysicalPlanningContext,
    },
    physical_plan::ExecutionPlan,
    physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner},
};

use crate::exec::SharedRowsExec;

/// The next number of rows that are derived from shared ones. It starts above the numbers that a
/// statement gives.
static NEXT: AtomicUsize = AtomicUsize::new(1 << 32);

/// Rows that are computed once for all readers of this number. Nothing may be pushed into them or
/// pulled out of them, as that would change them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Hash)]
pub(crate) struct SharedRows {
    number: usize,
    input: LogicalPlan,
}

impl SharedRows {
    /// The rows of `input`, under this number.
    pub(crate) fn plan(number: usize, input: LogicalPlan) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(Self { number, input }) })
    }

    /// A number that no other rows have.
    pub(crate) fn next_number() -> usize {
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// The number and the input, if the operator is one of shared rows.
    pub(crate) fn of(plan: &Extension) -> Option<(usize, &LogicalPlan)> {
        plan.node.as_any().downcast_ref::<Self>().map(|rows| (rows.number, &rows.input))
    }
}

impl UserDefinedLogicalNodeCore for SharedRows {
    fn name(&self) -> &'static str {
        "SharedRows"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SharedRows: {}", self.number)
    }

    /// DataFusion pushes conditions without columns, such as FALSE, into the rows. They are other
    /// rows then, with a number of their own.
    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match inputs.pop() {
            Some(LogicalPlan::Filter(filter)) if *filter.input == self.input => {
                let number = Self::next_number();
                Ok(Self { number, input: LogicalPlan::Filter(filter) })
            }
            Some(input) => Ok(Self { number: self.number, input }),
            None => Err(DataFusionError::Internal("an operator of shared rows has no input".to_owned())),
        }
    }
}

/// DataFusion's planner of physical operators, extended by shared rows.
#[derive(Debug)]
pub(crate) struct Planner;

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(Self)]);
        planner.create_physical_plan(plan, session).await
    }
}

#[async_trait]
impl ExtensionPlanner for Planner {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &dyn Session,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(rows), [input]) = (node.as_any().downcast_ref::<SharedRows>(), inputs) else {
            return Ok(None);
        };
        Ok(Some(Arc::new(SharedRowsExec::new(rows.number, Arc::clone(input)))))
    }
}
