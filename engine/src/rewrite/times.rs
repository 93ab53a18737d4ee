//! Sets the precision of TIMESTAMP, and rewrites the notation of INTERVAL.
//!
//! Timestamps have microseconds, as in PostgreSQL. DataFusion's timestamps have nanoseconds, which
//! only hold the years 1677 to 2262. DataFusion does not parse intervals such as `1 day 02:03:04`.

use datafusion::sql::sqlparser::ast::{DataType, Expr, Interval, TypedString};

use super::syntax::{text, text_of};
use crate::time_texts;

/// The number of digits of microseconds.
const MICROSECONDS: u64 = 6;

/// Gives timestamps without a precision microseconds, and splits times in intervals into hours,
/// minutes and seconds.
pub(super) fn rewrite(expression: &mut Expr) {
    if let Expr::Interval(Interval { value, leading_field: None, .. }) = expression
        && let Some(written) = text_of(value).and_then(time_texts::interval)
    {
        **value = text(written);
    }
    let (Expr::Cast { data_type, .. } | Expr::TypedString(TypedString { data_type, .. })) = expression else {
        return;
    };
    if let DataType::Timestamp(precision @ None, _) = data_type {
        *precision = Some(MICROSECONDS);
    }
}
