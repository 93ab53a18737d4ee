//! Checks the bytes of a page and gives access to its header, its validity bitmap and its sections.

use super::{
    FORMAT_VERSION, HEADER_BYTES, MAGIC, PageFault, PageHeader, PageIdentity, header::checksum_of,
    stored_bytes,
};
use crate::{
    encoding::{Encoding, validity::Bitmap},
    limits::{BLOCK_ROWS, PAGE_BYTES_MAX, SECTOR_BYTES, SEGMENT_ROWS_MAX},
};

/// A page whose header, checksum and identity have been checked.
#[derive(Clone, Copy, Debug)]
pub struct PageView<'p> {
    pub(super) bytes: &'p [u8],
    pub(super) header: PageHeader,
    pub(super) encoding: Encoding,
}

/// Checks what this version always leaves zero: a later one may give it a meaning.
fn verify_zeros(header: &PageHeader, padding: &[u8]) -> Result<(), PageFault> {
    // Without an early end: the compiler takes many bytes at a time.
    let any = |bytes: &[u8]| bytes.iter().fold(0_u8, |all, byte| all | byte);
    if header.bounded > 1 {
        return Err(PageFault::malformed("whether there are bounds", header.bounded, 1_u64));
    }
    if any(&header.reserved) != 0 {
        return Err(PageFault::malformed("the reserved bytes of the header", any(&header.reserved), 0_u64));
    }
    if any(padding) != 0 {
        return Err(PageFault::malformed("the padding", any(padding), 0_u64));
    }
    Ok(())
}

impl<'p> PageView<'p> {
    /// Checks stored bytes, exactly as long as the page's extent, against the expected identity.
    ///
    /// # Errors
    /// The first thing that is wrong, in this order: length, magic, version, checksum, identity,
    /// content of the header.
    pub fn open(bytes: &'p [u8], expected: &PageIdentity) -> Result<Self, PageFault> {
        Self::open_with(bytes, expected, |bytes, _| checksum_of(bytes))
    }

    /// As [`PageView::open`]; `checksum_of` returns the checksum of the bytes, or one that was
    /// computed earlier.
    pub(super) fn open_with(
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
            return Err(PageFault::Encoding { wanted: "a number of this version", found: header.encoding });
        };
        let (bytes, padding) = bytes.split_at(HEADER_BYTES + header.payload_bytes as usize);
        verify_zeros(&header, padding)?;
        let view = Self { bytes, header, encoding };
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

    /// How the values are stored; the accessor of this encoding (such as [`PageView::integers`]) is
    /// the one that succeeds.
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

    /// Checks that the page holds exactly the rows that its directory entry states.
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

    /// Which rows have a value; `None` when all rows have one.
    #[must_use]
    pub fn validity(&self) -> Option<Bitmap<'p>> {
        let bytes = self.validity_bytes().ok().flatten()?;
        Some(Bitmap::new(bytes, self.rows()))
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
