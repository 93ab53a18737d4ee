//! Corrects nested loop joins whose left side does not fit into memory.
//!
//! DataFusion 55.2 runs the left side again, writes it to disk, and joins it part by part. That has
//! two faults. Operators that can be started only once panic; here they are created again. And each
//! partition of the right side decides alone which rows of the left side have no partner, so a LEFT
//! JOIN returned them once for each partition. Here such a join fails for lack of memory, and the
//! query is planned again with one partition on its right side.

use crate::{rules::physical_rule, visitors::Tree};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use datafusion::{
    common::{
        JoinType,
        tree_node::{Transformed, TransformedResult},
    },
    error::{DataFusionError, Result},
    execution::{SendableRecordBatchStream, TaskContext},
    physical_plan::{
        ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, Partitioning, ReplaceChildrenOptions,
        coalesce_partitions::CoalescePartitionsExec, execution_plan::reset_plan_states,
        joins::NestedLoopJoinExec, repartition::RepartitionExec,
    },
};

use super::wrapper::{StreamWrapper, WrapperExec, with_like_children};

/// The name of the rule [`NestedLoops`].
pub(crate) const NESTED_LOOPS: &str = "nested_loops";

/// The rule that prevents DataFusion's wrong answers and panics where a left side does not fit into
/// memory.
#[derive(Debug)]
pub(crate) struct NestedLoops;

physical_rule!(NestedLoops, NESTED_LOOPS);

impl NestedLoops {
    fn optimized(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() else {
                return Ok(Transformed::no(plan));
            };
            let side = LeftSide { can_spill: !decides_apart(join), is_started: AtomicBool::default() };
            let left = WrapperExec::new(Arc::clone(join.left()), Arc::new(side));
            let sides: Vec<Arc<dyn ExecutionPlan>> = vec![Arc::new(left), Arc::clone(join.right())];
            with_like_children(plan, sides).map(Transformed::yes)
        })
        .data()
    }
}

/// The rule that gives each nested loop join a right side of one partition, where a join with more
/// would fail. It runs before [`NestedLoops`].
#[derive(Debug)]
pub(crate) struct SpillingNestedLoops;

physical_rule!(SpillingNestedLoops, "spilling_nested_loops");

impl SpillingNestedLoops {
    fn optimized(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>().filter(|join| decides_apart(join))
            else {
                return Ok(Transformed::no(plan));
            };
            let partitions = match plan.output_partitioning() {
                known @ (Partitioning::Hash(..) | Partitioning::RoundRobinBatch(_)) => known.clone(),
                other => Partitioning::RoundRobinBatch(other.partition_count()),
            };
            let recomputed = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            let right = CoalescePartitionsExec::new(Arc::clone(join.right()));
            let sides: Vec<Arc<dyn ExecutionPlan>> = vec![Arc::clone(join.left()), Arc::new(right)];
            let join = Arc::clone(&plan).replace_children(sides, recomputed)?;
            Ok(Transformed::yes(Arc::new(RepartitionExec::try_new(join, partitions)?)))
        })
        .data()
    }
}

/// Whether each partition of the right side decides by itself which rows of the left side come out.
fn decides_apart(join: &NestedLoopJoinExec) -> bool {
    returns_left_rows(*join.join_type()) && join.right().output_partitioning().partition_count() > 1
}

/// Whether a join returns rows of the left side depending on whether they have a partner.
fn returns_left_rows(of: JoinType) -> bool {
    matches!(
        of,
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark | JoinType::Full
    )
}

/// The left side of a join, which is started again when it does not fit into memory.
#[derive(Debug)]
struct LeftSide {
    can_spill: bool,
    is_started: AtomicBool,
}

impl StreamWrapper for LeftSide {
    fn execute(
        &self,
        inner: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if !self.is_started.swap(true, Ordering::Relaxed) {
            return inner.execute(partition, context);
        }
        if !self.can_spill {
            let message = "the left side of a nested loop join does not fit into memory";
            return Err(DataFusionError::ResourcesExhausted(message.to_owned()));
        }
        reset_plan_states(Arc::clone(inner))?.execute(partition, context)
    }

    fn reset(self: Arc<Self>) -> Arc<dyn StreamWrapper> {
        Arc::new(Self { can_spill: self.can_spill, is_started: AtomicBool::default() })
    }
}
