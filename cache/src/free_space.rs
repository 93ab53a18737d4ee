//! Allocates ranges of an address space, first-fit: the frames of a cache shard, the extents of a
//! device, and the parts of staging memory.
//!
//! The allocator always takes the lowest range that is large enough. So ranges in use stay close
//! together, and allocation is deterministic.
//!
//! Invariants
//! - Free ranges are disjoint and not empty, and no two are adjacent (neighbours are merged).

use std::collections::BTreeMap;

/// The free ranges of `[begin, end)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeSpace {
    /// Length by begin.
    ranges: BTreeMap<u64, u64>,
    free: u64,
}

impl FreeSpace {
    /// All of `[begin, end)` is free.
    pub fn new(begin: u64, end: u64) -> Self {
        let free = end.saturating_sub(begin);
        let ranges = if free > 0 { BTreeMap::from([(begin, free)]) } else { BTreeMap::new() };
        Self { ranges, free }
    }

    /// The sum of all free ranges, which need not be contiguous.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// The free ranges: begin and length, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(begin, length)| (*begin, *length))
    }

    /// Takes the lowest free range of `length`; `None` if there is none in one piece.
    pub fn take(&mut self, length: u64) -> Option<u64> {
        if length == 0 {
            return None;
        }
        let (begin, found) =
            self.ranges.iter().find(|(_, found)| **found >= length).map(|(b, f)| (*b, *f))?;
        self.ranges.remove(&begin);
        if found > length {
            self.ranges.insert(begin + length, found - length);
        }
        self.free -= length;
        Some(begin)
    }

    /// Takes exactly this range. Returns false and does nothing if a part of it is not free.
    pub fn take_at(&mut self, begin: u64, length: u64) -> bool {
        let Some(end) = begin.checked_add(length).filter(|_| length > 0) else { return false };
        let Some((&found_begin, &found)) = self.ranges.range(..=begin).next_back() else { return false };
        let found_end = found_begin + found;
        if end > found_end {
            return false;
        }
        self.ranges.remove(&found_begin);
        if begin > found_begin {
            self.ranges.insert(found_begin, begin - found_begin);
        }
        if found_end > end {
            self.ranges.insert(end, found_end - end);
        }
        self.free -= length;
        true
    }

    /// Takes the lowest free part of `[begin, end)`, at most `length_max` long. Returns its begin
    /// and length, or `None` if nothing there is free.
    pub fn take_within(&mut self, begin: u64, end: u64, length_max: u64) -> Option<(u64, u64)> {
        let before =
            self.ranges.range(..=begin).next_back().filter(|(found, length)| *found + *length > begin);
        let (&found, &length) = before.or_else(|| self.ranges.range(begin..end).next())?;
        let from = found.max(begin);
        let length = (found + length).min(end).checked_sub(from)?.min(length_max);
        self.take_at(from, length).then_some((from, length))
    }

    /// Frees a range that was taken.
    ///
    /// # Panics
    /// If a part of it is free: two owners would then get the same range.
    pub fn give_back(&mut self, begin: u64, length: u64) {
        let end = begin + length;
        // The last free range that begins before `end` is the only one that may overlap.
        let before = self.ranges.range(..end).next_back();
        assert!(
            before.is_none_or(|(&other, &other_length)| other + other_length <= begin),
            "{begin}+{length} is given back twice"
        );
        let (mut begin, mut merged) = (begin, length);
        if let Some((&before, &before_length)) = self.ranges.range(..begin).next_back()
            && before + before_length == begin
        {
            self.ranges.remove(&before);
            begin = before;
            merged += before_length;
        }
        if let Some(after_length) = self.ranges.remove(&(begin + merged)) {
            merged += after_length;
        }
        self.ranges.insert(begin, merged);
        self.free += length;
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "places of a small model")]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_range_that_fits_is_taken_and_neighbours_merge_again() {
        let mut space = FreeSpace::new(100, 200);
        assert_eq!((space.take(30), space.take(30), space.take(30)), (Some(100), Some(130), Some(160)));
        assert_eq!((space.take(30), space.free()), (None, 10));
        space.give_back(130, 30);
        assert_eq!(space.take(31), None, "two pieces of 30 and 10 are not one of 31");
        space.give_back(100, 30);
        space.give_back(160, 30);
        assert_eq!(space, FreeSpace::new(100, 200));
    }

    #[test]
    fn what_is_free_in_a_range_is_taken_piece_by_piece() {
        let mut space = FreeSpace::new(0, 100);
        assert!(space.take_at(20, 10) && space.take_at(50, 10));
        let mut pieces = Vec::new();
        while let Some(piece) = space.take_within(10, 70, 15) {
            pieces.push(piece);
        }
        assert_eq!(pieces, [(10, 10), (30, 15), (45, 5), (60, 10)]);
        assert_eq!(space.free(), 40);
        assert_eq!((space.take_within(100, 200, 5), space.take_within(5, 5, 5)), (None, None));
        assert_eq!(space.take_within(70, u64::MAX, u64::MAX), Some((70, 30)));
    }

    proptest::proptest! {
        /// Against a model of single units: what is taken was free, what is free is found, and
        /// nothing is lost.
        #[test]
        fn taking_and_giving_back_agree_with_a_map_of_units(
            steps in proptest::collection::vec((0..3_u8, 0..64_u64, 1..16_u64), 1..200),
        ) {
            let mut space = FreeSpace::new(0, 64);
            let mut units = [true; 64];
            let mut held: Vec<(u64, u64)> = Vec::new();
            let range = |begin: u64, length: u64| begin as usize..(begin + length) as usize;
            for (kind, place, length) in steps {
                match kind {
                    0 => {
                        let wanted = (0..=64 - length).find(|begin| units[range(*begin, length)].iter().all(|free| *free));
                        proptest::prop_assert_eq!(space.take(length), wanted);
                        held.extend(wanted.map(|begin| (begin, length)));
                    }
                    1 => {
                        let fits = place + length <= 64 && units[range(place, length)].iter().all(|free| *free);
                        proptest::prop_assert_eq!(space.take_at(place, length), fits);
                        held.extend(fits.then_some((place, length)));
                    }
                    _ if held.is_empty() => {}
                    _ => {
                        let (begin, length) = held.swap_remove(place as usize % held.len());
                        space.give_back(begin, length);
                    }
                }
                units = [true; 64];
                held.iter().for_each(|(begin, length)| units[range(*begin, *length)].fill(false));
                let free = units.iter().filter(|free| **free).count() as u64;
                proptest::prop_assert_eq!(space.free(), free);
            }
        }
    }

    #[test]
    fn a_range_that_is_not_wholly_free_is_not_taken() {
        let mut space = FreeSpace::new(0, 100);
        assert!(space.take_at(40, 20));
        for (begin, length) in
            [(30, 20), (50, 20), (40, 20), (45, 1), (90, 11), (100, 1), (u64::MAX, 2), (0, 0)]
        {
            assert!(!space.take_at(begin, length), "{begin}+{length}");
        }
        assert!(space.take_at(0, 40) && space.take_at(60, 40));
        assert_eq!(space.free(), 0);
        space.give_back(0, 100);
        assert_eq!(space, FreeSpace::new(0, 100));
    }

    #[test]
    fn a_range_of_which_any_part_is_free_is_not_given_back() {
        let mut space = FreeSpace::new(0, 100);
        assert!(space.take_at(10, 40));
        space.give_back(20, 10);
        // Free are 0..10, 20..30 and 50..100.
        for (begin, length) in
            [(20, 10), (22, 2), (18, 4), (28, 4), (15, 20), (10, 40), (5, 10), (45, 10), (90, 10)]
        {
            let mut space = space.clone();
            let given = std::panic::catch_unwind(move || space.give_back(begin, length));
            assert!(given.is_err(), "{begin}+{length}");
        }
        space.give_back(10, 10);
        space.give_back(30, 20);
        assert_eq!(space, FreeSpace::new(0, 100));
    }
}
