//! Defines the directory of a segment: where its pages are stored, and bounds of the values of each
//! page.
//!
//! ```text
//! segment: 131,072 rows of one table, all of them on one node, immutable once published
//!   chunk (column 0): page 0 | page 1 | ...     for each page: device, offset, bytes, first row, rows, zone map
//!   chunk (column 1): page 0 | ...
//! ```
//!
//! Invariants (checked by [`SegmentDirectory::verify`])
//! - There is one chunk per column of the table, in column order.
//! - The pages of a chunk cover rows `0..rows` without gap or overlap; every page except the last
//!   contains whole blocks of 1,024 rows, so block `b` has the same rows in every column.
//! - Pages begin on a sector and take whole sectors.

use crate::{
    ids::{ColumnId, DeviceId, PageNumber, SegmentId, TableId},
    limits::{
        BLOCK_ROWS, CHUNK_PAGES_MAX, COLUMNS_MAX, NODE_DEVICES_MAX, PAGE_BYTES_MAX, SECTOR_BYTES,
        SEGMENT_ROWS_MAX,
    },
    page::PageIdentity,
    withheld::WithheldRows,
    zone::Zone,
};
use serde::{Deserialize, Serialize};

/// A range of bytes on a device of the node that holds the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// The device.
    pub device: DeviceId,
    /// Bytes from the device's beginning, a multiple of `SECTOR_BYTES`.
    pub offset_bytes: u64,
    /// Stored bytes of the page, header and padding included, a multiple of `SECTOR_BYTES`.
    pub length_bytes: u32,
}

impl Extent {
    /// The offset of the first byte after the extent; `None` when it exceeds 64 bits.
    #[must_use]
    pub fn end_bytes(&self) -> Option<u64> {
        self.offset_bytes.checked_add(u64::from(self.length_bytes))
    }
}

/// One page of a chunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageEntry {
    /// Where it is stored.
    pub extent: Extent,
    /// Its first row, counted within the segment.
    pub first_row: u32,
    /// Its rows.
    pub rows: u32,
    /// Bounds of its values.
    pub zone: Zone,
}

/// The pages of one column of a segment, in row order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChunkDirectory {
    /// Its pages; a [`PageNumber`] is a position here.
    pub pages: Vec<PageEntry>,
}

/// Everything that a scan needs to know about a segment before it reads a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentDirectory {
    /// The table version that wrote the segment, as its pages state. Later versions of the table
    /// may keep the segment.
    pub table: TableId,
    /// Its id, unique in each table version that holds it.
    pub segment: SegmentId,
    /// Its rows.
    pub rows: u32,
    /// One chunk per column of the table, in column order.
    pub chunks: Vec<ChunkDirectory>,
}

/// A segment as a table version holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeSegment {
    /// The segment. `directory.table` is the version that wrote it: this table version or an
    /// earlier one.
    pub directory: SegmentDirectory,
    /// The rows of the segment that do not exist in this table version.
    pub withheld: WithheldRows,
}

/// Why a segment directory is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the directory of segment {segment} of table {table} is wrong: in column {column}, {what} is {found}, expected {expected}"
)]
pub struct DirectoryError {
    /// The table.
    pub table: TableId,
    /// The segment.
    pub segment: SegmentId,
    /// The column (0 where the fault is not in a column).
    pub column: ColumnId,
    /// The field at fault.
    pub what: &'static str,
    /// The value found.
    pub found: u64,
    /// The valid values.
    pub expected: String,
}

impl SegmentDirectory {
    /// The number of blocks of 1,024 rows; the last block may be short.
    #[must_use]
    pub fn blocks(&self) -> usize {
        (self.rows as usize).div_ceil(BLOCK_ROWS)
    }

    /// The chunk of `column`, if the table has that column.
    #[must_use]
    pub fn chunk(&self, column: ColumnId) -> Option<&ChunkDirectory> {
        self.chunks.get(column.index())
    }

    /// The entry of one page.
    #[must_use]
    pub fn page(&self, column: ColumnId, page: PageNumber) -> Option<&PageEntry> {
        self.chunk(column)?.pages.get(usize::from(page.0))
    }

    /// The identity that the page's header must state.
    #[must_use]
    pub fn identity(&self, column: ColumnId, page: PageNumber) -> PageIdentity {
        PageIdentity { table: self.table, segment: self.segment, column, page }
    }

