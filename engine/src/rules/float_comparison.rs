//! How are a double and a decimal compared?
//!
//! As doubles. Constants such as `1.5` are decimals here (so that `0.06 + 0.01` is `0.07`), and DataFusion would compare
//! a column of doubles with one as decimals of 15 digits before the point: 1e20 would fail the query, and no zone map
//! could help. The decimal side becomes a double before DataFusion decides on types.
//!
//! Names of columns that come out stay as the user wrote them.

use datafusion::{
    arrow::datatypes::DataType,
    common::{
        DFSchema,
        config::ConfigOptions,
        tree_node::{Transformed, TransformedResult, TreeNode},
    },
    error::Result,
    logical_expr::{
        Between, BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, expr::InList,
        expr_rewriter::NamePreserver, utils::merge_schema,
    },
    optimizer::AnalyzerRule,
};

/// Makes doubles of decimals that are compared with doubles.
#[derive(Debug)]
pub(crate) struct FloatComparison;

impl AnalyzerRule for FloatComparison {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| {
            let schema = merge_schema(&plan.inputs());
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expression| {
                let name = names.save(&expression);
                let rewritten = expression.transform_up(|expression| Ok(rewrite(expression, &schema)))?;
                Ok(rewritten.update_data(|expression| name.restore(expression)))
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "float_comparison"
    }
}

fn rewrite(expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            let any_float = is_float(&left, schema) || is_float(&right, schema);
            let (left, right) = (as_float(*left, any_float, schema), as_float(*right, any_float, schema));
            let transformed = left.transformed || right.transformed;
            let (left, right) = (Box::new(left.data), Box::new(right.data));
            marked(Expr::BinaryExpr(BinaryExpr { left, op, right }), transformed)
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let any_float = [&expr, &low, &high].into_iter().any(|part| is_float(part, schema));
            let [expr, low, high] = [expr, low, high].map(|part| as_float(*part, any_float, schema));
            let transformed = expr.transformed || low.transformed || high.transformed;
            let [expr, low, high] = [expr, low, high].map(|part| Box::new(part.data));
            marked(Expr::Between(Between { expr, negated, low, high }), transformed)
        }
        Expr::InList(InList { expr, list, negated }) if is_float(&expr, schema) => {
            let list: Vec<_> = list.into_iter().map(|entry| as_float(entry, true, schema)).collect();
            let transformed = list.iter().any(|entry| entry.transformed);
            let list = list.into_iter().map(|entry| entry.data).collect();
            marked(Expr::InList(InList { expr, list, negated }), transformed)
        }
        other => Transformed::no(other),
    }
}

fn marked(expression: Expr, transformed: bool) -> Transformed<Expr> {
    if transformed { Transformed::yes(expression) } else { Transformed::no(expression) }
}

fn is_comparison(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
    )
}

/// An expression whose type cannot be told yet is left to DataFusion.
fn is_float(expression: &Expr, schema: &DFSchema) -> bool {
    matches!(expression.get_type(schema), Ok(DataType::Float64 | DataType::Float32))
}

fn as_float(expression: Expr, wanted: bool, schema: &DFSchema) -> Transformed<Expr> {
    match expression.get_type(schema) {
        Ok(DataType::Decimal128(..) | DataType::Decimal256(..)) if wanted => {
            Transformed::yes(Expr::Cast(Cast::new(Box::new(expression), DataType::Float64)))
        }
        _ => Transformed::no(expression),
    }
}
