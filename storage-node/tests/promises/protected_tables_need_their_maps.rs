//! Promise: a protected table is prepared only on nodes that have its parity and a map that matches
//! the node's data; a load that becomes no table leaves nothing behind, and a prepared table is
//! complete after a restart.

use std::time::{Duration, Instant};

use rackscan_format::{
    codec,
    ids::{NodeId, SegmentId, TableId},
    message::{
        Answer, AppendParity, KeepMap, LoadHeld, NodeCatalog, NodeSegment, NodeStatus, NodeTable, ReadMap,
        Refusal, RefusalCode, Request, Target,
    },
    schema::Protection,
    segment::Extent,
    stripe_set::{NodeStream, ParityCell, SetId, StreamSegment, StripeSet, TableMap, TablePart},
    withheld::WithheldRows,
};

use crate::support::{
    client::Client,
    node::{NodeFolder, Running},
    table::Table,
};

pub(crate) const CELL: u32 = 8192;
const ROWS: u32 = 2000;
/// Longer than anything takes that happens at all.
const PATIENCE: Duration = Duration::from_secs(120);
/// The other node of the table, which nobody asks here.
const OTHER: NodeId = NodeId(4);

pub(crate) fn table(id: u32) -> Table {
    let mut table = Table::new(id, "t", 2, ROWS);
    table.definition.nodes.push(OTHER);
    table.definition.protection = Some(Protection::Xor);
    table
}

fn append_parity(
    client: &mut Client,
    load: u32,
    first_cell: u32,
    cells: &[u8],
    wrong: u32,
) -> Result<Answer, Refusal> {
    client.region.copy_in(0, cells).expect("it fits");
    let checksums = cells.chunks(CELL as usize).map(|cell| codec::checksum(cell) ^ wrong).collect();
    let source = client.target(0, cells.len() as u64);
    let (load, set) = (TableId(load), 0);
    client.ask(Request::AppendParity(AppendParity {
        load,
        set,
        first_cell,
        cell_bytes: CELL,
        checksums,
        source,
    }))
}

/// Appends two cells of parity, the second one first, and says where they lie.
pub(crate) fn parity(client: &mut Client, load: u32) -> Vec<ParityCell> {
    let cells: Vec<u8> = (0..2 * CELL).map(|byte| (byte * 7 / 3).to_le_bytes()[0]).collect();
    let mut stored = Vec::new();
    for (first, cell) in cells.chunks(CELL as usize).enumerate().rev() {
        let first = u32::try_from(first).expect("two");
        let answer = append_parity(client, load, first, cell, 0);
        let Ok(Answer::ParityPlaced { extents }) = answer else { panic!("{answer:?}") };
        stored.push(ParityCell { extent: extents[0], checksum: codec::checksum(cell) });
    }
    stored.reverse();
    stored
}

/// All that the node has of a load, asked for in small pieces.
pub(crate) fn held(client: &mut Client, load: u32) -> Vec<NodeSegment> {
    let (mut segments, mut after, mut pieces) = (Vec::new(), None, 0);
    loop {
        let target = client.target(0, 2048);
        let answer = client.ask(Request::LoadHeld(LoadHeld { load: TableId(load), after, target }));
        let Ok(Answer::LoadHeld { written_bytes, next }) = answer else { panic!("{answer:?}") };
        let bytes = client.copy_out(0, written_bytes);
        let told =
            codec::decode_envelope_all::<Vec<NodeSegment>>(codec::Envelope::LoadHeld, "a list", &bytes);
        let told = told.expect("an encoded list");
        segments.extend(told);
        (after, pieces) = (next, pieces + 1);
        if next.is_none() {
            assert!(pieces <= segments.len() + 1);
            return segments;
        }
    }
}

