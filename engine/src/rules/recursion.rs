//! Refuses steps of WITH RECURSIVE whose values do not fit the types of the first rows.
//!
//! All rows have the types of the first rows. DataFusion silently casts the rows of later steps to
//! them: `n + 0.5` of an integer was rounded. Here a step whose values such a cast may change is
//! refused, as in PostgreSQL, unless the text contains that cast. [`crate::rewrite`] marks the
//! casts of the text.

use crate::visitors::PlanTree;
use datafusion::{
    arrow::datatypes::DataType,
    common::{config::ConfigOptions, plan_err, tree_node::TreeNodeRecursion},
    error::Result,
    logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, RecursiveQuery},
    optimizer::AnalyzerRule,
};

/// The rule that refuses such steps. It is the first rule, because it looks at DataFusion's casts.
#[derive(Debug)]
pub(crate) struct Recursion;

impl AnalyzerRule for Recursion {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.apply_queries(|node| {
            if let LogicalPlan::RecursiveQuery(query) = node {
                check(query, planned_type)?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(plan)
    }

    fn name(&self) -> &'static str {
        "recursion"
    }
}

/// The type of a step's column before DataFusion's cast, if there is such a cast.
fn planned_type(column: &Expr, input: &LogicalPlan) -> Result<Option<DataType>> {
    match column {
        Expr::Cast(Cast { expr, .. }) if !is_constant_text(expr) => expr.get_type(input.schema()).map(Some),
        _ => Ok(None),
    }
}

/// A text constant takes the type that is needed.
fn is_constant_text(value: &Expr) -> bool {
    matches!(value, Expr::Literal(text, _) if text.data_type().is_string() || text.is_null())
}

/// Checks the columns of a step again when their types are final: the type of a date plus an
/// interval is not final when it is planned.
pub(super) fn check_final_types(query: &RecursiveQuery) -> Result<()> {
    check(query, |column, input| column.get_type(input.schema()).map(Some))
}

fn check(
    query: &RecursiveQuery,
    type_of: impl Fn(&Expr, &LogicalPlan) -> Result<Option<DataType>>,
) -> Result<()> {
    let LogicalPlan::Projection(step) = query.recursive_term.as_ref() else { return Ok(()) };
    let first = query.static_term.schema();
    for (number, (column, first)) in step.expr.iter().zip(first.fields()).enumerate() {
        let column = match column {
            Expr::Alias(alias) => alias.expr.as_ref(),
            other => other,
        };
        let (number, first) = (number + 1, first.data_type());
        if let Some(found) = type_of(column, &step.input)?
            && !keeps_values(&found, first)
        {
            return plan_err!(
                "column {number} of the recursive query {:?} has type {first} in its first rows and {found} in \
                 its step, and these cannot be matched: cast one of them",
                query.name
            );
        }
    }
    Ok(())
}

/// Whether every value of type `from` stays the same in type `to`, or fails to be cast.
fn keeps_values(from: &DataType, to: &DataType) -> bool {
    let scale = |of: &DataType| match of {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => Some(*scale),
        _ if of.is_integer() => Some(0),
        _ => None,
    };
    if let (Some(from), Some(to)) = (scale(from), scale(to)) {
        return from <= to;
    }
    let is_number = from.is_numeric() && to.is_floating() && *from != DataType::Float64;
    let is_time =
        matches!(to, DataType::Timestamp(..)) && matches!(from, DataType::Timestamp(..) | DataType::Date32);
    from == to || from.is_null() || is_number || is_time || from.is_string() && to.is_string()
}
