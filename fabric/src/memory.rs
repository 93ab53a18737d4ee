//! Accesses memory that another process, or the kernel, may change at the same time.
//!
//! Invariants
//! - This file and `memory/sum.rs` are the only ones that dereference shared memory. No plain
//!   reference (`&[u8]`, `&mut [u8]`) to such memory is ever made, because those promise that
//!   nobody else writes; atomic bytes do not.
//! - Every access is checked against the mapping before any pointer is made from it.
//! - A mapping never shrinks while it is used: it is backed by a memfd whose size is sealed
//!   (checked in `region`).
//!
//! A copy races with the peer by design, so it must not be an ordinary Rust memory access (a race
//! would be undefined behaviour). On x86-64 it is `rep movsb` in an `asm!` block: to the compiler
//! the block is opaque and equivalent to a copy by relaxed atomic bytes, and the processor runs it
//! at the speed of `memcpy` (21 against 21 GB/s for 128 KiB, 12 against 15 GB/s for 4 KiB, where
//! starting it weighs more: `rackscan lab fabric`, a Xeon with `fsrm`). String stores are not
//! reordered with later stores (Intel SDM volume 3, 9.2.4.2), so a word that is stored afterwards
//! announces them. On other processors the copy is a loop of relaxed atomic words. A racing reader
//! can read any mix of old and new bytes, except that 8 bytes to a multiple of 8 are one store.
//! Code that needs more verifies a checksum or waits for the completion that orders the bytes.
#![expect(unsafe_code, reason = "copies bytes that another process may be changing")]

use std::{
    io,
    ops::Range,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use rustix::mm::ProtFlags;

mod sum;

use crate::{error::OutOfBounds, pages::Pages};

/// Bytes of a word, which is stored as a whole.
pub(crate) const WORD_BYTES: usize = 8;

/// Whether a mapping may be written through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Stores through the mapping would fault, so every method that stores refuses first.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

/// A shared mapping of a whole memfd, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    pages: Pages,
    protection: Protection,
}

impl Mapping {
    /// Maps the first `bytes` bytes of `memory`. Allocates nothing: the owner of the memory
    /// populates what is about to be used.
    pub(crate) fn new(memory: impl AsFd, bytes: usize, protection: Protection) -> io::Result<Self> {
        let flags = match protection {
            Protection::ReadOnly => ProtFlags::READ,
            Protection::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        Ok(Self { pages: Pages::map(memory, bytes, flags)?, protection })
    }

    /// Allocates the pages of `part`, which must lie in the mapping.
    pub(crate) fn populate(&self, part: Range<usize>) -> io::Result<()> {
        self.pages.populate(part)
    }

    /// Length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.bytes()
    }

    /// The pointer to `length` bytes at `offset`, if they are inside.
    fn pointer(&self, offset: usize, length: usize) -> Result<*mut u8, OutOfBounds> {
        if offset.checked_add(length).is_none_or(|end| end > self.bytes()) {
            return Err(self.out_of_bounds(offset, length));
        }
        // SAFETY: `offset <= offset + length <= self.bytes()`, so the result stays inside the
        // mapping.
        Ok(unsafe { self.pages.start().as_ptr().add(offset) })
    }

    /// As `pointer`, for an access that stores.
    fn pointer_to_store(&self, offset: usize, length: usize) -> Result<*mut u8, OutOfBounds> {
        // Callers have checked access rights. A store that they let through must not become a
        // fault.
        if self.protection == Protection::ReadOnly {
            return Err(OutOfBounds { offset: offset as u64, length: length as u64, region_bytes: 0 });
        }
        self.pointer(offset, length)
    }

    fn out_of_bounds(&self, offset: usize, length: usize) -> OutOfBounds {
        OutOfBounds { offset: offset as u64, length: length as u64, region_bytes: self.bytes() as u64 }
    }

