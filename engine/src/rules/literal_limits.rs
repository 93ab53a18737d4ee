//! Computes the expressions of LIMIT and OFFSET when the query is planned.
//!
//! The number of rows is the value of the expression, rounded to the nearest integer. DataFusion
//! 55.2 supports only integers.

use crate::visitors::{PlanTree, Tree};
use datafusion::{
    arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType},
    common::{
        DFSchema,
        config::ConfigOptions,
        tree_node::{Transformed, TransformedResult},
    },
    error::Result,
    logical_expr::{Expr, Limit, LogicalPlan, cast, simplify::SimplifyContext},
    optimizer::{AnalyzerRule, simplify_expressions::ExprSimplifier},
    scalar::ScalarValue,
};

/// The rule that computes numbers of rows.
#[derive(Debug)]
pub(crate) struct LiteralLimits;

impl AnalyzerRule for LiteralLimits {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let rewrite = |plan: LogicalPlan| {
            let LogicalPlan::Limit(Limit { skip, fetch, input }) = plan else {
                return Ok(Transformed::no(plan));
            };
            let skip = skip.map(|rows| literal(*rows)).transpose()?.map(Box::new);
            let fetch = fetch.map(|rows| literal(*rows)).transpose()?.map(Box::new);
            Ok(Transformed::yes(LogicalPlan::Limit(Limit { skip, fetch, input })))
        };
        plan.transform_queries_up(rewrite).data()
    }

    fn name(&self) -> &'static str {
        "literal_limits"
    }
}

/// The value of a number of rows; subqueries are left as they are.
fn literal(rows: Expr) -> Result<Expr> {
    if matches!(rows, Expr::Literal(ScalarValue::Int64(_), _)) || has_rows(&rows) {
        return Ok(rows);
    }
    let simplifier = ExprSimplifier::new(SimplifyContext::default());
    let rows = simplifier.coerce(rows, &DFSchema::empty())?;
    let whole = cast(rows, DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0));
    simplifier.simplify(cast(whole, DataType::Int64))
}

fn has_rows(expression: &Expr) -> bool {
    let is_query = |part: &Expr| Ok(matches!(part, Expr::ScalarSubquery(_) | Expr::OuterReferenceColumn(..)));
    expression.exists(is_query).unwrap_or(true)
}
