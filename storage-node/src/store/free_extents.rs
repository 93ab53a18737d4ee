//! Tracks which extents of the devices are free, and which free extents still use disk space.
//!
//! A sparse device file keeps the blocks of an extent after the extent is freed. One thread
//! (`reclaim`) punches them out (returns them to the filesystem), so that a full filesystem gets
//! the space back at once.
//!
//! Invariants
//! - A range is punched only while it is free, and cannot be allocated until the punch has ended.
//! - Extents become free only after their removal from the catalog is durable. If the durability is
//!   uncertain, [`FreeExtents::freeze`] is called first: no extent becomes free after it.
//! - After a panic in here the state may be half changed: no extent becomes free, and none is
//!   allocated.

use std::{
    path::PathBuf,
    sync::{Condvar, LockResult, Mutex, MutexGuard},
};

use rackscan_cache::FreeSpace;
use rackscan_format::{label::DATA_OFFSET_BYTES, segment::Extent};

use crate::limits::{FREED_RANGES_MAX, PUNCH_BYTES_MAX};

/// What the allocator knows of a device.
#[derive(Debug, Clone)]
pub(crate) struct DeviceCapacity {
    /// Its path, for messages.
    pub(crate) path: PathBuf,
    /// Usable bytes, labels included.
    pub(crate) capacity_bytes: u64,
    /// Whether it is a file that takes disk space only where it was written.
    pub(crate) is_sparse: bool,
}

/// A range of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) device: usize,
    pub(super) begin: u64,
    pub(super) length: u64,
}

/// The free extents of all devices.
#[derive(Debug)]
pub(super) struct FreeExtents {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) devices: Vec<FreeSpace>,
    /// For each sparse device, the ranges that were freed since the last punch: begin and length.
    /// Some may have been allocated again, or be listed twice.
    freed: Vec<Option<Vec<(u64, u64)>>>,
    punched: Option<Range>,
    /// The number of allocations that wait for the end of a punch, whose range they need.
    waiting: usize,
    is_ended: bool,
    is_frozen: bool,
    /// Whether a thread has panicked while it changed this.
    is_broken: bool,
}

impl State {
    /// The free bytes of a device, including a range that is being punched.
    pub(super) fn free_bytes(&self, device: usize) -> u64 {
        let punched = self.punched.filter(|range| range.device == device);
        self.devices[device].free() + punched.map_or(0, |range| range.length)
    }

    /// Frees an extent.
    pub(super) fn give_back(&mut self, extent: Extent) {
        let (device, length) = (usize::from(extent.device.0), extent.length_bytes.into());
        if self.is_frozen {
            return;
        }
        assert!(device < self.devices.len(), "an extent of device {device}, which there is not, is freed");
        self.devices[device].give_back(extent.offset_bytes, length);
        let Some(freed) = self.freed[device].as_mut().filter(|_| !self.is_ended) else { return };
        if let Some((begin, before)) = freed.last_mut()
            && *begin + *before == extent.offset_bytes
        {
            *before += length;
        } else if freed.len() < FREED_RANGES_MAX {
            freed.push((extent.offset_bytes, length));
        } else {
            // Lists all that is free: punching a range again costs little.
            *freed = vec![(DATA_OFFSET_BYTES, u64::MAX - DATA_OFFSET_BYTES)];
        }
    }

    /// Takes the next range to punch out of the free ones.
    fn take_freed(&mut self) -> Option<Range> {
        for (device, freed) in self.freed.iter_mut().enumerate() {
            let Some(freed) = freed else { continue };
            while let Some((begin, length)) = freed.pop() {
                let end = begin + length;
                let Some(free) = self.devices[device].take_within(begin, end, PUNCH_BYTES_MAX) else {
                    continue;
                };
                let rest = free.0 + free.1;
                if rest < end {
                    freed.push((rest, end - rest));
                }
                return Some(Range { device, begin: free.0, length: free.1 });
            }
        }
        None
    }
}

