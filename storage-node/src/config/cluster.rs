//! Parses the id of a cluster from a number or a name. The id of a name is its 64-bit FNV-1a hash.
//!
//! The id only detects wrong configurations. Access is protected by the key of the cluster.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The number of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClusterId(pub u64);

impl ClusterId {
    /// The number that a name stands for.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        let start = 0xcbf2_9ce4_8422_2325_u64;
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(name.bytes().fold(start, mix))
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for ClusterId {
    /// Serialised as a number if it fits TOML's signed integers, otherwise as its digits.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match i64::try_from(self.0) {
            Ok(number) => serializer.serialize_i64(number),
            Err(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for ClusterId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ClusterId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a cluster's number or name")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<ClusterId, E> {
                Ok(ClusterId(number))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<ClusterId, E> {
                let fault = |_| E::invalid_value(de::Unexpected::Signed(number), &self);
                u64::try_from(number).map(ClusterId).map_err(fault)
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<ClusterId, E> {
                if name.is_empty() {
                    return Err(E::invalid_value(de::Unexpected::Str(name), &self));
                }
                Ok(name.parse().map_or_else(|_| ClusterId::of_name(name), ClusterId))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_the_same_number_for_ever() {
        // The published test vectors of FNV-1a.
        assert_eq!(ClusterId::of_name(""), ClusterId(0xcbf2_9ce4_8422_2325));
        assert_eq!(ClusterId::of_name("foobar"), ClusterId(0x8594_4171_f739_67e8));
    }
}
