//! Multiplies and divides intervals by numbers, and converts differences of times to intervals.
//! DataFusion has no such operators.
//!
//! As in PostgreSQL (`interval_mul`), a fraction of a month becomes days, 30 to a month, and a
//! fraction of a day becomes a time.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{ArrayRef, AsArray, IntervalMonthDayNanoArray},
        datatypes::{DataType, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType},
    },
    common::{Result, exec_err},
    logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility},
};

use super::{date_part::as_interval, interval::INTERVAL};

/// Converts a difference of times to an interval of days and a remainder below a day.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Difference(Signature);

/// The function that makes an interval of a difference of times. DataFusion's cast leaves its days
/// 0.
pub(crate) fn interval_of_difference() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Difference(Signature::any(1, Volatility::Immutable))))
}

impl ScalarUDFImpl for Difference {
    fn name(&self) -> &'static str {
        "interval_of_difference"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        as_interval(&arguments.args[0].to_array(arguments.number_rows)?).map(ColumnarValue::Array)
    }
}

const MONTH_DAYS: f64 = 30.0;
const DAY_SECONDS: f64 = 86_400.0;
const MICROS: f64 = 1e6;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Product {
    signature: Signature,
    is_quotient: bool,
}

/// The function that multiplies an interval by a double.
pub(crate) fn interval_product() -> Arc<ScalarUDF> {
    function(false)
}

/// The function that divides an interval by a double.
pub(crate) fn interval_quotient() -> Arc<ScalarUDF> {
    function(true)
}

fn function(is_quotient: bool) -> Arc<ScalarUDF> {
    let signature = Signature::exact(vec![INTERVAL, DataType::Float64], Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Product { signature, is_quotient }))
}

impl ScalarUDFImpl for Product {
    fn name(&self) -> &'static str {
        if self.is_quotient { "interval_quotient" } else { "interval_product" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let intervals = arguments.args[0].to_array(rows)?;
        let numbers = arguments.args[1].to_array(rows)?;
        let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
        let numbers = numbers.as_primitive::<Float64Type>();
        let products = intervals.iter().zip(numbers.iter()).map(|pair| match pair {
            (Some(interval), Some(number)) => self.of(interval, number).map(Some),
            _ => Ok(None),
        });
        let products: ArrayRef = Arc::new(products.collect::<Result<IntervalMonthDayNanoArray>>()?);
        Ok(ColumnarValue::Array(products))
    }
}

impl Product {
    fn of(&self, interval: IntervalMonthDayNano, number: f64) -> Result<IntervalMonthDayNano> {
        if self.is_quotient && number == 0.0 {
            return exec_err!("division by zero");
        }
        let times = |part: f64| if self.is_quotient { part / number } else { part * number };
        let whole_months = times(interval.months.into());
        let whole_days = times(interval.days.into());
        let (months, mut days) = (whole_months.trunc(), whole_days.trunc());
        let days_of_month = to_micros((whole_months - months) * MONTH_DAYS);
        let mut seconds =
            to_micros((whole_days - days + days_of_month - days_of_month.trunc()) * DAY_SECONDS);
        if seconds.abs() >= DAY_SECONDS {
            let more = (seconds / DAY_SECONDS).trunc();
            days += more;
            seconds -= more * DAY_SECONDS;
        }
        days += days_of_month.trunc();
        #[expect(clippy::cast_precision_loss, reason = "PostgreSQL computes with doubles, too")]
        let micros = (times(interval.nanoseconds as f64 / 1e3) + seconds * MICROS).round_ties_even();
        match (whole(months), whole(days), whole(micros * 1e3)) {
            (Some(months), Some(days), Some(nanos)) => {
                let parts = (i32::try_from(months), i32::try_from(days));
                if let (Ok(months), Ok(days)) = parts {
                    return Ok(IntervalMonthDayNano::new(months, days, nanos));
                }
                exec_err!("interval out of range: {months} months and {days} days")
            }
            _ => exec_err!("interval out of range: its product or quotient with {number}"),
        }
    }
}

/// Rounds to a millionth, so that rounding errors leave no fraction of a number that was meant to
/// be whole.
fn to_micros(number: f64) -> f64 {
    (number * MICROS).round_ties_even() / MICROS
}

/// A whole double as an integer.
fn whole(number: f64) -> Option<i64> {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    #[expect(clippy::cast_possible_truncation, reason = "it is within the type")]
    let whole = (number.abs() < BEYOND).then_some(number as i64);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_months_becomes_days_and_of_days_a_time() {
        let of = |is_quotient, interval: (i32, i32, i64), number: f64| {
            let signature = Signature::any(2, Volatility::Immutable);
            let (months, days, nanos) = interval;
            let interval = IntervalMonthDayNano::new(months, days, nanos);
            let found = Product { signature, is_quotient }.of(interval, number);
            found.map(|found| (found.months, found.days, found.nanoseconds))
        };
        let hour = 3_600_000_000_000;
        assert_eq!(of(false, (1, 0, 0), 1.5).unwrap(), (1, 15, 0));
        assert_eq!(of(false, (0, 1, 0), 2.5).unwrap(), (0, 2, 12 * hour));
        assert_eq!(of(false, (0, 0, hour), 3.0).unwrap(), (0, 0, 3 * hour));
        assert_eq!(of(true, (1, 1, 0), 2.0).unwrap(), (0, 15, 12 * hour));
        assert_eq!(of(false, (1, 0, 0), -0.5).unwrap(), (0, -15, 0));
        assert!(of(true, (1, 0, 0), 0.0).unwrap_err().to_string().contains("division by zero"));
        assert!(of(false, (1, 0, 0), 1e10).is_err() && of(false, (0, 1, 0), f64::NAN).is_err());
    }
}
