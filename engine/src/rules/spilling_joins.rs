//! Replaces hash joins by merge joins, which can spill to disk.
//!
//! DataFusion's hash join holds one side in memory. A query that fails for lack of memory is
//! planned again with joins that sort both sides and merge them, because sorts can spill (decision
//! 0056). Joins by doubles, and by types that a merge does not compare, are not replaced.

use super::physical::physical_rule;
use crate::visitors::Tree;
use std::sync::Arc;

use datafusion::{
    arrow::{
        compute::SortOptions,
        datatypes::{DataType, Schema},
    },
    common::{
        stats::Precision,
        tree_node::{Transformed, TransformedResult},
    },
    error::Result,
    physical_plan::{
        ExecutionPlan,
        joins::{HashJoinExec, SortMergeJoinExec, utils::JoinFilter},
        statistics::{StatisticsArgs, StatisticsContext},
    },
};

/// Assumed bytes of a value whose type does not tell its size.
const TEXT_BYTES: usize = 32;

/// The rule that replaces hash joins by merge joins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpillingJoins {
    /// Sides of at most this many bytes, by estimate, are still held in memory.
    pub(crate) held_bytes_max: usize,
}

impl SpillingJoins {
    fn rewritten(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        let Some(join) = plan.downcast_ref::<HashJoinExec>() else { return Ok(Transformed::no(plan)) };
        // A merge join does not know that NOT IN with a NULL is NULL.
        let is_bound_to_hash = join.null_aware || join.contains_projection() || !can_merge(join)?;
        if is_bound_to_hash || [join.left(), join.right()].into_iter().any(|side| self.is_small(side)) {
            return Ok(Transformed::no(plan));
        }
        Ok(Transformed::yes(Arc::new(SortMergeJoinExec::try_new(
            Arc::clone(join.left()),
            Arc::clone(join.right()),
            join.on().to_vec(),
            join.filter().map(nullable),
            *join.join_type(),
            vec![SortOptions::default(); join.on().len()],
            join.null_equality(),
        )?)))
    }

    fn is_small(&self, side: &Arc<dyn ExecutionPlan>) -> bool {
        let statistics = StatisticsContext::new().compute(side.as_ref(), &StatisticsArgs::default());
        let rows = statistics.map(|statistics| statistics.num_rows);
        let (Ok(Precision::Exact(rows) | Precision::Inexact(rows)), true) = (rows, self.held_bytes_max > 0)
        else {
            return false;
        };
        let bytes = |data_type: &DataType| data_type.primitive_width().unwrap_or(TEXT_BYTES);
        let row: usize = side.schema().fields().iter().map(|field| bytes(field.data_type())).sum();
        rows.saturating_mul(row) <= self.held_bytes_max
    }
}

/// Whether the keys are in the order in which DataFusion's merge compares them. Doubles are not,
/// because of zeros and NaN, and some types it does not compare.
fn can_merge(join: &HashJoinExec) -> Result<bool> {
    let schema = join.left().schema();
    let types = join.on().iter().map(|(left, _)| left.data_type(&schema)).collect::<Result<Vec<_>>>()?;
    Ok(types.iter().all(|data_type| {
        let is_whole = data_type.is_integer() || data_type.is_string();
        let is_time = matches!(data_type, DataType::Date32 | DataType::Timestamp(..));
        is_whole || is_time || matches!(data_type, DataType::Boolean | DataType::Decimal128(..))
    }))
}

/// The condition over columns that may be NULL: DataFusion's merge also computes it for rows
/// without a partner.
fn nullable(filter: &JoinFilter) -> JoinFilter {
    let fields = filter.schema().fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    JoinFilter::new(Arc::clone(filter.expression()), filter.column_indices().to_vec(), schema)
}

physical_rule!(SpillingJoins, "spilling_joins");

impl SpillingJoins {
    fn optimized(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| self.rewritten(plan)).data()
    }
}
