//! XORs bytes that another process may change at the same time.
//!
//! Blocks of 64 bytes are loaded and stored in the way [`super`] copies bytes: on x86-64 in `asm!`
//! blocks, which the compiler sees as opaque loads and stores. The XOR between them is ordinary
//! Rust. Up to four sources are summed in registers; more are added to a tile of 4 KiB of the
//! target while it is in the first-level cache, so that each source is read from memory once and
//! the target written there once.
//!
//! Invariants
//! - All ranges are checked against their mappings before anything is written.
//! - A source that changes meanwhile contributes some mix of its old and new bytes, and nothing
//!   worse.
#![expect(unsafe_code, reason = "reads bytes that another process may be changing")]

use std::sync::atomic::{AtomicU8, Ordering};

use super::Mapping;
use crate::error::OutOfBounds;

/// Bytes that are loaded at once.
const BLOCK_BYTES: usize = 64;

/// Number of sources that are summed in registers at a time.
const SOURCES_PER_PASS: usize = 4;

/// Bytes of the target for which all sources are summed before the next tile begins.
const TILE_BYTES: usize = 4096;

// Only the last tile has bytes beyond whole blocks. The tiles of all sources in one pass and of the
// target fit into a first-level cache.
const _: () =
    assert!(TILE_BYTES.is_multiple_of(BLOCK_BYTES) && TILE_BYTES * (SOURCES_PER_PASS + 1) < 32 << 10);

impl Mapping {
    /// Sets `length` bytes at `offset` to the XOR of as many bytes of each of `count` sources, or
    /// to zeros if there are none. A source may be the target itself.
    pub(crate) fn xor_from<'a>(
        &self,
        offset: usize,
        length: usize,
        count: usize,
        source: impl Fn(usize) -> (&'a Self, usize),
    ) -> Result<(), OutOfBounds> {
        let target = self.pointer_to_store(offset, length)?;
        for index in 0..count {
            let (mapping, at) = source(index);
            mapping.pointer(at, length)?;
        }
        if count == 0 {
            return self.zero(offset, length);
        }
        for start in (0..length).step_by(TILE_BYTES) {
            let bytes = TILE_BYTES.min(length - start);
            for first in (0..count).step_by(SOURCES_PER_PASS) {
                let in_pass = SOURCES_PER_PASS.min(count - first);
                let mut from = [std::ptr::null::<u8>(); SOURCES_PER_PASS];
                for (index, from) in (first..first + in_pass).zip(&mut from) {
                    let (mapping, at) = source(index);
                    *from = mapping.pointer(at + start, bytes)?;
                }
                // SAFETY: `start < length`, all of which was checked to be writable from `target`
                // on.
                let to = unsafe { target.add(start) };
                let onto = first > 0;
                // SAFETY: `to` and the first `in_pass` of `from` were checked for `bytes` bytes.
                unsafe { sum_tile(to, &from[..in_pass], bytes, onto) };
            }
        }
        Ok(())
    }
}

/// Sets `bytes` bytes at `to` to the XOR of 1 to [`SOURCES_PER_PASS`] sources, and of the old bytes
/// at `to` if `onto`.
///
/// # Safety
/// `to` must be mapped writable and each of `from` mapped readable for `bytes` bytes.
unsafe fn sum_tile(to: *mut u8, from: &[*const u8], bytes: usize, onto: bool) {
    match *from {
        // SAFETY: the caller vouches for `bytes` bytes at `to` and at each of `from`.
        [a] => unsafe { sum(to, [a], bytes, onto) },
        // SAFETY: the caller vouches for `bytes` bytes at `to` and at each of `from`.
        [a, b] => unsafe { sum(to, [a, b], bytes, onto) },
        // SAFETY: the caller vouches for `bytes` bytes at `to` and at each of `from`.
        [a, b, c] => unsafe { sum(to, [a, b, c], bytes, onto) },
        // SAFETY: the caller vouches for `bytes` bytes at `to` and at each of `from`.
        [a, b, c, d] => unsafe { sum(to, [a, b, c, d], bytes, onto) },
        _ => unreachable!("1 to SOURCES_PER_PASS sources"),
    }
}

/// As [`sum_tile`], for a number of sources that is known at compile time.
///
/// # Safety
/// `to` must be mapped writable and each of `from` mapped readable for `bytes` bytes.
#[inline]
unsafe fn sum<const SOURCES: usize>(to: *mut u8, from: [*const u8; SOURCES], bytes: usize, onto: bool) {
    let whole = bytes - bytes % BLOCK_BYTES;
    let mut at = 0;
    while at < whole {
        // SAFETY: `at + BLOCK_BYTES <= bytes`, inside of the caller's `to`.
        let target = unsafe { to.add(at) };
        // SAFETY: `at + BLOCK_BYTES <= bytes`, so the caller's `to` has a block at `target`.
        let mut sum = if onto { unsafe { block::load(target) } } else { block::ZERO };
        for from in from {
            // SAFETY: `at + BLOCK_BYTES <= bytes`, inside of the caller's `from`.
            let source = unsafe { from.add(at) };
            // SAFETY: `at + BLOCK_BYTES <= bytes`, so the caller's `from` has a block at `source`.
            sum = block::xor(sum, unsafe { block::load(source) });
        }
        // SAFETY: `at + BLOCK_BYTES <= bytes`, so the caller's `to` has a block at `target`.
        unsafe { block::store(target, sum) };
        at += BLOCK_BYTES;
    }
    while at < bytes {
        // SAFETY: `at < bytes`, inside of the caller's `to`.
        let target = unsafe { to.add(at) };
        // SAFETY: `at < bytes`, so `target` is in the caller's `to`, which stays mapped in this
        // call.
        let target = unsafe { byte(target) };
        let mut sum = if onto { target.load(Ordering::Relaxed) } else { 0 };
        for from in from {
            // SAFETY: `at < bytes`, inside of the caller's `from`.
            let source = unsafe { from.add(at) }.cast_mut();
            // SAFETY: `at < bytes`, so `source` is in the caller's `from`, which stays mapped in
            // this call.
            sum ^= unsafe { byte(source) }.load(Ordering::Relaxed);
        }
        target.store(sum, Ordering::Relaxed);
        at += 1;
    }
}

