//! Counts and bounds the repairs that reads start in the background.

use std::sync::{Arc, atomic::AtomicU64};

use tokio::sync::Semaphore;

use crate::limits::REPAIRS_MAX;

/// Pages that reads have found corrupt, since the cluster was connected to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CorruptPages {
    /// Number of pages that were reconstructed instead.
    pub found: u64,
    /// Number of them that were repaired at their node.
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
