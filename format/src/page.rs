//! What does a page say about itself, and is it the page that was asked for?
//!
//! ```text
//! header (128 bytes) | sections, as the encoding wants them | validity bitmap, if a row is null | zeros up to 4 KiB
//! ```
//!
//! Invariants
//! - [`PageHeader`] is the layout: little-endian, 128 bytes, no padding.
//! - The checksum covers every stored byte but itself, padding too, so no single changed byte goes
//!   unseen.
//! - A [`PageView`] exists only for bytes whose magic, version, checksum, identity, length and row
//!   counts were right. Its content may still be malicious (anybody can compute a checksum): the
//!   encodings check what they follow.

use crate::{
    encoding::{
        Encoding, dictionary::DictionaryPage, float::FloatPage, fsst::FsstPage, integer::IntegerPage,
        plain::PlainPage, validity::Bitmap,
    },
    ids::{ColumnId, PageNumber, SegmentId, TableId},
    limits::{BLOCK_ROWS, PAGE_BYTES_MAX, SECTOR_BYTES, SEGMENT_ROWS_MAX},
};
use bytemuck::{Pod, Zeroable};
use std::{fmt, mem::offset_of};

mod checked;
pub use checked::CheckedPage;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 128;
/// Where the first section begins, in bytes from the page's beginning.
pub(crate) const FIRST_SECTION: u32 = 128;
const _: () = assert!(FIRST_SECTION as usize == HEADER_BYTES);
/// The first bytes of every page.
pub const MAGIC: [u8; 8] = *b"rackpage";
/// The version of header and encodings that this code writes and reads.
pub const FORMAT_VERSION: u16 = 1;

/// Which page this is; written into its header, so that a misdirected read is seen.
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
    /// 1 if `min` and `max` hold bounds, else 0 (text, no value at all, NaN).
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
    /// Where the sections of the encoding begin and how many things they hold; each encoding says
    /// which is which.
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

/// Why bytes are not the page they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageFault {
    /// The bytes are no page.
    #[error("begins with {found:02x?}, expected {MAGIC:02x?}: no page was written here")]
    Magic {
        /// The first bytes.
        found: [u8; 8],
    },
    /// The page was written by another version of this format.
    #[error("page format version {found}, expected {FORMAT_VERSION}: written by another version of rackscan")]
    Version {
        /// The version in the header.
        found: u16,
    },
    /// The bytes changed since they were written.
    #[error("checksum {found:08x}, expected {wanted:08x}: the bytes have changed since they were written")]
    Checksum {
        /// Stored in the header.
        wanted: u32,
        /// Computed over what is there.
        found: u32,
    },
    /// A sound page, but another one.
    #[error("found {found}, wanted {wanted}: the read went to a wrong place")]
    Misdirected {
        /// The page that was asked for.
        wanted: PageIdentity,
        /// The page that is there.
        found: PageIdentity,
    },
    /// There are more or fewer bytes than the page has.
    #[error("{found} bytes, expected {wanted}")]
    Length {
        /// Stored bytes of the page (of the smallest page, when there is no whole header).
        wanted: u64,
        /// Bytes given.
        found: u64,
    },
    /// The header names an encoding that does not exist, or not the one that was asked for.
    #[error("encoding {found}, expected {wanted}")]
    Encoding {
        /// What the reader can decode here.
        wanted: &'static str,
        /// The header's number.
        found: u8,
    },
    /// The page holds other rows than it should.
    #[error("rows {found_first} + {found_rows}, expected {wanted_first} + {wanted_rows}")]
    Rows {
        /// The first row of the directory's entry.
        wanted_first: u32,
        /// The rows of the directory's entry.
        wanted_rows: u32,
        /// The first row in the header.
        found_first: u32,
        /// The rows in the header.
        found_rows: u32,
    },
    /// A field that passed the checksum says something impossible: a bug of the writer, or malice.
    #[error("{what} is {found}, expected at most {allowed}")]
    Malformed {
        /// The field.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The largest (or only) value that could be.
        allowed: u64,
    },
}

impl PageFault {
    /// Numbers of any type; those beyond 64 bits or below 0 are shown as the largest.
    pub(crate) fn malformed(
        what: &'static str,
        found: impl TryInto<u64>,
        allowed: impl TryInto<u64>,
    ) -> Self {
        let (found, allowed) = (found.try_into().unwrap_or(u64::MAX), allowed.try_into().unwrap_or(u64::MAX));
        Self::Malformed { what, found, allowed }
    }
}

