//! Defines the type of intervals, and the length by which they are compared: a month has 30 days, a
//! day 24 hours.
//!
//! DataFusion compares months first, then days, then the remaining time. So 24 hours would be less
//! than a day.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, Decimal128Array},
        compute::cast,
        datatypes::{
            DECIMAL128_MAX_PRECISION, DataType, DurationMicrosecondType, IntervalMonthDayNanoType,
            IntervalUnit, TimeUnit,
        },
    },
    common::Result,
    logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility},
};

/// The type of intervals.
pub(crate) const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

const DAY_NANOS: i128 = 86_400 * 1_000_000_000;
const MONTH_DAYS: i128 = 30;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Length(Signature);

/// The function that returns the length of an interval, or of a difference of times, in
/// nanoseconds.
pub(crate) fn interval_length() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Length(Signature::any(1, Volatility::Immutable))))
}

impl ScalarUDFImpl for Length {
    fn name(&self) -> &'static str {
        "interval_length"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let lengths = lengths(&arguments.args[0].to_array(arguments.number_rows)?)?;
        let lengths = lengths.with_precision_and_scale(DECIMAL128_MAX_PRECISION, 0)?;
        Ok(ColumnarValue::Array(Arc::new(lengths)))
    }
}

fn lengths(intervals: &ArrayRef) -> Result<Decimal128Array> {
    if matches!(intervals.data_type(), DataType::Duration(_)) {
        // In nanoseconds they would overflow from 292 years on.
        let micros = cast(intervals, &DataType::Duration(TimeUnit::Microsecond))?;
        let nanos = |micros: i64| i128::from(micros) * 1000;
        return Ok(micros.as_primitive::<DurationMicrosecondType>().unary(nanos));
    }
    let parts = cast(intervals, &INTERVAL)?;
    Ok(parts.as_primitive::<IntervalMonthDayNanoType>().unary(|interval| {
        let days = i128::from(interval.months) * MONTH_DAYS + i128::from(interval.days);
        days * DAY_NANOS + i128::from(interval.nanoseconds)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::{array::IntervalMonthDayNanoArray, datatypes::IntervalMonthDayNano};

    #[test]
    fn a_day_is_as_long_as_24_hours_and_a_month_as_30_days() {
        let intervals: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![
            IntervalMonthDayNano::new(0, 1, 0),
            IntervalMonthDayNano::new(0, 0, 86_400_000_000_000),
            IntervalMonthDayNano::new(1, 0, 0),
            IntervalMonthDayNano::new(0, 30, 0),
        ]));
        let found = lengths(&intervals).unwrap();
        assert_eq!(found.value(0), found.value(1));
        assert_eq!(found.value(2), found.value(3));
    }
}
