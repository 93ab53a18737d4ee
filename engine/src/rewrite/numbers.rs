//! Decides the types of number constants with a point or an exponent.
//!
//! They are decimals, as in PostgreSQL, if a decimal can hold them. DataFusion 55.2 turns constants
//! such as `1e3` into decimals of a negative scale, and panics in arithmetic with them. So such
//! constants are written with their zeros (`1000`).
//!
//! Other constants, such as `1e300`, are doubles, as in DuckDB. DataFusion refuses them.

use az::SaturatingAs;
use datafusion::sql::sqlparser::ast::{CastKind, DataType, ExactNumberInfo, Expr, UnaryOperator, Value};

use super::syntax::{bare, text};
use crate::error::EngineError;

/// The maximum digits of a decimal.
const DECIMAL_DIGITS_MAX: i64 = 76;
/// The maximum digits of a decimal whose exponent adds zeros to it.
const DECIMAL_DIGITS_WITH_ZEROS_MAX: i64 = 38;
/// The maximum digits of whole numbers that stay integers.
const WHOLE_DIGITS_MAX: usize = 18;

/// Writes out the zeros that an exponent adds to a number, and makes a double of a number that is
/// too large, too small or too long for a decimal.
pub(super) fn rewrite(expression: &mut Expr) -> Result<(), Box<EngineError>> {
    if matches!(expression, Expr::Cast { .. }) {
        return cast_text(expression);
    }
    let Some(text) = number(expression) else { return Ok(()) };
    let Some((mantissa, exponent)) = parts(&text) else { return Ok(()) };
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let fraction = mantissa.split_once('.').map_or(0, |(_, fraction)| length(fraction));
    let scale = fraction - exponent;
    let significant = digits.trim_start_matches('0');
    let is_decimal = match scale {
        0.. => length(significant).max(scale) <= DECIMAL_DIGITS_MAX,
        _ => significant.is_empty() || length(significant) - scale <= DECIMAL_DIGITS_WITH_ZEROS_MAX,
    };
    if !is_decimal {
        check_held(&text, f64::MAX)?;
        *expression = cast(text, DataType::Double(ExactNumberInfo::None));
    } else if scale < 0 {
        *expression = with_zeros(significant, scale.unsigned_abs());
    }
    Ok(())
}

/// A decimal of these digits and this many zeros.
fn with_zeros(digits: &str, zeros: u64) -> Expr {
    let zeros = zeros.saturating_as::<usize>();
    let text = if digits.is_empty() { "0".to_owned() } else { format!("{digits}{}", "0".repeat(zeros)) };
    let precision = text.len().saturating_as::<u64>();
    cast(text, DataType::Decimal(ExactNumberInfo::PrecisionAndScale(precision, 0)))
}

/// Replaces the cast of a number to a double by a cast of its text: a cast by way of a decimal is
/// inexact. A REAL has so few digits that it makes no difference there.
fn cast_text(expression: &mut Expr) -> Result<(), Box<EngineError>> {
    let Expr::Cast { expr, data_type, array: false, .. } = expression else { return Ok(()) };
    let is_double = match data_type {
        DataType::Double(ExactNumberInfo::None) | DataType::DoublePrecision | DataType::Float8 => true,
        DataType::Float(_) | DataType::Real | DataType::Float4 => false,
        _ => return Ok(()),
    };
    let Some(signed) = signed_number(expr) else { return Ok(()) };
    let is_whole = signed.bytes().all(|digit| digit.is_ascii_digit() || digit == b'-');
    if is_whole && signed.len() <= WHOLE_DIGITS_MAX {
        return Ok(());
    }
    check_held(&signed, if is_double { f64::MAX } else { f64::from(f32::MAX) })?;
    if is_double {
        **expr = text(signed);
    }
    Ok(())
}

/// The text of a number, which may have signs and parentheses around it.
fn signed_number(expression: &Expr) -> Option<String> {
    match bare(expression) {
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => signed_number(expr),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            let signed = signed_number(expr)?;
            Some(signed.strip_prefix('-').map_or_else(|| format!("-{signed}"), str::to_owned))
        }
        other => number(other),
    }
}

