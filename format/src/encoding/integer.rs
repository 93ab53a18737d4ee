//! Decodes pages of integers (and of all types that are stored as integers), fast.
//!
//! ```text
//! one BlockDescriptor per block | pad to 128 bytes | packed lanes of block 0 | of block 1 | ...
//! ```
//!
//! A value is `reference + divisor * number`. Each block has its own reference (the smallest
//! value), which keeps the stored numbers small. The divisor is one for the page: the common
//! divisor of all differences. So quantities 1.00 to 50.00 need 6 bits. A block stores bit-packed
//! numbers ([`super::bitpack`]) or, if they are sorted, bit-packed increments of numbers
//! ([`super::delta`]). The codes of dictionaries and the lengths of texts are stored in the same
//! blocks.
//!
//! Invariants
//! - `integer_plan.rs` writes the same bytes that this file reads.
//! - The number of a null row is 0, and so are the numbers after a short block's last row.
//! - Lanes (the integers in which numbers are packed) begin at multiples of 128 bytes from the
//!   page's beginning, so they are read in place in a page that is aligned to 128 bytes.
//! - [`IntegerBlock::bounds`] are those that the writer stored, and are used for pruning.
//!   [`IntegerBlock::largest_number`] is true for any bytes, even forged ones, and is used to prove
//!   that arithmetic cannot overflow.

use super::bitpack::{self, Lane, Narrow, Scratch};
use crate::{
    limits::BLOCK_ROWS,
    page::{FIRST_SECTION, PageFault, PageView},
    simd::{Kernel, Level},
};
use bytemuck::{Pod, Zeroable};
use std::ops::Range;

/// Packed lanes begin at multiples of this many bytes.
pub(crate) const LANES_ALIGN: usize = 128;
/// Bytes of a [`BlockDescriptor`].
pub(crate) const DESCRIPTOR_BYTES: usize = 24;

/// The description of one block in a page, exactly as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockDescriptor {
    /// The block's smallest value.
    pub reference: i64,
    /// The block's largest number: its largest value is `reference + divisor * span`.
    pub span: u64,
    /// Where its packed lanes begin, in bytes from the page's beginning.
    pub packed_at: u32,
    /// Bits of one packed number or increment, at most 64.
    pub width: u8,
    /// [`PACKED`] or [`INCREMENTS`].
    pub kind: u8,
    /// Zero.
    pub reserved: u16,
}

const _: () = assert!(size_of::<BlockDescriptor>() == DESCRIPTOR_BYTES);

/// The lanes of a block are its numbers.
pub const PACKED: u8 = 0;
/// The lanes of a block are the increments of its numbers.
pub const INCREMENTS: u8 = 1;

/// A type that stored integers are decoded to. A value that does not fit is truncated: only a
/// malicious page holds one.
pub trait Stored: Copy {
    /// The value in this type.
    fn from_stored(value: i64) -> Self;
}

impl Stored for i64 {
    #[inline(always)]
    fn from_stored(value: i64) -> Self {
        value
    }
}

impl Stored for i128 {
    #[inline(always)]
    fn from_stored(value: i64) -> Self {
        value.into()
    }
}

impl Stored for i32 {
    #[expect(clippy::cast_possible_truncation, reason = "the writer stored an i32; see the trait")]
    #[inline(always)]
    fn from_stored(value: i64) -> Self {
        value as Self
    }
}

impl Stored for u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the writer stored a u32; see the trait")]
    #[inline(always)]
    fn from_stored(value: i64) -> Self {
        value.cast_unsigned() as Self
    }
}

/// The integers of a page.
#[derive(Clone, Copy, Debug)]
pub struct IntegerPage<'p> {
    view_bytes: &'p [u8],
    descriptors: &'p [[u8; DESCRIPTOR_BYTES]],
    rows: usize,
    divisor: u64,
}

/// One block of a page, whose descriptor has been checked.
#[derive(Clone, Copy, Debug)]
pub struct IntegerBlock<'p> {
    descriptor: BlockDescriptor,
    packed: &'p [u8],
    rows: usize,
    divisor: u64,
}

impl<'p> IntegerPage<'p> {
    pub(crate) fn open(view: &PageView<'p>, divisor: u64) -> Result<Self, PageFault> {
        let length = view.blocks() * DESCRIPTOR_BYTES;
        let descriptors = view.section("the block descriptors' place", FIRST_SECTION, length)?;
        let descriptors = descriptors.as_chunks().0;
        Ok(Self { view_bytes: view.bytes(), descriptors, rows: view.rows(), divisor })
    }

