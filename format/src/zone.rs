//! Which values can a page hold? The zone map: bounds that let a scan skip a page without reading
//! it.
//!
//! Invariants
//! - A missing bound means "unknown", never "empty": pruning may only use bounds that are there.
//! - Text bounds are cut to `ZONE_TEXT_BYTES_MAX` bytes: the lower one to a prefix, the upper one
//!   to a prefix incremented in its last byte (or unknown, when every byte is 0xff), so both still
//!   bound every value.
//! - NaN is outside every order, so a page that holds one has no float bounds.

use crate::limits::ZONE_TEXT_BYTES_MAX;
use serde::{Deserialize, Serialize};

/// One bound of a zone map, in the stored form of the column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ZoneValue {
    /// Of every type that is stored as an integer.
    Integer(i64),
    /// Of `Float64`.
    Float(f64),
    /// Of `Text`, as bytes: UTF-8 keeps the order of code points.
    Text(Vec<u8>),
}

/// Bounds of the non-null values of a page, and how many nulls there are.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Zone {
    /// No value is below it.
    pub min: Option<ZoneValue>,
    /// No value is above it.
    pub max: Option<ZoneValue>,
    /// Rows without a value.
    pub nulls: u32,
}

impl ZoneValue {
    /// The lower bound that `smallest`, a page's smallest text, leaves in a zone map.
    #[must_use]
    pub fn text_min(smallest: &[u8]) -> Self {
        Self::Text(smallest[..smallest.len().min(ZONE_TEXT_BYTES_MAX)].to_vec())
    }

    /// The upper bound that `largest`, a page's largest text, leaves in a zone map.
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