fn number(expression: &Expr) -> Option<String> {
    let Expr::Value(value) = expression else { return None };
    let Value::Number(text, _) = &value.value else { return None };
    Some(text.replace('_', ""))
}

/// Refuses a number that is beyond the largest one, or so small that it would become zero.
fn check_held(text: &str, largest: f64) -> Result<(), Box<EngineError>> {
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let is_zero = !mantissa.bytes().any(|digit| (b'1'..=b'9').contains(&digit));
    let is_held =
        text.parse::<f64>().is_ok_and(|double| double.abs() <= largest && (double != 0.0 || is_zero));
    if is_held {
        return Ok(());
    }
    let message = format!("the number {text} is out of range, expected one that a double holds");
    Err(Box::new(EngineError::invalid("22003", message)))
}

fn cast(number: String, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(text(number)), data_type, array: false, format: None }
}

/// Digits and exponent of a number with an exponent or a point. Whole numbers are left alone: a
/// double would lose digits.
fn parts(text: &str) -> Option<(&str, i64)> {
    match text.split_once(['e', 'E']) {
        // An exponent with more digits is out of range in any case.
        Some((mantissa, exponent)) => {
            let far = if exponent.starts_with('-') { -i64::from(i32::MAX) } else { i64::from(i32::MAX) };
            Some((mantissa, exponent.parse::<i32>().map_or(far, i64::from)))
        }
        None => text.contains('.').then_some((text, 0)),
    }
}

fn length(digits: &str) -> i64 {
    digits.len().saturating_as::<i64>()
}

#[cfg(test)]
mod tests {
    use crate::rewrite::tests::rewritten;

    #[test]
    fn numbers_that_decimals_hold_stay_exact() {
        for text in ["1", "0.07", "1.50e2", "1.5e-3", "1e-38", "123456789012345678901234567890"] {
            let sql = format!("SELECT x FROM t WHERE y < {text}");
            assert_eq!(rewritten(&sql).unwrap(), sql);
        }
        for (text, decimal) in [
            ("1e3", "CAST('1000' AS DECIMAL(4,0))"),
            ("1.5E2", "CAST('150' AS DECIMAL(3,0))"),
            ("-0.5e+10", "-CAST('5000000000' AS DECIMAL(10,0))"),
            ("0e99", "CAST('0' AS DECIMAL(1,0))"),
        ] {
            let sql = format!("SELECT x FROM t WHERE y < {text}");
            assert_eq!(rewritten(&sql).unwrap(), format!("SELECT x FROM t WHERE y < {decimal}"));
        }
    }

    #[test]
    fn numbers_beyond_decimals_are_doubles() {
        for text in ["1e38", "1e100", "1e300", "1e-100", "1.5e200"] {
            let sql = format!("SELECT x FROM t WHERE y < {text}");
            assert_eq!(
                rewritten(&sql).unwrap(),
                format!("SELECT x FROM t WHERE y < CAST('{text}' AS DOUBLE)")
            );
        }
        for text in ["1e400", "1e-400", "1e99999999999999999999", "1e400::float8", "1e39::real"] {
            assert!(rewritten(&format!("SELECT {text}")).unwrap_err().contains("out of range"), "{text}");
        }
    }

    #[test]
    fn a_number_that_is_cast_to_a_double_is_cast_from_its_text() {
        for (cast, expected) in [
            ("CAST(1e15 AS DOUBLE)", "CAST('1e15' AS DOUBLE)"),
            ("CAST(-(0.1) AS DOUBLE PRECISION)", "CAST('-0.1' AS DOUBLE PRECISION)"),
            ("(- -1.5)::FLOAT8", "'1.5'::FLOAT8"),
            ("(1.5)::REAL", "(1.5)::REAL"),
            ("(1.25)::FLOAT8", "'1.25'::FLOAT8"),
            ("CAST(1 AS DOUBLE)", "CAST(1 AS DOUBLE)"),
            ("CAST(1e3 AS INT)", "CAST(CAST('1000' AS DECIMAL(4,0)) AS INT)"),
        ] {
            let sql = format!("SELECT x FROM t WHERE y < {cast}");
            assert_eq!(rewritten(&sql).unwrap(), format!("SELECT x FROM t WHERE y < {expected}"));
        }
    }
}
