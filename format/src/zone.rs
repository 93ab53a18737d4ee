//! Defines zone maps: bounds of the values of a page, by which a scan skips the page without
//! reading it.
//!
//! Invariants
//! - A missing bound means "unknown", never "empty": pruning uses only bounds that are present.
//! - Text bounds are cut to `ZONE_TEXT_BYTES_MAX` bytes: the lower bound to a prefix, the upper
//!   bound to a prefix incremented in its last byte (or unknown, when every byte is 0xff), so both
//!   still bound every value.
//! - NaN is neither below nor above other numbers, so a page that contains a NaN has no float
//!   bounds.

use crate::limits::ZONE_TEXT_BYTES_MAX;
use serde::{Deserialize, Serialize};

/// One bound of a zone map, in the form in which the column is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ZoneValue {
    /// A bound of a type that is stored as integers.
    Integer(i64),
    /// A bound of `Float64`.
    Float(f64),
    /// A bound of `Text`, as bytes: the byte order of UTF-8 is the order of code points.
    Text(Vec<u8>),
}

/// Bounds of the non-null values of a page, and the number of nulls.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Zone {
    /// A lower bound: no value is below it.
    pub min: Option<ZoneValue>,
    /// An upper bound: no value is above it.
    pub max: Option<ZoneValue>,
    /// Rows without a value.
    pub nulls: u32,
}

impl ZoneValue {
    /// The lower bound for a page whose smallest text is `smallest`.
    #[must_use]
    pub fn text_min(smallest: &[u8]) -> Self {
        Self::Text(smallest[..smallest.len().min(ZONE_TEXT_BYTES_MAX)].to_vec())
    }

    /// The upper bound for a page whose largest text is `largest`; `None` if its prefix cannot be
    /// incremented.
    #[must_use]
    pub fn text_max(largest: &[u8]) -> Option<Self> {
        if largest.len() <= ZONE_TEXT_BYTES_MAX {
            return Some(Self::Text(largest.to_vec()));
        }
        let mut prefix = largest[..ZONE_TEXT_BYTES_MAX].to_vec();
        while let Some(last) = prefix.pop() {
            if last < u8::MAX {
                prefix.push(last + 1);
                return Some(Self::Text(prefix));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_bound_still_bounds_the_value() {
        let long = vec![b'z'; ZONE_TEXT_BYTES_MAX + 5];
        let Some(ZoneValue::Text(max)) = ZoneValue::text_max(&long) else { panic!("expected a text bound") };
        let ZoneValue::Text(min) = ZoneValue::text_min(&long) else { panic!("expected a text bound") };
        assert!(min.as_slice() <= long.as_slice() && long.as_slice() <= max.as_slice());
        assert!(max.len() <= ZONE_TEXT_BYTES_MAX);
    }

    #[test]
    fn a_text_of_0xff_bytes_has_no_upper_bound_once_cut() {
        assert_eq!(ZoneValue::text_max(&[0xff; ZONE_TEXT_BYTES_MAX + 1]), None);
    }
}