/// The map of a table whose other node has nothing but parity.
pub(crate) fn map(table: &Table, segments: Vec<NodeSegment>, parity: Vec<ParityCell>) -> TableMap {
    let extent =
        Extent { device: rackscan_format::ids::DeviceId(0), offset_bytes: 1 << 20, length_bytes: CELL };
    let mut here = NodeStream {
        node: NodeId(3),
        segments: segments.iter().map(|segment| StreamSegment::of(&segment.directory)).collect(),
        parity,
        cells: Vec::new(),
    };
    // The node cannot know whether they are right.
    here.cells = (0..here.cells_of(CELL)).map(|cell| u32::try_from(cell).expect("few")).collect();
    let parity = vec![ParityCell { extent, checksum: 0 }];
    let there = NodeStream { node: OTHER, segments: Vec::new(), parity, cells: Vec::new() };
    let set = StripeSet {
        id: SetId { load: table.id(), number: 0 },
        protection: Protection::Xor,
        cell_bytes: CELL,
        stripes: 1,
        streams: vec![here, there],
    };
    let parts = [(NodeId(3), segments), (OTHER, Vec::new())].map(|(node, segments)| TablePart {
        node,
        segments,
        beside: Vec::new(),
    });
    TableMap { definition: table.definition.clone(), parts: parts.into(), sets: vec![set] }
}

pub(crate) fn keep_map(client: &mut Client, load: u32, bytes: &[u8]) -> Result<Answer, Refusal> {
    let (mut from_bytes, mut answer) = (0, Ok(Answer::Done));
    for piece in bytes.chunks(bytes.len().div_ceil(3)) {
        client.region.copy_in(0, piece).expect("it fits");
        let source = client.target(0, piece.len() as u64);
        let (load, total_bytes) = (TableId(load), bytes.len() as u64);
        answer = client.ask(Request::KeepMap(KeepMap { load, from_bytes, total_bytes, source }));
        from_bytes += piece.len() as u64;
    }
    answer
}

pub(crate) fn read_map(client: &mut Client, table: u32) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    loop {
        let target = client.target(0, 1000);
        let wanted = ReadMap { table: TableId(table), from_bytes: bytes.len() as u64, target };
        let Answer::Catalog { written_bytes, total_bytes, .. } = client.ask(Request::ReadMap(wanted))? else {
            panic!("not a part of a map")
        };
        bytes.extend(client.copy_out(0, written_bytes));
        if bytes.len() as u64 == total_bytes {
            return Ok(bytes);
        }
    }
}

pub(crate) fn prepare(client: &mut Client, table: &Table) -> Result<Answer, Refusal> {
    let segments = u32::try_from(table.segments.len()).expect("a few");
    client.ask(Request::PreparePublish { definition: table.definition.clone(), segments })
}

pub(crate) fn used_bytes(node: &Running) -> u64 {
    node.shm().status().devices.iter().map(|device| device.used_bytes).sum()
}

