//! Computes the IOs of a driver one after the other: the operation, the device and the offset.
//!
//! Invariants
//! - Every offset is a multiple of the length of the IOs, and the whole IO is inside the region.
//! - The same seed gives the same IOs.

use fastrand::Rng;

use super::{DriveError, IoMix, Load, content};
use crate::target::{Io, IoOperation, Target, TargetError};
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
    /// One after the other, from the beginning again after the end. Connections of one device begin
    /// at equal distances.
    Sequential,
}

/// A part of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Index of the target's device; the first one if a load has several.
    pub device: u16,
    /// Start of the region in bytes.
    pub offset_bytes: u64,
    /// Length of the region in bytes, on each device.
    pub length_bytes: u64,
}

/// How the connections of a load use several devices, each with the same region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spread {
    /// There is one device.
    #[default]
    One,
    /// Each connection uses all of this many devices: neighbouring offsets lie on different ones.
    Striped(u16),
    /// Each connection uses one of this many devices, in turn.
    PerConnection(u16),
}

/// The next IO of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Next {
    operation: IoOperation,
    device: u16,
    offset_bytes: u64,
}

/// The IOs of one connection.
#[derive(Debug, Clone)]
pub(super) struct Sequence {
    mix: IoMix,
    first_device: u16,
    /// Devices over which neighbouring places are spread.
    devices: u64,
    first_bytes: u64,
    length_bytes: u64,
    places: u64,
    random: Rng,
    order: Order,
    fsync_every: Option<u32>,
    writes_since_fsync: u32,
    last_written: u16,
    /// A bit for each place that was written, if the load verifies them.
    written: Option<Vec<u64>>,
}

#[derive(Debug, Clone)]
enum Order {
    Uniform,
    Zipfian(Zipf),
    Sequential { next: u64 },
}

