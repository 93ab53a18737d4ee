//! Whose keys does a join's dynamic filter stand for?
//!
//! ```text
//! HashJoinExec                     HashJoinExec
//!   build side           ===>        KeyTapExec  --keys--> sketch
//!   ... ScanExec                     build side              |
//!                                    ... ScanExec <----------+
//! ```
//!
//! Runs after DataFusion has pushed dynamic filters to scans.
//!
//! Invariants
//! - Only joins in which NULL equals nothing are tapped: there a row without a key has no partner.
//! - A join is tapped only if its filter reached a scan that is worth narrowing.

use crate::{exec::ScanExec, narrowing::KeyTapExec};
use datafusion::{
    common::{
        NullEquality,
        config::ConfigOptions,
        tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion},
    },
    error::Result,
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{ExecutionPlan, joins::HashJoinExec},
};
use std::sync::Arc;

/// Puts taps below hash joins.
#[derive(Debug)]
pub(crate) struct KeyFilterRule {
    rows_min: u64,
}

impl KeyFilterRule {
    /// Narrows scans of tables of at least `rows_min` rows.
    pub(crate) fn new(rows_min: u64) -> Self {
        Self { rows_min }
    }
}

impl PhysicalOptimizerRule for KeyFilterRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| tap(plan, self.rows_min)).data()
    }

    fn name(&self) -> &'static str {
        "rackscan_key_filters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn tap(plan: Arc<dyn ExecutionPlan>, rows_min: u64) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(join) = plan.downcast_ref::<HashJoinExec>() else { return Ok(Transformed::no(plan)) };
    let ids: Vec<u64> =
        join.dynamic_expressions_produced().iter().filter_map(|filter| filter.expression_id()).collect();
    if ids.is_empty() || join.null_aware || join.null_equality() != NullEquality::NullEqualsNothing {
        return Ok(Transformed::no(plan));
    }
    let is_worth_it = |scan: &ScanExec| {
        let rows = scan.snapshot().rows();
        rows >= rows_min && ids.iter().any(|id| scan.narrowing().knows(*id))
    };
    let mut worth_it = false;
    for_each_scan(join.right(), &mut |scan| worth_it |= is_worth_it(scan))?;
    if !worth_it {
        return Ok(Transformed::no(plan));
    }
    let keys = join.on().iter().map(|(build, _)| Arc::clone(build)).collect();
    let (tap, sketch) = KeyTapExec::new(Arc::clone(join.left()), keys)?;
    for_each_scan(join.right(), &mut |scan| {
        ids.iter().for_each(|id| scan.narrowing().attach(*id, &sketch));
    })?;
    let tapped = join.builder().with_new_children(vec![Arc::new(tap), Arc::clone(join.right())])?;
    Ok(Transformed::yes(tapped.build_exec()?))
}

fn for_each_scan(plan: &Arc<dyn ExecutionPlan>, visit: &mut impl FnMut(&ScanExec)) -> Result<()> {
    let visited = plan.apply(|plan| {
        plan.downcast_ref::<ScanExec>().into_iter().for_each(&mut *visit);
        Ok(TreeNodeRecursion::Continue)
    });
    visited.map(|_| ())
}
