//! Moves a partial aggregation into the scan below it.
//!
//! ```text
//! AggregateExec(Final)                      AggregateExec(Final)
//!   RepartitionExec                           RepartitionExec
//!     AggregateExec(Partial)      ===>          ScanExec(groups)
//!       ProjectionExec
//!         ScanExec(rows)
//! ```
//!
//! Invariants
//! - The scan's schema is the partial aggregate's own, state columns included, so the operators
//!   above are unchanged.
//! - The aggregation is translated completely or not at all: if a scan cannot compute a key or an
//!   argument, the plan stays unchanged.
//! - DataFusion still computes DISTINCT, FILTER, ORDER BY inside an aggregate and grouping sets.

use super::physical::physical_rule;
use crate::visitors::Tree;
use crate::{
    exec::{ScanExec, groups_max},
    pushdown::{ProgramBuilder, type_of},
};
use datafusion::{
    common::tree_node::{Transformed, TransformedResult},
    error::Result,
    physical_expr::{PhysicalExpr, aggregate::AggregateFunctionExpr, expressions::Literal},
    physical_plan::{
        ExecutionPlan,
        aggregates::{AggregateExec, AggregateMode},
        coop::CooperativeExec,
        projection::ProjectionExec,
    },
};
use rackscan_format::program::{Aggregate, AggregateFunction, NodeIndex, Output};
use std::sync::Arc;

/// With fewer rows per group, grouping inside the scan does not pay: most rows would travel as
/// groups of their own, wider than they were, and be hashed twice.
const ROWS_PER_GROUP_MIN: f64 = 16.0;
/// With more groups in a segment, the scan's table of groups does not stay in a core's caches.
const GROUPS_MAX: f64 = 65_536.0;

/// When aggregations run inside scans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AggregatePushdown {
    /// When zone maps suggest many rows per group.
    #[default]
    WhenSmall,
    /// Whenever it is possible, for tests and measurements.
    Always,
    /// Never, for tests and measurements.
    Never,
}

/// The rule that replaces partial aggregates directly above scans.
#[derive(Debug)]
pub(crate) struct PartialAggregateRule {
    when: AggregatePushdown,
}

impl PartialAggregateRule {
    pub(crate) fn new(when: AggregatePushdown) -> Self {
        Self { when }
    }

    fn rewrite(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else { return Ok(Transformed::no(plan)) };
        if !is_plain(aggregate) {
            return Ok(Transformed::no(plan));
        }
        match aggregate.mode() {
            AggregateMode::Partial => match self.scan_of_groups(aggregate)? {
                Some(scan) => Ok(Transformed::yes(Arc::new(scan))),
                None => Ok(Transformed::no(plan)),
            },
            AggregateMode::Single | AggregateMode::SinglePartitioned => {
                let Some(partial) = as_partial(aggregate)? else { return Ok(Transformed::no(plan)) };
                let Some(scan) = self.scan_of_groups(&partial)? else { return Ok(Transformed::no(plan)) };
                Ok(Transformed::yes(Arc::new(AggregateExec::try_new(
                    AggregateMode::Final,
                    aggregate.group_expr().as_final(),
                    aggregate.aggr_expr().to_vec(),
                    aggregate.filter_expr().to_vec(),
                    Arc::new(scan),
                    aggregate.input_schema(),
                )?)))
            }
            _ => Ok(Transformed::no(plan)),
        }
    }

    /// The scan that returns what `aggregate`, a partial one, returns.
    fn scan_of_groups(&self, aggregate: &AggregateExec) -> Result<Option<ScanExec>> {
        let mut projections = Vec::new();
        let Some(scan) = scan_below(aggregate.input(), &mut projections) else { return Ok(None) };
        let definition = &scan.snapshot().definition;
        let Some(mut builder) = ProgramBuilder::over_output(definition, scan.program()) else {
            return Ok(None);
        };
        for projection in projections.into_iter().rev() {
            let below = projection.input().schema();
            let typed = projection
                .expr()
                .iter()
                .map(|expression| (Arc::clone(&expression.expr), type_of(&expression.expr, &below)));
            builder.project(typed);
        }
        let Some(output) = groups(&mut builder, aggregate) else { return Ok(None) };
        let Ok(program) = builder.finish(output, None) else { return Ok(None) };
        let grouped = scan.with_output(program, aggregate.schema())?;
        Ok(self.pays(scan, &grouped).then_some(grouped))
    }

