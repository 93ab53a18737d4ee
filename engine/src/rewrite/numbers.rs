//! What is a number that no decimal holds?
//!
//! A double, as in DuckDB: `1e300`. DataFusion refuses it, because it takes constants with a point
//! or an exponent for decimals.

use datafusion::sql::sqlparser::ast::{CastKind, DataType, ExactNumberInfo, Expr, Value};

use crate::error::EngineError;

/// The digits that a decimal has at most.
const DECIMAL_DIGITS_MAX: i64 = 76;
/// How many zeros a decimal may have behind its digits.
const DECIMAL_ZEROS_MAX: i64 = 128;

/// Makes a double of a number that is too large, too small or too long for a decimal.
pub(super) fn rewrite(expression: &mut Expr) -> Result<(), Box<EngineError>> {
    let Expr::Value(value) = &*expression else { return Ok(()) };
    let Value::Number(text, _) = &value.value else { return Ok(()) };
    let text = text.replace('_', "");
    let Some((mantissa, exponent)) = parts(&text) else { return Ok(()) };
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let fraction = mantissa.split_once('.').map_or(0, |(_, fraction)| length(fraction));
    let scale = fraction - exponent;
    let significant = length(digits.trim_start_matches('0'));
    if significant.max(scale) <= DECIMAL_DIGITS_MAX && scale >= -DECIMAL_ZEROS_MAX {
        return Ok(());
    }
    let is_zero = digits.bytes().all(|digit| digit == b'0');
    let is_held = text.parse::<f64>().is_ok_and(|double| double.is_finite() && (double != 0.0 || is_zero));
    if !is_held {
        return Err(Box::new(EngineError::Plan(format!(
            "the number {text} is out of range, expected one that a double holds"
        ))));
    }
    *expression = Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::Value(Value::SingleQuotedString(text).into())),
        data_type: DataType::Double(ExactNumberInfo::None),
        array: false,
        format: None,
    };
    Ok(())
}

/// Digits and exponent of a number with an exponent, or with a point. Whole numbers are not
/// changed: a double would lose digits.
fn parts(text: &str) -> Option<(&str, i64)> {
    match text.split_once(['e', 'E']) {
        // One that is longer is out of range, whatever it says.
        Some((mantissa, exponent)) => {
            let far = if exponent.starts_with('-') { -i64::from(i32::MAX) } else { i64::from(i32::MAX) };
            Some((mantissa, exponent.parse::<i32>().map_or(far, i64::from)))
        }
        None => text.contains('.').then_some((text, 0)),
    }
}

fn length(digits: &str) -> i64 {
    i64::try_from(digits.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use crate::rewrite::tests::rewritten;

    #[test]
    fn numbers_beyond_decimals_are_doubles_and_others_stay() {
        for text in ["1", "0.07", "1e5", "1.5e-3", "1e100", "123456789012345678901234567890"] {
            let sql = format!("SELECT {text}");
            assert_eq!(rewritten(&sql).unwrap(), sql);
        }
        for text in ["1e300", "1e-100", "1.5e200"] {
            let sql = format!("SELECT x FROM t WHERE y < {text}");
            assert_eq!(
                rewritten(&sql).unwrap(),
                format!("SELECT x FROM t WHERE y < CAST('{text}' AS DOUBLE)")
            );
        }
        for text in ["1e400", "1e-400", "1e99999999999999999999"] {
            assert!(rewritten(&format!("SELECT {text}")).unwrap_err().contains("out of range"), "{text}");
        }
    }
}
