//! Computes the offset of each IO of a driver: random offsets inside a region of a device,
//! uniformly or Zipf distributed.
//!
//! Invariants
//! - Every offset is a multiple of the length of the IOs, and the whole IO is inside the region.
//! - The same seed gives the same offsets.

use fastrand::Rng;

use super::DriveError;
use crate::zipf::Zipf;

/// Distribution of offsets.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Distribution {
    /// All offsets are equally likely.
    #[default]
    Uniform,
    /// The n-th most popular offset has a probability in proportion to `1 / n^skew`; popular
    /// offsets are scattered over the region.
    Zipfian {
        /// Above 0 and below 1; 0.99 is usual for caches.
        skew: f64,
    },
}

/// A part of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Index of the target's device.
    pub device: u16,
    /// Start of the region in bytes.
    pub offset_bytes: u64,
    /// Length of the region in bytes.
    pub length_bytes: u64,
}

/// A sequence of offsets.
#[derive(Debug, Clone)]
pub(super) struct Places {
    first_bytes: u64,
    length_bytes: u64,
    places: u64,
    random: Rng,
    ranks: Option<Zipf>,
}

impl Places {
    pub(super) fn new(
        region: Region,
        length_bytes: u32,
        distribution: Distribution,
        seed: u64,
    ) -> Result<Self, DriveError> {
        let length = u64::from(length_bytes);
        // The region may begin anywhere, but offsets are always multiples of the length.
        let first = region.offset_bytes.checked_next_multiple_of(length.max(1));
        let end = region.offset_bytes.checked_add(region.length_bytes);
        let places = match (first, end) {
            (Some(first), Some(end)) if length > 0 && end > first => (end - first) / length,
            _ => 0,
        };
        if places == 0 {
            return Err(DriveError::RegionTooSmall { region_bytes: region.length_bytes, length_bytes });
        }
        let ranks = match distribution {
            Distribution::Uniform => None,
            Distribution::Zipfian { skew } if skew > 0.0 && skew < 1.0 => Some(Zipf::new(places, skew)),
            Distribution::Zipfian { skew } => return Err(DriveError::BadSkew { skew }),
        };
        let random = Rng::with_seed(seed);
        Ok(Self { first_bytes: first.unwrap_or(0), length_bytes: length, places, random, ranks })
    }

    pub(super) fn next(&mut self) -> u64 {
        let place = match &self.ranks {
            None => self.random.u64(..self.places),
            Some(ranks) => scatter(ranks.draw(self.random.f64())) % self.places,
        };
        self.first_bytes + place * self.length_bytes
    }
}

/// The finalizer of SplitMix64: neighbours in popularity are not neighbours on the device.
fn scatter(rank: u64) -> u64 {
    let mixed = rank.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const REGION: Region = Region { device: 0, offset_bytes: 1000, length_bytes: 1 << 20 };

    #[test]
    fn offsets_are_aligned_inside_the_region_and_repeatable() {
        for distribution in [Distribution::Uniform, Distribution::Zipfian { skew: 0.99 }] {
            for length in [512, 4096, 12_288, 65_536, 1 << 19] {
                let make = || Places::new(REGION, length, distribution, 9).unwrap();
                let (mut places, mut again) = (make(), make());
                for _ in 0..2000 {
                    let offset = places.next();
                    assert_eq!(offset, again.next());
                    assert!(offset >= 1000 && offset + u64::from(length) <= 1000 + (1 << 20), "{offset}");
                    assert!(offset.is_multiple_of(u64::from(length)));
                }
            }
        }
    }

    #[test]
    fn uniform_offsets_reach_every_place() {
        let region = Region { device: 0, offset_bytes: 0, length_bytes: 64 * 4096 };
        let mut places = Places::new(region, 4096, Distribution::Uniform, 1).unwrap();
        let seen: std::collections::HashSet<u64> = (0..2000).map(|_| places.next()).collect();
        assert_eq!(seen.len(), 64);
    }

    #[test]
    fn the_most_popular_place_of_a_zipfian_load_has_its_share() {
        let region = Region { device: 0, offset_bytes: 0, length_bytes: 1000 * 4096 };
        let mut places = Places::new(region, 4096, Distribution::Zipfian { skew: 0.99 }, 3).unwrap();
        let mut counts: HashMap<u64, u32> = HashMap::new();
        for _ in 0..100_000 {
            *counts.entry(places.next()).or_default() += 1;
        }
        // 1 / (sum of n^-0.99 for n of 1 to 1000), which is about 7.73.
        let greatest = *counts.values().max().unwrap();
        assert!((11_500..15_500).contains(&greatest), "{greatest} of 100000");
    }

    #[test]
    fn regions_without_a_place_and_impossible_skews_are_refused() {
        for (offset_bytes, length_bytes) in [(0, 0), (0, 4095), (1, 4096), (u64::MAX, 4096), (1, u64::MAX)] {
            let region = Region { device: 0, offset_bytes, length_bytes };
            assert!(Places::new(region, 4096, Distribution::Uniform, 0).is_err(), "{region:?}");
        }
        assert!(Places::new(REGION, 0, Distribution::Uniform, 0).is_err());
        for skew in [0.0, 1.0, -1.0, f64::NAN] {
            assert!(Places::new(REGION, 512, Distribution::Zipfian { skew }, 0).is_err());
        }
    }
}
