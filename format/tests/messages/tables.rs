//! Makes samples of tables, segments and stripe sets, which messages and stored structures have in
//! common.

use rackscan_format::{
    derived::{DerivedDefinition, DerivedKind, Factor, SumDefinition, Within},
    ids::{ColumnId, DeviceId, NodeId, SegmentId, TableId},
    message::{NodeCatalog, NodeTable},
    schema::{ColumnDefinition, ColumnType, Protection, TableDefinition},
    segment::{ChunkDirectory, Extent, NodeSegment, PageEntry, SegmentDirectory},
    stripe_set::{NodeSet, NodeStream, ParityCell, SetId, StreamSegment, StripeSet, TableMap, TablePart},
    withheld::WithheldRows,
    zone::{Zone, ZoneValue},
};

use crate::one_of_each;

/// Rows of a [`directory`].
const SEGMENT_ROWS: u32 = 1500;
const CELL_BYTES: u32 = 16_384;

one_of_each! {
    fn kinds() -> DerivedKind {
        Index { column: ColumnId(2) },
        Parent { key: ColumnId(1), child: "lines".to_owned() },
        Child { key: ColumnId(0), parent: "customers".to_owned() },
        Sum(SumDefinition {
            group: ColumnId(0),
            factors: factors().into_iter().map(|(_, factor)| factor).collect(),
            within: Some(Within { column: ColumnId(4), from: -6, until: 7 }),
            base: Some(TableId(8)),
        }),
    }
}

one_of_each! {
    fn factors() -> Factor {
        Column(ColumnId(1)),
        OneMinus(ColumnId(0)),
        OnePlus(ColumnId(4)),
    }
}

/// The definition of the table of a [`map`].
pub(crate) fn definition() -> TableDefinition {
    let column = |name: &str, column_type, nullable| {
        let name = name.to_owned();
        ColumnDefinition { name, column_type, nullable }
    };
    let derived = kinds().into_iter().zip(["i", "p", "c", "s"]);
    TableDefinition {
        id: TableId(300),
        name: "orders".to_owned(),
        columns: vec![
            column("key", ColumnType::Int64, false),
            column("price", ColumnType::Decimal { precision: 15, scale: 2 }, true),
            column("note", ColumnType::Text, true),
            column("ratio", ColumnType::Float64, false),
            column("day", ColumnType::Int32, false),
        ],
        partition_key: ColumnId(1),
        sorted_by: Some(ColumnId(2)),
        page_size: 8192,
        segment_rows: 2048,
        nodes: vec![NodeId(3), NodeId(260), NodeId(2)],
        rows: 3 * u64::from(SEGMENT_ROWS),
        source: "samples".to_owned(),
        succeeds: Some(TableId(5)),
        derived: derived.map(|((_, kind), name)| DerivedDefinition { name: name.to_owned(), kind }).collect(),
        protection: Some(Protection::TwoD),
    }
}

/// An extent of a number of sectors.
pub(crate) fn extent(device: u8, sector: u64, sectors: u32) -> Extent {
    Extent { device: DeviceId(device), offset_bytes: sector * 4096, length_bytes: sectors * 4096 }
}

/// The directory of a segment with the columns of [`definition`], on sectors from `sector` on.
pub(crate) fn directory(table: u32, segment: u32, sector: u64) -> SegmentDirectory {
    let page = |at: u64, first_row: u32, rows: u32, bounds: (Option<ZoneValue>, Option<ZoneValue>)| {
        let nulls = u32::try_from(at).expect("few pages") + 41;
        let zone = Zone { min: bounds.0, max: bounds.1, nulls };
        PageEntry { extent: extent(1, sector + 2 * at, 2), first_row, rows, zone }
    };
    let integers = |min: i64, max: i64| (Some(ZoneValue::Integer(min)), Some(ZoneValue::Integer(max)));
    let text = |text: &str| Some(ZoneValue::Text(text.as_bytes().to_vec()));
    let floats = (Some(ZoneValue::Float(-0.5)), Some(ZoneValue::Float(2.5)));
    let chunks = [
        vec![page(0, 0, 1024, integers(-10, 11)), page(1, 1024, 476, integers(12, 1300))],
        vec![page(2, 0, SEGMENT_ROWS, (Some(ZoneValue::Integer(14)), None))],
        vec![page(3, 0, SEGMENT_ROWS, (text("a"), text("bc")))],
        vec![page(4, 0, SEGMENT_ROWS, floats)],
        vec![page(5, 0, SEGMENT_ROWS, (None, None))],
    ];
    SegmentDirectory {
        table: TableId(table),
        segment: SegmentId(segment),
        rows: SEGMENT_ROWS,
        chunks: chunks.into_iter().map(|pages| ChunkDirectory { pages }).collect(),
    }
}

