//! Traces a column of a plan to the scan columns it comes from.
//!
//! DataFusion pushes dynamic filters from operator to operator by the names of columns, and above a
//! join two columns may have one name. Here columns are traced by position, through operators whose
//! output columns are known. A filter that arrived at another column is not used.
//!
//! Invariants
//! - Every value of a traced column is a value of the scan's column in a row that became this one;
//!   in a semi join, also of the column that it equals.
//! - No operator between the traced column and the scan keeps only the first rows: narrowing the
//!   scan would let other rows take their place.

use crate::{exec::ScanExec, runtime_filter::KeyTapExec};
use datafusion::{
    common::JoinType,
    physical_expr::{PhysicalExpr, expressions::Column},
    physical_plan::{
        ExecutionPlan,
        aggregates::AggregateExec,
        coalesce_partitions::CoalescePartitionsExec,
        coop::CooperativeExec,
        filter::FilterExec,
        joins::HashJoinExec,
        projection::ProjectionExec,
        repartition::RepartitionExec,
        sorts::{sort::SortExec, sort_preserving_merge::SortPreservingMergeExec},
    },
};
use std::sync::Arc;

/// An output column of a scan: the scan and the position.
pub(super) type Origin<'p> = (&'p ScanExec, usize);

/// The position of the column that the expression is, if it is just a column.
pub(super) fn position(expression: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    expression.downcast_ref::<Column>().map(Column::index)
}

/// The scan columns that the column at `index` of `plan` is.
pub(super) fn origins(plan: &Arc<dyn ExecutionPlan>, index: usize) -> Vec<Origin<'_>> {
    if let Some(scan) = plan.downcast_ref::<ScanExec>() {
        return vec![(scan, index)];
    }
    if plan.fetch().is_some() {
        return Vec::new();
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return of_join(join, index);
    }
    let below = if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        projection.expr().get(index).and_then(|expression| position(&expression.expr))
    } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        aggregate.group_expr().expr().get(index).and_then(|(key, _)| position(key))
    } else if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        filter.projection().as_ref().map_or(Some(index), |projection| projection.get(index).copied())
    } else {
        passes_through(plan).then_some(index)
    };
    match (below, &plan.children()[..]) {
        (Some(below), [input]) => origins(input, below),
        _ => Vec::new(),
    }
}

/// Whether the node's columns are those of its input.
fn passes_through(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<KeyTapExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<SortExec>()
        || plan.is::<SortPreservingMergeExec>()
}

fn of_join(join: &HashJoinExec, index: usize) -> Vec<Origin<'_>> {
    let index = match &join.projection {
        Some(projection) => match projection.get(index) {
            Some(index) => *index,
            None => return Vec::new(),
        },
        None => index,
    };
    let left_columns = join.left().schema().fields().len();
    match join.join_type() {
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
            if index < left_columns {
                origins(join.left(), index)
            } else {
                origins(join.right(), index - left_columns)
            }
        }
        JoinType::LeftSemi => {
            let mut found = origins(join.left(), index);
            let equal = join.on().iter().filter(|(left, _)| position(left) == Some(index));
            found.extend(
                equal.filter_map(|(_, right)| position(right)).flat_map(|right| origins(join.right(), right)),
            );
            found
        }
        JoinType::RightSemi => {
            let mut found = origins(join.right(), index);
            let equal = join.on().iter().filter(|(_, right)| position(right) == Some(index));
            found.extend(
                equal.filter_map(|(left, _)| position(left)).flat_map(|left| origins(join.left(), left)),
            );
            found
        }
        JoinType::LeftAnti => origins(join.left(), index),
        JoinType::RightAnti => origins(join.right(), index),
        JoinType::LeftMark | JoinType::RightMark => Vec::new(),
    }
}
