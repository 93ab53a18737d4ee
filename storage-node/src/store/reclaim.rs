//! Runs the thread that returns the disk space of free extents to the filesystem.
//!
//! Invariants
//! - The thread ends before the store is dropped, because the extents that the dropped store frees
//!   are still in the catalog.
//! - A range that cannot be returned keeps its blocks until the next start, which returns all free
//!   extents.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use super::{Store, allocate::Space};
use crate::{config::Config, error::StartError, lifecycle::Lifecycle};

/// A handle on the thread, which runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Reclaim {
    space: Arc<Space>,
}

impl Reclaim {
    /// Starts the thread, if a device is sparse.
    pub(crate) fn start(
        config: &Config,
        store: &Arc<Store>,
        lifecycle: &Arc<Lifecycle>,
    ) -> Result<Option<(Self, JoinHandle<()>)>, StartError> {
        if config.devices.iter().all(|device| device.reserve) {
            return Ok(None);
        }
        let (store, lifecycle) = (Arc::clone(store), Arc::clone(lifecycle));
        let reclaim = Self { space: Arc::clone(&store.space) };
        let run = move || {
            let _guard = lifecycle.guard("the thread that returns disk space");
            while store.space.extents().wait() {
                store.punch_freed();
            }
        };
        let name = format!("n{}-reclaim", config.node);
        let thread = std::thread::Builder::new().name(name).spawn(run);
        let action = "start the thread that returns disk space";
        let thread = thread.map_err(|source| StartError::Os { action, source })?;
        Ok(Some((reclaim, thread)))
    }
}

impl Drop for Reclaim {
    fn drop(&mut self) {
        self.space.extents().end();
    }
}

impl Store {
    /// Punches the blocks of all extents that have become free.
    pub(super) fn punch_freed(&self) {
        static IS_WARNED: AtomicBool = AtomicBool::new(false);
        let punch = |range: super::free_extents::Range| {
            let outcome = self.devices.discard(range.device, range.begin, range.length);
            if let Err(error) = outcome
                && !IS_WARNED.swap(true, Ordering::Relaxed)
            {
                let path = self.devices.facts()[range.device].path.display();
                tracing::warn!(device = %path, error, "free blocks of a device file were not returned to the filesystem; the next start of the node returns them");
            }
        };
        while self.space.extents().punch_one(punch) {}
    }
}
