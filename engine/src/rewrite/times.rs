//! How fine is a TIMESTAMP?
//!
//! Microseconds, as in PostgreSQL. DataFusion's has nanoseconds, in which only the years 1677 to
//! 2262 fit.

use datafusion::sql::sqlparser::ast::{DataType, Expr, TypedString};

/// The digits of microseconds.
const MICROSECONDS: u64 = 6;

/// Makes microseconds of timestamps that do not say how fine they are.
pub(super) fn rewrite(expression: &mut Expr) {
    let (Expr::Cast { data_type, .. } | Expr::TypedString(TypedString { data_type, .. })) = expression else {
        return;
    };
    if let DataType::Timestamp(precision @ None, _) = data_type {
        *precision = Some(MICROSECONDS);
    }
}
