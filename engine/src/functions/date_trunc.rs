//! Implements `date_trunc()` of timestamps in microseconds, for all years.
//!
//! DataFusion's version converts to nanoseconds, which only hold the years 1677 to 2262. It still
//! computes other arguments.

use std::sync::Arc;

use chrono::{DateTime, Datelike, NaiveDate};
use datafusion::{
    arrow::{
        compute::cast,
        datatypes::{DataType, FieldRef, TimeUnit, TimestampMicrosecondType},
    },
    common::{Result, cast::as_timestamp_microsecond_array, exec_err},
    error::DataFusionError,
    functions::datetime::date_trunc::DateTruncFunc,
    logical_expr::{
        ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature,
        sort_properties::{ExprProperties, SortProperties},
    },
    scalar::ScalarValue,
};

use crate::forward::forward;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct DateTrunc(DateTruncFunc);

impl ScalarUDFImpl for DateTrunc {
    forward! { 0 =>
        fn name(&self) -> &str;
        fn aliases(&self) -> &[String];
        fn signature(&self) -> &Signature;
        fn return_type(&self, arguments: &[DataType]) -> Result<DataType>;
        fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef>;
        fn output_ordering(&self, input: &[ExprProperties]) -> Result<SortProperties>;
        fn documentation(&self) -> Option<&Documentation>;
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(unit), time] = arguments.args.as_slice() else {
            return self.0.invoke_with_args(arguments);
        };
        let Some(unit) = unit.try_as_str().flatten().map(str::to_lowercase) else {
            return self.0.invoke_with_args(arguments);
        };
        let is_long = ["decade", "century", "millennium"].contains(&unit.as_str());
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        match time.data_type() {
            found if found == micros => {}
            DataType::Timestamp(_, None) if is_long => {
                let time = cast(&*time.to_array(arguments.number_rows)?, &micros)?;
                let micros = as_timestamp_microsecond_array(&time)?;
                let begins = micros.try_unary::<_, TimestampMicrosecondType, DataFusionError>(|micros| {
                    truncated(&unit, micros)
                })?;
                let begins = cast(&begins, arguments.return_field.data_type())?;
                return Ok(ColumnarValue::Array(begins));
            }
            _ => return self.0.invoke_with_args(arguments),
        }
        let truncated = |micros: i64| truncated(&unit, micros);
        Ok(match time {
            ColumnarValue::Scalar(ScalarValue::TimestampMicrosecond(micros, zone)) => {
                let micros = micros.map(truncated).transpose()?;
                ColumnarValue::Scalar(ScalarValue::TimestampMicrosecond(micros, zone.clone()))
            }
            time => {
                let array = time.to_array(arguments.number_rows)?;
                let micros = as_timestamp_microsecond_array(&array)?;
                let truncated =
                    micros.try_unary::<_, TimestampMicrosecondType, DataFusionError>(truncated)?;
                ColumnarValue::Array(Arc::new(truncated))
            }
        })
    }
}

/// The beginning of the unit of time that contains a timestamp.
fn truncated(unit: &str, micros: i64) -> Result<i64> {
    let floor = |unit: i64| micros.div_euclid(unit).checked_mul(unit);
    let days = micros.div_euclid(DAY);
    let begin = match unit {
        "microsecond" => Some(micros),
        "millisecond" => floor(SECOND / 1000),
        "second" => floor(SECOND),
        "minute" => floor(60 * SECOND),
        "hour" => floor(3600 * SECOND),
        "day" => floor(DAY),
        // 1970-01-01 was a Thursday, and weeks begin on Monday.
        "week" => ((days + 3).div_euclid(7) * 7 - 3).checked_mul(DAY),
        "month" | "quarter" | "year" | "decade" | "century" | "millennium" => {
            let date = DateTime::from_timestamp_micros(micros).map(|time| time.date_naive());
            let month = |date: NaiveDate| match unit {
                "month" => date.month(),
                "quarter" => (date.month() - 1) / 3 * 3 + 1,
                _ => 1,
            };
            let year = |date: NaiveDate| match unit {
                "decade" => date.year().div_euclid(10) * 10,
                "century" => (date.year() - 1).div_euclid(100) * 100 + 1,
                "millennium" => (date.year() - 1).div_euclid(1000) * 1000 + 1,
                _ => date.year(),
            };
            let first = date.and_then(|date| NaiveDate::from_ymd_opt(year(date), month(date), 1));
            first.map(|first| first.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_micros())
        }
        other => {
            return exec_err!(
                "date_trunc to {other:?}, expected microsecond, millisecond, second, minute, hour, day, week, month, quarter, year, decade, century or millennium"
            );
        }
    };
    match begin {
        Some(begin) => Ok(begin),
        None => exec_err!(
            "date_trunc of {micros} microseconds since 1970, expected a time of the years -262143 to 262142"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_time_begin_before_each_moment_also_before_1970() {
        let micros = |text: &str| text.parse::<DateTime<chrono::Utc>>().unwrap().timestamp_micros();
        for (unit, time, begin) in [
            ("year", "9999-12-31T01:02:03Z", "9999-01-01T00:00:00Z"),
            ("decade", "2026-11-26T18:00:00Z", "2020-01-01T00:00:00Z"),
            ("century", "2000-11-26T18:00:00Z", "1901-01-01T00:00:00Z"),
            ("millennium", "2001-01-01T00:00:00Z", "2001-01-01T00:00:00Z"),
            ("quarter", "0001-12-31T01:02:03Z", "0001-10-01T00:00:00Z"),
            ("month", "1969-12-31T23:59:59.999999Z", "1969-12-01T00:00:00Z"),
            ("week", "1969-12-31T23:59:59Z", "1969-12-29T00:00:00Z"),
            ("week", "2026-11-26T18:00:00Z", "2026-11-23T00:00:00Z"),
            ("day", "1969-12-31T23:59:59.999999Z", "1969-12-31T00:00:00Z"),
            ("millisecond", "1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(truncated(unit, micros(time)).unwrap(), micros(begin), "{unit} of {time}");
        }
        assert!(truncated("fortnight", 0).is_err() && truncated("year", i64::MAX).is_err());
        assert!(truncated("day", i64::MIN).is_err());
    }
}
