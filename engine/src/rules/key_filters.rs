//! Connects the dynamic filters that DataFusion pushed to scans with the joins and top-k operators
//! they come from.
//!
//! ```text
//! HashJoinExec                     HashJoinExec
//!   build side           ===>        KeyTapExec  --keys--> sketch (summary of the keys)
//!   ... ScanExec                     build side              |
//!                                    ... ScanExec <----------+
//! ```
//!
//! The rule runs after DataFusion has pushed dynamic filters to scans.
//!
//! Invariants
//! - Only hash joins and top-k operators narrow scans (add conditions to their filters while they
//!   run). A filter is used only if it reached the very columns that its operator compares
//!   (`lineage`). If the filter of a join of several keys reached no scan, because the keys are of
//!   several tables, each key narrows the scan that it comes from.
//! - A tap, which collects keys (`KeyTapExec`), is added only to joins in which NULL equals
//!   nothing: there a row without a key has no partner.
//! - A tap is added only if the filter reached a scan that is worth narrowing: of a large table, or
//!   of any table if the build side reads small tables only. Such a build side ends soon: scans
//!   wait for its keys, so that one small table narrows the next.

use super::lineage::{origins, position};
use super::physical::physical_rule;
use crate::visitors::Tree;
use crate::{
    exec::ScanExec,
    limits::QUICK_BUILD_ROWS_MAX,
    runtime_filter::{KeyTapExec, Source},
};
use datafusion::{
    common::{
        JoinType, NullEquality,
        tree_node::{Transformed, TransformedResult},
    },
    error::Result,
    physical_expr::PhysicalExpr,
    physical_plan::{ExecutionPlan, joins::HashJoinExec, sorts::sort::SortExec},
};
use rackscan_format::ids::ColumnId;
use std::sync::Arc;

/// The rule that puts taps below hash joins, and tells scans which filters are meant for them.
#[derive(Debug)]
pub(crate) struct KeyFilterRule {
    rows_min: u64,
}

impl KeyFilterRule {
    /// Narrows scans of tables with at least `rows_min` rows.
    pub(crate) fn new(rows_min: u64) -> Self {
        Self { rows_min }
    }

    fn arm(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            return match self.tap(join)? {
                Some(tapped) => Ok(Transformed::yes(tapped)),
                None => Ok(Transformed::no(plan)),
            };
        }
        if let Some(sort) = plan.downcast_ref::<SortExec>() {
            for filter in sort.dynamic_expressions_produced() {
                if let Some(id) = filter.expression_id() {
                    let meant = self.meant(sort.input(), &filter, self.rows_min);
                    meant.iter().for_each(|scan| scan.runtime_filter().arm(id, &Source::Threshold));
                }
            }
        }
        Ok(Transformed::no(plan))
    }

    /// The scans for whose own columns `filter`, over the rows of `plan`, is meant.
    fn meant<'p>(
        &self,
        plan: &'p Arc<dyn ExecutionPlan>,
        filter: &Arc<dyn PhysicalExpr>,
        rows_min: u64,
    ) -> Vec<&'p ScanExec> {
        let (Some(id), children) = (filter.expression_id(), filter.children()) else { return Vec::new() };
        let traced: Option<Vec<_>> =
            children.iter().map(|child| position(child).map(|index| origins(plan, index))).collect();
        let Some(traced) = traced else { return Vec::new() };
        let Some((first, _)) = traced.split_first() else { return Vec::new() };
        let is_meant = |scan: &ScanExec| {
            let columns = traced.iter().map(|origins| -> Vec<ColumnId> {
                let here = origins.iter().filter(|(other, _)| std::ptr::eq(*other, scan));
                here.filter_map(|(_, index)| scan.column_of_output(*index)).collect()
            });
            scan.runtime_filter().is_about(id, &columns.collect::<Vec<_>>())
        };
        let scans = first.iter().map(|(scan, _)| *scan);
        scans.filter(|scan| scan.snapshot().rows() >= rows_min && is_meant(scan)).collect()
    }

    fn tap(&self, join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let filters = join.dynamic_expressions_produced();
        if join.null_aware || join.null_equality() != NullEquality::NullEqualsNothing {
            return Ok(None);
        }
        let is_quick = self.rows_min < u64::MAX && is_small(join.left());
        let rows_min = if is_quick { 0 } else { self.rows_min };
        let meant: Vec<(u64, &ScanExec)> = filters
            .iter()
            .filter_map(|filter| Some((filter.expression_id()?, filter)))
            .flat_map(|(id, filter)| {
                self.meant(join.right(), filter, rows_min).into_iter().map(move |scan| (id, scan))
            })
            .collect();
        let apart = if meant.is_empty() { key_columns(join, rows_min) } else { Vec::new() };
        if meant.is_empty() && apart.is_empty() {
            return Ok(None);
        }
        let keys = join.on().iter().map(|(build, _)| Arc::clone(build)).collect();
        let (tap, sketch) = KeyTapExec::new(Arc::clone(join.left()), keys)?;
        let source = Source::Join { sketch, is_quick };
        meant.iter().for_each(|(id, scan)| scan.runtime_filter().arm(*id, &source));
        for (position, scan, column) in apart {
            scan.runtime_filter().tell(column, position, source.clone());
        }
        let tapped = join.builder().with_new_children(vec![Arc::new(tap), Arc::clone(join.right())])?;
        Ok(Some(tapped.build_exec()?))
    }
}

/// The scan columns from which the keys of a join come, each key by itself with its position; only
/// scans that are worth narrowing. `DataFusion` makes one filter of all keys, which reaches no scan
/// if they are of several tables.
fn key_columns(join: &HashJoinExec, rows_min: u64) -> Vec<(usize, &ScanExec, ColumnId)> {
    // Only these joins drop rows of the right side without a partner.
    let throws_away = matches!(join.join_type(), JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi);
    if !throws_away || join.on().len() < 2 {
        return Vec::new();
    }
    let keys = join.on().iter().enumerate();
    let keys = keys.filter_map(|(at, (_, probe))| Some((at, position(probe)?)));
    let traced = keys.flat_map(|(at, index)| {
        origins(join.right(), index).into_iter().map(move |(scan, index)| (at, scan, index))
    });
    let worth = traced.filter(|(_, scan, _)| scan.snapshot().rows() >= rows_min && scan.has_no_limit());
    worth.filter_map(|(at, scan, index)| Some((at, scan, scan.column_of_output(index)?))).collect()
}

/// Whether everything below is read from small tables.
fn is_small(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.downcast_ref::<ScanExec>() {
        Some(scan) => scan.snapshot().rows() <= QUICK_BUILD_ROWS_MAX,
        None => plan.children().into_iter().all(is_small),
    }
}

physical_rule!(KeyFilterRule, "rackscan_key_filters");

impl KeyFilterRule {
    fn optimized(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| self.arm(plan)).data()
    }
}