    /// Copies `bytes` into the mapping at `offset`. 8 bytes to a multiple of 8 are one store.
    pub(crate) fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        if let Ok(word) = <[u8; WORD_BYTES]>::try_from(bytes)
            && offset.is_multiple_of(WORD_BYTES)
        {
            // The word that has these bytes in memory, whatever the byte order of this machine.
            self.word_to_store(offset)?.store(u64::from_le_bytes(word).to_le(), Ordering::Release);
            return Ok(());
        }
        let target = self.pointer_to_store(offset, bytes.len())?;
        // SAFETY: `bytes` is readable, `target` is writable for `bytes.len()` bytes (checked
        // above).
        unsafe { copy_racing(bytes.as_ptr(), target, bytes.len()) };
        Ok(())
    }

    /// Copies bytes at `offset` out into `bytes`.
    pub(crate) fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        let source = self.pointer(offset, bytes.len())?;
        // SAFETY: `source` is readable for `bytes.len()` bytes (checked above), `bytes` is ours
        // alone.
        unsafe { copy_racing(source, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies `length` bytes to another mapping, or to another offset of this one (forward, if they
    /// overlap). 8 bytes to a multiple of 8 are one store.
    pub(crate) fn copy_to(
        &self,
        offset: usize,
        target: &Self,
        target_offset: usize,
        length: usize,
    ) -> Result<(), OutOfBounds> {
        if length == WORD_BYTES && target_offset.is_multiple_of(WORD_BYTES) {
            let mut word = [0; WORD_BYTES];
            self.copy_out(offset, &mut word)?;
            return target.copy_in(target_offset, &word);
        }
        let from = self.pointer(offset, length)?;
        let to = target.pointer_to_store(target_offset, length)?;
        // SAFETY: both ends were checked against their mappings; overlap is allowed by
        // `copy_racing`.
        unsafe { copy_racing(from, to, length) };
        Ok(())
    }

    /// Appends `length` bytes at `offset` to `bytes`, which are not zeroed before.
    pub(crate) fn append_to(
        &self,
        offset: usize,
        length: usize,
        bytes: &mut Vec<u8>,
    ) -> Result<(), OutOfBounds> {
        let source = self.pointer(offset, length)?;
        bytes.reserve(length);
        let target = bytes.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        // SAFETY: `source` is readable for `length` bytes (checked above), as many were just
        // reserved at `target`.
        unsafe { copy_racing(source, target, length) };
        // SAFETY: the first `len` bytes were initialised before, and the copy has initialised
        // `length` more.
        unsafe { bytes.set_len(bytes.len() + length) };
        Ok(())
    }

    /// Zeroes `length` bytes at `offset`.
    pub(crate) fn zero(&self, offset: usize, length: usize) -> Result<(), OutOfBounds> {
        let target = self.pointer_to_store(offset, length)?;
        // SAFETY: `target` is writable for `length` bytes (checked above).
        unsafe { zero_racing(target, length) };
        Ok(())
    }

    /// The aligned word at `offset`, for loads. `offset` must be a multiple of 8 (callers check and
    /// name it).
    fn word(&self, offset: usize) -> Result<&AtomicU64, OutOfBounds> {
        let pointer = self.pointer(offset, 8)?;
        if !pointer.cast::<AtomicU64>().is_aligned() {
            return Err(self.out_of_bounds(offset, 8));
        }
        // SAFETY: in bounds, aligned, and every access to the word is atomic or a racing copy; the
        // reference cannot outlive the mapping because it borrows `self`.
        Ok(unsafe { AtomicU64::from_ptr(pointer.cast()) })
    }

    /// The aligned word at `offset`, for stores.
    pub(crate) fn word_to_store(&self, offset: usize) -> Result<&AtomicU64, OutOfBounds> {
        self.pointer_to_store(offset, 8)?;
        self.word(offset)
    }

    /// `count` aligned words from `offset` on, for loads and stores.
    pub(crate) fn words(&self, offset: usize, count: usize) -> Result<&[AtomicU64], OutOfBounds> {
        // A product that saturates is refused by the check of the bounds.
        let pointer = self.pointer_to_store(offset, count.saturating_mul(8))?.cast::<AtomicU64>();
        if !pointer.is_aligned() {
            return Err(self.out_of_bounds(offset, count));
        }
        // SAFETY: in bounds, aligned, and every access to the words is atomic or a racing copy; the
        // slice cannot outlive the mapping because it borrows `self`.
        Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
    }

    /// Loads the word at `offset` with acquire ordering.
    pub(crate) fn load(&self, offset: usize) -> Result<u64, OutOfBounds> {
        Ok(self.word(offset)?.load(Ordering::Acquire))
    }

    /// A pointer and length for the kernel or a device, which keep the mapping alive.
    pub(crate) fn raw_slice(self: &Arc<Self>, offset: usize, length: usize) -> Result<RawSlice, OutOfBounds> {
        let pointer = self.pointer(offset, length)?;
        Ok(RawSlice { pointer, length, mapping: Arc::clone(self) })
    }
}

/// A pointer and a length into registered memory, for a kernel interface that transfers into or out
/// of it (O_DIRECT reads, `sendmsg`). Making one is safe; dereferencing the pointer is up to the
/// user's own `unsafe`.
///
/// The memory stays mapped as long as the slice lives. Its contents may change at any time, so no
/// Rust reference may be made from the pointer.
#[derive(Debug, Clone)]
pub struct RawSlice {
    pointer: *mut u8,
    length: usize,
    mapping: Arc<Mapping>,
}

// SAFETY: the pointer is into memory that `mapping` keeps mapped, from whichever thread.
unsafe impl Send for RawSlice {}
// SAFETY: `&RawSlice` gives only copies of the pointer and the length.
unsafe impl Sync for RawSlice {}

impl RawSlice {
    /// First byte.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.pointer
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Copies `bytes` in at `offset` of the slice.
    ///
    /// # Errors
    /// When they do not fit, or the slice is not writable.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        self.mapping.copy_in(self.offset_in_mapping(offset, bytes.len())?, bytes)
    }

    /// Copies the bytes at `offset` of the slice out. Concurrent writes of a peer may be seen in
    /// part.
    ///
    /// # Errors
    /// When the slice is shorter than that.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        self.mapping.copy_out(self.offset_in_mapping(offset, bytes.len())?, bytes)
    }

    fn offset_in_mapping(&self, offset: usize, length: usize) -> Result<usize, OutOfBounds> {
        let end = offset.checked_add(length);
        if end.is_none_or(|end| end > self.length) {
            let (offset, length) = (offset as u64, length as u64);
            return Err(OutOfBounds { offset, length, region_bytes: self.length as u64 });
        }
        Ok(self.pointer.addr() - self.mapping.pages.start().addr().get() + offset)
    }

    /// The bytes as atomics, as a target for transfers of others; `None` if they are not writable.
    #[must_use]
    pub fn into_shared_bytes(self) -> Option<SharedBytes> {
        self.is_writable().then_some(SharedBytes { slice: self })
    }

    /// Whether it is exactly one aligned word, which is stored as a whole.
    pub(crate) fn is_word(&self) -> bool {
        self.length == WORD_BYTES && self.pointer.addr().is_multiple_of(WORD_BYTES)
    }

    /// Whether the kernel may store through the pointer.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.mapping.protection == Protection::ReadWrite
    }
}

