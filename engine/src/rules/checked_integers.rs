//! Replaces DataFusion's integer arithmetic, which wraps, by functions that report overflow as an
//! error.
//!
//! Unsigned integers, such as `row_number()`, are cast to bigint first, because their differences
//! may be negative.
//!
//! Names of result columns stay as the user wrote them.

use crate::visitors::{PlanTree, Tree};
use std::sync::Arc;

use datafusion::{
    arrow::datatypes::DataType,
    common::{
        DFSchema,
        config::ConfigOptions,
        plan_err,
        tree_node::{Transformed, TreeNodeRecursion},
    },
    error::Result,
    logical_expr::{
        BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF,
        type_coercion::binary::BinaryTypeCoercer,
    },
    optimizer::AnalyzerRule,
};

use super::expressions::rewritten;
use crate::functions::{Checked, checked_functions};

/// How deep arithmetic may nest in CASE and functions: that takes some seconds.
const NESTING_MAX: usize = 22;
const CASE_WEIGHT: usize = 2;
const FUNCTION_WEIGHT: usize = 3;

/// The rule that checks arithmetic of integers.
#[derive(Debug)]
pub(crate) struct CheckedIntegers {
    functions: [(Checked, Arc<ScalarUDF>); 4],
}

impl Default for CheckedIntegers {
    fn default() -> Self {
        Self { functions: checked_functions() }
    }
}

impl AnalyzerRule for CheckedIntegers {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.apply_queries(|plan| {
            plan.each_expression(|expression| {
                check_nesting(expression)?;
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        rewritten(plan, |expression, schema| Ok(self.rewritten(expression, schema)))
    }

    fn name(&self) -> &'static str {
        "checked_integers"
    }
}

impl CheckedIntegers {
    fn rewritten(&self, expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
        match expression {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let found = Checked::of(op).zip(integers(&left, &right, op, schema));
                match found {
                    Some((checked, result)) => {
                        let operands = [*left, *right].map(|operand| signed(operand, &result));
                        Transformed::yes(self.function(checked).call(operands.to_vec()))
                    }
                    None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
                }
            }
            Expr::Negative(item) => match item.get_type(schema) {
                Ok(result) if result.is_integer() => {
                    Transformed::yes(self.function(Checked::Negative).call(vec![signed(*item, &result)]))
                }
                _ => Transformed::no(Expr::Negative(item)),
            },
            other => Transformed::no(other),
        }
    }

    fn function(&self, wanted: Checked) -> &ScalarUDF {
        let found = self.functions.iter().find(|(checked, _)| *checked == wanted);
        &found.expect("there is a function of each").1
    }
}

/// Refuses nesting whose planning would take minutes: DataFusion asks for the type of a function's
/// arguments twice at each level of CASE or another function.
fn check_nesting(expression: &Expr) -> Result<()> {
    match nesting(expression, false)? {
        Some(weight) if weight > NESTING_MAX => plan_err!(
            "arithmetic is nested too deep within CASE and functions: {weight}, expected at most \
             {NESTING_MAX} (each CASE within arithmetic counts {CASE_WEIGHT}, each function \
             {FUNCTION_WEIGHT}); compute parts of it in a subquery"
        ),
        _ => Ok(()),
    }
}

/// How deep arithmetic nests in CASE and functions; `None` without arithmetic. Directly nested ones
/// count once.
fn nesting(expression: &Expr, is_within: bool) -> Result<Option<usize>> {
    let is_arithmetic = match expression {
        Expr::BinaryExpr(binary) => Checked::of(binary.op).is_some(),
        other => matches!(other, Expr::Negative(_)),
    };
    let weight = match expression {
        Expr::Case(_) => CASE_WEIGHT,
        Expr::ScalarFunction(_) => FUNCTION_WEIGHT,
        _ => 0,
    };
    let is_within_below = !is_arithmetic && (is_within || weight > 0);
    let mut below = None;
    expression.apply_children(|part| {
        below = below.max(nesting(part, is_within_below)?);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(match below {
        _ if is_arithmetic => Some(below.unwrap_or(0)),
        Some(found) if !is_within => Some(found + weight),
        found => found,
    })
}

/// The result type of an operation on two integers; `None` for other operands.
fn integers(left: &Expr, right: &Expr, op: Operator, schema: &DFSchema) -> Option<DataType> {
    let (left, right) = (left.get_type(schema).ok()?, right.get_type(schema).ok()?);
    // The difference of two dates is an integer, too.
    if !(left.is_integer() && right.is_integer()) {
        return None;
    }
    let result = if left.is_unsigned_integer() || right.is_unsigned_integer() {
        // Together with a bigint DataFusion would make it a decimal.
        DataType::UInt64
    } else {
        BinaryTypeCoercer::new(&left, &op, &right).get_result_type().ok()?
    };
    result.is_integer().then_some(result)
}

/// The operand as a bigint, if the operation is on unsigned integers.
fn signed(operand: Expr, result: &DataType) -> Expr {
    if result.is_unsigned_integer() {
        Expr::Cast(Cast::new(Box::new(operand), DataType::Int64))
    } else {
        operand
    }
}
