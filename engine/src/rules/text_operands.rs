//! Gives text constants the type of the other operand, and plans products of intervals and numbers.
//!
//! A text constant has the other operand's type, as in PostgreSQL: `5 - '3'` is 2, and `flag = 't'`
//! is true. DataFusion 55.2 refuses such operands. It also has no product of an interval and a
//! number.

use az::SaturatingAs;
use datafusion::{
    arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, TimeUnit},
    common::DFSchema,
    error::Result,
    logical_expr::{
        Expr, ExprSchemable, ScalarUDF, cast,
        planner::{ExprPlanner, PlannerResult, RawBinaryExpr},
    },
    scalar::ScalarValue,
    sql::sqlparser::ast::BinaryOperator,
};
use std::sync::Arc;

use crate::functions::{INTERVAL, interval_of_difference, interval_product, interval_quotient};

const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// The rule that gives text constants the type of the other operand, and intervals a product.
#[derive(Debug)]
pub(crate) struct TextOperands {
    product: Arc<ScalarUDF>,
    quotient: Arc<ScalarUDF>,
    difference: Arc<ScalarUDF>,
}

impl Default for TextOperands {
    fn default() -> Self {
        Self {
            product: interval_product(),
            quotient: interval_quotient(),
            difference: interval_of_difference(),
        }
    }
}

impl ExprPlanner for TextOperands {
    fn plan_binary_op(
        &self,
        mut binary: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let of_left = value(&binary.left, &binary.op, &binary.right, schema);
        let of_right = value(&binary.right, &binary.op, &binary.left, schema);
        binary.left = of_left.unwrap_or(binary.left);
        binary.right = of_right.unwrap_or(binary.right);
        if binary.op == BinaryOperator::StringConcat {
            let text = |operand: Expr| match operand.get_type(schema) {
                Ok(DataType::Null) => cast(operand, DataType::Utf8),
                _ => operand,
            };
            (binary.left, binary.right) = (text(binary.left), text(binary.right));
        }
        if binary.op == BinaryOperator::Minus {
            // DataFusion would make nanoseconds of both, which hold few years.
            let is = |operand: &Expr, date: bool| match operand.get_type(schema) {
                Ok(DataType::Timestamp(_, None)) => !date,
                Ok(DataType::Date32) => date,
                _ => false,
            };
            if is(&binary.left, true) && is(&binary.right, false) {
                binary.left = cast(binary.left, TIMESTAMP);
            } else if is(&binary.left, false) && is(&binary.right, true) {
                binary.right = cast(binary.right, TIMESTAMP);
            }
        }
        if matches!(binary.op, BinaryOperator::Plus | BinaryOperator::Minus)
            && [&binary.left, &binary.right].iter().any(|operand| is_interval(operand, schema))
        {
            binary.left = self.as_interval(binary.left, schema);
            binary.right = self.as_interval(binary.right, schema);
        }
        let function = match binary.op {
            BinaryOperator::Multiply => &self.product,
            BinaryOperator::Divide => &self.quotient,
            _ => return Ok(PlannerResult::Original(binary)),
        };
        let is_number = |operand: &Expr| operand.get_type(schema).is_ok_and(|found| found.is_numeric());
        let RawBinaryExpr { op, left, right } = binary;
        let [left, right] = [left, right].map(|operand| self.as_interval(operand, schema));
        let (interval, number) = if is_interval(&left, schema) && is_number(&right) {
            (left, right)
        } else if op == BinaryOperator::Multiply && is_number(&left) && is_interval(&right, schema) {
            (right, left)
        } else {
            return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }));
        };
        let arguments = vec![cast(interval, INTERVAL), cast(number, DataType::Float64)];
        Ok(PlannerResult::Planned(function.call(arguments)))
    }
}

impl TextOperands {
    /// A difference of times takes part in arithmetic as an interval of days.
    fn as_interval(&self, operand: Expr, schema: &DFSchema) -> Expr {
        match operand.get_type(schema) {
            Ok(DataType::Duration(_)) => self.difference.call(vec![operand]),
            _ => operand,
        }
    }
}

fn is_interval(operand: &Expr, schema: &DFSchema) -> bool {
    matches!(operand.get_type(schema), Ok(DataType::Interval(_)))
}

/// The value of an operand that is a text constant.
fn value(operand: &Expr, op: &BinaryOperator, other: &Expr, schema: &DFSchema) -> Option<Expr> {
    use BinaryOperator::{Divide, Eq, Gt, GtEq, Lt, LtEq, Minus, Modulo, Multiply, NotEq, Plus};

    let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = operand else { return None };
    let found = other.get_type(schema).ok()?;
    let data_type = match (op, found) {
        (Plus | Minus | Multiply | Divide | Modulo, integer) if integer.is_integer() => integer,
        (Plus | Minus | Multiply | Divide | Modulo, floating) if floating.is_floating() => DataType::Float64,
        (Plus | Minus | Multiply | Divide | Modulo, decimal) if decimal.is_decimal() => decimal_of(text),
        (Minus, DataType::Date32) => DataType::Date32,
        (Minus, DataType::Timestamp(..)) => TIMESTAMP,
        (Plus, DataType::Timestamp(..) | DataType::Time64(_)) => INTERVAL,
        (Plus | Minus, DataType::Interval(_)) => INTERVAL,
        (Eq | NotEq | Lt | LtEq | Gt | GtEq | Plus | Minus, DataType::Duration(_)) => INTERVAL,
        (
            Eq | NotEq | Lt | LtEq | Gt | GtEq,
            found @ (DataType::Boolean | DataType::Time64(_) | DataType::Interval(_)),
        ) => found,
        _ => return None,
    };
    Some(cast(operand.clone(), data_type))
}

/// The narrowest decimal that has all digits of a text.
fn decimal_of(text: &str) -> DataType {
    let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).count();
    let fraction = text.split_once('.').map_or(0, |(_, fraction)| digits(fraction));
    let count = |digits: usize| digits.saturating_as::<u8>().min(DECIMAL128_MAX_PRECISION);
    let scale = count(fraction).cast_signed();
    DataType::Decimal128(count(digits(text).max(fraction + 1)), scale)
}
