//! Stores frequently used pages in registered memory, while several threads look pages up, fill,
//! evict and withdraw them.
//!
//! The cache is divided into shards by key. Each shard has a lock that a request tries and never
//! waits for: if the lock is taken, the page is served as if there were no cache. After a page was
//! looked up, sending it from its slot and publishing the slot take no lock: they change one word
//! of the slot.
//!
//! ```text
//! that word:  number of pins (requests that send from the slot) | FILLING | WITHDRAWN
//! FILLING     a device reads the page into the slot
//! WITHDRAWN   the slot is not in the index any more; its last user frees its frames
//! ```
//!
//! Invariants
//! - Bytes of a slot change only while its version is odd, and no version is made known before the
//!   bytes have stopped changing.
//! - The frames of a slot are freed only when the slot is not in the index, and nobody fills it or
//!   sends from it.
//! - When [`PageCache::withdraw`] has returned, no slot with the extent's bytes is published, and
//!   no slot that was being filled with them will be.

use std::{
    hash::BuildHasher,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
    },
};

use az::SaturatingAs;
use foldhash::fast::FixedState;
use rackscan_fabric::{OutOfBounds, Region, RegionError, RegionSlice};
use rackscan_format::{
    message::{CachePlace, CacheStatus},
    segment::Extent,
};

use crate::{
    limits::{EXTENT_BYTES_MAX, FRAME_BYTES, HEADER_BYTES, SHARD_BYTES_MIN, SHARDS_MAX},
    shard::{Frames, Key, Shard},
    slot::{Geometry, checksum_of_key, extent_in, header_behind_version},
};

/// A page is being read into the slot.
const FILLING: u64 = 1 << 32;
/// The slot is out of the index.
const WITHDRAWN: u64 = 1 << 33;
/// Bytes that are copied at a time to compute a checksum.
const CHECKSUM_STEP_BYTES: usize = 8192;

/// The state of the slot that begins at a frame.
#[derive(Debug)]
struct Slot {
    state: AtomicU64,
    version: AtomicU64,
    /// Whether the page was verified since it was filled.
    is_right: AtomicBool,
}

#[derive(Debug, Default)]
struct Counters {
    used_frames: AtomicU64,
    pages: AtomicU64,
    hits: AtomicU64,
    one_sided_hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    withdrawals: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn subtract(counter: &AtomicU64, count: u64) {
    counter.fetch_sub(count, Ordering::Relaxed);
}

/// The pages that a node keeps in memory.
#[derive(Debug)]
pub struct PageCache {
    region: Region,
    geometry: Geometry,
    budget_bytes: u64,
    epoch: u64,
    slots: Box<[Slot]>,
    shards: Box<[Mutex<Shard>]>,
    frames_per_shard: u32,
    hasher: FixedState,
    counters: Counters,
}

/// The result of looking a page up.
#[derive(Debug)]
pub enum Look {
    /// The page is in the cache.
    Hit(Pin),
    /// The caller reads the page into this slot and then publishes it.
    Fill(Fill),
    /// The caller serves the page without the cache.
    Bypass,
}

/// A slot that the caller sends from: its bytes do not change before this is dropped.
#[derive(Debug)]
pub struct Pin {
    cache: Arc<PageCache>,
    frames: Frames,
    length_bytes: u32,
    place: Option<CachePlace>,
}

/// A slot that waits for its bytes. If this is dropped without being published, the slot is
/// removed.
#[derive(Debug)]
pub struct Fill {
    cache: Arc<PageCache>,
    frames: Frames,
    extent: Extent,
    is_published: bool,
}

impl PageCache {
    /// Allocates the memory. `threads` threads use the cache at the same time; `epoch` is a random
    /// number, another one at each start of the node. `None` if the budget is too small for a
    /// cache.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn new(budget_bytes: u64, threads: usize, epoch: u64) -> Result<Option<Arc<Self>>, RegionError> {
        let Some(geometry) = Geometry::of_budget(budget_bytes) else { return Ok(None) };
        // A budget beyond usize allows the maximum, too.
        let shards_max = (budget_bytes / SHARD_BYTES_MIN).saturating_as::<usize>();
        let parts = if threads > 1 { (4 * threads).min(shards_max).clamp(1, SHARDS_MAX) } else { 1 };
        let parts = u32::try_from(parts).expect("the number of shards: at most SHARDS_MAX");
        let frames_per_shard = geometry.frames() / parts;
        let shards = (0..parts).map(|part| Mutex::new(Shard::new(part * frames_per_shard, frames_per_shard)));
        let region = Region::allocate(geometry.region_bytes())?;
        let slot = || Slot {
            state: AtomicU64::new(0),
            version: AtomicU64::new(1),
            is_right: AtomicBool::new(false),
        };
        for frame in 0..geometry.frames() {
            region.store_u64(geometry.header_offset(frame), 1)?;
        }
        Ok(Some(Arc::new(Self {
            region,
            geometry,
            budget_bytes,
            epoch,
            slots: (0..geometry.frames()).map(|_| slot()).collect(),
            shards: shards.collect(),
            frames_per_shard,
            hasher: FixedState::default(),
            counters: Counters::default(),
        })))
    }