impl FreeExtents {
    /// The whole devices, except their labels.
    pub(super) fn of(capacities: &[DeviceCapacity]) -> Self {
        let devices = capacities.iter().map(|room| FreeSpace::new(DATA_OFFSET_BYTES, room.capacity_bytes));
        let state = State {
            devices: devices.collect(),
            freed: capacities.iter().map(|room| room.is_sparse.then(Vec::new)).collect(),
            punched: None,
            waiting: 0,
            is_ended: false,
            is_frozen: false,
            is_broken: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        checked(self.state.lock())
    }

    /// Allocates with `take`. If it fails while a range is being punched, it is tried again after
    /// that.
    pub(super) fn take<T, E>(&self, mut take: impl FnMut(&mut State) -> Result<T, E>) -> Result<T, E> {
        let mut state = self.lock();
        assert!(!state.is_broken, "{BROKEN}");
        match take(&mut state) {
            Err(_) if state.punched.is_some() => {}
            outcome => return outcome,
        }
        // No other punch begins while an allocation waits.
        state.waiting += 1;
        while state.punched.is_some() {
            state = checked(self.changed.wait(state));
        }
        state.waiting -= 1;
        assert!(!state.is_broken, "{BROKEN}");
        let outcome = take(&mut state);
        drop(state);
        self.changed.notify_all();
        outcome
    }

    /// Frees extents.
    pub(super) fn give_back(&self, extents: impl Iterator<Item = Extent>) {
        let mut state = self.lock();
        extents.for_each(|extent| state.give_back(extent));
        drop(state);
        self.changed.notify_all();
    }

    /// Stops freeing extents: the catalog that counts after a restart may list them.
    pub(super) fn freeze(&self) {
        let mut state = self.lock();
        (state.is_frozen, state.is_ended) = (true, true);
        drop(state);
        self.changed.notify_all();
    }

    /// Stops punching.
    pub(super) fn end(&self) {
        self.lock().is_ended = true;
        self.changed.notify_all();
    }

    /// Punches the next range with `punch`; false if there is none.
    pub(super) fn punch_one(&self, punch: impl FnOnce(Range)) -> bool {
        let mut state = self.lock();
        if state.is_ended || state.waiting > 0 {
            return false;
        }
        let Some(range) = state.take_freed() else { return false };
        state.punched = Some(range);
        drop(state);
        punch(range);
        let mut state = self.lock();
        state.punched = None;
        state.devices[range.device].give_back(range.begin, range.length);
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Waits until there may be something to punch; false when punching has stopped.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.lock();
        let is_idle = |state: &State| state.waiting > 0 || state.freed.iter().flatten().all(Vec::is_empty);
        while !state.is_ended && is_idle(&state) {
            state = checked(self.changed.wait(state));
        }
        !state.is_ended
    }
}

/// Why nothing is allocated any more.
const BROKEN: &str = "an earlier panic has left the free extents half changed";

/// The state; after a panic that may have left it half changed, it is frozen and broken. The panic
/// was reported, and freeing while unwinding must not abort.
fn checked(locked: LockResult<MutexGuard<'_, State>>) -> MutexGuard<'_, State> {
    locked.unwrap_or_else(|poisoned| {
        let mut state = poisoned.into_inner();
        (state.is_frozen, state.is_ended, state.is_broken) = (true, true, true);
        state
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_format::ids::DeviceId;
    use std::{
        cell::RefCell,
        collections::BTreeSet,
        panic::{AssertUnwindSafe, catch_unwind},
        sync::mpsc,
    };

    const MIB: u64 = 1 << 20;

    fn free(is_sparse: bool) -> FreeExtents {
        let capacity_bytes = DATA_OFFSET_BYTES + 256 * MIB;
        FreeExtents::of(&[DeviceCapacity { path: "d".into(), capacity_bytes, is_sparse }])
    }

    fn extent(mib: u64, length_mib: u64) -> Extent {
        let length_bytes = u32::try_from(length_mib * MIB).unwrap();
        Extent { device: DeviceId(0), offset_bytes: DATA_OFFSET_BYTES + mib * MIB, length_bytes }
    }

    fn taken(free: &FreeExtents, extent: Extent) -> bool {
        free.lock().devices[0].take_at(extent.offset_bytes, extent.length_bytes.into())
    }

    fn punched(free: &FreeExtents) -> Vec<(u64, u64)> {
        let found = RefCell::new(Vec::new());
        let note = |range: Range| {
            let begin = (range.begin - DATA_OFFSET_BYTES) / MIB;
            found.borrow_mut().push((begin, range.length / MIB));
        };
        while free.punch_one(note) {}
        found.into_inner()
    }

    #[test]
    fn what_became_free_is_punched_once_and_what_was_taken_again_is_not() {
        let free = free(true);
        assert!(punched(&free).is_empty(), "nothing was written");
        assert!(taken(&free, extent(0, 8)));
        free.give_back([extent(0, 2), extent(2, 2), extent(4, 4)].into_iter());
        assert!(taken(&free, extent(1, 2)));
        assert_eq!(punched(&free), [(0, 1), (3, 5)]);
        assert!(punched(&free).is_empty());
        assert_eq!(free.lock().free_bytes(0), 254 * MIB);
    }

    #[test]
    fn a_long_range_is_punched_in_pieces() {
        let free = free(true);
        assert!(taken(&free, extent(0, 256)));
        free.give_back([extent(0, 200)].into_iter());
        let pieces = punched(&free);
        assert!(pieces.iter().all(|(_, length)| length * MIB <= PUNCH_BYTES_MAX), "{pieces:?}");
        assert_eq!(pieces.iter().map(|(_, length)| length).sum::<u64>(), 200);
    }

    #[test]
    fn more_pieces_than_are_listed_are_all_punched() {
        let free = free(true);
        assert!(taken(&free, extent(0, 256)));
        let pieces = (0..2 * FREED_RANGES_MAX as u64 + 1).map(|number| Extent {
            offset_bytes: DATA_OFFSET_BYTES + number * 8192,
            length_bytes: 4096,
            ..extent(0, 1)
        });
        let pieces: Vec<Extent> = pieces.collect();
        free.give_back(pieces.iter().copied());
        let begins = RefCell::new(BTreeSet::new());
        while free.punch_one(|range| begins.borrow_mut().extend([range.begin])) {}
        assert!(begins.into_inner().into_iter().eq(pieces.iter().map(|piece| piece.offset_bytes)));
    }

    #[test]
    fn a_device_that_reserves_its_blocks_keeps_them() {
        let free = free(false);
        assert!(taken(&free, extent(0, 8)));
        free.give_back([extent(0, 8)].into_iter());
        assert!(punched(&free).is_empty());
    }

    #[test]
    fn nothing_becomes_free_and_nothing_is_punched_when_the_catalog_is_in_doubt() {
        let free = free(true);
        assert!(taken(&free, extent(0, 8)));
        free.give_back([extent(0, 1)].into_iter());
        free.freeze();
        free.give_back([extent(1, 7)].into_iter());
        assert!(punched(&free).is_empty());
        assert_eq!(free.lock().free_bytes(0), 249 * MIB);
        assert!(!free.wait());
    }

    #[test]
    fn nothing_becomes_free_and_nothing_is_allocated_after_a_panic_of_the_allocator() {
        let free = free(true);
        assert!(taken(&free, extent(0, 8)));
        let broken = || free.take(|_| -> Result<(), ()> { panic!("half changed") });
        assert!(catch_unwind(AssertUnwindSafe(broken)).is_err());
        free.give_back([extent(0, 8)].into_iter());
        assert!(punched(&free).is_empty() && !free.wait());
        assert_eq!(free.lock().free_bytes(0), 248 * MIB);
        let allocated = || free.take(|state| state.devices[0].take(MIB).ok_or(()));
        assert!(catch_unwind(AssertUnwindSafe(allocated)).is_err());
    }

    #[test]
    fn a_range_that_is_punched_counts_as_free_and_is_waited_for() {
        let free = free(true);
        assert!(taken(&free, extent(0, 256)));
        free.give_back([extent(0, 1)].into_iter());
        let (begun, is_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let free = &free;
            scope.spawn(move || {
                free.punch_one(|_| {
                    begun.send(()).unwrap();
                    may_go_on.recv().unwrap();
                })
            });
            is_begun.recv().unwrap();
            assert_eq!(free.lock().free_bytes(0), MIB);
            assert!(!taken(free, extent(0, 1)), "nobody takes what is being punched");
            let taker =
                scope.spawn(|| free.take(|state| state.devices[0].take(MIB).ok_or("there is no room")));
            while free.lock().waiting == 0 {
                std::thread::yield_now();
            }
            go_on.send(()).unwrap();
            assert_eq!(taker.join().unwrap(), Ok(DATA_OFFSET_BYTES));
        });
    }
}
