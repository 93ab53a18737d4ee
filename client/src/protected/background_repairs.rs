//! Counts and bounds the repairs that reads start in the background.

use std::sync::{Arc, atomic::AtomicU64};

use tokio::sync::Semaphore;

use crate::limits::REPAIRS_MAX;

/// Counts the pages that reads have found corrupt since this process connected to the cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CorruptPages {
    /// Number of corrupt pages that reads reconstructed from other nodes.
    pub found: u64,
    /// Number of these pages that were then repaired at their node.
    pub repaired: u64,
}

/// Counters and permits of background repairs.
#[derive(Debug)]
pub(crate) struct BackgroundRepairs {
    pub(super) permits: Arc<Semaphore>,
    pub(super) found: AtomicU64,
    pub(super) repaired: Arc<AtomicU64>,
}

impl Default for BackgroundRepairs {
    fn default() -> Self {
        let permits = Arc::new(Semaphore::new(REPAIRS_MAX));
        Self { permits, found: AtomicU64::new(0), repaired: Arc::default() }
    }
}
