//! The buffer pool: one slab of memory, divided into buffers that each have one owner.
//!
//! A [`BufferPool`] is one slab, allocated at start and divided into [`Buffer`]s whose lengths are
//! multiples of 4 KiB. A buffer returns to its pool when it is dropped, from any thread. Taking and
//! returning buffers never allocates.
//!
//! Invariants
//! - Every slab byte is either free in the allocator or owned by exactly one `Buffer`.
//! - A `Buffer` in flight is owned by the ring, so its slices cannot be borrowed.
//! - Buffers do not cross multiples of the pool's largest buffer, so each lies in one registered
//!   piece.
#![expect(unsafe_code, reason = "turns exclusive ownership of a slab range into slices")]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use super::buddy::Buddy;
use super::error::{PoolError, TakeError};
use super::slab::Slab;
use crate::limits::{BUFFER_BYTES_MAX, IO_ALIGN_BYTES, POOL_BYTES_MAX};

/// Fixed memory for IO, shared by the threads of a process. Cloning shares the same memory.
#[derive(Clone)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

struct Shared {
    slab: Slab,
    largest_bytes: usize,
    free: Mutex<Buddy>,
}

impl Shared {
    fn with_free<T>(&self, act: impl FnOnce(&mut Buddy) -> T) -> T {
        // A panic inside the allocator is a broken invariant that was already reported; returning
        // buffers during its unwinding must not abort the process.
        act(&mut self.free.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl BufferPool {
    /// Allocates `total_bytes` of memory for buffers of 4 KiB to `largest_bytes`.
    ///
    /// # Errors
    /// [`PoolError::BadSizes`] unless `largest_bytes` is a power of two within the limits and
    /// divides `total_bytes`; [`PoolError::NoMemory`] if the system does not have the memory.
    pub fn new(total_bytes: usize, largest_bytes: usize) -> Result<Self, PoolError> {
        let largest_is_good =
            largest_bytes.is_power_of_two() && (IO_ALIGN_BYTES..=BUFFER_BYTES_MAX).contains(&largest_bytes);
        let total_is_good = total_bytes > 0 && total_bytes <= POOL_BYTES_MAX;
        if !largest_is_good || !total_is_good || !total_bytes.is_multiple_of(largest_bytes) {
            return Err(PoolError::BadSizes { total_bytes, largest_bytes });
        }
        let slab = Slab::map(total_bytes).map_err(|source| PoolError::NoMemory { total_bytes, source })?;
        let pages = pages_of(total_bytes);
        let free = Mutex::new(Buddy::new(pages, (largest_bytes / IO_ALIGN_BYTES).trailing_zeros()));
        Ok(Self { shared: Arc::new(Shared { slab, largest_bytes, free }) })
    }

    /// Takes a buffer of at least `bytes`: its length is `bytes` rounded up to 4 KiB. The contents
    /// are whatever the last owner left.
    ///
    /// # Errors
    /// [`TakeError::BadLength`] for zero or more than the largest buffer, [`TakeError::Exhausted`]
    /// if none is free.
    pub fn take(&self, bytes: usize) -> Result<Buffer, TakeError> {
        let largest_bytes = self.shared.largest_bytes;
        if bytes == 0 || bytes > largest_bytes {
            return Err(TakeError::BadLength { wanted_bytes: bytes, largest_bytes });
        }
        let pages = pages_of(bytes.next_multiple_of(IO_ALIGN_BYTES));
        match self.shared.with_free(|free| free.take(pages)) {
            Some(first_page) => Ok(Buffer { shared: Arc::clone(&self.shared), first_page, pages }),
            None => Err(TakeError::Exhausted {
                wanted_bytes: bytes,
                free_bytes: self.free_bytes(),
                total_bytes: self.total_bytes(),
            }),
        }
    }

    /// Bytes not owned by any buffer.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.shared.with_free(|free| free.free_pages()) as usize * IO_ALIGN_BYTES
    }

    /// Bytes of the slab.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.shared.slab.len_bytes()
    }

    /// Bytes of the largest buffer.
    #[must_use]
    pub fn largest_bytes(&self) -> usize {
        self.shared.largest_bytes
    }

    pub(crate) fn slab(&self) -> &Slab {
        &self.shared.slab
    }
}

fn pages_of(bytes: usize) -> u32 {
    u32::try_from(bytes / IO_ALIGN_BYTES).expect("a pool is at most POOL_BYTES_MAX bytes")
}

/// A piece of a pool, 4 KiB aligned, owned like a `Box<[u8]>`; returns to its pool when dropped.
pub struct Buffer {
    shared: Arc<Shared>,
    first_page: u32,
    pages: u32,
}

impl Buffer {
    /// Length in bytes: a positive multiple of 4 KiB.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages as usize * IO_ALIGN_BYTES
    }

