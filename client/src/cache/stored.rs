//! Makes pages for the tests of this module.

use rackscan_format::{
    chunk::{ChunkInput, ChunkWriter, Values},
    ids::{ColumnId, PageNumber, SegmentId, TableId},
    page::PageIdentity,
    schema::ColumnType,
};

/// The identity of a page of this segment's column.
pub(super) fn identity(segment: u32, page: u16) -> PageIdentity {
    let (table, segment, column) = (TableId(1), SegmentId(segment), ColumnId(0));
    PageIdentity { table, segment, column, page: PageNumber(page) }
}

/// The column's pages as they are stored.
pub(super) fn pages(segment: u32) -> Vec<Vec<u8>> {
    let values: Vec<i64> = (0..20_000_i64).map(|n| n * n % 9973).collect();
    let PageIdentity { table, segment, column, .. } = identity(segment, 0);
    let input = ChunkInput {
        table,
        segment,
        column,
        column_type: ColumnType::Int64,
        values: Values::Integers(&values),
        validity: None,
        page_bytes: 4096,
    };
    let mut pages = Vec::new();
    ChunkWriter::new().encode(&input, &mut |page| pages.push(page.bytes)).unwrap();
    pages
}