    /// Rows of the page.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Blocks of the page.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.descriptors.len()
    }

    /// One block, counted within the page.
    ///
    /// # Errors
    /// When there is no such block, or its descriptor is impossible.
    #[inline]
    pub fn block(&self, block: usize) -> Result<IntegerBlock<'p>, PageFault> {
        let Some(descriptor) = self.descriptors.get(block) else {
            return Err(PageFault::malformed("the block asked for", block, self.descriptors.len() - 1));
        };
        let descriptor: BlockDescriptor = bytemuck::pod_read_unaligned(descriptor);
        let BlockDescriptor { reference, span, packed_at, width, kind, reserved } = descriptor;
        if reserved != 0 {
            return Err(PageFault::malformed("the reserved bytes of a block", reserved, 0_u64));
        }
        if width > 64 || kind > INCREMENTS {
            return Err(PageFault::malformed(
                "a block's width or kind",
                u16::from_le_bytes([width, kind]),
                64,
            ));
        }
        let widest = if kind == PACKED { bitpack::largest_of(width) } else { u64::MAX };
        if span > widest || (kind == INCREMENTS && width > bitpack::width_of(span)) {
            return Err(PageFault::malformed("a block's span", span, widest));
        }
        let room = i64::MAX.wrapping_sub(reference).cast_unsigned();
        if span.checked_mul(self.divisor).is_none_or(|extent| extent > room) {
            return Err(PageFault::malformed("a block's span", span, room / self.divisor));
        }
        let length = bitpack::packed_bytes(width);
        let start = packed_at as usize;
        let Some(packed) = self.view_bytes.get(start..start.saturating_add(length)) else {
            let last = self.view_bytes.len().saturating_sub(length);
            return Err(PageFault::malformed("the place of a block's lanes", packed_at, last));
        };
        let rows = (self.rows - block * BLOCK_ROWS).min(BLOCK_ROWS);
        Ok(IntegerBlock { descriptor, packed, rows, divisor: self.divisor })
    }

    /// Appends the values of some rows, counted within the page; null rows get their block's
    /// reference.
    ///
    /// # Errors
    /// When a row is beyond the page's, or a block is impossible.
    pub fn decode_into<T: Stored>(
        &self,
        rows: Range<usize>,
        scratch: &mut Scratch,
        out: &mut Vec<T>,
    ) -> Result<(), PageFault> {
        if rows.end > self.rows {
            return Err(PageFault::malformed("the last row asked for", rows.end, self.rows));
        }
        out.reserve(rows.len());
        for index in rows.start / BLOCK_ROWS..rows.end.div_ceil(BLOCK_ROWS) {
            let block = self.block(index)?;
            let first = index * BLOCK_ROWS;
            let wanted = rows.start.max(first) - first..(rows.end - first).min(BLOCK_ROWS);
            block.decode_into(wanted, scratch, out);
        }
        Ok(())
    }

    /// Appends the values of the rows given, counted within the page and ascending; only their
    /// blocks are unpacked.
    ///
    /// # Errors
    /// When a row is beyond the page's, or a block is impossible.
    pub fn gather<T: Stored>(
        &self,
        rows: &[u32],
        scratch: &mut Scratch,
        out: &mut Vec<T>,
    ) -> Result<(), PageFault> {
        out.reserve(rows.len());
        for_each_block(rows, self.rows, |index, rows| {
            self.block(index)?.gather(rows, scratch, out);
            Ok(())
        })
    }
}

/// Calls `visit` once for each block that holds some of `rows` (ascending), with the rows in that
/// block.
pub(crate) fn for_each_block<'r>(
    mut rows: &'r [u32],
    rows_of_page: usize,
    mut visit: impl FnMut(usize, &'r [u32]) -> Result<(), PageFault>,
) -> Result<(), PageFault> {
    while let Some(first) = rows.first() {
        let block = *first as usize / BLOCK_ROWS;
        let end = rows.iter().position(|row| *row as usize / BLOCK_ROWS != block).unwrap_or(rows.len());
        let (here, after) = rows.split_at(end);
        if let Some(row) = here.iter().find(|row| **row as usize >= rows_of_page) {
            return Err(PageFault::malformed("a row asked for", *row, rows_of_page - 1));
        }
        visit(block, here)?;
        rows = after;
    }
    Ok(())
}

impl<'p> IntegerBlock<'p> {
    /// The value of number 0, the block's smallest.
    #[inline]
    #[must_use]
    pub fn reference(&self) -> i64 {
        self.descriptor.reference
    }

    /// What numbers are multiplied by.
    #[must_use]
    pub fn divisor(&self) -> u64 {
        self.divisor
    }

    /// Rows of the block.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The descriptor as stored.
    #[must_use]
    pub fn descriptor(&self) -> &BlockDescriptor {
        &self.descriptor
    }

    /// The smallest and the largest value, as stated by the writer.
    #[inline]
    #[must_use]
    pub fn bounds(&self) -> (i64, i64) {
        let extent = self.divisor.wrapping_mul(self.descriptor.span);
        (self.reference(), self.reference().wrapping_add(extent.cast_signed()))
    }

