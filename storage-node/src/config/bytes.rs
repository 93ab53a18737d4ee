//! Parses and prints sizes in bytes.
//!
//! It accepts `4096`, `"128KiB"`, `"512 MiB"`, `"1.5GiB"`, and decimal units such as `"10GB"`. It
//! prints a size in the largest binary unit in which the size is a whole number.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes with a readable form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 10] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Why a text is not a number of bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a size; expected a number of bytes, or a number with a unit, like \"512MiB\"")]
pub struct ByteSizeError {
    found: String,
}

impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, ByteSizeError> {
        let fault = || ByteSizeError { found: text.to_owned() };
        let trimmed = text.trim();
        let known = UNITS.iter().find_map(|(name, unit)| Some((trimmed.strip_suffix(name)?, *unit)));
        let (number, unit) = known.unwrap_or((trimmed, 1));
        let number = number.trim();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = |part: &str, most| part.bytes().all(|byte| byte.is_ascii_digit()) && part.len() <= most;
        if whole.is_empty() || !digits(whole, 20) || !digits(fraction, 18) || number.ends_with('.') {
            return Err(fault());
        }
        let whole: u128 = whole.parse().map_err(|_| fault())?;
        let scale = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| fault())?);
        let fraction: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| fault())? };
        let bytes = whole * u128::from(unit) + fraction * u128::from(unit) / scale;
        u64::try_from(bytes).map(Self).map_err(|_| fault())
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS[..4].iter().find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        match exact {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size like \"512MiB\" or a number of bytes")
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(bytes))
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
                u64::try_from(bytes)
                    .map(ByteSize)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(bytes), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512MiB", 512 << 20),
            (" 1.5 GiB ", 3 << 29),
            ("10GB", 10_000_000_000),
            ("0.5KiB", 512),
            ("7B", 7),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "MiB", "-1", "1.", ".5GiB", "1 2", "12 parsecs", "99999999TiB", "1e6"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_size_survives_its_text() {
        for bytes in [0, 1, 1023, 1024, 3 << 20, (1 << 30) + 1, 1 << 40, u64::MAX] {
            assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
    }
}