impl Sequence {
    /// The sequence of connection number `connection` of `connections`.
    pub(super) fn new(load: &Load, connection: u32, connections: u32) -> Result<Self, DriveError> {
        let Load { region, length_bytes, .. } = *load;
        let length = u64::from(length_bytes);
        // The region may begin anywhere, but offsets are always multiples of the length.
        let first = region.offset_bytes.checked_next_multiple_of(length.max(1));
        let end = region.offset_bytes.checked_add(region.length_bytes);
        let on_each = match (first, end) {
            (Some(first), Some(end)) if length > 0 && end > first => (end - first) / length,
            _ => 0,
        };
        if on_each == 0 {
            return Err(DriveError::RegionTooSmall { region_bytes: region.length_bytes, length_bytes });
        }
        let (devices, offset, rank, sharing) = match load.spread {
            Spread::One => (1, 0, connection, connections),
            Spread::Striped(devices) => (devices.max(1), 0, connection, connections),
            Spread::PerConnection(devices) => {
                let devices = u32::from(devices.max(1));
                let device = u16::try_from(connection % devices).expect("below a number of devices");
                (1, device, connection / devices, connections.div_ceil(devices))
            }
        };
        let places = on_each.saturating_mul(devices.into());
        let order = match load.distribution {
            Distribution::Uniform => Order::Uniform,
            Distribution::Sequential => {
                let next = u128::from(places) * u128::from(rank) / u128::from(sharing.max(1));
                Order::Sequential { next: u64::try_from(next).expect("below the number of places") }
            }
            Distribution::Zipfian { skew } if skew > 0.0 && skew < 1.0 => {
                Order::Zipfian(Zipf::new(places, skew))
            }
            Distribution::Zipfian { skew } => return Err(DriveError::BadSkew { skew }),
        };
        let seed = load.seed.wrapping_add(u64::from(connection).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Ok(Self {
            mix: load.mix,
            first_device: region.device + offset,
            devices: devices.into(),
            first_bytes: first.unwrap_or(0),
            length_bytes: length,
            places,
            random: Rng::with_seed(seed),
            order,
            fsync_every: load.fsync_every,
            writes_since_fsync: 0,
            last_written: region.device + offset,
            written: load.verify.then(|| vec![0; index(places.div_ceil(64))]),
        })
    }

    /// The next IO; every `fsync_every` writes, a flush of the device that was written last.
    pub(super) fn next(&mut self) -> Next {
        if self.fsync_every.is_some_and(|every| self.writes_since_fsync >= every) {
            self.writes_since_fsync = 0;
            return Next { operation: IoOperation::Fsync, device: self.last_written, offset_bytes: 0 };
        }
        let place = match &mut self.order {
            Order::Uniform => self.random.u64(..self.places),
            Order::Zipfian(ranks) => scatter(ranks.draw(self.random.f64())) % self.places,
            Order::Sequential { next } => {
                let place = *next;
                *next = (place + 1) % self.places;
                place
            }
        };
        let operation = match self.mix {
            IoMix::Only(operation) => operation,
            IoMix::Mixed { read_percent } if self.random.u8(..100) < read_percent => IoOperation::Read,
            IoMix::Mixed { .. } => IoOperation::Write,
        };
        let (device, offset_bytes) = self.at(place);
        if operation == IoOperation::Write {
            self.writes_since_fsync = self.writes_since_fsync.saturating_add(1);
            self.last_written = device;
            if let Some(written) = &mut self.written {
                written[index(place / 64)] |= 1 << (place % 64);
            }
        }
        Next { operation, device, offset_bytes }
    }

    /// The first place that was written, and forgets it; `None` when all are forgotten. `from` is
    /// the word to look at first, from 0, which this advances.
    pub(super) fn take_written(&mut self, from: &mut usize) -> Option<(u16, u64)> {
        let written = self.written.as_mut()?;
        while let Some(bits) = written.get_mut(*from) {
            if *bits != 0 {
                let bit = u64::from(bits.trailing_zeros());
                *bits &= *bits - 1;
                return Some(self.at(u64::try_from(*from).expect("an index") * 64 + bit));
            }
            *from += 1;
        }
        None
    }

    /// The device and offset of a place.
    fn at(&self, place: u64) -> (u16, u64) {
        let device = u16::try_from(place % self.devices).expect("below a number of devices");
        (self.first_device + device, self.first_bytes + place / self.devices * self.length_bytes)
    }
}

fn index(word: u64) -> usize {
    usize::try_from(word).expect("an index of a vector")
}

/// Submits the next IO of a sequence, and returns its operation.
pub(super) fn submit(
    target: &mut dyn Target,
    load: &Load,
    slot: u32,
    next: Next,
) -> Result<IoOperation, TargetError> {
    let Next { operation, device, offset_bytes } = next;
    let length_bytes = load.length_bytes;
    // A slot of a mix holds what it read last, which may be zeroes.
    let is_mixed = matches!(load.mix, IoMix::Mixed { .. });
    if operation == IoOperation::Write && (load.verify || is_mixed) {
        let memory = target.memory(slot).ok_or(TargetError::Unsupported { what: "filling writes" })?;
        content::fill(&mut memory[..length_bytes as usize], device, offset_bytes, load.content_seed);
    }
    target.submit(Io { slot, operation, device, offset_bytes, length_bytes })?;
    Ok(operation)
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

    fn load(region: Region, length_bytes: u32, distribution: Distribution, seed: u64) -> Load {
        Load { region, length_bytes, distribution, seed, ..Load::default() }
    }

    fn sequence(
        region: Region,
        length_bytes: u32,
        distribution: Distribution,
        seed: u64,
    ) -> Result<Sequence, DriveError> {
        Sequence::new(&load(region, length_bytes, distribution, seed), 0, 1)
    }

    #[test]
    fn offsets_are_aligned_inside_the_region_and_repeatable() {
        for distribution in [Distribution::Uniform, Distribution::Zipfian { skew: 0.99 }] {
            for length in [512, 4096, 12_288, 65_536, 1 << 19] {
                let make = || sequence(REGION, length, distribution, 9).unwrap();
                let (mut places, mut again) = (make(), make());
                for _ in 0..2000 {
                    let offset = places.next().offset_bytes;
                    assert_eq!(offset, again.next().offset_bytes);
                    assert!(offset >= 1000 && offset + u64::from(length) <= 1000 + (1 << 20), "{offset}");
                    assert!(offset.is_multiple_of(u64::from(length)));
                }
            }
        }
    }

    #[test]
    fn uniform_offsets_reach_every_place() {
        let region = Region { device: 0, offset_bytes: 0, length_bytes: 64 * 4096 };
        let mut places = sequence(region, 4096, Distribution::Uniform, 1).unwrap();
        let seen: std::collections::HashSet<u64> = (0..2000).map(|_| places.next().offset_bytes).collect();
        assert_eq!(seen.len(), 64);
    }

    #[test]
    fn the_most_popular_place_of_a_zipfian_load_has_its_share() {
        let region = Region { device: 0, offset_bytes: 0, length_bytes: 1000 * 4096 };
        let mut places = sequence(region, 4096, Distribution::Zipfian { skew: 0.99 }, 3).unwrap();
        let mut counts: HashMap<u64, u32> = HashMap::new();
        for _ in 0..100_000 {
            *counts.entry(places.next().offset_bytes).or_default() += 1;
        }
        // 1 / (sum of n^-0.99 for n of 1 to 1000), which is about 7.73.
        let greatest = *counts.values().max().unwrap();
        assert!((11_500..15_500).contains(&greatest), "{greatest} of 100000");
    }

    #[test]
    fn regions_without_a_place_and_impossible_skews_are_refused() {
        for (offset_bytes, length_bytes) in [(0, 0), (0, 4095), (1, 4096), (u64::MAX, 4096), (1, u64::MAX)] {
            let region = Region { device: 0, offset_bytes, length_bytes };
            assert!(sequence(region, 4096, Distribution::Uniform, 0).is_err(), "{region:?}");
        }
        assert!(sequence(REGION, 0, Distribution::Uniform, 0).is_err());
        for skew in [0.0, 1.0, -1.0, f64::NAN] {
            assert!(sequence(REGION, 512, Distribution::Zipfian { skew }, 0).is_err());
        }
    }

    #[test]
    fn sequential_connections_begin_apart_and_cover_the_region_in_order() {
        let region = Region { device: 2, offset_bytes: 0, length_bytes: 8 * 4096 };
        let load = Load { spread: Spread::Striped(2), ..load(region, 4096, Distribution::Sequential, 0) };
        let of = |connection| {
            let mut sequence = Sequence::new(&load, connection, 2).unwrap();
            (0..4).map(|_| sequence.next()).map(|io| (io.device, io.offset_bytes / 4096)).collect::<Vec<_>>()
        };
        assert_eq!(of(0), [(2, 0), (3, 0), (2, 1), (3, 1)]);
        assert_eq!(of(1), [(2, 4), (3, 4), (2, 5), (3, 5)]);
    }

    #[test]
    fn connections_take_devices_in_turn() {
        let load = Load { spread: Spread::PerConnection(3), ..load(REGION, 4096, Distribution::Uniform, 0) };
        let device = |connection| Sequence::new(&load, connection, 4).unwrap().next().device;
        assert_eq!([0, 1, 2, 3].map(device), [0, 1, 2, 0]);
    }

    #[test]
    fn a_mix_has_its_share_of_reads_and_a_flush_after_every_so_many_writes() {
        let mix = IoMix::Mixed { read_percent: 70 };
        let load = Load { mix, fsync_every: Some(10), ..load(REGION, 4096, Distribution::Uniform, 5) };
        let mut sequence = Sequence::new(&load, 0, 1).unwrap();
        let (mut reads, mut writes, mut fsyncs) = (0, 0, 0);
        for _ in 0..100_000 {
            match sequence.next().operation {
                IoOperation::Read => reads += 1,
                IoOperation::Write => writes += 1,
                IoOperation::Fsync => {
                    assert_eq!(writes % 10, 0);
                    fsyncs += 1;
                }
                IoOperation::Trim => panic!("there are no trims in the mix"),
            }
        }
        let share = f64::from(reads) / f64::from(reads + writes);
        assert!((0.69..0.71).contains(&share) && (fsyncs - writes / 10_i32).abs() <= 1, "{share} {fsyncs}");
    }

    #[test]
    fn every_written_place_is_told_once() {
        let region = Region { device: 0, offset_bytes: 0, length_bytes: 100 * 4096 };
        let mix = IoMix::Only(IoOperation::Write);
        let load = Load { mix, verify: true, ..load(region, 4096, Distribution::Uniform, 1) };
        let mut sequence = Sequence::new(&load, 0, 1).unwrap();
        let written: std::collections::BTreeSet<_> =
            (0..70).map(|_| sequence.next()).map(|io| (io.device, io.offset_bytes)).collect();
        let mut from = 0;
        let told: Vec<_> = std::iter::from_fn(|| sequence.take_written(&mut from)).collect();
        assert_eq!(told, written.into_iter().collect::<Vec<_>>());
        assert_eq!(sequence.take_written(&mut 0), None);
    }
}
