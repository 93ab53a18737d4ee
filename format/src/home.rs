//! Which node is a row's home? A hash of its partition key, the same in every release.
//!
//! Loads deal rows by it, and a reader that knows a key may ask its home alone, so the functions here are part of the
//! format: they never change, and golden values hold them.
//!
//! Invariants
//! - Equal values of a column have equal hashes: `-0.0` hashes as `0.0`, and all NaNs alike.
//! - Every integer type hashes as the 64-bit integer it is stored as, so key columns of different width agree.
//! - NULL has a home like any value.

/// The hash of a missing key: an arbitrary constant.
pub const HASH_NULL: u64 = 0x9e37_79b9_7f4a_7c15;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// The finalizer of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): a
/// bijection in which every input bit changes each output bit with a probability of about one half.
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The hash of a key stored as an integer. The constant keeps 0 from hashing to 0.
#[must_use]
pub const fn hash_integer(value: i64) -> u64 {
    mix(value.cast_unsigned().wrapping_add(HASH_NULL))
}

/// The hash of a double.
#[must_use]
pub fn hash_float(value: f64) -> u64 {
    let value = if value == 0.0 { 0.0 } else { value };
    let value = if value.is_nan() { f64::NAN } else { value };
    hash_integer(value.to_bits().cast_signed())
}

/// The hash of a text: FNV-1a over its bytes, mixed because FNV-1a leaves the high bits of short texts alike.
#[must_use]
pub fn hash_text(text: &[u8]) -> u64 {
    let fnv = text.iter().fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME));
    mix(fnv)
}

/// The home of a hash: a position below `nodes` in the table's list of nodes (0 if there are none). The hash's range is cut
/// into `nodes` parts of equal size, by a multiplication instead of a division.
#[must_use]
pub fn home(hash: u64, nodes: usize) -> usize {
    let position = (u128::from(hash) * nodes as u128) >> 64;
    // Below `nodes`, which is a usize.
    usize::try_from(position).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_have_the_values_of_version_one() {
        // Computed by an independent implementation. SplitMix64 seeded with 0 begins with the first of them.
        let integers = [0, 1, -1, 42, i64::MAX, i64::MIN].map(hash_integer);
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
        assert_eq!([1.0, -2.5].map(hash_float), [0x88d7_c35b_bbf3_eded, 0xe019_1234_ca04_fa08]);
        let texts = ["", "a", "Customer#000000001"].map(|text| hash_text(text.as_bytes()));
        assert_eq!(texts, [0xf52a_15e9_a9b5_e89b, 0x02c0_bdbf_4814_20f8, 0x695f_1269_6e12_68f7]);
        assert_eq!(integers.map(|hash| home(hash, 4)), [3, 2, 3, 2, 0, 1]);
    }

    #[test]
    fn equal_values_have_equal_hashes() {
        assert_eq!(hash_float(-0.0), hash_float(0.0));
        assert_eq!(hash_float(f64::NAN), hash_float(-f64::NAN));
        assert_ne!(hash_float(1.0), hash_float(-1.0));
    }

    #[test]
    fn keys_are_dealt_evenly_to_any_number_of_nodes() {
        for nodes in [1, 2, 3, 4, 7, 16] {
            let mut counts = vec![0_u32; nodes];
            for key in 0..10_000_i64 {
                counts[home(hash_integer(4 * key), nodes)] += 1;
                counts[home(hash_text(format!("Customer#{key:09}").as_bytes()), nodes)] += 1;
            }
            let even = 20_000 / u32::try_from(nodes).unwrap();
            assert!(counts.iter().all(|count| count.abs_diff(even) < even / 8), "{nodes} nodes: {counts:?}");
        }
    }

    #[test]
    fn a_home_is_always_one_of_the_nodes() {
        for hash in [0, 1, u64::MAX / 3, u64::MAX] {
            for nodes in 1..20 {
                assert!(home(hash, nodes) < nodes);
            }
            assert_eq!(home(hash, 0), 0);
        }
    }
}
