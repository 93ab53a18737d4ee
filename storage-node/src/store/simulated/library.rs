//! Generates the bytes of the segments in the simulation's tables.
//!
//! Invariants
//! - A segment's bytes are determined by the table under which it was written, its number and its
//!   number of rows. No two pages are equal.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use rackscan_format::{
    chunk::{ChunkInput, ChunkWriter, EncodedPage, Values},
    ids::{ColumnId, DeviceId, SegmentId, TableId},
    schema::{ColumnDefinition, ColumnType, Protection, TableDefinition},
    segment::{ChunkDirectory, Extent, PageEntry, SegmentDirectory},
};

use super::node::id;

const PAGE_BYTES: u32 = 4096;

/// A segment before it is stored.
#[derive(Debug)]
pub(super) struct Segment {
    /// Its extents say only lengths.
    pub(super) directory: SegmentDirectory,
    pub(super) pages: Vec<Vec<u8>>,
}

type Name = (TableId, SegmentId, u32);

thread_local! {
    static KNOWN: RefCell<BTreeMap<Name, Rc<Segment>>> = RefCell::default();
}

/// A segment of these rows.
pub(super) fn segment(table: TableId, number: SegmentId, rows: u32) -> Rc<Segment> {
    let make = || Rc::new(encode(table, number, rows));
    KNOWN.with_borrow_mut(|known| Rc::clone(known.entry((table, number, rows)).or_insert_with(make)))
}

fn encode(table: TableId, segment: SegmentId, rows: u32) -> Segment {
    let mut random = fastrand::Rng::with_seed(u64::from(table.0) << 32 | u64::from(segment.0));
    let values: Vec<i64> = (0..rows).map(|_| random.i64(..)).collect();
    let input = ChunkInput {
        table,
        segment,
        column: ColumnId(0),
        column_type: ColumnType::Int64,
        values: Values::Integers(&values),
        validity: None,
        page_bytes: PAGE_BYTES,
    };
    let (mut entries, mut pages) = (Vec::new(), Vec::new());
    let mut keep = |page: EncodedPage| {
        let length_bytes = u32::try_from(page.bytes.len()).unwrap();
        let extent = Extent { device: DeviceId(0), offset_bytes: 0, length_bytes };
        entries.push(PageEntry { extent, first_row: page.first_row, rows: page.rows, zone: page.zone });
        pages.push(page.bytes);
    };
    ChunkWriter::new().encode(&input, &mut keep).unwrap();
    let chunks = vec![ChunkDirectory { pages: entries }];
    Segment { directory: SegmentDirectory { table, segment, rows, chunks }, pages }
}

/// A table of this name on this number of nodes, without rows so far.
pub(super) fn definition(
    table: TableId,
    name: &str,
    nodes: usize,
    protection: Protection,
) -> TableDefinition {
    TableDefinition {
        id: table,
        name: name.to_owned(),
        columns: vec![ColumnDefinition { name: "k".into(), column_type: ColumnType::Int64, nullable: false }],
        partition_key: ColumnId(0),
        sorted_by: None,
        page_size: PAGE_BYTES,
        segment_rows: 4096,
        nodes: (0..nodes).map(id).collect(),
        rows: 0,
        source: "a simulation".to_owned(),
        succeeds: None,
        derived: Vec::new(),
        protection: Some(protection),
    }
}