/// The byte at `pointer`, as an atomic.
///
/// # Safety
/// `pointer` must be mapped while the result is used.
unsafe fn byte<'a>(pointer: *mut u8) -> &'a AtomicU8 {
    // SAFETY: the caller vouches for the mapping, and a byte is always aligned; every other access
    // is atomic, a racing copy or another process's.
    unsafe { AtomicU8::from_ptr(pointer) }
}

#[cfg(target_arch = "x86_64")]
mod block {
    //! Loads and stores 64 bytes that others may change meanwhile, in registers that every x86-64
    //! has.

    use core::arch::x86_64::{__m128i, _mm_xor_si128};

    pub(super) type Block = [__m128i; 4];

    // SAFETY: any bits are integers.
    pub(super) const ZERO: Block = [unsafe { std::mem::zeroed() }; 4];

    #[inline]
    pub(super) fn xor(one: Block, other: Block) -> Block {
        let [a, b, c, d] = one;
        let [e, f, g, h] = other;
        // SAFETY: every x86-64 has SSE2.
        let sum = |one, other| unsafe { _mm_xor_si128(one, other) };
        [sum(a, e), sum(b, f), sum(c, g), sum(d, h)]
    }

    /// # Safety
    /// 64 bytes must be readable.
    #[inline]
    pub(super) unsafe fn load(from: *const u8) -> Block {
        let (a, b, c, d): (__m128i, __m128i, __m128i, __m128i);
        // SAFETY: the caller vouches for the range.
        unsafe {
            core::arch::asm!(
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + 32]",
                "movdqu {d}, [{from} + 48]",
                from = in(reg) from,
                a = out(xmm_reg) a,
                b = out(xmm_reg) b,
                c = out(xmm_reg) c,
                d = out(xmm_reg) d,
                options(nostack, preserves_flags, readonly)
            );
        }
        [a, b, c, d]
    }

    /// # Safety
    /// 64 bytes must be writable.
    #[inline]
    pub(super) unsafe fn store(to: *mut u8, [a, b, c, d]: Block) {
        // SAFETY: the caller vouches for the range.
        unsafe {
            core::arch::asm!(
                "movdqu [{to}], {a}",
                "movdqu [{to} + 16], {b}",
                "movdqu [{to} + 32], {c}",
                "movdqu [{to} + 48], {d}",
                to = in(reg) to,
                a = in(xmm_reg) a,
                b = in(xmm_reg) b,
                c = in(xmm_reg) c,
                d = in(xmm_reg) d,
                options(nostack, preserves_flags)
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod block {
    //! Loads and stores 64 bytes that others may change meanwhile: as relaxed atomic words where
    //! they are aligned, else as bytes.

    use std::sync::atomic::{AtomicU64, Ordering};

    pub(super) type Block = [u64; 8];

    pub(super) const ZERO: Block = [0; 8];

    pub(super) fn xor(one: Block, other: Block) -> Block {
        std::array::from_fn(|index| one[index] ^ other[index])
    }

    /// # Safety
    /// 64 bytes must be readable.
    pub(super) unsafe fn load(from: *const u8) -> Block {
        let mut block = ZERO;
        for (index, word) in block.iter_mut().enumerate() {
            // SAFETY: inside of the caller's 64 bytes.
            let at = unsafe { from.add(8 * index) }.cast_mut();
            if at.addr() % 8 == 0 {
                // SAFETY: aligned and inside.
                *word = unsafe { AtomicU64::from_ptr(at.cast()) }.load(Ordering::Relaxed);
            } else {
                let mut bytes = [0; 8];
                for (index, target) in bytes.iter_mut().enumerate() {
                    // SAFETY: inside of the word.
                    *target = unsafe { super::byte(at.add(index)) }.load(Ordering::Relaxed);
                }
                *word = u64::from_le_bytes(bytes).to_le();
            }
        }
        block
    }

    /// # Safety
    /// 64 bytes must be writable.
    pub(super) unsafe fn store(to: *mut u8, block: Block) {
        for (index, word) in block.iter().enumerate() {
            // SAFETY: inside of the caller's 64 bytes.
            let at = unsafe { to.add(8 * index) };
            if at.addr() % 8 == 0 {
                // SAFETY: aligned and inside.
                unsafe { AtomicU64::from_ptr(at.cast()) }.store(*word, Ordering::Relaxed);
            } else {
                for (index, byte) in u64::from_le(*word).to_le_bytes().into_iter().enumerate() {
                    // SAFETY: inside of the word.
                    unsafe { super::byte(at.add(index)) }.store(byte, Ordering::Relaxed);
                }
            }
        }
    }
}
