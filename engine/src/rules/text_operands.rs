//! Which value is a text constant in arithmetic?
//!
//! One of the other operand's type, as in PostgreSQL: `5 - '3'` is 2. DataFusion 55.2 refuses it.

use datafusion::{
    arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType},
    common::DFSchema,
    error::Result,
    logical_expr::{
        Expr, ExprSchemable, cast,
        planner::{ExprPlanner, PlannerResult, RawBinaryExpr},
    },
    scalar::ScalarValue,
    sql::sqlparser::ast::BinaryOperator,
};

/// Gives text constants the type of the value beside them.
#[derive(Debug)]
pub(crate) struct TextOperands;

impl ExprPlanner for TextOperands {
    fn plan_binary_op(
        &self,
        mut binary: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_arithmetic = matches!(
            binary.op,
            BinaryOperator::Plus
                | BinaryOperator::Minus
                | BinaryOperator::Multiply
                | BinaryOperator::Divide
                | BinaryOperator::Modulo
        );
        if is_arithmetic {
            let of_left = value(&binary.left, &binary.op, &binary.right, schema);
            let of_right = value(&binary.right, &binary.op, &binary.left, schema);
            binary.left = of_left.unwrap_or(binary.left);
            binary.right = of_right.unwrap_or(binary.right);
        }
        Ok(PlannerResult::Original(binary))
    }
}

/// The value that an operand is if it is a text constant.
fn value(operand: &Expr, op: &BinaryOperator, other: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = operand else { return None };
    let data_type = match other.get_type(schema).ok()? {
        integer if integer.is_integer() => integer,
        floating if floating.is_floating() => DataType::Float64,
        decimal if decimal.is_decimal() => decimal_of(text),
        DataType::Date32 if *op == BinaryOperator::Minus => DataType::Date32,
        _ => return None,
    };
    Some(cast(operand.clone(), data_type))
}

/// The narrowest decimal that has all digits of a text.
fn decimal_of(text: &str) -> DataType {
    let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).count();
    let fraction = text.split_once('.').map_or(0, |(_, fraction)| digits(fraction));
    let count = |digits: usize| u8::try_from(digits).unwrap_or(u8::MAX).min(DECIMAL128_MAX_PRECISION);
    let scale = count(fraction).cast_signed();
    DataType::Decimal128(count(digits(text).max(fraction + 1)), scale)
}
