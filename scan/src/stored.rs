//! Defines which types are stored as integers, and converts a constant to the integer as which it
//! would be stored.

use rackscan_format::program::{Literal, ValueType};

/// Whether columns of this type are stored as integers that compare as their values do.
pub(crate) fn stored_integer(value_type: ValueType) -> bool {
    !matches!(value_type, ValueType::Float64 | ValueType::Text)
}

/// A constant in the stored domain of its type. `None` for NULL, floats and texts.
pub(crate) fn unscaled(literal: &Literal) -> Option<i128> {
    match literal {
        Literal::Boolean(value) => Some(i128::from(*value)),
        Literal::Int32(value) | Literal::Date32(value) => Some(i128::from(*value)),
        Literal::Int64(value) | Literal::TimestampMicros(value) => Some(i128::from(*value)),
        Literal::Decimal { unscaled, .. } => Some(*unscaled),
        Literal::Null(_) | Literal::Float64(_) | Literal::Text(_) => None,
    }
}
