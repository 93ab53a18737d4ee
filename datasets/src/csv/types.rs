//! Infers the type of a column from the texts of its first rows.
//!
//! Only the shape of a text counts: 2024-02-30 looks like a date, so the column is a date column,
//! and that row is an error.

use arrow::datatypes::{DataType, TimeUnit};

/// Every whole number up to this one is exactly a double.
const DOUBLE_INTEGER_MAX: u64 = 1 << 53;

/// The kind of the texts of a column seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// No text was seen.
    #[default]
    Unknown,
    Boolean,
    Integer,
    /// Some integer is not exactly a double.
    LongInteger,
    Double,
    /// NaN or infinity, which count as numbers only in a column with other numbers.
    NonFinite,
    Date,
    Timestamp,
    Text,
}

impl Kind {
    /// The kind with one more text.
    pub(super) fn with(self, text: &str) -> Self {
        if self == Self::Text { self } else { self.joined(kind_of(text)) }
    }

    fn joined(self, other: Self) -> Self {
        match (self, other) {
            (one, Self::Unknown) | (Self::Unknown, one) => one,
            (one, other) if one == other => one,
            (Self::Integer | Self::LongInteger, Self::Integer | Self::LongInteger) => Self::LongInteger,
            (
                Self::Integer | Self::Double | Self::NonFinite,
                Self::Integer | Self::Double | Self::NonFinite,
            ) => Self::Double,
            (Self::Date | Self::Timestamp, Self::Date | Self::Timestamp) => Self::Timestamp,
            _ => Self::Text,
        }
    }

    /// Whether a text may be in a column of this kind. A text that would have changed the column's
    /// type would be altered or lost by the cast.
    pub(super) fn has(self, text: &str) -> bool {
        self == Self::Text
            || self == Self::Unknown
            || self.joined(kind_of(text)).data_type() == self.data_type()
    }

    /// The type that texts of this kind are parsed as.
    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::Unknown | Self::NonFinite | Self::Text => DataType::Utf8,
            Self::Boolean => DataType::Boolean,
            Self::Integer | Self::LongInteger => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Date => DataType::Date32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        }
    }
}

fn kind_of(text: &str) -> Kind {
    let bytes = text.as_bytes();
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    // Leading zeros are significant, as in postal codes.
    let has_zeros = digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_digit();
    if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
        match text.parse::<i64>() {
            _ if has_zeros => Kind::Text,
            Ok(number) if number.unsigned_abs() > DOUBLE_INTEGER_MAX => Kind::LongInteger,
            Ok(_) => Kind::Integer,
            // A double would lose digits.
            Err(_) => Kind::Text,
        }
    } else if is_double(text) {
        if has_zeros { Kind::Text } else { Kind::Double }
    } else if is_non_finite(text) {
        Kind::NonFinite
    } else if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
        Kind::Boolean
    } else if has_shape(bytes, b"0000-00-00") {
        Kind::Date
    } else if is_timestamp(bytes) {
        Kind::Timestamp
    } else {
        Kind::Text
    }
}

/// Whether this is a decimal number in the range of a double: `-1.5`, `.5`, `2e10`. Digits beyond
/// the precision of a double are accepted.
fn is_double(text: &str) -> bool {
    let of_number = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'-' | b'+');
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = !mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    let is_held = |double: f64| double.is_finite() && (double != 0.0 || is_zero);
    !text.starts_with('+') && text.bytes().all(of_number) && text.parse::<f64>().is_ok_and(is_held)
}

fn is_non_finite(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    ["nan", "inf", "infinity"].iter().any(|name| unsigned.eq_ignore_ascii_case(name))
}

fn is_timestamp(bytes: &[u8]) -> bool {
    let Some((begin, fraction)) = bytes.split_at_checked(19) else { return false };
    let is_fraction = match fraction {
        [] => true,
        [b'.', digits @ ..] => (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    is_fraction && (has_shape(begin, b"0000-00-00T00:00:00") || has_shape(begin, b"0000-00-00 00:00:00"))
}

/// Whether the bytes have digits where the shape has zeros, and otherwise equal the shape.
fn has_shape(bytes: &[u8], shape: &[u8]) -> bool {
    let is_like = |(byte, like): (&u8, &u8)| if *like == b'0' { byte.is_ascii_digit() } else { byte == like };
    bytes.len() == shape.len() && bytes.iter().zip(shape).all(is_like)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(texts: &[&str]) -> Kind {
        texts.iter().fold(Kind::default(), |kind, text| kind.with(text))
    }

    #[test]
    fn a_column_has_the_narrowest_type_of_its_texts() {
        let cases: [(&[&str], Kind); 21] = [
            (&[], Kind::Unknown),
            (&["true", "FALSE"], Kind::Boolean),
            (&["1", "-2", "0", "9007199254740992"], Kind::Integer),
            (&["1", "-9223372036854775808"], Kind::LongInteger),
            (&["1.5", "9007199254740993"], Kind::Text),
            (&["1", "007"], Kind::Text),
            (&["00.5"], Kind::Text),
            (&["0.5", "NaN", "-Infinity"], Kind::Double),
            (&["1", "nan"], Kind::Double),
            (&["nan", "inf"], Kind::NonFinite),
            (&["1e-400"], Kind::Text),
            (&["1", "-.5", "5.", "1e3", "2E-3"], Kind::Double),
            (&["2024-02-29", "2024-02-30"], Kind::Date),
            (&["2024-02-29", "2024-02-29 01:02:03.5", "2024-02-29T01:02:03"], Kind::Timestamp),
            (&["1", "true"], Kind::Text),
            (&["1", "2024-02-29"], Kind::Text),
            (&["9223372036854775808"], Kind::Text),
            (&["1e999"], Kind::Text),
            (&["+1"], Kind::Text),
            (&["1 "], Kind::Text),
            (&["2024-02-29T01:02:03Z", "-", ".", "e5"], Kind::Text),
        ];
        for (texts, expected) in cases {
            assert_eq!(kind(texts), expected, "{texts:?}");
        }
    }
}