/// A page whose header, checksum and identity were found right.
#[derive(Clone, Copy, Debug)]
pub struct PageView<'p> {
    bytes: &'p [u8],
    header: PageHeader,
    encoding: Encoding,
}

impl<'p> PageView<'p> {
    /// Checks stored bytes, exactly as long as the page's extent, against the identity that the
    /// reader wanted.
    ///
    /// # Errors
    /// The first thing that is wrong, in this order: length, magic, version, checksum, identity,
    /// content of the header.
    pub fn open(bytes: &'p [u8], expected: &PageIdentity) -> Result<Self, PageFault> {
        Self::open_with(bytes, expected, |bytes, _| checksum_of(bytes))
    }

    /// `checksum_of` says what the checksum of the bytes is, or was when somebody last worked it
    /// out.
    fn open_with(
        bytes: &'p [u8],
        expected: &PageIdentity,
        checksum_of: impl FnOnce(&[u8], &PageHeader) -> u32,
    ) -> Result<Self, PageFault> {
        let found = bytes.len() as u64;
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(PageFault::Length { wanted: SECTOR_BYTES.into(), found });
        };
        let header: PageHeader = bytemuck::pod_read_unaligned(head);
        if header.magic != MAGIC {
            return Err(PageFault::Magic { found: header.magic });
        }
        if header.version != FORMAT_VERSION {
            return Err(PageFault::Version { found: header.version });
        }
        let wanted = stored_bytes(header.payload_bytes.into());
        if found != wanted || wanted > PAGE_BYTES_MAX.into() {
            return Err(PageFault::Length { wanted: wanted.min(PAGE_BYTES_MAX.into()), found });
        }
        let checksum = checksum_of(bytes, &header);
        if checksum != header.checksum {
            return Err(PageFault::Checksum { wanted: header.checksum, found: checksum });
        }
        if header.identity() != *expected {
            return Err(PageFault::Misdirected { wanted: *expected, found: header.identity() });
        }
        let Some(encoding) = Encoding::from_number(header.encoding) else {
            return Err(PageFault::Encoding { wanted: "one of version 1", found: header.encoding });
        };
        let view = Self { bytes: &bytes[..HEADER_BYTES + header.payload_bytes as usize], header, encoding };
        view.verify_rows()?;
        Ok(view)
    }

    fn verify_rows(&self) -> Result<(), PageFault> {
        let PageHeader { first_row, rows, nulls, validity_at, divisor, .. } = self.header;
        if !(first_row as usize).is_multiple_of(BLOCK_ROWS) || first_row >= SEGMENT_ROWS_MAX {
            return Err(PageFault::malformed("the first row", first_row, SEGMENT_ROWS_MAX));
        }
        if rows == 0 || rows > SEGMENT_ROWS_MAX - first_row {
            return Err(PageFault::malformed("the number of rows", rows, SEGMENT_ROWS_MAX - first_row));
        }
        if nulls > rows {
            return Err(PageFault::malformed("the number of nulls", nulls, rows));
        }
        if divisor == 0 {
            return Err(PageFault::malformed("the divisor", 0_u64, u64::MAX));
        }
        if (validity_at == 0) != (nulls == 0) {
            return Err(PageFault::malformed("the number of nulls without a validity bitmap", nulls, 0_u64));
        }
        let invalid = match self.validity_bytes()? {
            Some(bytes) => self.rows() - Bitmap::new(bytes, self.rows()).count_valid(),
            None => 0,
        };
        if invalid != nulls as usize {
            return Err(PageFault::malformed("the number of nulls in the validity bitmap", invalid, nulls));
        }
        Ok(())
    }

    fn validity_bytes(&self) -> Result<Option<&'p [u8]>, PageFault> {
        if self.header.validity_at == 0 {
            return Ok(None);
        }
        self.section("the validity bitmap's place", self.header.validity_at, self.rows().div_ceil(8))
            .map(Some)
    }

    /// The header as stored.
    #[must_use]
    pub fn header(&self) -> &PageHeader {
        &self.header
    }

    /// How the values are stored, which says which of the accessors below will succeed.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Rows of the page.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.header.rows as usize
    }

    /// Blocks of the page; all but the last have `BLOCK_ROWS` rows.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.rows().div_ceil(BLOCK_ROWS)
    }

    /// Fails unless the page holds exactly the rows that its directory entry promised.
    ///
    /// # Errors
    /// [`PageFault::Rows`].
    pub fn expect_rows(&self, first_row: u32, rows: u32) -> Result<(), PageFault> {
        if (self.header.first_row, self.header.rows) == (first_row, rows) {
            return Ok(());
        }
        Err(PageFault::Rows {
            wanted_first: first_row,
            wanted_rows: rows,
            found_first: self.header.first_row,
            found_rows: self.header.rows,
        })
    }

    /// Which rows have a value; `None` when all have.
    #[must_use]
    pub fn validity(&self) -> Option<Bitmap<'p>> {
        let bytes = self.validity_bytes().ok().flatten()?;
        Some(Bitmap::new(bytes, self.rows()))
    }

    /// The page's integers (every column type but floats and text).
    ///
    /// # Errors
    /// When the page holds something else, or its sections do not fit it.
    pub fn integers(&self) -> Result<IntegerPage<'p>, PageFault> {
        self.expect_encoding(Encoding::Integer)?;
        IntegerPage::open(self, self.header.divisor)
    }

    /// The page's floats.
    ///
    /// # Errors
    /// As [`Self::integers`].
    pub fn floats(&self) -> Result<FloatPage<'p>, PageFault> {
        self.expect_encoding(Encoding::Float)?;
        FloatPage::open(self)
    }

    /// The page's texts, when they are codes of a sorted dictionary.
    ///
    /// # Errors
    /// As [`Self::integers`].
    pub fn dictionary(&self) -> Result<DictionaryPage<'p>, PageFault> {
        self.expect_encoding(Encoding::Dictionary)?;
        DictionaryPage::open(self)
    }

    /// The page's texts, when they are compressed by a symbol table.
    ///
    /// # Errors
    /// As [`Self::integers`].
    pub fn fsst(&self) -> Result<FsstPage<'p>, PageFault> {
        self.expect_encoding(Encoding::Fsst)?;
        FsstPage::open(self)
    }

    /// The page's texts, when they are stored as they are.
    ///
    /// # Errors
    /// As [`Self::integers`].
    pub fn plain(&self) -> Result<PlainPage<'p>, PageFault> {
        self.expect_encoding(Encoding::Plain)?;
        PlainPage::open(self)
    }

    fn expect_encoding(&self, wanted: Encoding) -> Result<(), PageFault> {
        if self.encoding == wanted {
            return Ok(());
        }
        Err(PageFault::Encoding { wanted: wanted.name(), found: self.header.encoding })
    }

    /// `length` bytes of the payload, beginning `at` bytes from the page's beginning.
    pub(crate) fn section(&self, what: &'static str, at: u32, length: usize) -> Result<&'p [u8], PageFault> {
        let start = at as usize;
        let last = self.bytes.len().saturating_sub(length);
        if start < HEADER_BYTES || start > last || length > self.bytes.len() {
            return Err(PageFault::malformed(what, at, last));
        }
        Ok(&self.bytes[start..start + length])
    }

    /// Header and payload, without padding.
    pub(crate) fn bytes(&self) -> &'p [u8] {
        self.bytes
    }
}