/// Some rows of a [`directory`]: few of the first block, many of the second.
pub(crate) fn withheld() -> WithheldRows {
    WithheldRows::of([1, 70, 900].into_iter().chain(1024..1100)).expect("rows of a segment")
}

/// Segments of [`definition`]: one that was kept, with withheld rows, and a new one.
pub(crate) fn segments() -> Vec<NodeSegment> {
    vec![
        NodeSegment { directory: directory(5, 6, 100), withheld: withheld() },
        NodeSegment { directory: directory(300, 7, 200), withheld: WithheldRows::NONE },
    ]
}

/// A segment that only stripe sets still have.
fn beside() -> SegmentDirectory {
    directory(5, 8, 300)
}

fn parity(sector: u64, checksum: u32) -> ParityCell {
    ParityCell { extent: extent(2, sector, CELL_BYTES / 4096), checksum }
}

/// What a node tells and keeps of its tables.
pub(crate) fn catalog() -> NodeCatalog {
    let of_an_earlier_load = NodeSet {
        id: SetId { load: TableId(5), number: 2 },
        segments: vec![(TableId(5), SegmentId(6)), (TableId(5), SegmentId(8))],
        beside: vec![beside()],
        parity: vec![parity(900, 0x0102_0304), parity(910, 0x0506_0708)],
    };
    let table = NodeTable {
        definition: definition(),
        committed: true,
        segments: segments(),
        sets: vec![of_an_earlier_load],
    };
    NodeCatalog { node: NodeId(260), tables: vec![table] }
}

/// The map of the table of [`definition`].
pub(crate) fn map() -> TableMap {
    let elsewhere = directory(5, 9, 400);
    let set = |load: u32, number: u32, stripes: u64, of: [Vec<&SegmentDirectory>; 3]| {
        let stream = |(node, directories): (NodeId, Vec<&SegmentDirectory>)| {
            let segments: Vec<StreamSegment> = directories.into_iter().map(StreamSegment::of).collect();
            let mut stream = NodeStream { node, segments, parity: Vec::new(), cells: Vec::new() };
            let sector = 1000 + 10 * u64::from(node.0);
            stream.parity = vec![parity(sector, load + 1), parity(sector + 4, load + 2)];
            stream.cells = (900..).take(usize::try_from(stream.cells_of(CELL_BYTES)).expect("few")).collect();
            stream
        };
        StripeSet {
            id: SetId { load: TableId(load), number },
            protection: Protection::TwoD,
            cell_bytes: CELL_BYTES,
            stripes,
            streams: definition().nodes.into_iter().zip(of).map(stream).collect(),
        }
    };
    let [kept, new] = &segments()[..] else { panic!("two segments") };
    let of_elsewhere = NodeSegment { directory: elsewhere.clone(), withheld: WithheldRows::NONE };
    TableMap {
        definition: definition(),
        parts: vec![
            TablePart { node: NodeId(3), segments: vec![of_elsewhere], beside: Vec::new() },
            TablePart { node: NodeId(260), segments: segments(), beside: vec![beside()] },
            TablePart { node: NodeId(2), segments: Vec::new(), beside: Vec::new() },
        ],
        sets: vec![
            set(5, 2, 77, [vec![&elsewhere], vec![&kept.directory, &beside()], vec![]]),
            set(300, 1, 78, [vec![], vec![&new.directory], vec![]]),
        ],
    }
}