    /// Stored bytes of all pages.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        let pages = self.chunks.iter().flat_map(|chunk| &chunk.pages);
        pages.map(|page| u64::from(page.extent.length_bytes)).sum()
    }

    /// Checks the invariants above against a table of `columns` columns on a node with `devices`
    /// devices.
    ///
    /// # Errors
    /// The first field that breaks one.
    pub fn verify(&self, columns: usize, devices: usize) -> Result<(), DirectoryError> {
        let fault = |column: usize, what: &'static str, found: u64, expected: String| {
            let column = u16::try_from(column).expect("a column: at most COLUMNS_MAX, checked first");
            let column = ColumnId(column);
            Err(DirectoryError { table: self.table, segment: self.segment, column, what, found, expected })
        };
        if self.rows == 0 || self.rows > SEGMENT_ROWS_MAX {
            return fault(0, "the number of rows", self.rows.into(), format!("1 to {SEGMENT_ROWS_MAX}"));
        }
        if self.chunks.len() != columns || columns > COLUMNS_MAX {
            return fault(
                0,
                "the number of chunks",
                self.chunks.len() as u64,
                columns.min(COLUMNS_MAX).to_string(),
            );
        }
        let devices = devices.min(NODE_DEVICES_MAX);
        for (column, chunk) in self.chunks.iter().enumerate() {
            if chunk.pages.is_empty() || chunk.pages.len() > CHUNK_PAGES_MAX {
                let found = chunk.pages.len() as u64;
                return fault(column, "the number of pages", found, format!("1 to {CHUNK_PAGES_MAX}"));
            }
            let mut next_row = 0_u32;
            for entry in &chunk.pages {
                if let Err((what, found, expected)) = entry.verify(next_row, self.rows, devices) {
                    return fault(column, what, found, expected);
                }
                next_row = entry.first_row + entry.rows;
            }
            if next_row != self.rows {
                return fault(
                    column,
                    "the end of the last page",
                    next_row.into(),
                    format!("row {}", self.rows),
                );
            }
        }
        Ok(())
    }
}

impl PageEntry {
    fn verify(
        &self,
        next_row: u32,
        segment_rows: u32,
        devices: usize,
    ) -> Result<(), (&'static str, u64, String)> {
        if self.first_row != next_row {
            return Err(("a page's first row", self.first_row.into(), next_row.to_string()));
        }
        let rows_left = segment_rows - next_row;
        if self.rows == 0 || self.rows > rows_left {
            return Err(("a page's number of rows", self.rows.into(), format!("1 to {rows_left}")));
        }
        if self.rows != rows_left && !(self.rows as usize).is_multiple_of(BLOCK_ROWS) {
            return Err(("a page's number of rows", self.rows.into(), format!("a multiple of {BLOCK_ROWS}")));
        }
        if self.zone.nulls > self.rows {
            return Err((
                "a page's number of nulls",
                self.zone.nulls.into(),
                format!("at most {}", self.rows),
            ));
        }
        let Extent { device, offset_bytes, length_bytes } = self.extent;
        if usize::from(device.0) >= devices {
            return Err(("a page's device", device.0.into(), format!("below {devices}")));
        }
        if !offset_bytes.is_multiple_of(SECTOR_BYTES.into()) || self.extent.end_bytes().is_none() {
            return Err((
                "a page's offset",
                offset_bytes,
                format!("a multiple of {SECTOR_BYTES} within the device"),
            ));
        }
        if length_bytes == 0 || length_bytes > PAGE_BYTES_MAX || !length_bytes.is_multiple_of(SECTOR_BYTES) {
            let expected = format!("a multiple of {SECTOR_BYTES} up to {PAGE_BYTES_MAX}");
            return Err(("a page's stored bytes", length_bytes.into(), expected));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(first_row: u32, rows: u32) -> PageEntry {
        let extent = Extent { device: DeviceId(0), offset_bytes: 8192, length_bytes: 4096 };
        PageEntry { extent, first_row, rows, zone: Zone::default() }
    }

    fn directory(pages: Vec<PageEntry>) -> SegmentDirectory {
        SegmentDirectory {
            table: TableId(1),
            segment: SegmentId(2),
            rows: 1500,
            chunks: vec![ChunkDirectory { pages }],
        }
    }

    #[test]
    fn pages_that_cover_every_row_once_are_accepted() {
        directory(vec![entry(0, 1024), entry(1024, 476)]).verify(1, 1).unwrap();
    }

    #[test]
    fn gaps_overlaps_and_broken_blocks_are_refused() {
        for pages in [
            vec![entry(0, 1024)],
            vec![entry(0, 1000), entry(1000, 500)],
            vec![entry(0, 1024), entry(1025, 475)],
            vec![entry(0, 1024), entry(1024, 477)],
            vec![entry(0, 1024), entry(1024, u32::MAX)],
            vec![],
        ] {
            assert!(directory(pages).verify(1, 1).is_err());
        }
    }

    #[test]
    fn extents_outside_the_device_or_off_the_sector_grid_are_refused() {
        for extent in [
            Extent { device: DeviceId(1), offset_bytes: 4096, length_bytes: 4096 },
            Extent { device: DeviceId(0), offset_bytes: 4097, length_bytes: 4096 },
            Extent { device: DeviceId(0), offset_bytes: u64::MAX - 4095, length_bytes: 8192 },
            Extent { device: DeviceId(0), offset_bytes: 4096, length_bytes: 0 },
            Extent { device: DeviceId(0), offset_bytes: 4096, length_bytes: PAGE_BYTES_MAX + SECTOR_BYTES },
        ] {
            let mut page = entry(0, 1500);
            page.extent = extent;
            assert!(directory(vec![page]).verify(1, 1).is_err(), "{extent:?}");
        }
    }
}
