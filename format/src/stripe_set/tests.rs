//! Tests that invalid table maps are refused and valid ones are accepted.

use super::*;
use crate::{
    ids::ColumnId,
    schema::{ColumnDefinition, ColumnType},
    segment::{ChunkDirectory, PageEntry},
    withheld::WithheldRows,
    zone::Zone,
};

const CELL: u32 = 8192;

fn extent(offset: u64, length_bytes: u32) -> Extent {
    Extent { device: DeviceId(0), offset_bytes: offset, length_bytes }
}

fn directory(segment: u32) -> SegmentDirectory {
    let page = |number: u32| PageEntry {
        extent: extent(u64::from(segment * 4 + number) * 4096, 4096),
        first_row: number * 1024,
        rows: 1024,
        zone: Zone::default(),
    };
    let chunks = vec![ChunkDirectory { pages: vec![page(0), page(1)] }];
    SegmentDirectory { table: TableId(7), segment: SegmentId(segment), rows: 2048, chunks }
}

fn map() -> TableMap {
    let column = ColumnDefinition { name: "a".to_owned(), column_type: ColumnType::Int64, nullable: false };
    let nodes = [NodeId(1), NodeId(2), NodeId(3)];
    let definition = TableDefinition {
        id: TableId(7),
        name: "t".to_owned(),
        columns: vec![column],
        partition_key: ColumnId(0),
        sorted_by: None,
        page_size: 4096,
        segment_rows: 2048,
        nodes: nodes.to_vec(),
        rows: 3 * 2048,
        source: "a test".to_owned(),
        succeeds: None,
        derived: Vec::new(),
        protection: Some(Protection::Xor),
    };
    let part = |(node, number): (NodeId, u32)| TablePart {
        node,
        segments: vec![NodeSegment { directory: directory(number), withheld: WithheldRows::NONE }],
        beside: Vec::new(),
    };
    let stream = |(node, number): (NodeId, u32)| NodeStream {
        node,
        segments: vec![StreamSegment::of(&directory(number))],
        parity: vec![ParityCell { extent: extent(1 << 20, CELL), checksum: number }],
        cells: vec![number],
    };
    let set = StripeSet {
        id: SetId { load: TableId(7), number: 0 },
        protection: Protection::Xor,
        cell_bytes: CELL,
        stripes: 3,
        streams: nodes.into_iter().zip(0..).map(stream).collect(),
    };
    TableMap { definition, parts: nodes.into_iter().zip(0..).map(part).collect(), sets: vec![set] }
}

#[test]
fn a_map_comes_back_whole() {
    let map = map();
    assert_eq!(TableMap::decode_envelope(&map.encode_envelope().unwrap()), Ok(map));
}

#[test]
fn maps_that_cannot_be_are_refused() {
    type Break = (&'static str, fn(&mut TableMap));
    let breaks: [Break; 14] = [
        ("protection is none", |map| map.definition.protection = None),
        ("list of nodes", |map| map.parts.swap(0, 1)),
        ("size of a cell", |map| map.sets[0].cell_bytes = 12_288),
        ("streams of a stripe set", |map| map.sets[0].streams.truncate(2)),
        ("protection of a stripe set", |map| map.sets[0].protection = Protection::TwoD),
        ("a parity cell", |map| map.sets[0].streams[1].parity[0].extent.length_bytes = 4096),
        ("the number of checksums of cells", |map| map.sets[0].streams[2].cells.push(0)),
        ("the number of checksums of cells", |map| map.sets[0].streams[2].cells.clear()),
        ("an extent", |map| map.sets[0].streams[1].parity[0].extent.offset_bytes = u64::MAX - 4095),
        ("a stripe set", |map| map.sets.extend_from_within(..)),
        ("the segments of the stripe sets", |map| {
            map.sets.extend_from_within(..);
            map.sets[1].id.number = 1;
        }),
        ("the stripe set of a segment", |map| map.sets.clear()),
        ("the stripe set of a segment", |map| {
            map.parts[0].segments[0].directory.chunks[0].pages[1].extent.offset_bytes = 0
        }),
        ("number of rows", |map| map.definition.rows += 1),
    ];
    for (says, breaks) in breaks {
        let mut map = map();
        breaks(&mut map);
        let error = map.verify().unwrap_err().to_string();
        assert!(error.contains(says), "{error}, expected {says}");
    }
}

#[test]
fn a_map_with_any_damaged_byte_or_of_another_length_is_none() {
    let bytes = map().encode_envelope().unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut broken = bytes.clone();
            broken[at] ^= 1 << bit;
            assert!(TableMap::decode_envelope(&broken).is_err(), "byte {at}, bit {bit}");
        }
        assert!(TableMap::decode_envelope(&bytes[..at]).is_err(), "{at} bytes");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(TableMap::decode_envelope(&longer).is_err());
}

#[test]
fn a_stream_is_cut_into_cells_of_which_the_last_one_may_be_short() {
    let stream = |lengths: &[u32]| NodeStream {
        node: NodeId(1),
        segments: vec![StreamSegment {
            table: TableId(7),
            segment: SegmentId(0),
            extents: lengths.iter().map(|length| extent(0, *length)).collect(),
        }],
        parity: Vec::new(),
        cells: Vec::new(),
    };
    for (lengths, cells) in
        [(&[][..], 0), (&[4096], 1), (&[4096, 4096], 1), (&[4096, 8192], 2), (&[CELL; 5], 5)]
    {
        assert_eq!(stream(lengths).cells_of(CELL), cells, "{lengths:?}");
    }
}
