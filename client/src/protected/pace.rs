//! Limits the speed of a scrub or rebuild, and counts its progress.
//!
//! Invariant: over any period, the bytes that were allowed are at most the rate times its length,
//! plus the largest single transfer.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// The progress of a scrub or rebuild.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepairProgress {
    /// Bytes on devices that are to be processed.
    pub bytes_total: u64,
    /// Bytes of them that were processed.
    pub bytes_done: u64,
    /// Pages and parity cells that were corrupt or lost.
    pub corrupt: u64,
    /// Number of them that were repaired.
    pub repaired: u64,
    /// Bytes of the repaired ones.
    pub repaired_bytes: u64,
    /// Bytes read at other nodes for these.
    pub survivor_bytes: u64,
}

/// A callback that receives the progress: from several tasks, one call at a time for each.
pub type RepairListener<'l> = &'l (dyn Fn(&RepairProgress) + Sync);

/// The pace and progress of one scrub or rebuild.
pub(super) struct Pace<'l> {
    bytes_per_second: Option<u64>,
    /// When the bytes that were let through so far have used up their time.
    free_at: Mutex<Instant>,
    listener: RepairListener<'l>,
    bytes_total: AtomicU64,
    bytes_done: AtomicU64,
    corrupt: AtomicU64,
    repaired: AtomicU64,
    repaired_bytes: AtomicU64,
    survivor_bytes: AtomicU64,
}

impl std::fmt::Debug for Pace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pace").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl<'l> Pace<'l> {
    pub(super) fn new(bytes_per_second: Option<u64>, listener: RepairListener<'l>) -> Self {
        Self {
            bytes_per_second,
            free_at: Mutex::new(Instant::now()),
            listener,
            bytes_total: AtomicU64::new(0),
            bytes_done: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
            repaired: AtomicU64::new(0),
            repaired_bytes: AtomicU64::new(0),
            survivor_bytes: AtomicU64::new(0),
        }
    }

    /// Waits until so many bytes may be read.
    pub(super) async fn take(&self, bytes: u64) {
        let Some(rate) = self.bytes_per_second else { return };
        let wait = {
            let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let from = (*free_at).max(now);
            let ms = bytes.saturating_mul(1000) / rate.max(1);
            // At a very low rate one wait is at most a day.
            *free_at = from + Duration::from_millis(ms.min(86_400_000));
            from - now
        };
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Bytes that may be read at once: those of a quarter of a second, at most `bytes_max`.
    pub(super) fn bytes_at_once(&self, bytes_max: u64) -> u64 {
        self.bytes_per_second.map_or(bytes_max, |rate| (rate / 4).clamp(1, bytes_max))
    }

    pub(super) fn expect(&self, bytes: u64) {
        self.bytes_total.fetch_add(bytes, Relaxed);
    }

    pub(super) fn done(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Relaxed);
        self.tell();
    }

    pub(super) fn corrupt(&self, places: u64) {
        self.corrupt.fetch_add(places, Relaxed);
        self.tell();
    }

    pub(super) fn repaired(&self, places: u64, bytes: u64) {
        self.repaired.fetch_add(places, Relaxed);
        self.repaired_bytes.fetch_add(bytes, Relaxed);
        self.tell();
    }

    pub(super) fn survivors(&self, bytes: u64) {
        self.survivor_bytes.fetch_add(bytes, Relaxed);
    }

    fn tell(&self) {
        (self.listener)(&self.progress());
    }

    pub(super) fn progress(&self) -> RepairProgress {
        // Bytes that relays processed in vain are processed again, and must count once.
        let bytes_total = self.bytes_total.load(Relaxed);
        RepairProgress {
            bytes_total,
            bytes_done: self.bytes_done.load(Relaxed).min(bytes_total),
            corrupt: self.corrupt.load(Relaxed),
            repaired: self.repaired.load(Relaxed),
            repaired_bytes: self.repaired_bytes.load(Relaxed),
            survivor_bytes: self.survivor_bytes.load(Relaxed),
        }
    }
}
