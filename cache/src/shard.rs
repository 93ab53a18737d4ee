//! Manages one shard of a cache (the part of the cache for some of the keys): the index of its
//! slots, its free frames, and the choice of the slots to evict.
//!
//! Invariants
//! - A frame is free or belongs to exactly one slot; a slot in the index has its frames.
//! - A slot that is pinned or being filled is never evicted.

use std::collections::BTreeMap;

use rackscan_format::{ids::DeviceId, segment::Extent};

use crate::{
    free_space::FreeSpace,
    limits::{EVICTIONS_PER_PAGE_MAX, EXTENT_BYTES_MAX},
    policy::{Policy, Verdict},
};

/// An extent as a key, ordered by its place on the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    device: u8,
    offset_bytes: u64,
    length_bytes: u32,
}

impl Key {
    pub(crate) fn of(extent: &Extent) -> Self {
        Self { device: extent.device.0, offset_bytes: extent.offset_bytes, length_bytes: extent.length_bytes }
    }

    fn extent(self) -> Extent {
        Extent {
            device: DeviceId(self.device),
            offset_bytes: self.offset_bytes,
            length_bytes: self.length_bytes,
        }
    }
}

/// The frames of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frames {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// One shard of a cache.
#[derive(Debug)]
pub(crate) struct Shard {
    index: BTreeMap<Key, Frames>,
    free: FreeSpace,
    policy: Policy<Key>,
}

impl Shard {
    /// A shard of `count` frames from `first` on, all free.
    pub(crate) fn new(first: u32, count: u32) -> Self {
        let end = u64::from(first) + u64::from(count);
        Self {
            index: BTreeMap::new(),
            free: FreeSpace::new(first.into(), end),
            policy: Policy::new(count.into()),
        }
    }

    /// The slot of an extent.
    pub(crate) fn find(&self, extent: &Extent) -> Option<Frames> {
        self.index.get(&Key::of(extent)).copied()
    }

    /// Counts a use of an extent's slot.
    pub(crate) fn hit(&mut self, extent: &Extent) {
        self.policy.hit(&Key::of(extent));
    }

    /// Finds frames for an extent without a slot, if the policy admits it and room can be made.
    /// `can_evict` says whether a slot may be evicted; `on_evict` is called for each one that is.
    pub(crate) fn admit(
        &mut self,
        extent: &Extent,
        can_evict: impl Fn(Frames) -> bool,
        mut on_evict: impl FnMut(Frames),
    ) -> Option<Frames> {
        let key = Key::of(extent);
        let count = u32::try_from(crate::slot::frames_of(extent.length_bytes)).ok()?;
        if self.policy.miss(key, count.into()) == Verdict::Bypass {
            return None;
        }
        let mut evictions = 0;
        loop {
            if let Some(first) = self.free.take(count.into()) {
                let frames = Frames { first: u32::try_from(first).ok()?, count };
                if self.policy.insert(key, count.into()) {
                    self.index.insert(key, frames);
                    return Some(frames);
                }
                self.free.give_back(first, count.into());
            }
            if evictions == EVICTIONS_PER_PAGE_MAX {
                return None;
            }
            evictions += 1;
            let index = &self.index;
            let victim = self.policy.evict(|key| index.get(key).is_none_or(|frames| can_evict(*frames)))?;
            if let Some(frames) = self.index.remove(&victim) {
                on_evict(frames);
                self.give_back(frames);
            }
        }
    }

    /// Takes the slot of an extent out of the index; its frames stay allocated. `None` if it has no
    /// slot.
    pub(crate) fn remove(&mut self, extent: &Extent) -> Option<Frames> {
        let key = Key::of(extent);
        self.policy.remove(&key);
        self.index.remove(&key)
    }

    /// The extents that overlap with one and have slots.
    pub(crate) fn overlapping(&self, extent: &Extent) -> Vec<Extent> {
        let Extent { device: DeviceId(device), offset_bytes, length_bytes } = *extent;
        let end_bytes = offset_bytes.saturating_add(length_bytes.into());
        let from = offset_bytes.saturating_sub(EXTENT_BYTES_MAX.into());
        let key = |offset_bytes| Key { device, offset_bytes, length_bytes: 0 };
        let near = self.index.range(key(from)..key(end_bytes)).map(|(key, _)| key.extent());
        near.filter(|other| other.end_bytes().is_none_or(|end| end > offset_bytes)).collect()
    }

    /// Frees frames that nobody uses any more.
    pub(crate) fn give_back(&mut self, frames: Frames) {
        self.free.give_back(frames.first.into(), frames.count.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset_bytes: u64, length_bytes: u32) -> Extent {
        Extent { device: DeviceId(1), offset_bytes, length_bytes }
    }

    fn admit(shard: &mut Shard, extent: &Extent) -> Option<Frames> {
        shard.admit(extent, |_| true, |_| ())
    }

    #[test]
    fn extents_that_overlap_are_found_whatever_their_grid() {
        let mut shard = Shard::new(0, 64);
        let page = extent(1 << 20, 65_536);
        let (raw, behind) = (extent((1 << 20) + 61_440, 512), extent((1 << 20) + 65_536, 512));
        for one in [&page, &raw, &behind] {
            admit(&mut shard, one).unwrap();
        }
        assert_eq!(shard.overlapping(&extent((1 << 20) + 61_000, 1000)), [page, raw]);
        assert_eq!(shard.overlapping(&extent((1 << 20) + 65_536, 1)), [behind]);
        assert_eq!(shard.overlapping(&extent(0, 1 << 20)), []);
        assert_eq!(shard.overlapping(&Extent { device: DeviceId(2), ..page }), []);
        assert_eq!(shard.overlapping(&extent(0, u32::MAX)).len(), 3);
    }

    #[test]
    fn room_is_made_in_one_piece_and_never_of_slots_in_use() {
        let mut shard = Shard::new(100, 8);
        let small: Vec<Extent> = (0..8).map(|at| extent(at * 4096, 4096)).collect();
        for one in &small {
            admit(&mut shard, one).unwrap();
        }
        let large = extent(1 << 30, 12_288);
        let in_use = shard.find(&small[2]).unwrap();
        let mut gone = Vec::new();
        let may_go = |frames: Frames| frames != in_use;
        assert_eq!(shard.admit(&large, may_go, |_| ()), None, "seen for the first time");
        let frames = shard.admit(&large, may_go, |frames| gone.push(frames)).unwrap();
        assert_eq!((frames.count, shard.find(&small[2])), (3, Some(in_use)));
        assert!(!gone.contains(&in_use) && gone.len() >= 3, "{gone:?}");
        let apart = frames.first > in_use.first || frames.first + frames.count <= in_use.first;
        assert!(apart && frames.first >= 100 && frames.first + frames.count <= 108);
    }

    #[test]
    fn frames_that_are_still_in_use_after_their_slot_is_removed_are_not_given_again() {
        let mut shard = Shard::new(0, 2);
        let (one, two, three) = (extent(0, 4096), extent(4096, 4096), extent(8192, 4096));
        admit(&mut shard, &one).unwrap();
        let held = shard.remove(&one).unwrap();
        admit(&mut shard, &two).unwrap();
        let again = shard.admit(&three, |_| false, |_| ());
        assert_eq!(again, None, "both frames are taken: one by its slot, one by who still sends from it");
        shard.give_back(held);
        assert_eq!(shard.admit(&three, |_| false, |_| ()), Some(held));
    }
}
