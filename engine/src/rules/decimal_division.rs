//! Computes quotients of decimals with twenty digits after the point, rounded.
//!
//! DataFusion's quotients have four more digits than the dividend and are truncated: `2.0 / 3` was
//! 0.66666. PostgreSQL has at least sixteen significant digits.

use az::SaturatingAs;
use datafusion::{
    arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType},
    common::DFSchema,
    error::Result,
    logical_expr::{
        Cast, Expr, ExprSchemable, Operator, binary_expr,
        planner::{ExprPlanner, PlannerResult, RawBinaryExpr},
    },
    sql::sqlparser::ast::BinaryOperator,
};

/// Digits after the point of a quotient.
const QUOTIENT_SCALE: i8 = 20;

/// The rule that plans `/` of decimals.
#[derive(Debug)]
pub(crate) struct DecimalDivision;

impl ExprPlanner for DecimalDivision {
    fn plan_binary_op(
        &self,
        binary: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let types = (binary.left.get_type(schema), binary.right.get_type(schema));
        let (BinaryOperator::Divide, (Ok(left), Ok(right))) = (&binary.op, types) else {
            return Ok(PlannerResult::Original(binary));
        };
        let scales = scale(&left).zip(scale(&right));
        let Some((of_left, of_right)) = scales.filter(|_| left.is_decimal() || right.is_decimal()) else {
            return Ok(PlannerResult::Original(binary));
        };
        let scale = QUOTIENT_SCALE.max(of_left).max(of_right);
        let wide = |operand: Expr, scale| {
            Expr::Cast(Cast::new(Box::new(operand), DataType::Decimal256(DECIMAL256_MAX_PRECISION, scale)))
        };
        // DataFusion's quotient has four more digits and is truncated; the last cast rounds it.
        let quotient = binary_expr(wide(binary.left, scale), Operator::Divide, wide(binary.right, of_right));
        // A quotient may need the digits of the dividend before the point and of the divisor after
        // it.
        let room = i32::from(DECIMAL128_MAX_PRECISION) - i32::from(scale);
        let is_narrow = whole_digits(&left) + i32::from(of_right) <= room;
        let found = if is_narrow {
            DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale)
        } else {
            DataType::Decimal256(DECIMAL256_MAX_PRECISION, scale)
        };
        Ok(PlannerResult::Planned(Expr::Cast(Cast::new(Box::new(quotient), found))))
    }
}

/// Digits before the point of exact numbers.
fn whole_digits(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => i32::from(*precision) - i32::from(*scale),
        _ => i64::MAX.to_string().len().saturating_as::<i32>(),
    }
}

/// Digits after the point of exact numbers.
fn scale(data_type: &DataType) -> Option<i8> {
    match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => Some((*scale).max(0)),
        other => other.is_integer().then_some(0),
    }
}
