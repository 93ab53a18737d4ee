//! What does a correlated subquery over an aggregate without groups have?
//!
//! A row, also where no row outside matches. DataFusion 55.2 groups such an aggregate by the
//! columns that are compared with the rows outside, so that the row is gone with them. It makes up
//! for that in scalar subqueries; this rule does in EXISTS and IN, and refuses what is left.

use datafusion::{
    common::{
        config::ConfigOptions,
        plan_err,
        tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion},
    },
    error::Result,
    logical_expr::{
        Aggregate, Distinct, Expr, LogicalPlan, Operator, Subquery, binary_expr,
        expr::{Exists, GroupingSet, InSubquery},
        lit, scalar_subquery,
    },
    optimizer::AnalyzerRule,
};

/// Writes EXISTS and IN over a row that is always there without a subquery, or as a scalar one.
#[derive(Debug)]
pub(crate) struct TotalRow;

impl AnalyzerRule for TotalRow {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| {
            for input in plan.inputs() {
                // Of a lateral join; those of expressions are no inputs.
                if let LogicalPlan::Subquery(lateral) = input {
                    refuse_grouped(&lateral.subquery)?;
                    refuse_filtered(&lateral.subquery)?;
                }
            }
            plan.map_expressions(|expression| expression.transform_up(rewrite))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "total_row"
    }
}

fn rewrite(expression: Expr) -> Result<Transformed<Expr>> {
    match expression {
        Expr::Exists(Exists { subquery, .. }) if skips_rows(&subquery) => {
            plan_err!("EXISTS of a correlated subquery with OFFSET is not supported; count its rows instead")
        }
        Expr::Exists(Exists { subquery, negated }) => match total(&subquery) {
            Some(_) => Ok(Transformed::yes(lit(!negated))),
            None => {
                refuse(&subquery.subquery)?;
                Ok(Transformed::no(Expr::Exists(Exists { subquery, negated })))
            }
        },
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => match total(&subquery) {
            Some(aggregate) if aggregate.group_expr.is_empty() => {
                let op = if negated { Operator::NotEq } else { Operator::Eq };
                Ok(Transformed::yes(binary_expr(*expr, op, scalar_subquery(subquery.subquery))))
            }
            _ => {
                refuse(&subquery.subquery)?;
                Ok(Transformed::no(Expr::InSubquery(InSubquery { expr, subquery, negated })))
            }
        },
        Expr::SetComparison(set) => {
            refuse(&set.subquery.subquery)?;
            Ok(Transformed::no(Expr::SetComparison(set)))
        }
        Expr::ScalarSubquery(subquery) => {
            refuse_grouped(&subquery.subquery)?;
            Ok(Transformed::no(Expr::ScalarSubquery(subquery)))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// The correlated aggregate whose row the subquery always has.
fn total(subquery: &Subquery) -> Option<&Aggregate> {
    let mut plan = subquery.subquery.as_ref();
    loop {
        plan = match plan {
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => &sort.input,
            LogicalPlan::Distinct(Distinct::All(input)) => input,
            LogicalPlan::Aggregate(aggregate) if is_correlated(aggregate) && has_total(aggregate) => {
                return Some(aggregate);
            }
            _ => return None,
        };
    }
}

fn is_correlated(aggregate: &Aggregate) -> bool {
    !aggregate.input.all_out_ref_exprs().is_empty()
}

/// Whether there is a row of all rows, even of none.
fn has_total(aggregate: &Aggregate) -> bool {
    aggregate.group_expr.iter().all(|group| match group {
        Expr::GroupingSet(GroupingSet::Rollup(_) | GroupingSet::Cube(_)) => true,
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter().any(Vec::is_empty),
        _ => false,
    })
}

/// Refuses correlated aggregates with a row of all rows.
fn refuse(plan: &LogicalPlan) -> Result<()> {
    refuse_where(plan, |aggregate| is_correlated(aggregate) && has_total(aggregate))
}

/// Refuses those that also have groups: others are planned right where one row is expected.
fn refuse_grouped(plan: &LogicalPlan) -> Result<()> {
    let is_refused = |aggregate: &Aggregate| {
        is_correlated(aggregate) && has_total(aggregate) && !aggregate.group_expr.is_empty()
    };
    refuse_where(plan, is_refused)
}

/// Refuses rows of all rows that are left out by HAVING: DataFusion gives NULL for them.
fn refuse_filtered(plan: &LogicalPlan) -> Result<()> {
    let is_total = |input: &LogicalPlan| matches!(input, LogicalPlan::Aggregate(aggregate) if is_correlated(aggregate) && has_total(aggregate));
    let is_refused =
        |plan: &LogicalPlan| matches!(plan, LogicalPlan::Filter(filter) if is_total(&filter.input));
    if plan.exists(|plan| Ok(is_refused(plan)))? {
        return plan_err!(
            "LATERAL of a correlated aggregate with HAVING is not supported; write WHERE outside"
        );
    }
    Ok(())
}

/// Whether rows of a correlated subquery are skipped.
fn skips_rows(subquery: &Subquery) -> bool {
    let skips = |plan: &LogicalPlan| matches!(plan, LogicalPlan::Limit(limit) if limit.skip.is_some());
    !subquery.outer_ref_columns.is_empty() && subquery.subquery.exists(|plan| Ok(skips(plan))).unwrap_or(true)
}

fn refuse_where(plan: &LogicalPlan, is_refused: impl Fn(&Aggregate) -> bool) -> Result<()> {
    let mut found = false;
    plan.apply(|plan| {
        found |= matches!(plan, LogicalPlan::Aggregate(aggregate) if is_refused(aggregate));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if found {
        return plan_err!(
            "a correlated subquery over a row of all rows (ROLLUP, CUBE, GROUPING SETS (), or an aggregate without GROUP BY) is \
             not supported here; join with it instead"
        );
    }
    Ok(())
}
