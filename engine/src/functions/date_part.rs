//! Implements `date_part()` and `extract()` with fractions of seconds, and for differences of
//! times.
//!
//! DataFusion's version drops the fraction of seconds and milliseconds, and returns 300 minutes for
//! a difference of 5 hours. It does not support decades, centuries and millennia. It still computes
//! the other parts and types.

use std::sync::Arc;

use super::interval::INTERVAL;
use crate::forward::forward;
use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, Decimal128Array, IntervalMonthDayNanoArray},
        compute::cast,
        datatypes::{
            DataType, DurationMicrosecondType, Field, FieldRef, Float64Type, Int32Type, IntervalMonthDayNano,
            IntervalMonthDayNanoType, IntervalUnit, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
        },
    },
    common::Result,
    functions::datetime::date_part::DatePartFunc,
    logical_expr::{
        ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature,
        preimage::PreimageResult, simplify::SimplifyContext,
    },
    scalar::ScalarValue,
};

const MICROS: i64 = 1_000_000;
const MINUTE: i64 = 60 * MICROS;
const DAY: i64 = 24 * 60 * MINUTE;

#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct DatePart(DatePartFunc);

/// Parts of a time that have a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fine {
    Seconds,
    Milliseconds,
}

impl Fine {
    fn of(part: &str) -> Option<Self> {
        match part.to_lowercase().as_str() {
            "second" | "seconds" | "sec" | "secs" | "s" => Some(Self::Seconds),
            "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => Some(Self::Milliseconds),
            _ => None,
        }
    }

    /// Six digits after the point for seconds, and three for milliseconds, give microseconds.
    fn data_type(self) -> DataType {
        match self {
            Self::Seconds => DataType::Decimal128(8, 6),
            Self::Milliseconds => DataType::Decimal128(8, 3),
        }
    }
}

/// The part that is asked for, if it has a fraction and the times are of a type that is handled
/// here.
fn fine(part: Option<&ScalarValue>, times: &DataType) -> Option<Fine> {
    let is_ours = matches!(
        times,
        DataType::Timestamp(_, None)
            | DataType::Time64(_)
            | DataType::Duration(_)
            | DataType::Interval(IntervalUnit::MonthDayNano)
    );
    Fine::of(part?.try_as_str()??).filter(|_| is_ours)
}

/// Parts that span several years. Year 0 is the one before year 1. There is no century 0.
#[derive(Clone, Copy)]
enum Long {
    Decade,
    Century,
    Millennium,
}

impl Long {
    fn of(part: &ScalarValue) -> Option<Self> {
        match part.try_as_str()??.to_lowercase().as_str() {
            "decade" | "decades" => Some(Self::Decade),
            "century" | "centuries" => Some(Self::Century),
            "millennium" | "millennia" => Some(Self::Millennium),
            _ => None,
        }
    }

    fn of_year(self, year: i32) -> i32 {
        let years = match self {
            Self::Decade => return year.div_euclid(10),
            Self::Century => 100,
            Self::Millennium => 1000,
        };
        if year > 0 { (year - 1) / years + 1 } else { year / years - 1 }
    }

    /// Whole units in a number of years, not the unit in which a year lies.
    fn of_years(self, years: i32) -> i32 {
        match self {
            Self::Decade => years / 10,
            Self::Century => years / 100,
            Self::Millennium => years / 1000,
        }
    }
}

