//! Encodes the rows of a segment into pages and a directory.

use rackscan_format::{
    chunk::{ChunkInput, ChunkWriter, EncodedPage},
    ids::{ColumnId, DeviceId, NodeId, SegmentId},
    limits::SECTOR_BYTES,
    schema::TableDefinition,
    segment::{ChunkDirectory, Extent, PageEntry, SegmentDirectory},
};

use crate::{LoadError, segment::SegmentRows};

/// A segment ready to be stored.
#[derive(Debug)]
pub(crate) struct EncodedSegment {
    /// The node that stores it.
    pub(crate) node: NodeId,
    /// The rows, zones and lengths of its pages. Offsets are positions in `pages` until the node
    /// chooses extents.
    pub(crate) directory: SegmentDirectory,
    /// Its pages, chunk by chunk.
    pub(crate) pages: Vec<Vec<u8>>,
}

/// Encodes the rows of a segment.
///
/// # Errors
/// If no page can hold a block of 1,024 rows of a column.
pub(crate) fn encode(
    definition: &TableDefinition,
    node: NodeId,
    segment: SegmentId,
    rows: &SegmentRows,
    writer: &mut ChunkWriter,
) -> Result<EncodedSegment, LoadError> {
    let mut pages = Vec::new();
    let mut chunks = Vec::with_capacity(definition.columns.len());
    let mut offset_bytes = 0;
    for ((column, column_rows), number) in definition.columns.iter().zip(rows.columns()).zip(0..) {
        let input = ChunkInput {
            table: definition.id,
            segment,
            column: ColumnId(number),
            column_type: column.column_type,
            values: column_rows.values(),
            validity: column_rows.validity(),
            page_bytes: definition.page_size,
        };
        let mut entries = Vec::new();
        let mut keep = |page: EncodedPage| {
            let length_bytes =
                u32::try_from(page.bytes.len()).expect("the length of a page: at most PAGE_BYTES_MAX");
            debug_assert!(length_bytes.is_multiple_of(SECTOR_BYTES), "pages are whole sectors");
            let extent = Extent { device: DeviceId(0), offset_bytes, length_bytes };
            offset_bytes += u64::from(length_bytes);
            entries.push(PageEntry { extent, first_row: page.first_row, rows: page.rows, zone: page.zone });
            pages.push(page.bytes);
        };
        writer.encode(&input, &mut keep).map_err(|source| LoadError::Chunk {
            table: definition.name.clone(),
            column: column.name.clone(),
            source,
        })?;
        chunks.push(ChunkDirectory { pages: entries });
    }
    let rows = u32::try_from(rows.rows()).expect("the rows of a segment: at most SEGMENT_ROWS_MAX");
    Ok(EncodedSegment {
        node,
        directory: SegmentDirectory { table: definition.id, segment, rows, chunks },
        pages,
    })
}