/// What a node says when nobody else is connected to it, and that is so: connections take memory,
/// and end some time after they were dropped.
fn says_alone(node: &Running, is_so: impl Fn(&NodeStatus) -> bool) -> NodeStatus {
    let deadline = Instant::now() + PATIENCE;
    let mut client = node.shm();
    loop {
        let status = client.status();
        if status.counters.connections_open == 1 && is_so(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "{status:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_table_is_prepared_with_its_parity_and_its_map_and_both_are_there_after_a_restart() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let (seventh, mut client) = (table(7), node.shm());
    seventh.append_all(&mut client);
    let refused = prepare(&mut client, &seventh).unwrap_err();
    assert!(refused.text.contains("the map of load 7 is not here"), "{refused:?}");
    let cells = parity(&mut client, 7);
    let segments = held(&mut client, 7);
    assert_eq!(segments.len(), 2);
    assert_eq!(prepare(&mut client, &seventh).unwrap_err().code, RefusalCode::Malformed);
    let bytes = map(&seventh, segments, cells).encode_envelope().unwrap();
    assert_eq!(keep_map(&mut client, 7, &bytes), Ok(Answer::Done));
    assert_eq!(read_map(&mut client, 7).unwrap_err().code, RefusalCode::NotFound, "not prepared yet");
    client.done(Request::AbortLoad { load: seventh.id() });
    assert_eq!(std::fs::read_dir(node_folder.path("data").join("maps")).unwrap().count(), 0);
    let (table, mut client) = (table(8), node.tcp());
    table.append_all(&mut client);
    let cells = parity(&mut client, 8);
    let segments = held(&mut client, 8);
    let bytes = map(&table, segments, cells).encode_envelope().unwrap();
    assert_eq!(keep_map(&mut client, 8, &bytes), Ok(Answer::Done));
    assert_eq!(prepare(&mut client, &table), Ok(Answer::Done));
    assert_eq!(prepare(&mut client, &table), Ok(Answer::Done), "again");
    client.done(Request::CommitPublish { load: table.id() });
    drop(client);
    let (used, catalog) = (used_bytes(&node), node.shm().catalog(1 << 20).tables);
    assert_eq!(catalog[0].sets.len(), 1);
    node.stop();
    let node = node_folder.start();
    assert_eq!((used_bytes(&node), node.shm().catalog(1 << 20).tables), (used, catalog));
    assert_eq!(read_map(&mut node.shm(), 8), Ok(bytes.clone()));
    node.stop();
    let file = node_folder.path("data").join("maps").join("00000008");
    for damaged in [&bytes[..bytes.len() - 1], &[&bytes[..], &[0]].concat(), &bytes[1..], &[]] {
        std::fs::write(&file, damaged).unwrap();
        let node = node_folder.start();
        let refused = read_map(&mut node.shm(), 8).unwrap_err();
        assert_eq!(refused.code, RefusalCode::NotFound);
        assert!(refused.text.contains("the map of table 8 is lost here"), "{refused:?}");
        assert!(node.shm().catalog(1 << 20).tables[0].committed, "the rest is there");
        node.stop();
    }
}

#[test]
fn a_map_that_says_other_things_than_are_here_is_refused_and_nothing_stays_of_its_load() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let memory = says_alone(&node, |_| true).counters.memory_used_bytes;
    let empty = used_bytes(&node);
    type Wrong = (&'static str, fn(&mut TableMap));
    let wrongs: [Wrong; 6] = [
        ("has another definition", |map| map.definition.source.push('!')),
        ("parity that differs from what has arrived", |map| map.sets[0].streams[0].parity[0].checksum ^= 1),
        ("parity that differs from what has arrived", |map| map.sets[0].streams[0].parity.truncate(1)),
        ("a stripe set that the previous table does not have", |map| map.sets[0].id.load = TableId(1)),
        ("describes other segments", |map| {
            map.parts[0].segments[0].withheld = WithheldRows::of([5]).unwrap();
        }),
        ("describes other segments", |map| {
            let moved = map.parts[0].segments.pop().unwrap();
            let stream = map.sets[0].streams[0].segments.pop().unwrap();
            map.parts[1].segments.push(moved);
            map.sets[0].streams[1].segments.push(stream);
            for stream in &mut map.sets[0].streams {
                stream.cells = vec![0; usize::try_from(stream.cells_of(CELL)).unwrap()];
            }
        }),
    ];
    for ((says, wrong), id) in wrongs.into_iter().zip(20..) {
        let (table, mut client) = (table(id), node.shm());
        table.append_all(&mut client);
        let cells = parity(&mut client, id);
        let segments = held(&mut client, id);
        let mut map = map(&table, segments, cells);
        wrong(&mut map);
        assert_eq!(keep_map(&mut client, id, &map.encode_envelope().unwrap()), Ok(Answer::Done), "{says}");
        let refused = prepare(&mut client, &table).unwrap_err();
        assert!(refused.text.contains(says), "{refused:?}, expected {says}");
        client.done(Request::AbortLoad { load: table.id() });
        drop(client);
        says_alone(&node, |status| status.counters.memory_used_bytes == memory);
        assert_eq!(used_bytes(&node), empty, "{says}");
    }
    node.stop();
}

#[test]
fn parity_and_pieces_of_maps_that_cannot_be_are_refused() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let mut client = node.shm();
    let cells = vec![9; 2 * CELL as usize];
    let wrong = append_parity(&mut client, 7, 0, &cells, 1).unwrap_err();
    assert!(wrong.text.contains("cell 0 of parity of set 7.0 as appended has checksum"), "{wrong:?}");
    assert!(append_parity(&mut client, 7, 0, &cells, 0).is_ok());
    let twice = append_parity(&mut client, 7, 0, &cells, 0).unwrap_err();
    assert!(twice.text.contains("has arrived before"), "{twice:?}");
    let source = client.target(0, u64::from(CELL));
    for (cell_bytes, cells) in [(CELL, 2), (4095, 2), (0, 1), (u32::MAX, 1), (CELL / 4, 4)] {
        let (load, set, first_cell) = (TableId(7), 0, 9);
        let request = AppendParity { load, set, first_cell, cell_bytes, checksums: vec![0; cells], source };
        let refused = client.ask(Request::AppendParity(request)).unwrap_err();
        assert_eq!(refused.code, RefusalCode::Malformed, "{cell_bytes}: {refused:?}");
    }
    let nothing = Target { length_bytes: 0, ..source };
    for (from_bytes, total_bytes, source) in [
        (0, 0, source),
        (0, u64::MAX, source),
        (4096, 1 << 20, source),
        (0, 100, source),
        (0, 1 << 20, nothing),
    ] {
        let request = KeepMap { load: TableId(7), from_bytes, total_bytes, source };
        let refused = client.ask(Request::KeepMap(request)).unwrap_err();
        assert_eq!(refused.code, RefusalCode::Malformed, "{from_bytes} of {total_bytes}: {refused:?}");
    }
    let garbage = keep_map(&mut client, 7, &[3; 5000]).unwrap_err();
    assert_eq!(garbage.code, RefusalCode::Malformed, "{garbage:?}");
    let of_another = read_map(&mut client, 7).unwrap_err();
    assert_eq!(of_another.code, RefusalCode::NotFound);
    let after = Some(SegmentId(u32::MAX));
    let held = client.ask(Request::LoadHeld(LoadHeld { load: TableId(99), after, target: source }));
    assert!(matches!(held, Ok(Answer::LoadHeld { next: None, .. })), "{held:?}");
    drop(client);
    node.stop();
}

#[test]
fn a_catalog_of_before_tables_were_protected_is_opened_and_its_tables_are_not_protected() {
    type Content<Tables> = (Vec<u64>, u64, Tables);
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let table = Table::new(7, "t", 2, ROWS);
    table.load(&mut node.shm());
    let there = node.shm().catalog(1 << 20).tables;
    node.stop();
    let file = node_folder.path("data").join("catalog");
    let whole = std::fs::read(&file).unwrap();
    let content: Result<Content<NodeCatalog>, _> =
        codec::decode_envelope(codec::Envelope::Catalog, "the catalog", &whole);
    let (labels, cluster, catalog) = content.unwrap();
    let earlier =
        catalog.tables.into_iter().map(|NodeTable { definition: d, committed, segments, .. }| {
            let first = (d.id, d.name, d.columns, d.partition_key, d.sorted_by, d.page_size, d.segment_rows);
            (first, (d.nodes, d.rows, d.source, d.succeeds, d.derived), committed, segments)
        });
    let earlier = (labels, cluster, (catalog.node, earlier.collect::<Vec<_>>()));
    std::fs::write(&file, codec::encode_envelope(codec::Envelope::DerivingCatalog, &earlier).unwrap())
        .unwrap();
    let node = node_folder.start();
    assert_eq!(node.shm().catalog(1 << 20).tables, there);
    assert_eq!(there[0].definition.protection, None);
    node.shm().done(Request::Drop { table: table.id() });
    node.stop();
    let content: Result<Content<NodeCatalog>, _> =
        codec::decode_envelope(codec::Envelope::Catalog, "the catalog", &std::fs::read(&file).unwrap());
    assert!(content.unwrap().2.tables.is_empty());
}
