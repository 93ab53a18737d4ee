//! Allocates the memory of a buffer pool (the slab): one anonymous private mapping, populated at
//! start.
//!
//! Invariants
//! - The mapping lives as long as the `Slab`; its bytes are always initialised (the kernel fills
//!   new memory with zeroes).
//! - `Slab` creates references only in [`Slab::bytes`] and [`Slab::bytes_mut`], whose callers
//!   guarantee exclusive access.
#![expect(unsafe_code, reason = "maps anonymous memory and makes slices over it")]

use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// An anonymous private mapping, page-aligned.
#[derive(Debug)]
pub(crate) struct Slab {
    start: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and `Slab` has no thread-bound
// state.
unsafe impl Send for Slab {}
// SAFETY: `&Slab` gives out only addresses; every access to the bytes goes through unsafe functions
// whose callers promise exclusion.
unsafe impl Sync for Slab {}

impl Slab {
    /// Maps `len_bytes` (a positive multiple of the page size) and populates every page, so that
    /// memory is allocated now and not during a request.
    pub(crate) fn map(len_bytes: usize) -> Result<Self, Errno> {
        // SAFETY: a null hint lets the kernel choose an unused range, so no existing mapping is
        // replaced.
        let mapped = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let start = NonNull::new(mapped.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let slab = Self { start, len_bytes };
        // Huge pages only make pinning and TLB misses cheaper, so a failure is ignored. SAFETY: the
        // range is exactly the mapping made above, and this advice does not change its contents.
        let _without_huge_pages = unsafe { madvise(mapped, len_bytes, Advice::LinuxHugepage) };
        // SAFETY: as above; populating only makes pages present.
        match unsafe { madvise(mapped, len_bytes, Advice::LinuxPopulateWrite) } {
            // Kernels before 5.14 do not know the advice; pages are then populated on first access.
            Ok(()) | Err(Errno::INVAL) => Ok(slab),
            Err(errno) => Err(errno),
        }
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Address of byte `offset_bytes`, which must be inside the slab.
    pub(crate) fn address(&self, offset_bytes: usize) -> *mut u8 {
        assert!(
            offset_bytes < self.len_bytes,
            "offset {offset_bytes} is outside a slab of {}",
            self.len_bytes
        );
        // SAFETY: the assertion keeps the result inside the mapping.
        unsafe { self.start.as_ptr().add(offset_bytes) }
    }

    /// The bytes `[offset_bytes, offset_bytes + len_bytes)`.
    ///
    /// # Safety
    /// - For the lifetime of the slice nobody writes these bytes: no `bytes_mut` slice and no IO
    ///   into them.
    pub(crate) unsafe fn bytes(&self, offset_bytes: usize, len_bytes: usize) -> &[u8] {
        self.check(offset_bytes, len_bytes);
        let start = self.address(offset_bytes).cast_const();
        // SAFETY: `check` keeps the range in the mapping, whose bytes are initialised; the caller
        // excludes writers.
        unsafe { std::slice::from_raw_parts(start, len_bytes) }
    }

    /// The bytes `[offset_bytes, offset_bytes + len_bytes)`, writable.
    ///
    /// # Safety
    /// - For the lifetime of the slice nobody else reads or writes these bytes, the kernel
    ///   included.
    #[expect(clippy::mut_from_ref, reason = "disjoint ranges of one slab are written by their owners")]
    pub(crate) unsafe fn bytes_mut(&self, offset_bytes: usize, len_bytes: usize) -> &mut [u8] {
        self.check(offset_bytes, len_bytes);
        let start = self.address(offset_bytes);
        // SAFETY: `check` keeps the range in the mapping, whose bytes are initialised; the caller
        // excludes others.
        unsafe { std::slice::from_raw_parts_mut(start, len_bytes) }
    }

    fn check(&self, offset_bytes: usize, len_bytes: usize) {
        let fits = offset_bytes.checked_add(len_bytes).is_some_and(|end| end <= self.len_bytes);
        assert!(fits, "{offset_bytes}+{len_bytes} is outside a slab of {}", self.len_bytes);
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made in `map`, and owners of its parts keep the `Slab`
        // alive, so no reference into it is left.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len_bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping failed: {unmapped:?}");
    }
}