/// Writable registered memory as atomic bytes, the one form in which Rust can refer to memory that
/// others change. With it, a crate without unsafe code can pass the memory to code that transfers
/// into it.
#[derive(Debug)]
pub struct SharedBytes {
    slice: RawSlice,
}

impl AsRef<[AtomicU8]> for SharedBytes {
    fn as_ref(&self) -> &[AtomicU8] {
        let first = self.slice.pointer.cast::<AtomicU8>();
        // SAFETY: the range is mapped readable and writable while `self` holds the mapping, a byte
        // is always aligned, and every other access to it is atomic, a racing copy, or another
        // process's.
        unsafe { std::slice::from_raw_parts(first, self.slice.length) }
    }
}

/// Copies `bytes` bytes forward, tolerating concurrent change of either side.
///
/// # Safety
/// `source` must be mapped readable and `target` mapped writable for `bytes` bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_racing(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: the caller vouches for both ranges; the direction flag is clear at the start of every
    // asm block.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") source => _,
            inout("rdi") target => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Zeroes `bytes` bytes, tolerating concurrent change.
///
/// # Safety
/// `target` must be mapped writable for `bytes` bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn zero_racing(target: *mut u8, bytes: usize) {
    // SAFETY: the caller vouches for the range; the direction flag is clear at the start of every
    // asm block.
    unsafe {
        core::arch::asm!(
            "rep stosb",
            inout("rcx") bytes => _,
            inout("rdi") target => _,
            in("al") 0_u8,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies `bytes` bytes forward, tolerating concurrent change of either side.
///
/// # Safety
/// `source` must be mapped readable and `target` mapped writable for `bytes` bytes.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_racing(source: *const u8, target: *mut u8, bytes: usize) {
    let words_possible = (source.addr() ^ target.addr()) % 8 == 0;
    let mut at = 0;
    while at < bytes {
        // SAFETY: `at < bytes`, so this stays inside the caller's range.
        let from = unsafe { source.add(at) }.cast_mut();
        // SAFETY: as above.
        let to = unsafe { target.add(at) };
        if words_possible && from.addr() % 8 == 0 && bytes - at >= 8 {
            // SAFETY: aligned and at least eight bytes remain in the caller's range.
            let word = unsafe { AtomicU64::from_ptr(from.cast()) }.load(Ordering::Relaxed);
            // SAFETY: aligned alike (`words_possible`) and at least eight bytes remain.
            unsafe { AtomicU64::from_ptr(to.cast()) }.store(word, Ordering::Relaxed);
            at += 8;
        } else {
            // SAFETY: one byte inside the caller's range.
            let byte = unsafe { AtomicU8::from_ptr(from) }.load(Ordering::Relaxed);
            // SAFETY: one byte inside the caller's range.
            unsafe { AtomicU8::from_ptr(to) }.store(byte, Ordering::Relaxed);
            at += 1;
        }
    }
}

/// Zeroes `bytes` bytes, tolerating concurrent change.
///
/// # Safety
/// `target` must be mapped writable for `bytes` bytes.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn zero_racing(target: *mut u8, bytes: usize) {
    for at in 0..bytes {
        // SAFETY: `at < bytes`, inside the caller's range.
        let to = unsafe { target.add(at) };
        // SAFETY: one byte inside the caller's range.
        unsafe { std::sync::atomic::AtomicU8::from_ptr(to) }.store(0, Ordering::Relaxed);
    }
}
