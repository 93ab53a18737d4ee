//! Computes a part of a plan only once if several operators of the plan read it.
//!
//! ```text
//! JoinExec                                 JoinExec
//!   AggregateExec(Final) A                   SharedExec
//!     ScanExec                                 AggregateExec(Final) A
//!   AggregateExec                    ===>        ScanExec
//!     AggregateExec(Final) A                 AggregateExec
//!       ScanExec                               SharedExec, computed above
//! ```
//!
//! DataFusion plans a view or a common table expression twice if a statement names it twice. If it
//! groups rows, its result is much smaller than its input, so it is computed once and kept. Rows
//! that might differ if they were computed again ([`SharedRowsExec`]) are also computed once.
//!
//! Invariants
//! - Two parts are the same only if this rule knows every operator of them, and each does exactly
//!   what its counterpart does.
//! - A part is not shared if a join or a top-k narrows a scan in it (adds conditions to its filter
//!   while it runs), or if it contains a volatile function.
//! - The rule runs last: operators above and below are as they will run.

use super::physical::physical_rule;
use crate::exec::{ScanExec, SharedExec, SharedRowsExec};
use crate::visitors::Tree;
use datafusion::{
    common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion},
    error::Result,
    physical_expr::{PhysicalExpr, aggregate::AggregateFunctionExpr},
    physical_expr_common::physical_expr::is_volatile,
    physical_plan::{
        ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions, aggregates::AggregateExec,
        coalesce_partitions::CoalescePartitionsExec, coop::CooperativeExec, filter::FilterExec,
        projection::ProjectionExec, repartition::RepartitionExec,
    },
};
use std::sync::Arc;

const ANEW: ReplaceChildrenOptions = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);

/// The rule by which equal aggregations are computed once.
#[derive(Debug)]
pub(crate) struct CommonAggregateRule;

physical_rule!(CommonAggregateRule, "rackscan_common_aggregate");

impl CommonAggregateRule {
    fn optimized(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut aggregates = Vec::new();
        let mut has_rows = false;
        plan.apply(|plan| {
            has_rows |= plan.is::<SharedRowsExec>();
            if plan.is::<AggregateExec>() {
                aggregates.push(Arc::clone(plan));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if aggregates.len() < 2 && !has_rows {
            return Ok(plan);
        }
        Sharing { aggregates, results: Vec::new() }.share(plan)
    }
}

struct Sharing {
    /// The aggregations of the whole plan that may be shared.
    aggregates: Vec<Arc<dyn ExecutionPlan>>,
    /// Each shared part in its original form, and a reader of its result.
    results: Vec<(Arc<dyn ExecutionPlan>, SharedExec)>,
}

impl Sharing {
    /// The plan with readers in place of shared parts.
    fn share(&mut self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|plan| {
            let rows = plan.downcast_ref::<SharedRowsExec>();
            let is_shared = rows.is_some()
                || plan.is::<AggregateExec>()
                    && self.aggregates.iter().filter(|other| is_same(other, &plan)).count() > 1;
            if !is_shared {
                return Ok(Transformed::no(plan));
            }
            let known = self.results.iter().find(|(part, _)| is_same(part, &plan));
            let reader = match known.map(|(_, result)| result.another()) {
                Some(another) => another,
                None => {
                    let input = match rows {
                        Some(rows) => self.share(Arc::clone(rows.input()))?,
                        None => self.with_shared_children(&plan)?,
                    };
                    let first = SharedExec::new(self.results.len() + 1, input);
                    self.results.push((plan, first.another()));
                    first
                }
            };
            Ok(Transformed::new(Arc::new(reader), true, TreeNodeRecursion::Jump))
        })
        .data()
    }

    /// An aggregation whose own parts are not shared, except rows that must be.
    fn with_shared_children(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        plan.apply(|part| {
            self.aggregates.retain(|aggregate| !is_same(aggregate, part) || is_same(aggregate, plan));
            Ok(TreeNodeRecursion::Continue)
        })?;
        let children = plan.children().into_iter().map(|child| self.share(Arc::clone(child)));
        let children = children.collect::<Result<Vec<_>>>()?;
        Arc::clone(plan).replace_children(children, ANEW)
    }
}

/// Whether both certainly return the same rows.
fn is_same(one: &Arc<dyn ExecutionPlan>, two: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some((one, two)) = both::<SharedRowsExec>(one.as_ref(), two.as_ref()) {
        return one.number() == two.number();
    }
    let (below_one, below_two) = (one.children(), two.children());
    one.schema() == two.schema()
        && one.fetch() == two.fetch()
        && is_same_operator(one.as_ref(), two.as_ref())
        && below_one.len() == below_two.len()
        && below_one.into_iter().zip(below_two).all(|(one, two)| is_same(one, two))
}

fn is_same_operator(one: &dyn ExecutionPlan, two: &dyn ExecutionPlan) -> bool {
    if let Some((one, two)) = both::<ScanExec>(one, two) {
        one.is_same(two)
    } else if let Some((one, two)) = both::<AggregateExec>(one, two) {
        is_same_aggregate(one, two)
    } else if let Some((one, two)) = both::<ProjectionExec>(one, two) {
        one.expr() == two.expr() && one.expr().iter().all(|column| !is_volatile(&column.expr))
    } else if let Some((one, two)) = both::<FilterExec>(one, two) {
        let predicate = one.predicate();
        predicate == two.predicate() && !is_volatile(predicate) && one.projection() == two.projection()
    } else if let Some((one, two)) = both::<RepartitionExec>(one, two) {
        one.partitioning() == two.partitioning() && one.preserve_order() == two.preserve_order()
    } else {
        both::<CoalescePartitionsExec>(one, two).is_some() || both::<CooperativeExec>(one, two).is_some()
    }
}

/// Both as `T`, or `None` if one is not.
fn both<'p, T: ExecutionPlan>(
    one: &'p dyn ExecutionPlan,
    two: &'p dyn ExecutionPlan,
) -> Option<(&'p T, &'p T)> {
    one.downcast_ref::<T>().zip(two.downcast_ref::<T>())
}

fn is_same_aggregate(one: &AggregateExec, two: &AggregateExec) -> bool {
    // The equality of `AggregateFunctionExpr` does not compare these.
    let rest = |function: &AggregateFunctionExpr| (function.is_distinct(), function.ignore_nulls());
    let is_plain = |aggregate: &AggregateExec| {
        let arguments = aggregate.aggr_expr().iter().flat_map(|function| function.expressions());
        let mut expressions = arguments.chain(aggregate.group_expr().input_exprs());
        aggregate.aggr_expr().iter().all(|function| function.order_bys().is_empty())
            && aggregate.filter_expr().iter().flatten().all(|filter| !is_volatile(filter))
            && expressions.all(|expression: Arc<dyn PhysicalExpr>| !is_volatile(&expression))
    };
    one.mode() == two.mode()
        && one.group_expr() == two.group_expr()
        && one.aggr_expr() == two.aggr_expr()
        && one.aggr_expr().iter().map(|of| rest(of)).eq(two.aggr_expr().iter().map(|of| rest(of)))
        && one.filter_expr() == two.filter_expr()
        && one.limit_options() == two.limit_options()
        && one.input_schema() == two.input_schema()
        && is_plain(one)
}