    /// An upper bound of the unpacked numbers that is true whatever the page's bytes are.
    #[inline]
    #[must_use]
    pub fn largest_number(&self) -> u64 {
        match self.descriptor.kind {
            PACKED => bitpack::largest_of(self.descriptor.width),
            _ => self.lane().largest(),
        }
    }

    /// The type of the unpacked numbers (for constant blocks, the type they could be widened to).
    #[inline]
    #[must_use]
    pub fn lane(&self) -> Lane {
        match self.descriptor.kind {
            PACKED => Lane::of(self.descriptor.width),
            _ => Lane::of(bitpack::width_of(self.descriptor.span)),
        }
    }

    /// Unpacks the numbers: value = reference + divisor * number, for each of the block's rows.
    #[must_use]
    pub fn unpack<'s>(&self, scratch: &'s mut Scratch) -> Narrow<'s> {
        let Scratch { aligned, lanes, sums, level, unpacked } = scratch;
        *unpacked += u64::from(self.descriptor.width > 0);
        let packed = bitpack::unpack(*level, self.packed, self.descriptor.width, aligned, lanes);
        if self.descriptor.kind == PACKED {
            return packed;
        }
        super::delta::sum_up(packed, self.lane(), sums)
    }

    /// The value of an unpacked number.
    #[inline]
    #[must_use]
    pub fn value_of(&self, number: u64) -> i64 {
        self.reference().wrapping_add(self.divisor.wrapping_mul(number).cast_signed())
    }

    /// Appends the values of some rows, counted within the block.
    pub fn decode_into<T: Stored>(&self, rows: Range<usize>, scratch: &mut Scratch, out: &mut Vec<T>) {
        let level = scratch.level;
        self.append(level, self.unpack(scratch), rows, out);
    }

    /// Appends the values of the rows given, counted within the block, or within the page (the
    /// number of their block is ignored).
    pub fn gather<T: Stored>(&self, rows: &[u32], scratch: &mut Scratch, out: &mut Vec<T>) {
        let level = scratch.level;
        self.append_some(level, self.unpack(scratch), rows, out);
    }

    /// Appends the values of unpacked numbers.
    pub(crate) fn append<T: Stored>(
        &self,
        level: Level,
        numbers: Narrow<'_>,
        rows: Range<usize>,
        out: &mut Vec<T>,
    ) {
        match numbers {
            Narrow::Constant => out.resize(out.len() + rows.len(), T::from_stored(self.reference())),
            Narrow::U8(lanes) => level.run(self.widen(lanes[rows].iter(), out)),
            Narrow::U16(lanes) => level.run(self.widen(lanes[rows].iter(), out)),
            Narrow::U32(lanes) => level.run(self.widen(lanes[rows].iter(), out)),
            Narrow::U64(lanes) => level.run(self.widen(lanes[rows].iter(), out)),
        }
    }

    /// Appends the values of some rows of unpacked numbers; `rows` as in [`Self::gather`].
    pub(crate) fn append_some<T: Stored>(
        &self,
        level: Level,
        numbers: Narrow<'_>,
        rows: &[u32],
        out: &mut Vec<T>,
    ) {
        let inside = |row: &u32| *row as usize % BLOCK_ROWS;
        match numbers {
            Narrow::Constant => out.resize(out.len() + rows.len(), T::from_stored(self.reference())),
            Narrow::U8(lanes) => level.run(self.widen(rows.iter().map(|row| &lanes[inside(row)]), out)),
            Narrow::U16(lanes) => level.run(self.widen(rows.iter().map(|row| &lanes[inside(row)]), out)),
            Narrow::U32(lanes) => level.run(self.widen(rows.iter().map(|row| &lanes[inside(row)]), out)),
            Narrow::U64(lanes) => level.run(self.widen(rows.iter().map(|row| &lanes[inside(row)]), out)),
        }
    }

    fn widen<'o, N, T>(&self, numbers: N, out: &'o mut Vec<T>) -> Widen<'o, N, T> {
        Widen { numbers, reference: self.reference(), divisor: self.divisor, out }
    }
}

/// The kernel that turns unpacked numbers into values and appends them.
struct Widen<'o, N, T> {
    numbers: N,
    reference: i64,
    divisor: u64,
    out: &'o mut Vec<T>,
}

impl<'l, L, N, T> Kernel for Widen<'_, N, T>
where
    L: Copy + Into<u64> + 'l,
    N: Iterator<Item = &'l L>,
    T: Stored,
{
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { numbers, reference, divisor, out } = self;
        let sum = |number: u64| T::from_stored(reference.wrapping_add(number.cast_signed()));
        if divisor == 1 {
            out.extend(numbers.map(|number| sum((*number).into())));
        } else {
            out.extend(numbers.map(|number| sum(divisor.wrapping_mul((*number).into()))));
        }
    }
}