    /// The memory, to be registered for reading.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The division of the region.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The random number of this start of the node, see [`PageCache::new`].
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Counters, and how full the cache is.
    #[must_use]
    pub fn status(&self) -> CacheStatus {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { used_frames, pages, hits, one_sided_hits, misses, evictions, withdrawals } =
            &self.counters;
        CacheStatus {
            budget_bytes: self.budget_bytes,
            used_bytes: load(used_frames) * FRAME_BYTES as u64,
            pages: load(pages),
            hits: load(hits),
            one_sided_hits: load(one_sided_hits),
            misses: load(misses),
            evictions: load(evictions),
            withdrawals: load(withdrawals),
        }
    }

    /// Looks an extent up, and decides what to do if it is not in the cache.
    #[must_use]
    pub fn look(self: &Arc<Self>, extent: &Extent) -> Look {
        let Some(mut shard) = self.try_shard(self.shard_of(extent)) else {
            add(&self.counters.misses, 1);
            return Look::Bypass;
        };
        if let Some(frames) = shard.find(extent) {
            let slot = &self.slots[frames.first as usize];
            // A slot in the index is never withdrawn. Filling begins under the lock, but ends
            // without it.
            if slot.state.load(Ordering::Acquire) & FILLING == 0 {
                slot.state.fetch_add(1, Ordering::AcqRel);
                shard.hit(extent);
                add(&self.counters.hits, 1);
                let version = slot.version.load(Ordering::Acquire);
                let place = Some(CachePlace { frame: frames.first, version });
                let length_bytes = extent.length_bytes;
                return Look::Hit(Pin { cache: Arc::clone(self), frames, length_bytes, place });
            }
            add(&self.counters.misses, 1);
            return Look::Bypass;
        }
        add(&self.counters.misses, 1);
        if extent.length_bytes == 0 || extent.length_bytes > EXTENT_BYTES_MAX {
            return Look::Bypass;
        }
        let can_evict = |frames: Frames| self.slots[frames.first as usize].state.load(Ordering::Acquire) == 0;
        let on_evict = |frames: Frames| {
            self.make_odd(frames.first);
            add(&self.counters.evictions, 1);
            subtract(&self.counters.pages, 1);
            subtract(&self.counters.used_frames, frames.count.into());
        };
        let Some(frames) = shard.admit(extent, can_evict, on_evict) else { return Look::Bypass };
        let slot = &self.slots[frames.first as usize];
        slot.is_right.store(false, Ordering::Relaxed);
        slot.state.store(FILLING, Ordering::Release);
        add(&self.counters.pages, 1);
        add(&self.counters.used_frames, frames.count.into());
        Look::Fill(Fill { cache: Arc::clone(self), frames, extent: *extent, is_published: false })
    }

