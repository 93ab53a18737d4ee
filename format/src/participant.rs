//! Assigns rows to nodes by a hash of the partition key.
//!
//! A load distributes rows by this hash, and a reader that knows a key reads only from the node of
//! that key. So the functions here are part of the format: they never change in any release, and
//! tests compare them with fixed values.
//!
//! Invariants
//! - Equal values of a column have equal hashes: `-0.0` hashes as `0.0`, and all NaNs have one
//!   hash.
//! - A value of any integer type is hashed as the 64-bit integer as which it is stored, so equal
//!   keys in columns of different widths have equal hashes.
//! - NULL has a hash and a node like any value.

/// The hash of a partition key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash(pub u64);

/// The increment of SplitMix64; here an arbitrary odd constant.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

impl KeyHash {
    /// The hash of NULL.
    pub const NULL: Self = Self(GAMMA);

    /// The hash of a key stored as an integer. Adding the constant keeps 0 from hashing to 0.
    #[must_use]
    pub const fn of_integer(value: i64) -> Self {
        Self(mix(value.cast_unsigned().wrapping_add(GAMMA)))
    }

    /// The hash of a double.
    #[must_use]
    pub fn of_float(value: f64) -> Self {
        let value = if value == 0.0 { 0.0 } else { value };
        let value = if value.is_nan() { f64::NAN } else { value };
        Self::of_integer(value.to_bits().cast_signed())
    }

    /// The hash of a text: FNV-1a over its bytes, then mixed because FNV-1a leaves the high bits of
    /// short texts alike.
    #[must_use]
    pub fn of_text(text: &[u8]) -> Self {
        let fnv =
            text.iter().fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME));
        Self(mix(fnv))
    }

    /// The position of the key's node in the table's list of `nodes` nodes: below `nodes`, or 0 if
    /// there are none. The range of hashes is cut into `nodes` parts of equal size, with a
    /// multiplication instead of a division.
    #[must_use]
    pub fn position(self, nodes: usize) -> usize {
        let position = (u128::from(self.0) * nodes as u128) >> 64;
        usize::try_from(position).expect("the position: at most `nodes`, which is a usize")
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", 2014): a bijection in which every input bit changes each output bit with a
/// probability of about one half.
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_have_the_values_of_version_one() {
        // Computed by an independent implementation. SplitMix64 seeded with 0 begins with the first
        // of them.
        let integers = [0, 1, -1, 42, i64::MAX, i64::MIN].map(|key| KeyHash::of_integer(key).0);
        assert_eq!(
            integers,
            [
                0xe220_a839_7b1d_cdaf,
                0x910a_2dec_8902_5cc1,
                0xe4d9_7177_1b65_2c20,
                0xbdd7_3226_2feb_6e95,
                0x2a67_d755_2e03_9ea7,
                0x481e_c0a2_12a9_f3db,
            ]
        );
        assert_eq!(
            [1.0, -2.5].map(|key| KeyHash::of_float(key).0),
            [0x88d7_c35b_bbf3_eded, 0xe019_1234_ca04_fa08]
        );
        let texts = ["", "a", "Customer#000000001"].map(|text| KeyHash::of_text(text.as_bytes()).0);
        assert_eq!(texts, [0xf52a_15e9_a9b5_e89b, 0x02c0_bdbf_4814_20f8, 0x695f_1269_6e12_68f7]);
        assert_eq!(integers.map(|hash| KeyHash(hash).position(4)), [3, 2, 3, 2, 0, 1]);
    }

    #[test]
    fn equal_values_have_equal_hashes() {
        assert_eq!(KeyHash::of_float(-0.0), KeyHash::of_float(0.0));
        assert_eq!(KeyHash::of_float(f64::NAN), KeyHash::of_float(-f64::NAN));
        assert_ne!(KeyHash::of_float(1.0), KeyHash::of_float(-1.0));
    }

    #[test]
    fn keys_are_distributed_evenly_to_any_number_of_nodes() {
        for nodes in [1, 2, 3, 4, 7, 16] {
            let mut counts = vec![0_u32; nodes];
            for key in 0..10_000_i64 {
                counts[KeyHash::of_integer(4 * key).position(nodes)] += 1;
                counts[KeyHash::of_text(format!("Customer#{key:09}").as_bytes()).position(nodes)] += 1;
            }
            let even = 20_000 / u32::try_from(nodes).unwrap();
            assert!(counts.iter().all(|count| count.abs_diff(even) < even / 8), "{nodes} nodes: {counts:?}");
        }
    }

    #[test]
    fn a_participant_is_always_one_of_the_nodes() {
        for hash in [0, 1, u64::MAX / 3, u64::MAX] {
            for nodes in 1..20 {
                assert!(KeyHash(hash).position(nodes) < nodes);
            }
            assert_eq!(KeyHash(hash).position(0), 0);
        }
    }
}