    /// False: there are no empty buffers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages == 0
    }

    pub(crate) fn offset_in_slab(&self) -> usize {
        self.first_page as usize * IO_ALIGN_BYTES
    }

    /// Address of the first byte, for the kernel.
    pub(crate) fn address(&self) -> *mut u8 {
        self.shared.slab.address(self.offset_in_slab())
    }

    /// True if the buffer is a part of `pool`.
    pub(crate) fn is_of(&self, slab: *const Slab) -> bool {
        std::ptr::eq(&raw const self.shared.slab, slab)
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (total_bytes, free_bytes) = (self.total_bytes(), self.free_bytes());
        out.debug_struct("BufferPool")
            .field("total_bytes", &total_bytes)
            .field("free_bytes", &free_bytes)
            .finish()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first_page, len_bytes) = (self.first_page, self.len());
        out.debug_struct("Buffer").field("first_page", &first_page).field("len_bytes", &len_bytes).finish()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: this buffer owns the range; writers would need `&mut self` or ownership (IO),
        // which the borrow of `self` excludes.
        unsafe { self.shared.slab.bytes(self.offset_in_slab(), self.len()) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: this buffer owns the range and is borrowed mutably, so nobody else reads or
        // writes it.
        unsafe { self.shared.slab.bytes_mut(self.offset_in_slab(), self.len()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.shared.with_free(|free| free.give_back(self.first_page, self.pages));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_free_again_even_from_another_thread() {
        let pool = BufferPool::new(1 << 20, 1 << 18).unwrap();
        let mut held: Vec<Buffer> = (0..4).map(|_| pool.take(1 << 18).unwrap()).collect();
        let full = TakeError::Exhausted { wanted_bytes: 1, free_bytes: 0, total_bytes: 1 << 20 };
        assert_eq!(pool.take(1).unwrap_err(), full);
        let unavailable = held.pop().unwrap();
        std::thread::spawn(move || drop(unavailable)).join().unwrap();
        assert_eq!(pool.free_bytes(), 1 << 18);
        drop(held);
        assert_eq!(pool.free_bytes(), pool.total_bytes());
    }

    #[test]
    fn buffers_do_not_share_bytes() {
        let pool = BufferPool::new(1 << 18, 1 << 16).unwrap();
        let lengths = [5000, 4096, 12_288, 65_536, 1, 20_480];
        let mut held: Vec<Buffer> = lengths.iter().map(|bytes| pool.take(*bytes).unwrap()).collect();
        for (mark, buffer) in (1..).zip(&mut held) {
            buffer.fill(mark);
        }
        for (mark, buffer) in (1..).zip(&held) {
            assert!(buffer.iter().all(|byte| *byte == mark), "buffer {mark} was overwritten");
            assert!(buffer.as_ptr().addr().is_multiple_of(IO_ALIGN_BYTES));
        }
        assert_eq!(held[0].len(), 8192, "lengths are rounded up to 4 KiB");
    }

    #[test]
    fn impossible_sizes_are_refused_with_the_numbers() {
        for (total, largest) in [(0, 4096), (8192, 6000), (4096, 8192), (12_288, 8192), (1 << 30, 1 << 30)] {
            let refused = BufferPool::new(total, largest).unwrap_err();
            assert!(refused.to_string().contains(&largest.to_string()), "{refused}");
        }
        let pool = BufferPool::new(8192, 8192).unwrap();
        assert_eq!(pool.take(0).unwrap_err(), TakeError::BadLength { wanted_bytes: 0, largest_bytes: 8192 });
        assert_eq!(
            pool.take(8193).unwrap_err(),
            TakeError::BadLength { wanted_bytes: 8193, largest_bytes: 8192 }
        );
    }
}
