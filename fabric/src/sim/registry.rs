//! Finds the simulated networks of this process by number.
//!
//! Invariants
//! - No two networks of a process have the same number, so an address names one network for ever.
//! - The registry keeps no network alive.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{seed::Seed, world::World};
use crate::{address::Address, guarded::Guarded};

/// The state that the handles of a network share.
#[derive(Debug)]
pub(crate) struct SimShared {
    pub(super) number: u64,
    pub(super) seed: Seed,
    pub(super) world: Guarded<World>,
}

impl SimShared {
    pub(super) fn address(&self, place: &str) -> Address {
        Address::Sim { network: self.number, place: place.to_owned() }
    }
}

/// The networks of this process, by number.
static NETWORKS: Mutex<BTreeMap<u64, Weak<SimShared>>> = Mutex::new(BTreeMap::new());

fn networks() -> MutexGuard<'static, BTreeMap<u64, Weak<SimShared>>> {
    NETWORKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a network under a number that no other network has or had.
pub(super) fn publish(make: impl FnOnce(u64) -> SimShared) -> Arc<SimShared> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    let shared = Arc::new(make(number));
    let mut networks = networks();
    networks.retain(|_, network| network.strong_count() > 0);
    networks.insert(number, Arc::downgrade(&shared));
    shared
}

pub(super) fn find(network: u64) -> io::Result<Arc<SimShared>> {
    let found = networks().get(&network).and_then(Weak::upgrade);
    found.ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("there is no simulated network {network}"))
    })
}
