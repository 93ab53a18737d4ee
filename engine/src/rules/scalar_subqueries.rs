//! What is a scalar subquery without a row, and what is computed of a count of none?
//!
//! - NULL, whatever is selected: DataFusion takes a constant in a select list for one that is never
//!   NULL.
//! - Of a correlated aggregate without groups there is a row also where no row outside matches.
//!   DataFusion knows that of the aggregate alone. Here what is computed of it is computed outside.
//! - An outer column in the condition of an outer join, or with OR above a FULL JOIN, is refused:
//!   DataFusion gives other rows.

use std::sync::Arc;

use datafusion::{
    common::{
        Column, Result,
        config::ConfigOptions,
        plan_err,
        tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion},
    },
    logical_expr::{
        Aggregate, Case, Expr, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, ScalarUDF, Subquery,
        expr::Exists, expr::InSubquery, ident,
    },
    optimizer::AnalyzerRule,
};

use crate::functions::nullable;

/// Plans scalar subqueries so that they are NULL where they have to be.
#[derive(Debug)]
pub(crate) struct ScalarSubqueries {
    nullable: Arc<ScalarUDF>,
}

impl Default for ScalarSubqueries {
    fn default() -> Self {
        Self { nullable: nullable() }
    }
}

impl AnalyzerRule for ScalarSubqueries {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| {
            for input in plan.inputs() {
                if let LogicalPlan::Subquery(lateral) = input {
                    refuse_outer_joins(lateral)?;
                }
            }
            plan.map_expressions(|expression| expression.transform_up(|expression| self.rewrite(expression)))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "scalar_subqueries"
    }
}

impl ScalarSubqueries {
    fn rewrite(&self, expression: Expr) -> Result<Transformed<Expr>> {
        match expression {
            Expr::ScalarSubquery(subquery) => {
                refuse_outer_joins(&subquery)?;
                if let Some(computed) = computed_outside(&subquery)? {
                    return Ok(Transformed::yes(computed));
                }
                match self.with_null(&subquery)? {
                    Some(subquery) => Ok(Transformed::yes(Expr::ScalarSubquery(subquery))),
                    None => Ok(Transformed::no(Expr::ScalarSubquery(subquery))),
                }
            }
            Expr::Exists(Exists { ref subquery, .. }) | Expr::InSubquery(InSubquery { ref subquery, .. }) => {
                refuse_outer_joins(subquery)?;
                Ok(Transformed::no(expression))
            }
            other => Ok(Transformed::no(other)),
        }
    }

    /// The subquery with a column that may be NULL, if it has none.
    fn with_null(&self, subquery: &Subquery) -> Result<Option<Subquery>> {
        let plan = &subquery.subquery;
        let (qualifier, field) = plan.schema().qualified_field(0);
        if field.is_nullable() || matches!(plan.as_ref(), LogicalPlan::Aggregate(_)) || is_total(plan) {
            return Ok(None);
        }
        let value = Expr::Column(Column::from((qualifier, field)));
        let value = self.nullable.call(vec![value]).alias(field.name());
        let plan = LogicalPlanBuilder::from(plan.as_ref().clone()).project(vec![value])?.build()?;
        Ok(Some(Subquery { subquery: Arc::new(plan), ..subquery.clone() }))
    }
}

