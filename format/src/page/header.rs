//! Defines the header of a page: its layout, the page's identity, and the checksum.

#[cfg(doc)]
use crate::encoding::Encoding;
use crate::{
    ids::{ColumnId, PageNumber, SegmentId, TableId},
    limits::SECTOR_BYTES,
};
use bytemuck::{Pod, Zeroable};
use std::{fmt, mem::offset_of};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 128;
/// Where the first section begins, in bytes from the page's beginning.
pub(crate) const FIRST_SECTION: u32 = 128;
const _: () = assert!(FIRST_SECTION as usize == HEADER_BYTES);
/// The first bytes of every page.
pub const MAGIC: [u8; 8] = *b"rackpage";
/// The version of header and encodings that this code writes and reads.
pub const FORMAT_VERSION: u16 = 1;

/// Identifies a page; it is stored in the page's header, so that a misdirected read is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageIdentity {
    /// Its table.
    pub table: TableId,
    /// Its segment.
    pub segment: SegmentId,
    /// Its column.
    pub column: ColumnId,
    /// Its number in the chunk.
    pub page: PageNumber,
}

impl fmt::Display for PageIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, segment, column, page } = self;
        write!(f, "page {page} of column {column}, segment {segment}, table {table}")
    }
}

/// The first 128 bytes of a page, exactly as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PageHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`FORMAT_VERSION`].
    pub version: u16,
    /// An [`Encoding`].
    pub encoding: u8,
    /// 1 if `min` and `max` hold bounds, else 0 (text, only nulls, a NaN among the values).
    pub bounded: u8,
    /// Identity: the table.
    pub table: u32,
    /// Identity: the segment.
    pub segment: u32,
    /// Identity: the column.
    pub column: u16,
    /// Identity: the number in the chunk.
    pub page: u16,
    /// The first row, counted within the segment; a multiple of `BLOCK_ROWS`.
    pub first_row: u32,
    /// Rows, at least one.
    pub rows: u32,
    /// Rows without a value.
    pub nulls: u32,
    /// Bytes between the header and the padding.
    pub payload_bytes: u32,
    /// The smallest value: an `i64`, or the bits of an `f64`.
    pub min: u64,
    /// The largest value, likewise.
    pub max: u64,
    /// What integers were divided by; 1 elsewhere.
    pub divisor: u64,
    /// Where the validity bitmap begins, in bytes from the page's beginning; 0 if no row is null.
    pub validity_at: u32,
    /// Where the sections of the encoding begin and how many entries they hold; each encoding
    /// defines which number is which.
    pub sections: [u32; 6],
    /// Zero.
    pub reserved: [u8; 32],
    /// CRC-32C of the stored page with these four bytes taken as zero.
    pub checksum: u32,
}

const _: () = assert!(size_of::<PageHeader>() == HEADER_BYTES);
const _: () = assert!(offset_of!(PageHeader, table) == 12 && offset_of!(PageHeader, first_row) == 24);
const _: () = assert!(offset_of!(PageHeader, min) == 40 && offset_of!(PageHeader, validity_at) == 64);
const _: () = assert!(offset_of!(PageHeader, checksum) == CHECKSUM_AT);
const CHECKSUM_AT: usize = HEADER_BYTES - size_of::<u32>();

impl PageHeader {
    /// The identity that the header states.
    #[must_use]
    pub fn identity(&self) -> PageIdentity {
        PageIdentity {
            table: TableId(self.table),
            segment: SegmentId(self.segment),
            column: ColumnId(self.column),
            page: PageNumber(self.page),
        }
    }
}

/// Bytes that a page with `payload_bytes` bytes of payload takes on a device.
#[must_use]
pub fn stored_bytes(payload_bytes: u64) -> u64 {
    (HEADER_BYTES as u64 + payload_bytes).next_multiple_of(SECTOR_BYTES.into())
}

/// The checksum of stored bytes, with the checksum field taken as zero.
pub(super) fn checksum_of(bytes: &[u8]) -> u32 {
    let (head, rest) = bytes.split_at(CHECKSUM_AT);
    let sum = crc32c::crc32c_append(crc32c::crc32c(head), &[0; size_of::<u32>()]);
    crc32c::crc32c_append(sum, &rest[size_of::<u32>()..])
}

/// Pads a page to whole sectors and writes its header, with length and checksum filled in, into the
/// first [`HEADER_BYTES`], which `page` reserves for it.
pub(crate) fn with_header(mut page: Vec<u8>, header: &PageHeader) -> Vec<u8> {
    let payload_bytes = page.len() - HEADER_BYTES;
    let payload_bytes = u32::try_from(payload_bytes).expect("the payload: a page has at most PAGE_BYTES_MAX");
    page.resize(page.len().next_multiple_of(SECTOR_BYTES as usize), 0);
    let header = PageHeader { magic: MAGIC, version: FORMAT_VERSION, payload_bytes, checksum: 0, ..*header };
    page[..HEADER_BYTES].copy_from_slice(bytemuck::bytes_of(&header));
    let checksum = checksum_of(&page);
    page[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    page
}