    #[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
    fn pays(&self, rows: &ScanExec, grouped: &ScanExec) -> bool {
        let groups = groups_max(grouped.program(), grouped.snapshot()).unwrap_or(f64::INFINITY);
        match self.when {
            AggregatePushdown::Always => true,
            AggregatePushdown::Never => false,
            AggregatePushdown::WhenSmall => {
                let segments = rows.snapshot().segments.len().max(1) as f64;
                let rows_per_segment = rows.rows_selected() / segments;
                groups <= 1.0 || (groups <= GROUPS_MAX && groups * ROWS_PER_GROUP_MIN <= rows_per_segment)
            }
        }
    }
}

physical_rule!(PartialAggregateRule, "partial_aggregate_in_scan");

impl PartialAggregateRule {
    fn optimized(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        if self.when == AggregatePushdown::Never {
            return Ok(plan);
        }
        plan.transform_up(|plan| self.rewrite(plan)).data()
    }
}

/// Whether scans can compute this kind of aggregate.
fn is_plain(aggregate: &AggregateExec) -> bool {
    let group_by = aggregate.group_expr();
    group_by.is_single()
        && group_by.null_expr().is_empty()
        && aggregate.limit_options().is_none()
        && aggregate.filter_expr().iter().all(Option::is_none)
        && aggregate.aggr_expr().iter().all(|function| {
            !function.is_distinct() && !function.ignore_nulls() && function.order_bys().is_empty()
        })
}

/// The first stage of an aggregate that was planned as one stage.
fn as_partial(aggregate: &AggregateExec) -> Result<Option<AggregateExec>> {
    let partial = AggregateExec::try_new(
        AggregateMode::Partial,
        aggregate.group_expr().clone(),
        aggregate.aggr_expr().to_vec(),
        aggregate.filter_expr().to_vec(),
        Arc::clone(aggregate.input()),
        aggregate.input_schema(),
    )?;
    Ok(Some(partial))
}

/// The scan below `plan`, with the projections between them, topmost first.
fn scan_below<'a>(
    plan: &'a Arc<dyn ExecutionPlan>,
    projections: &mut Vec<&'a ProjectionExec>,
) -> Option<&'a ScanExec> {
    if let Some(scan) = plan.downcast_ref::<ScanExec>() {
        return Some(scan);
    }
    if let Some(cooperative) = plan.downcast_ref::<CooperativeExec>() {
        return scan_below(cooperative.input(), projections);
    }
    let projection = plan.downcast_ref::<ProjectionExec>()?;
    projections.push(projection);
    scan_below(projection.input(), projections)
}

/// Keys and state columns of `aggregate` as nodes, if a scan computes all of them.
fn groups(builder: &mut ProgramBuilder<'_>, aggregate: &AggregateExec) -> Option<Output> {
    let schema = aggregate.input_schema();
    let keys = aggregate.group_expr().expr().iter().map(|(key, _)| {
        let wanted = type_of(key, &schema).ok()?;
        builder.translate(key, wanted).ok()
    });
    let keys = keys.collect::<Option<Vec<NodeIndex>>>()?;
    let mut aggregates = Vec::new();
    for function in aggregate.aggr_expr() {
        aggregates.extend(states(builder, function, &schema)?);
    }
    Some(Output::Groups { keys, aggregates })
}

/// The aggregates whose values are the state columns of `function`, in DataFusion's order.
fn states(
    builder: &mut ProgramBuilder<'_>,
    function: &AggregateFunctionExpr,
    schema: &datafusion::arrow::datatypes::Schema,
) -> Option<Vec<Aggregate>> {
    let [argument] = function.expressions().try_into().ok()?;
    let name = function.fun().name();
    if name == "count" && is_present_literal(&argument) {
        return Some(vec![Aggregate { function: AggregateFunction::CountRows, argument: None }]);
    }
    let node = builder.translate(&argument, type_of(&argument, schema).ok()?).ok()?;
    let of = |function| Aggregate { function, argument: Some(node) };
    let states = match name {
        "count" => vec![of(AggregateFunction::Count)],
        "sum" => vec![of(AggregateFunction::Sum)],
        "min" => vec![of(AggregateFunction::Min)],
        "max" => vec![of(AggregateFunction::Max)],
        "avg" => vec![of(AggregateFunction::Count), of(AggregateFunction::Sum)],
        _ => return None,
    };
    let fields = function.state_fields().ok()?;
    // There is one state column per aggregate; otherwise this is another version of the function.
    (fields.len() == states.len()).then_some(states)
}

/// `COUNT(1)` and `COUNT(*)` count rows.
fn is_present_literal(argument: &Arc<dyn PhysicalExpr>) -> bool {
    argument.downcast_ref::<Literal>().is_some_and(|literal| !literal.value().is_null())
}
