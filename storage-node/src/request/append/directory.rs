//! Pulls and checks the directory of an appended segment: the list of its columns and pages.
//!
//! Invariants
//! - Nothing in the directory is used before it was checked. Of its extents only the lengths are
//!   used; the node chooses devices and offsets itself.

use rackscan_format::{
    codec::{self, Envelope},
    ids::{ColumnId, DeviceId, PageNumber, TableId},
    limits::SECTOR_BYTES,
    message::{Refusal, Target},
    page::PageIdentity,
    segment::{Extent, SegmentDirectory},
};

use crate::{limits::DIRECTORY_BYTES_MAX, task::malformed};

/// A page to be pulled, checked and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) identity: PageIdentity,
    pub(super) extent: Extent,
    pub(super) first_row: u32,
    pub(super) rows: u32,
    /// The offset in the source.
    pub(super) source_offset: u64,
}

/// Bytes of the directory in the source, including padding.
fn padded(directory_bytes: usize) -> u64 {
    (directory_bytes as u64).next_multiple_of(SECTOR_BYTES.into())
}

/// Checks that a source can hold such a directory.
pub(super) fn check_length(directory_bytes: u32, source: &Target) -> Result<usize, Refusal> {
    let bytes = directory_bytes as usize;
    if bytes == 0 || bytes > DIRECTORY_BYTES_MAX || padded(bytes) > source.length_bytes {
        return Err(malformed(format!(
            "a directory has {bytes} bytes in a source of {} bytes; expected 1 to {DIRECTORY_BYTES_MAX} bytes, within the source",
            source.length_bytes
        )));
    }
    Ok(bytes)
}

/// Decodes the directory in `bytes` and checks it against the load and the source. Its extents are
/// cleared except for their lengths.
pub(super) fn open(
    bytes: &[u8],
    load: TableId,
    directory_bytes: usize,
    source: &Target,
) -> Result<SegmentDirectory, Refusal> {
    let opened = codec::decode_envelope(Envelope::Segment, "the directory of an appended segment", bytes);
    let mut directory: SegmentDirectory = opened.map_err(|error| malformed(error.to_string()))?;
    if directory.table != load {
        return Err(malformed(format!(
            "the appended segment is of table {}, expected load {load}",
            directory.table
        )));
    }
    let mut pages_bytes = 0_u64;
    for page in directory.chunks.iter_mut().flat_map(|chunk| &mut chunk.pages) {
        let length_bytes = page.extent.length_bytes;
        page.extent = Extent { device: DeviceId(0), offset_bytes: 0, length_bytes };
        pages_bytes += u64::from(length_bytes);
    }
    directory.verify(directory.chunks.len(), 1).map_err(|error| malformed(error.to_string()))?;
    let (expected, found) = (padded(directory_bytes) + pages_bytes, source.length_bytes);
    if found < expected {
        return Err(malformed(format!(
            "the source has {found} bytes, expected {expected} bytes for the directory and its pages"
        )));
    }
    Ok(directory)
}

/// The pages, in the order of the source.
pub(super) fn pages(directory: &SegmentDirectory, directory_bytes: usize) -> Vec<Page> {
    let mut source_offset = padded(directory_bytes);
    let mut pages = Vec::new();
    for (column, chunk) in (0_u16..).zip(&directory.chunks) {
        for (number, entry) in (0_u16..).zip(&chunk.pages) {
            pages.push(Page {
                identity: directory.identity(ColumnId(column), PageNumber(number)),
                extent: entry.extent,
                first_row: entry.first_row,
                rows: entry.rows,
                source_offset,
            });
            source_offset += u64::from(entry.extent.length_bytes);
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_format::{
        ids::SegmentId,
        segment::{ChunkDirectory, PageEntry},
        zone::Zone,
    };

    const LOAD: TableId = TableId(5);

    fn directory(table: TableId) -> SegmentDirectory {
        let extent = Extent { device: DeviceId(9), offset_bytes: 77, length_bytes: 8192 };
        let page = PageEntry { extent, first_row: 0, rows: 10, zone: Zone::default() };
        let chunk = ChunkDirectory { pages: vec![page] };
        SegmentDirectory { table, segment: SegmentId(0), rows: 10, chunks: vec![chunk.clone(), chunk] }
    }

    fn source(length_bytes: u64) -> Target {
        Target { key: 1, offset_bytes: 0, length_bytes }
    }

    #[test]
    fn a_directory_is_taken_without_its_places_and_its_pages_follow_each_other() {
        let bytes = codec::encode_envelope(Envelope::Segment, &directory(LOAD)).unwrap();
        let opened = open(&bytes, LOAD, bytes.len(), &source(4096 + 2 * 8192)).unwrap();
        let pages = pages(&opened, bytes.len());
        assert_eq!(pages.iter().map(|page| page.source_offset).collect::<Vec<_>>(), [4096, 12_288]);
        assert!(pages.iter().all(|page| page.extent.offset_bytes == 0 && page.extent.device == DeviceId(0)));
        assert_eq!(pages[1].identity.column, ColumnId(1));
    }

    #[test]
    fn directories_of_other_loads_and_sources_that_are_too_short_are_refused() {
        let bytes = codec::encode_envelope(Envelope::Segment, &directory(LOAD)).unwrap();
        assert!(open(&bytes, TableId(6), bytes.len(), &source(1 << 20)).is_err());
        assert!(open(&bytes, LOAD, bytes.len(), &source(4096 + 2 * 8192 - 1)).is_err());
        assert!(open(b"garbage", LOAD, 7, &source(1 << 20)).is_err());
        assert!(check_length(0, &source(1 << 20)).is_err());
        assert!(check_length(4097, &source(8191)).is_err());
        assert!(check_length(u32::MAX, &source(u64::MAX)).is_err());
    }
}