    /// Counts a one-sided read of the page at this place. If another page is there by now, only the
    /// counter grows.
    pub fn used(&self, place: CachePlace) {
        add(&self.counters.one_sided_hits, 1);
        let Some(slot) = self.slots.get(place.frame as usize) else { return };
        if slot.version.load(Ordering::Acquire) != place.version || !place.version.is_multiple_of(2) {
            return;
        }
        let mut header = [0; HEADER_BYTES];
        let copied = self.region.copy_out(self.geometry.header_offset(place.frame), &mut header);
        let (Ok(()), Some(extent)) = (copied, extent_in(&header)) else { return };
        // A use that is not counted because the shard is locked does no harm: the next one counts.
        let Some(mut shard) = self.try_shard(self.shard_of(&extent)) else { return };
        let found = shard.find(&extent).is_some_and(|frames| frames.first == place.frame);
        if found {
            shard.hit(&extent);
        }
    }

    /// Removes everything that overlaps with an extent, before its bytes change or it is freed.
    /// Waits for locks, each for as long as a look takes: writers call this, readers do not.
    pub fn withdraw(&self, extent: &Extent) {
        for part in 0..self.shards.len() {
            let mut shard = self.lock(part);
            for found in shard.overlapping(extent) {
                let Some(frames) = shard.remove(&found) else { continue };
                add(&self.counters.withdrawals, 1);
                subtract(&self.counters.pages, 1);
                let before = self.slots[frames.first as usize].state.fetch_or(WITHDRAWN, Ordering::AcqRel);
                // After the state: a concurrent `publish` either sees the state, or has stored its
                // version before.
                self.make_odd(frames.first);
                if before == 0 {
                    self.free(&mut shard, frames);
                }
            }
        }
    }

    fn shard_of(&self, extent: &Extent) -> usize {
        let hash = self.hasher.hash_one(Key::of(extent));
        let shard = usize::try_from(hash % self.shards.len() as u64);
        shard.expect("a shard's index: the remainder of a division by a usize fits a usize")
    }

    fn try_shard(&self, part: usize) -> Option<MutexGuard<'_, Shard>> {
        match self.shards[part].try_lock() {
            Ok(shard) => Some(shard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    fn lock(&self, part: usize) -> MutexGuard<'_, Shard> {
        self.shards[part].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the version odd: from now on no reader accepts what it finds at the frame.
    fn make_odd(&self, frame: u32) {
        let version = self.slots[frame as usize].version.fetch_or(1, Ordering::AcqRel) | 1;
        self.store_version(frame, version);
        // Later stores of bytes must not become visible before the version.
        fence(Ordering::SeqCst);
    }

    fn store_version(&self, frame: u32, version: u64) {
        let stored = self.region.store_u64(self.geometry.header_offset(frame), version);
        stored.expect("every frame has an aligned header inside of the region");
    }

    /// Frees frames that nobody uses any more.
    fn free(&self, shard: &mut Shard, frames: Frames) {
        self.slots[frames.first as usize].state.store(0, Ordering::Release);
        subtract(&self.counters.used_frames, frames.count.into());
        shard.give_back(frames);
    }

    /// Locks the shard of the frames and frees them.
    fn lock_and_free(&self, frames: Frames) {
        let part = (frames.first / self.frames_per_shard) as usize;
        self.free(&mut self.lock(part), frames);
    }

    fn slice(&self, frames: Frames, length_bytes: u32) -> Result<RegionSlice, OutOfBounds> {
        self.region.slice(self.geometry.payload_offset(frames.first), length_bytes as usize)
    }

    /// The checksum of a slot's bytes, which are at rest.
    fn checksum(&self, frames: Frames, extent: &Extent) -> Result<u32, OutOfBounds> {
        let (begin, length) = (self.geometry.payload_offset(frames.first), extent.length_bytes as usize);
        let mut checksum = checksum_of_key(self.epoch, extent);
        let mut copy = [0; CHECKSUM_STEP_BYTES];
        for at in (0..length).step_by(CHECKSUM_STEP_BYTES) {
            let part = &mut copy[..CHECKSUM_STEP_BYTES.min(length - at)];
            self.region.copy_out(begin + at, part)?;
            checksum = crc32c::crc32c_append(checksum, part);
        }
        Ok(checksum)
    }
}

impl Pin {
    /// The page's bytes.
    ///
    /// # Errors
    /// Never: a slot lies inside of its region.
    pub fn slice(&self) -> Result<RegionSlice, OutOfBounds> {
        self.cache.slice(self.frames, self.length_bytes)
    }

    /// Whether these bytes were verified ([`Self::found_right`]); they have not changed since.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.cache.slots[self.frames.first as usize].is_right.load(Ordering::Relaxed)
    }

    /// Records that the caller has verified checksum and identity of the bytes while it held this
    /// pin.
    pub fn found_right(&self) {
        self.cache.slots[self.frames.first as usize].is_right.store(true, Ordering::Relaxed);
    }

    /// Where readers find the page; `None` if the slot was withdrawn before it was published.
    #[must_use]
    pub fn place(&self) -> Option<CachePlace> {
        self.place
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let before = self.cache.slots[self.frames.first as usize].state.fetch_sub(1, Ordering::AcqRel);
        if before == WITHDRAWN + 1 {
            self.cache.lock_and_free(self.frames);
        }
    }
}

impl Fill {
    /// Where the bytes go: their offset in the region, and their number.
    #[must_use]
    pub fn place_bytes(&self) -> (usize, usize) {
        (self.cache.geometry.payload_offset(self.frames.first), self.extent.length_bytes as usize)
    }

