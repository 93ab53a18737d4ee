//! Replaces a top-k of many rows by a sort of all rows.
//!
//! DataFusion's top-k holds its rows in memory and writes none to disk. If it must return many
//! rows, for example because of a large OFFSET, it is replaced by a sort that can spill, with a
//! limit above it.

use crate::{rules::physical_rule, visitors::Tree};
use std::sync::Arc;

use datafusion::{
    common::tree_node::{Transformed, TransformedResult},
    error::Result,
    physical_plan::{ExecutionPlan, limit::LocalLimitExec, sorts::sort::SortExec},
};

use crate::limits::TOP_ROWS_MAX;

/// The rule that sorts all rows where a limit is large.
#[derive(Debug)]
pub(crate) struct LargeLimits;

physical_rule!(LargeLimits, "large_limits");

impl LargeLimits {
    fn optimized(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let large = plan.downcast_ref::<SortExec>().and_then(|sort| {
                let rows = sort.fetch().filter(|rows| *rows > TOP_ROWS_MAX)?;
                Some(LocalLimitExec::new(Arc::new(sort.with_fetch(None)), rows))
            });
            match large {
                Some(limit) => Ok(Transformed::yes(Arc::new(limit))),
                None => Ok(Transformed::no(plan)),
            }
        })
        .data()
    }
}