impl PageHeader {
    /// Which page the header says it is.
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

/// Bytes that a page with so much payload takes on a device.
#[must_use]
pub fn stored_bytes(payload_bytes: u64) -> u64 {
    (HEADER_BYTES as u64 + payload_bytes).next_multiple_of(SECTOR_BYTES.into())
}

/// The checksum of stored bytes, their checksum field taken as zero.
fn checksum_of(bytes: &[u8]) -> u32 {
    let (head, rest) = bytes.split_at(CHECKSUM_AT);
    let sum = crc32c::crc32c_append(crc32c::crc32c(head), &[0; size_of::<u32>()]);
    crc32c::crc32c_append(sum, &rest[size_of::<u32>()..])
}

/// Pads a page to whole sectors and puts its header in front, with length and checksum filled in.
/// The first [`HEADER_BYTES`] of `page` are room for it.
pub(crate) fn seal(mut page: Vec<u8>, header: &PageHeader) -> Vec<u8> {
    let payload_bytes = u32::try_from(page.len() - HEADER_BYTES).unwrap_or(u32::MAX);
    page.resize(page.len().next_multiple_of(SECTOR_BYTES as usize), 0);
    let header = PageHeader { magic: MAGIC, version: FORMAT_VERSION, payload_bytes, checksum: 0, ..*header };
    page[..HEADER_BYTES].copy_from_slice(bytemuck::bytes_of(&header));
    let checksum = checksum_of(&page);
    page[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    page
}
