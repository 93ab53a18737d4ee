//! Memory that another crate has mapped, as source or destination of transfers.
//!
//! An example is a fabric region. A peer may read or write it at any time, so this crate never
//! creates Rust slices over it. The kernel copies into it, and the simulator stores single bytes
//! atomically.
#![expect(unsafe_code, reason = "carries a raw pointer whose owner promises that it stays mapped")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A range of memory outside any pool, kept mapped by `keep_alive`.
#[derive(Clone)]
pub struct ExternalMemory {
    start: *mut u8,
    len_bytes: usize,
    keep_alive: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the range is atomic bytes, which any thread may access; `keep_alive` is Send.
unsafe impl Send for ExternalMemory {}
// SAFETY: `&ExternalMemory` only copies bytes with atomic loads and stores.
unsafe impl Sync for ExternalMemory {}

impl ExternalMemory {
    /// Uses shared bytes as source or target of IO. This constructor is safe, because any thread or
    /// process may change atomic bytes at any time.
    #[must_use]
    pub fn of_bytes<T: AsRef<[AtomicU8]> + Send + Sync + 'static>(owner: Arc<T>) -> Self {
        // The slice borrows `*owner`, which stays borrowable (and so the slice valid) as long as
        // `keep_alive` lives.
        let bytes: &[AtomicU8] = (*owner).as_ref();
        let (start, len_bytes) = (bytes.as_ptr().cast::<u8>().cast_mut(), bytes.len());
        Self { start, len_bytes, keep_alive: owner }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len_bytes
    }

    /// True if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// The part `[offset_bytes, offset_bytes + len_bytes)`, or `None` if it is not inside.
    #[must_use]
    pub fn part(&self, offset_bytes: usize, len_bytes: usize) -> Option<Self> {
        let end = offset_bytes.checked_add(len_bytes)?;
        if end > self.len_bytes {
            return None;
        }
        // SAFETY: `offset_bytes <= end <= self.len_bytes`, so the result stays in (or one past) the
        // mapping.
        let start = unsafe { self.start.add(offset_bytes) };
        Some(Self { start, len_bytes, keep_alive: Arc::clone(&self.keep_alive) })
    }

    /// Address of the first byte, for the kernel.
    pub(crate) fn address(&self) -> *mut u8 {
        self.start
    }

    /// Stores `bytes` at the beginning; for the simulator.
    pub(crate) fn store(&self, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate().take(self.len_bytes) {
            self.atomic(index).store(*byte, Ordering::Relaxed);
        }
    }

    /// Loads into `bytes` from the beginning; for the simulator.
    pub(crate) fn load(&self, bytes: &mut [u8]) {
        for (index, byte) in bytes.iter_mut().enumerate().take(self.len_bytes) {
            *byte = self.atomic(index).load(Ordering::Relaxed);
        }
    }

    fn atomic(&self, index: usize) -> &AtomicU8 {
        assert!(index < self.len_bytes, "byte {index} is outside external memory of {}", self.len_bytes);
        // SAFETY: the assertion keeps the address inside the range.
        let byte = unsafe { self.start.add(index) };
        // SAFETY: the range is mapped while `self.keep_alive` lives, which lends its bytes as
        // atomics; a byte needs no alignment.
        unsafe { AtomicU8::from_ptr(byte) }
    }
}

impl fmt::Debug for ExternalMemory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ExternalMemory")
            .field("start", &self.start)
            .field("len_bytes", &self.len_bytes)
            .finish()
    }
}