/// Whether there is one row of all rows in any case.
fn is_total(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_total(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_total(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        _ => false,
    }
}

/// What is computed of a correlated aggregate without groups, by an expression outside of it.
fn computed_outside(subquery: &Subquery) -> Result<Option<Expr>> {
    if subquery.outer_ref_columns.is_empty() {
        return Ok(None);
    }
    let LogicalPlan::Projection(projection) = subquery.subquery.as_ref() else { return Ok(None) };
    let [value] = projection.expr.as_slice() else { return Ok(None) };
    let (having, input) = match projection.input.as_ref() {
        LogicalPlan::Filter(filter) => (Some(filter.predicate.clone()), &filter.input),
        _ => (None, &projection.input),
    };
    let LogicalPlan::Aggregate(aggregate) = input.as_ref() else { return Ok(None) };
    let value = value.clone().unalias_nested().data;
    let is_null_of_none = is_strict(&value)? && aggregate.aggr_expr.iter().all(is_null_without_rows);
    let is_known = matches!(value, Expr::Column(_)) || is_null_of_none;
    if !aggregate.group_expr.is_empty() || (is_known && having.is_none()) {
        return Ok(None);
    }
    let value = outside(value, aggregate, subquery)?;
    let Some(having) = having else { return Ok(Some(value)) };
    let kept = outside(having, aggregate, subquery)?;
    let when_then_expr = vec![(Box::new(kept), Box::new(value))];
    Ok(Some(Expr::Case(Case { expr: None, when_then_expr, else_expr: None })))
}

/// Whether it is NULL where one of its columns is.
fn is_strict(expression: &Expr) -> Result<bool> {
    let is_other = |part: &Expr| match part {
        Expr::Column(_) | Expr::Literal(..) | Expr::Cast(_) | Expr::Negative(_) => false,
        Expr::BinaryExpr(binary) => !matches!(
            binary.op,
            Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo
        ),
        _ => true,
    };
    Ok(!expression.exists(|part| Ok(is_other(part)))?)
}

/// Whether an aggregate of no row is NULL.
fn is_null_without_rows(aggregate: &Expr) -> bool {
    match aggregate {
        Expr::Alias(alias) => is_null_without_rows(&alias.expr),
        Expr::AggregateFunction(aggregate) => matches!(aggregate.func.name(), "avg" | "max" | "min" | "sum"),
        _ => false,
    }
}

/// An expression over an aggregate's columns, as one of subqueries that have one of them each.
fn outside(expression: Expr, aggregate: &Aggregate, subquery: &Subquery) -> Result<Expr> {
    let rewritten = expression.transform_down(|part| match part {
        Expr::Column(column) => {
            let Some(index) = aggregate.schema.maybe_index_of_column(&column) else {
                return plan_err!("column {column} of a correlated aggregate is not known");
            };
            let one = Aggregate::try_new(
                Arc::clone(&aggregate.input),
                Vec::new(),
                vec![aggregate.aggr_expr[index].clone()],
            )?;
            let name = one.schema.field(0).name().clone();
            let builder = LogicalPlanBuilder::from(LogicalPlan::Aggregate(one));
            let plan = builder.project(vec![ident(name)])?.build()?;
            let outer_ref_columns = plan.all_out_ref_exprs();
            let one = Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: subquery.spans.clone() };
            Ok(Transformed::new(Expr::ScalarSubquery(one), true, TreeNodeRecursion::Jump))
        }
        Expr::OuterReferenceColumn(_, column) => Ok(Transformed::yes(Expr::Column(column))),
        Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) => {
            plan_err!(
                "a subquery within what a correlated subquery computes of an aggregate is not supported; \
             join with it instead"
            )
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(rewritten.data)
}

/// Refuses joins of which DataFusion takes correlated conditions out, though that changes rows.
fn refuse_outer_joins(subquery: &Subquery) -> Result<()> {
    if subquery.outer_ref_columns.is_empty() {
        return Ok(());
    }
    let is_changed = |plan: &LogicalPlan| match plan {
        LogicalPlan::Join(join) => {
            let conditions = join.on.iter().flat_map(|(left, right)| [left, right]).chain(&join.filter);
            join.join_type != JoinType::Inner && conditions.into_iter().any(Expr::contains_outer)
        }
        LogicalPlan::Filter(filter) => is_full_join(&filter.input) && has_outer_or(&filter.predicate),
        _ => false,
    };
    if subquery.subquery.exists(|plan| Ok(is_changed(plan)))? {
        return plan_err!(
            "a column from outside in the condition of an outer join, or with OR above a FULL JOIN, is \
             not supported in a subquery; join with it instead"
        );
    }
    Ok(())
}

fn is_full_join(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Join(join) if join.join_type == JoinType::Full)
}

fn has_outer_or(predicate: &Expr) -> bool {
    let is_or = |part: &Expr| matches!(part, Expr::BinaryExpr(binary) if binary.op == Operator::Or);
    predicate.exists(|part| Ok(is_or(part) && part.contains_outer())).unwrap_or(true)
}
