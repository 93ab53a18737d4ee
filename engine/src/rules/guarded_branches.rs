//! Ensures that only the taken branch of a CASE is computed.
//!
//! DataFusion rewrites a CASE of booleans to AND and OR, whose sides are computed for all rows:
//! `CASE WHEN x <> 0 THEN 1 / x > 0 END` would fail. It does not rewrite a CASE of integers, so
//! this rule turns a CASE of booleans that may fail into a CASE of integers.

use crate::visitors::Tree;
use datafusion::{
    arrow::datatypes::DataType,
    common::{DFSchema, config::ConfigOptions, tree_node::Transformed},
    error::Result,
    logical_expr::{BinaryExpr, Case, Cast, Expr, ExprSchemable, LogicalPlan, Operator},
    optimizer::AnalyzerRule,
};

use super::expressions::rewritten;

/// The rule that keeps the branches of a CASE apart.
#[derive(Debug)]
pub(crate) struct GuardedBranches;

impl AnalyzerRule for GuardedBranches {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        rewritten(plan, |expression, schema| {
            Ok(match expression {
                Expr::Case(case) if is_boolean(&case, schema) && may_fail(&case)? => {
                    Transformed::yes(of_integers(case))
                }
                other => Transformed::no(other),
            })
        })
    }

    fn name(&self) -> &'static str {
        "guarded_branches"
    }
}

fn is_boolean(case: &Case, schema: &DFSchema) -> bool {
    let branches = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
    let mut types = branches.filter_map(|branch| branch.get_type(schema).ok());
    types.any(|data_type| data_type == DataType::Boolean)
}

/// Whether a branch or a condition fails for some values.
fn may_fail(case: &Case) -> Result<bool> {
    let mut parts = case.when_then_expr.iter().flat_map(|(when, then)| [when, then]).chain(&case.else_expr);
    parts.try_fold(false, |found, part| Ok(found || part.exists(|part| Ok(is_fallible(part)))?))
}

fn is_fallible(part: &Expr) -> bool {
    match part {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => {
            matches!(
                op,
                Operator::Divide | Operator::Modulo | Operator::Multiply | Operator::Plus | Operator::Minus
            )
        }
        Expr::Cast(_) | Expr::ScalarFunction(_) | Expr::Negative(_) => true,
        _ => false,
    }
}

/// The same CASE over 1, 0 and NULL.
fn of_integers(mut case: Case) -> Expr {
    let branches = case.when_then_expr.iter_mut().map(|(_, then)| then).chain(&mut case.else_expr);
    for branch in branches {
        let boolean = Expr::Cast(Cast::new(Box::new(std::mem::take(branch.as_mut())), DataType::Boolean));
        **branch = Expr::Cast(Cast::new(Box::new(boolean), DataType::Int8));
    }
    Expr::Cast(Cast::new(Box::new(Expr::Case(case)), DataType::Boolean))
}