/// Microseconds within the minute of each time; negative for a negative difference.
fn micros_of_minute(times: &ArrayRef) -> Result<Decimal128Array> {
    let within = |micros: i64| i128::from(micros % MINUTE);
    Ok(match times.data_type() {
        DataType::Interval(_) => times
            .as_primitive::<IntervalMonthDayNanoType>()
            .unary(|interval| within(interval.nanoseconds / 1000)),
        DataType::Duration(_) => micros_of(times)?.as_primitive::<DurationMicrosecondType>().unary(within),
        DataType::Time64(_) => {
            let nanos = cast(times, &DataType::Time64(TimeUnit::Nanosecond))?;
            nanos.as_primitive::<Time64NanosecondType>().unary(|nanos| within(nanos / 1000))
        }
        _ => {
            let micros = cast(times, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
            let within = |micros: i64| i128::from(micros.rem_euclid(MINUTE));
            micros.as_primitive::<TimestampMicrosecondType>().unary(within)
        }
    })
}

/// Differences of times in microseconds. In nanoseconds they would overflow from 292 years on.
fn micros_of(differences: &ArrayRef) -> Result<ArrayRef> {
    Ok(cast(differences, &DataType::Duration(TimeUnit::Microsecond))?)
}

/// Seconds of an interval: a year has 365.25 days, and a remaining month has 30 days.
#[expect(clippy::cast_precision_loss, reason = "seconds are doubles, as in PostgreSQL")]
fn seconds_of(interval: IntervalMonthDayNano) -> f64 {
    let (years, months) = (interval.months / 12, interval.months % 12);
    let days = f64::from(years) * 365.25 + f64::from(months) * 30.0 + f64::from(interval.days);
    days * 86_400.0 + interval.nanoseconds as f64 / 1e9
}

/// A difference of times as an interval of days and a remainder below a day.
pub(super) fn as_interval(difference: &ArrayRef) -> Result<ArrayRef> {
    let micros = micros_of(difference)?;
    let parts = micros.as_primitive::<DurationMicrosecondType>().unary(|micros: i64| {
        let days = i32::try_from(micros / DAY).expect("64 bits of microseconds are 106,751,991 days");
        IntervalMonthDayNano::new(0, days, micros % DAY * 1000)
    });
    let parts: IntervalMonthDayNanoArray = parts;
    Ok(Arc::new(parts))
}

impl ScalarUDFImpl for DatePart {
    forward! { 0 =>
        fn name(&self) -> &str;
        fn aliases(&self) -> &[String];
        fn signature(&self) -> &Signature;
        fn return_type(&self, arguments: &[DataType]) -> Result<DataType>;
        fn preimage(
            &self,
            arguments: &[Expr],
            constant: &Expr,
            info: &SimplifyContext,
        ) -> Result<PreimageResult>;
        fn documentation(&self) -> Option<&Documentation>;
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        if let ([part, _], [_, times]) = (arguments.scalar_arguments, arguments.arg_fields)
            && let Some(fine) = fine(*part, times.data_type())
        {
            return Ok(Arc::new(Field::new(self.name(), fine.data_type(), times.is_nullable())));
        }
        self.0.return_field_from_args(arguments)
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(part), times] = arguments.args.as_slice() else {
            return self.0.invoke_with_args(arguments);
        };
        if let Some(fine) = fine(Some(part), &times.data_type()) {
            let micros = micros_of_minute(&times.to_array(arguments.number_rows)?)?;
            return Ok(ColumnarValue::Array(Arc::new(micros.with_data_type(fine.data_type()))));
        }
        if let Some(long) = Long::of(part) {
            let is_difference = matches!(times.data_type(), DataType::Interval(_));
            arguments.args[0] = ColumnarValue::Scalar(ScalarValue::from("year"));
            let rows = arguments.number_rows;
            let years = self.0.invoke_with_args(arguments)?.to_array(rows)?;
            let part = |year| if is_difference { long.of_years(year) } else { long.of_year(year) };
            let parts = years.as_primitive::<Int32Type>().unary::<_, Int32Type>(part);
            return Ok(ColumnarValue::Array(Arc::new(parts)));
        }
        let is_epoch = part.try_as_str().flatten().is_some_and(|part| part.eq_ignore_ascii_case("epoch"));
        if matches!(times.data_type(), DataType::Duration(_)) && is_epoch {
            let micros = micros_of(&times.to_array(arguments.number_rows)?)?;
            let micros = micros.as_primitive::<DurationMicrosecondType>();
            #[expect(clippy::cast_precision_loss, reason = "seconds are doubles, as in PostgreSQL")]
            let seconds = micros.unary::<_, Float64Type>(|micros| micros as f64 / MICROS as f64);
            return Ok(ColumnarValue::Array(Arc::new(seconds)));
        }
        if is_epoch && matches!(times.data_type(), DataType::Interval(_)) {
            let intervals = cast(&times.to_array(arguments.number_rows)?, &INTERVAL)?;
            let seconds = intervals.as_primitive::<IntervalMonthDayNanoType>();
            return Ok(ColumnarValue::Array(Arc::new(seconds.unary::<_, Float64Type>(seconds_of))));
        }
        if matches!(times.data_type(), DataType::Duration(_)) {
            let parts = as_interval(&times.to_array(arguments.number_rows)?)?;
            arguments.args[1] = ColumnarValue::Array(parts);
        }
        self.0.invoke_with_args(arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{DurationMicrosecondArray, TimestampMicrosecondArray};

    #[test]
    fn seconds_keep_their_fraction_also_before_1970() {
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![7_250_000, -1, 3_600_000_000]));
        let found = micros_of_minute(&times).unwrap();
        assert_eq!(found.values(), &[7_250_000, 59_999_999, 0]);
        let differences: ArrayRef = Arc::new(DurationMicrosecondArray::from(vec![-61_500_000, 61_500_000]));
        assert_eq!(micros_of_minute(&differences).unwrap().values(), &[-1_500_000, 1_500_000]);
    }

    #[test]
    fn decades_begin_with_zero_and_centuries_with_one() {
        for (year, decade, century, millennium) in [
            (2024, 202, 21, 3),
            (2000, 200, 20, 2),
            (2001, 200, 21, 3),
            (1, 0, 1, 1),
            (0, 0, -1, -1),
            (-99, -10, -1, -1),
            (-100, -10, -2, -1),
        ] {
            let found = [Long::Decade, Long::Century, Long::Millennium].map(|part| part.of_year(year));
            assert_eq!(found, [decade, century, millennium], "{year}");
        }
        let parts = [Long::Decade, Long::Century, Long::Millennium];
        assert_eq!(parts.map(|part| part.of_years(2500)), [250, 25, 2]);
        assert_eq!(parts.map(|part| part.of_years(-99)), [-9, 0, 0]);
    }

    #[test]
    fn a_difference_has_days_and_what_is_left_of_one() {
        let hours_101: ArrayRef = Arc::new(DurationMicrosecondArray::from(vec![101 * 3_600 * MICROS]));
        let found = as_interval(&hours_101).unwrap();
        let found = found.as_primitive::<IntervalMonthDayNanoType>().value(0);
        assert_eq!(found, IntervalMonthDayNano::new(0, 4, 5 * 3_600 * 1_000_000_000));
    }
}