    /// Publishes the slot, whose bytes are complete, and pins it for the caller. If the slot was
    /// withdrawn meanwhile, only the caller can use it.
    #[must_use]
    pub fn publish(mut self) -> Pin {
        let (cache, frames, extent) = (Arc::clone(&self.cache), self.frames, self.extent);
        let slot = &cache.slots[frames.first as usize];
        let header_offset = cache.geometry.header_offset(frames.first);
        let written = cache.checksum(frames, &extent).and_then(|checksum| {
            cache.region.copy_in(header_offset + 8, &header_behind_version(cache.epoch, &extent, checksum))
        });
        written.expect("a slot lies inside of its region");
        let version = slot.version.fetch_add(1, Ordering::AcqRel) + 1;
        cache.store_version(frames.first, version);
        self.is_published = true;
        // The slot goes from being filled to being pinned in one step.
        let before = slot.state.fetch_sub(FILLING - 1, Ordering::AcqRel);
        let mut place = Some(CachePlace { frame: frames.first, version });
        if before & WITHDRAWN != 0 {
            cache.make_odd(frames.first);
            place = None;
        }
        Pin { cache, frames, length_bytes: extent.length_bytes, place }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        if self.is_published {
            return;
        }
        let part = (self.frames.first / self.cache.frames_per_shard) as usize;
        let mut shard = self.cache.lock(part);
        let state = self.cache.slots[self.frames.first as usize].state.load(Ordering::Acquire);
        if state & WITHDRAWN == 0 {
            shard.remove(&self.extent);
            subtract(&self.cache.counters.pages, 1);
        }
        self.cache.free(&mut shard, self.frames);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_format::ids::DeviceId;

    fn extent(nth: u64) -> Extent {
        Extent { device: DeviceId(0), offset_bytes: nth * 4096, length_bytes: 4096 }
    }

    fn cache() -> Arc<PageCache> {
        PageCache::new(64 << 10, 1, 1).unwrap().unwrap()
    }

    fn fill(cache: &Arc<PageCache>, nth: u64) -> Fill {
        match cache.look(&extent(nth)) {
            Look::Fill(fill) => fill,
            other => panic!("a page that was not there is to be filled, not {other:?}"),
        }
    }

    fn is_hit(cache: &Arc<PageCache>, nth: u64) -> bool {
        matches!(cache.look(&extent(nth)), Look::Hit(_))
    }

    #[test]
    fn a_look_never_waits_for_a_lock() {
        let cache = cache();
        drop(fill(&cache, 1).publish());
        let held = cache.lock(0);
        assert!(
            matches!(cache.look(&extent(1)), Look::Bypass) && matches!(cache.look(&extent(2)), Look::Bypass)
        );
        cache.used(CachePlace { frame: 0, version: 2 });
        drop(held);
        assert!(is_hit(&cache, 1));
        assert_eq!((cache.status().hits, cache.status().misses), (1, 3));
    }

    #[test]
    fn a_page_is_there_once_it_is_published_and_not_while_it_is_filled_or_after_that_failed() {
        let cache = cache();
        let filling = fill(&cache, 1);
        assert!(matches!(cache.look(&extent(1)), Look::Bypass));
        drop(filling);
        assert_eq!((cache.status().pages, cache.status().used_bytes), (0, 0));
        let pin = fill(&cache, 1).publish();
        assert!(is_hit(&cache, 1) && pin.place().is_some());
    }

    #[test]
    fn what_was_found_right_is_so_until_other_bytes_come() {
        let cache = cache();
        let pin = fill(&cache, 1).publish();
        assert!(!pin.is_right());
        pin.found_right();
        assert!(matches!(cache.look(&extent(1)), Look::Hit(again) if again.is_right()));
        drop(pin);
        cache.withdraw(&extent(1));
        assert!(!fill(&cache, 1).publish().is_right());
    }

    #[test]
    fn a_slot_that_is_withdrawn_in_use_is_told_to_nobody_and_free_when_its_last_user_lets_go() {
        let cache = cache();
        let filling = fill(&cache, 1);
        cache.withdraw(&extent(1));
        assert_eq!((cache.status().pages, cache.status().used_bytes), (0, 4096));
        let pin = filling.publish();
        assert_eq!(pin.place(), None);
        let other = fill(&cache, 1).publish();
        let again = match cache.look(&extent(1)) {
            Look::Hit(pin) => pin,
            other => panic!("it was published, not {other:?}"),
        };
        cache.withdraw(&extent(1));
        drop((pin, other));
        assert_eq!(cache.status().used_bytes, 4096, "somebody still sends from it");
        drop(again);
        assert_eq!(cache.status().used_bytes, 0);
    }

    #[test]
    fn versions_of_a_frame_only_grow() {
        let cache = cache();
        let mut last = 0;
        for _ in 0..10 {
            let place = fill(&cache, 1).publish().place().unwrap();
            assert!(place.frame == 0 && place.version > last && place.version.is_multiple_of(2));
            last = place.version;
            cache.withdraw(&extent(1));
            let word = cache.region.load_u64(0).unwrap();
            assert!(word > last && !word.is_multiple_of(2));
        }
    }

    #[test]
    fn pages_that_readers_take_themselves_stay_and_others_go() {
        let cache = cache();
        let frames = u64::from(cache.geometry().frames());
        let places: Vec<CachePlace> =
            (0..frames).map(|nth| fill(&cache, nth).publish().place().unwrap()).collect();
        for _ in 0..3 {
            cache.used(places[0]);
        }
        for nth in frames..4 * frames {
            assert!(matches!(cache.look(&extent(nth)), Look::Bypass), "seen for the first time");
            drop(fill(&cache, nth).publish());
        }
        assert!(is_hit(&cache, 0) && !is_hit(&cache, 1));
        // Places that mean nothing, from a reader that may say anything.
        for (frame, version) in [(0, 0), (0, 1), (u32::MAX, 2), (3, u64::MAX)] {
            cache.used(CachePlace { frame, version });
        }
        assert_eq!(cache.status().one_sided_hits, 7);
    }
}
