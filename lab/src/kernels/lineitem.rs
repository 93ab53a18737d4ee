//! Generates the pages that kernels run on: TPC-H's lineitem in memory, encoded as a load of the
//! table encodes it.
//!
//! Invariants
//! - The same scale factor gives the same pages.

use std::sync::Arc;

use rackscan_format::chunk::{ChunkInput, ChunkWriter, Values};
use rackscan_format::encoding::text::TextValues;
use rackscan_format::ids::{ColumnId, DeviceId, NodeId, SegmentId, TableId};
use rackscan_format::limits::SEGMENT_ROWS_MAX;
use rackscan_format::schema::{ColumnDefinition, ColumnType, TableDefinition};
use rackscan_format::segment::{ChunkDirectory, Extent, PageEntry, SegmentDirectory};
use tpchgen::generators::{LineItem, LineItemGenerator};

use super::error::KernelError;

/// Type of money, quantities and rates.
pub(super) const DECIMAL: ColumnType = ColumnType::Decimal { precision: 15, scale: 2 };
pub(super) const TABLE: TableId = TableId(1);
/// Default page size of a load, in bytes.
pub(super) const PAGE_BYTES: u32 = 131_072;
const SEGMENT_ROWS: u32 = 131_072;
const _: () = assert!(SEGMENT_ROWS <= SEGMENT_ROWS_MAX);

/// The columns, in this order.
pub(super) const COLUMNS: [(&str, ColumnType); 13] = [
    ("l_orderkey", ColumnType::Int64),
    ("l_quantity", DECIMAL),
    ("l_extendedprice", DECIMAL),
    ("l_discount", DECIMAL),
    ("l_tax", DECIMAL),
    ("l_returnflag", ColumnType::Text),
    ("l_linestatus", ColumnType::Text),
    ("l_shipdate", ColumnType::Date32),
    ("l_commitdate", ColumnType::Date32),
    ("l_receiptdate", ColumnType::Date32),
    ("l_shipinstruct", ColumnType::Text),
    ("l_shipmode", ColumnType::Text),
    ("l_comment", ColumnType::Text),
];

/// One segment: its directory, and its pages by column.
pub(super) struct Segment {
    pub(super) directory: Arc<SegmentDirectory>,
    pub(super) pages: Vec<Vec<Vec<u8>>>,
}

/// One column's values, before they are encoded into a segment.
#[derive(Default)]
struct Staged {
    integers: Vec<i64>,
    bytes: Vec<u8>,
    offsets: Vec<u32>,
}

impl Staged {
    fn text(&mut self, text: &str) {
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        self.bytes.extend_from_slice(text.as_bytes());
        self.offsets.push(u32::try_from(self.bytes.len()).expect("a segment holds less than 4 GiB of text"));
    }
}

fn stage(columns: &mut [Staged], item: &LineItem<'_>) {
    let integers = [
        item.l_orderkey,
        item.l_quantity * 100,
        item.l_extendedprice.0,
        item.l_discount.0,
        item.l_tax.0,
        0,
        0,
        item.l_shipdate.to_unix_epoch().into(),
        item.l_commitdate.to_unix_epoch().into(),
        item.l_receiptdate.to_unix_epoch().into(),
    ];
    for (column, value) in columns.iter_mut().zip(integers) {
        column.integers.push(value);
    }
    for (index, text) in [
        (5, item.l_returnflag),
        (6, item.l_linestatus),
        (10, item.l_shipinstruct),
        (11, item.l_shipmode),
        (12, item.l_comment),
    ] {
        columns[index].text(text);
    }
}

fn segment_of(number: usize, columns: &[Staged]) -> Result<Segment, KernelError> {
    let segment = SegmentId(u32::try_from(number)?);
    let mut writer = ChunkWriter::new();
    let (mut chunks, mut pages) = (Vec::new(), Vec::new());
    let mut rows = 0;
    for (index, (staged, (_, column_type))) in columns.iter().zip(COLUMNS).enumerate() {
        let values = if column_type == ColumnType::Text {
            Values::Text(TextValues { bytes: &staged.bytes, offsets: &staged.offsets })
        } else {
            Values::Integers(&staged.integers)
        };
        let column = ColumnId(u16::try_from(index)?);
        let (table, page_bytes) = (TABLE, PAGE_BYTES);
        let chunk = ChunkInput { table, segment, column, column_type, values, validity: None, page_bytes };
        let (mut entries, mut stored) = (Vec::new(), Vec::new());
        writer.encode(&chunk, &mut |page| {
            let length_bytes =
                u32::try_from(page.bytes.len()).expect("a page has at most PAGE_BYTES_MAX bytes");
            let extent = Extent { device: DeviceId(0), offset_bytes: 0, length_bytes };
            rows = page.first_row + page.rows;
            entries.push(PageEntry { extent, first_row: page.first_row, rows: page.rows, zone: page.zone });
            stored.push(page.bytes);
        })?;
        chunks.push(ChunkDirectory { pages: entries });
        pages.push(stored);
    }
    let directory = SegmentDirectory { table: TABLE, segment, rows, chunks };
    Ok(Segment { directory: Arc::new(directory), pages })
}

/// The table's segments; stops when `go_on` returns false.
pub(super) fn segments(scale: f64, go_on: &dyn Fn() -> bool) -> Result<Vec<Segment>, KernelError> {
    let fresh = || COLUMNS.iter().map(|_| Staged::default()).collect::<Vec<_>>();
    let (mut segments, mut columns, mut rows) = (Vec::new(), fresh(), 0);
    for item in LineItemGenerator::new(scale, 1, 1).iter() {
        stage(&mut columns, &item);
        rows += 1;
        if rows == SEGMENT_ROWS {
            segments.push(segment_of(segments.len(), &columns)?);
            (columns, rows) = (fresh(), 0);
            if !go_on() {
                return Ok(segments);
            }
        }
    }
    if rows > 0 {
        segments.push(segment_of(segments.len(), &columns)?);
    }
    Ok(segments)
}

/// The table's definition as a catalog would have it.
pub(super) fn definition(rows: u64) -> TableDefinition {
    let columns = COLUMNS.iter().map(|(name, column_type)| ColumnDefinition {
        name: (*name).to_owned(),
        column_type: *column_type,
        nullable: false,
    });
    TableDefinition {
        id: TABLE,
        name: "lineitem".to_owned(),
        columns: columns.collect(),
        partition_key: ColumnId(0),
        sorted_by: None,
        page_size: PAGE_BYTES,
        segment_rows: SEGMENT_ROWS,
        nodes: vec![NodeId(0)],
        rows,
        source: "tpchgen".to_owned(),
        succeeds: None,
        derived: Vec::new(),
        protection: None,
    }
}
