//! Promise: a new table version can replace a table and reuse its segments. Readers of the replaced
//! version continue; only what is not shared is written or freed; and of several loads that would
//! replace the same version, exactly one does.

use std::time::{Duration, Instant};

use rackscan_format::{
    codec::{self, Envelope},
    derived::{DerivedDefinition, DerivedKind, Factor, SumDefinition, Within},
    ids::{ColumnId, NodeId, SegmentId, TableId},
    message::{Answer, NodeCatalog, NodeTable, Refusal, RefusalCode, Request, Target},
    program::ScanProgram,
    schema::TableDefinition,
    withheld::WithheldRows,
};
use rackscan_scan::{output_schema, wire};

use crate::support::{
    client::Client,
    node::{NodeFolder, Running},
    table::{Segment, Table},
};

const ROWS: u32 = 5000;
/// Where results go, behind withheld rows.
const RESULT: u64 = 4 << 20;
const RESULT_BYTES: u64 = 4 << 20;

fn tables(node: &Running) -> Vec<NodeTable> {
    node.shm().catalog(1 << 20).tables
}

fn names(node: &Running) -> Vec<(u32, bool)> {
    tables(node).into_iter().map(|table| (table.definition.id.0, table.committed)).collect()
}

/// Under which table each segment of a table was written, its number, and how many rows of it are
/// gone.
fn segments(node: &Running, id: u32) -> Vec<(u32, u32, u32)> {
    let tables = tables(node);
    let table = tables.iter().find(|table| table.definition.id == TableId(id)).expect("it is there");
    let of = table.segments.iter();
    of.map(|s| (s.directory.table.0, s.directory.segment.0, s.withheld.count())).collect()
}

fn used_bytes(node: &Running) -> u64 {
    node.shm().status().devices.iter().map(|device| device.used_bytes).sum()
}

/// Waits until the devices are used as they were, and no connection but the one that asks is open.
fn settles(node: &Running, used: u64, memory: u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let status = node.shm().status();
        let found: u64 = status.devices.iter().map(|device| device.used_bytes).sum();
        let counters = status.counters;
        if (found, counters.memory_used_bytes, counters.connections_open) == (used, memory, 1) {
            return;
        }
        assert!(Instant::now() < deadline, "{found} bytes, expected {used}; {counters:?}, expected {memory}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn memory(node: &Running) -> u64 {
    node.shm().status().counters.memory_used_bytes
}

fn rows(rows: impl IntoIterator<Item = u32>) -> WithheldRows {
    WithheldRows::of(rows).expect("rows of a segment")
}

/// Puts bytes where the node can read them and asks for a segment to be kept with them as its
/// withheld rows.
fn keep_bytes(
    client: &mut Client,
    load: u32,
    of: u32,
    segment: u32,
    bytes: &[u8],
) -> Result<Answer, Refusal> {
    client.region.copy_in(0, bytes).expect("it fits");
    let (source, withheld_bytes) =
        (client.target(0, bytes.len() as u64), u32::try_from(bytes.len()).expect("few"));
    let (load, of, segment) = (TableId(load), TableId(of), SegmentId(segment));
    client.ask(Request::Keep { load, of, segment, withheld_bytes, source })
}

fn keep(client: &mut Client, load: &Table, segment: u32, withheld: &WithheldRows) {
    let of = load.definition.succeeds.expect("it succeeds another one").0;
    assert_eq!(keep_bytes(client, load.id().0, of, segment, withheld.as_bytes()), Ok(Answer::Done));
}

fn preparing(table: &Table, segments: u32) -> Request {
    Request::PreparePublish { definition: table.definition.clone(), segments }
}

fn commit(table: &Table) -> Request {
    Request::CommitPublish { load: table.id() }
}

fn fetch(client: &mut Client, table: u32, segment: &Segment) -> Result<Vec<u8>, Refusal> {
    let target = client.target(RESULT, RESULT_BYTES);
    let request = Request::Fetch {
        table: TableId(table),
        segment: segment.directory.segment,
        pages: segment.wanted(),
        target,
    };
    client.ask(request).map(|_| client.copy_out(RESULT, segment.stored_bytes()))
}

fn process(
    client: &mut Client,
    program: &ScanProgram,
    (table, segment): (u32, u32),
    withheld: &WithheldRows,
) -> Result<Answer, Refusal> {
    client.region.copy_in(0, withheld.as_bytes()).expect("it fits");
    let beside = client.target(0, withheld.as_bytes().len() as u64);
    let target = client.target(RESULT, RESULT_BYTES);
    client.ask(Request::Process {
        program: program.clone(),
        key_filters: Vec::new(),
        table: TableId(table),
        segment: SegmentId(segment),
        withheld: (!withheld.is_empty()).then_some(rackscan_format::message::Payload::Beside(beside)),
        first_block: 0,
        target,
        report_reads: false,
    })
}

/// That the pages of a segment of `table` come, and its rows but those that are withheld; asked for
/// by who sees the table `reader`.
fn is_read(client: &mut Client, reader: &Table, table: &Table, index: usize, withheld: &WithheldRows) {
    let segment = &table.segments[index];
    let name = (table.id().0, segment.directory.segment.0);
    assert!(fetch(client, name.0, segment).expect("its pages") == segment.pages.concat(), "{name:?}");
    let (ours, theirs) = (reader.program(500), table.program(500));
    let answer = process(client, &ours, name, withheld);
    let Ok(Answer::Processed { written_bytes, next_block: None, .. }) = answer else { panic!("{answer:?}") };
    let (schema, encoded) = (output_schema(&reader.verified(&ours)), client.copy_out(RESULT, written_bytes));
    let (found, rest) = wire::decode(&encoded, &schema).expect("one batch");
    assert_eq!(rest, encoded.len());
    let gone = std::sync::Arc::new(withheld.clone());
    assert_eq!(found, table.run_locally_without(index, table.verified(&theirs), gone), "{name:?}");
}

fn index(name: &str, column: u16) -> DerivedDefinition {
    DerivedDefinition { name: name.to_owned(), kind: DerivedKind::Index { column: ColumnId(column) } }
}

/// One derivation of each kind.
fn derived() -> Vec<DerivedDefinition> {
    let named = |name: &str, kind| DerivedDefinition { name: name.to_owned(), kind };
    let within = Some(Within { column: ColumnId(0), from: -5, until: 5 });
    let (factors, base) =
        (vec![Factor::Column(ColumnId(1)), Factor::OneMinus(ColumnId(1))], Some(TableId(9)));
    vec![
        index("by text", 2),
        named("children", DerivedKind::Parent { key: ColumnId(0), child: "u".to_owned() }),
        named("parents", DerivedKind::Child { key: ColumnId(1), parent: "u".to_owned() }),
        named("sum", DerivedKind::Sum(SumDefinition { group: ColumnId(2), factors, within, base })),
    ]
}

/// A published table of three segments.
fn loaded(node: &Running) -> Table {
    let table = Table::new(1, "t", 3, ROWS);
    table.load(&mut node.shm());
    table
}

#[test]
fn a_new_version_keeps_segments_and_who_reads_with_the_old_ids_goes_on() {
    for wire in 0..2 {
        let node_folder = NodeFolder::new();
        let node = node_folder.start();
        let before = loaded(&node);
        let connect = || if wire == 0 { node.shm() } else { node.tcp() };
        let (mut maker, mut reader) = (connect(), connect());
        let next = before.new_version(2, &[7], ROWS);
        let (none, some) = (WithheldRows::NONE, rows((0..ROWS).step_by(3)));
        let reads_on = |reader: &mut Client, segments: usize| {
            (0..segments).for_each(|segment| is_read(reader, &before, &before, segment, &WithheldRows::NONE));
        };
        keep(&mut maker, &next, 0, &some);
        keep(&mut maker, &next, 1, &none);
        next.append_all(&mut maker);
        maker.done(preparing(&next, 3));
        reads_on(&mut reader, 3);
        assert_eq!(names(&node), [(1, true), (2, false)]);
        maker.done(commit(&next));
        maker.done(commit(&next));
        assert_eq!(names(&node), [(2, true)]);
        assert_eq!(segments(&node, 2), [(1, 0, some.count()), (1, 1, 0), (2, 7, 0)]);
        // Who began on the first table has its program, its ids and its view of what is there.
        reads_on(&mut reader, 2);
        is_read(&mut reader, &next, &before, 0, &some);
        is_read(&mut reader, &next, &before, 1, &none);
        is_read(&mut reader, &next, &next, 0, &none);
        let left_out = fetch(&mut reader, 1, &before.segments[2]).unwrap_err();
        assert_eq!(left_out.code, RefusalCode::NotFound, "{left_out:?}");
        let by_new_id = fetch(&mut reader, 2, &before.segments[0]).unwrap_err();
        assert_eq!(by_new_id.code, RefusalCode::NotFound);
        assert!(by_new_id.text.contains("written under table 1"), "{}", by_new_id.text);
        drop((maker, reader));
        node.stop();
    }
}

#[test]
fn segments_go_on_from_new_version_to_new_version_until_one_leaves_them_out() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let mut client = node.shm();
    let (empty, memory) = (used_bytes(&node), client.status().counters.memory_used_bytes);
    let first = Table::new(1, "t", 2, ROWS);
    first.load(&mut client);
    let second = first.new_version(2, &[2], ROWS);
    let gone = [rows([4]), rows([4, 4999]), rows((0..ROWS).filter(|row| row % 5 < 4))];
    keep(&mut client, &second, 0, &gone[0]);
    second.append_all(&mut client);
    client.done(preparing(&second, 2));
    client.done(commit(&second));
    let third = second.new_version(3, &[], ROWS);
    let fewer = keep_bytes(&mut client, 3, 2, 0, &[]).unwrap_err();
    assert_eq!(fewer.code, RefusalCode::Malformed, "what is gone does not come back: {fewer:?}");
    keep(&mut client, &third, 0, &gone[1]);
    keep(&mut client, &third, 2, &gone[2]);
    client.done(preparing(&third, 2));
    client.done(commit(&third));
    assert_eq!(segments(&node, 3), [(1, 0, 2), (2, 2, 4000)]);
    is_read(&mut client, &first, &first, 0, &WithheldRows::NONE);
    is_read(&mut client, &third, &second, 0, &gone[2]);
    let fourth = third.new_version(4, &[], ROWS);
    keep(&mut client, &fourth, 2, &gone[2]);
    client.done(preparing(&fourth, 1));
    client.done(commit(&fourth));
    assert_eq!(used_bytes(&node), empty + second.segments[0].stored_bytes());
    client.done(Request::Drop { table: fourth.id() });
    assert_eq!((names(&node), used_bytes(&node)), (vec![], empty));
    assert_eq!(client.status().counters.memory_used_bytes, memory);
    drop(client);
    node.stop();
}

#[test]
fn kept_segments_are_there_once_after_a_restart_whether_prepared_or_published() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let empty = used_bytes(&node);
    let before = loaded(&node);
    let mut client = node.shm();
    let next = before.new_version(2, &[3], ROWS);
    let gone = rows(0..ROWS / 2);
    keep(&mut client, &next, 2, &gone);
    next.append_all(&mut client);
    client.done(preparing(&next, 2));
    drop(client);
    let (prepared, used) = (tables(&node), used_bytes(&node));
    node.stop();
    let node = node_folder.start();
    assert_eq!((tables(&node), used_bytes(&node)), (prepared, used));
    let mut client = node.shm();
    client.done(commit(&next));
    let left = before.segments[2].stored_bytes() + next.segments[0].stored_bytes();
    assert_eq!((names(&node), used_bytes(&node)), (vec![(2, true)], empty + left));
    drop(client);
    let published = tables(&node);
    node.stop();
    let node = node_folder.start();
    assert_eq!((tables(&node), used_bytes(&node)), (published, empty + left));
    let mut client = node.tcp();
    assert_eq!(segments(&node, 2), [(1, 2, gone.count()), (2, 3, 0)]);
    is_read(&mut client, &before, &before, 2, &WithheldRows::NONE);
    is_read(&mut client, &next, &before, 2, &gone);
    client.done(Request::Drop { table: next.id() });
    assert_eq!((names(&node), used_bytes(&node)), (vec![], empty));
    drop(client);
    node.stop();
}

#[test]
fn an_aborted_new_version_frees_what_it_wrote_and_leaves_the_table_before_it_whole() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let before = loaded(&node);
    let (used, memory) = (used_bytes(&node), memory(&node));
    for prepared in [false, true] {
        let mut client = node.shm();
        let next = before.new_version(2 + u32::from(prepared), &[5], ROWS);
        for segment in 0..3 {
            keep(&mut client, &next, segment, &rows([segment]));
        }
        next.append_all(&mut client);
        if prepared {
            client.done(preparing(&next, 4));
        }
        client.done(Request::AbortLoad { load: next.id() });
        drop(client);
        settles(&node, used, memory);
        assert_eq!(segments(&node, 1), [(1, 0, 0), (1, 1, 0), (1, 2, 0)]);
        let mut client = node.shm();
        (0..3).for_each(|segment| is_read(&mut client, &before, &before, segment, &WithheldRows::NONE));
    }
    node.stop();
}

#[test]
fn of_all_that_would_take_a_tables_place_exactly_one_does() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let before = loaded(&node);
    let mut client = node.shm();
    let [first, second, third] = [2, 3, 4].map(|id| before.new_version(id, &[], ROWS));
    for next in [&first, &second] {
        keep(&mut client, next, 0, &rows([next.id().0]));
        client.done(preparing(next, 1));
    }
    keep(&mut client, &third, 1, &WithheldRows::NONE);
    client.done(commit(&second));
    for late in [commit(&first), preparing(&third, 1)] {
        let refusal = client.refused(late);
        assert_eq!(refusal.code, RefusalCode::Replaced, "{refusal:?}");
        assert!(refusal.text.contains("table 1") && refusal.text.contains("begin anew"), "{}", refusal.text);
    }
    client.done(Request::AbortLoad { load: first.id() });
    client.done(Request::AbortLoad { load: third.id() });
    assert_eq!(segments(&node, 3), [(1, 0, 1)]);
    is_read(&mut client, &second, &before, 0, &rows([3]));
    // A table that is loaded anew, or dropped, is no place to take either.
    let after = second.new_version(5, &[], ROWS);
    let again = second.new_version(6, &[], ROWS);
    for next in [&after, &again] {
        keep(&mut client, next, 0, &rows([3]));
        client.done(preparing(next, 1));
    }
    let loaded = Table::new(7, "t", 1, ROWS);
    loaded.load(&mut client);
    assert_eq!(client.refusal_code(commit(&after)), RefusalCode::Replaced);
    client.done(Request::Drop { table: loaded.id() });
    assert_eq!(client.refusal_code(commit(&again)), RefusalCode::Replaced);
    assert_eq!(names(&node), [(5, false), (6, false)]);
    drop(client);
    node.stop();
}

#[test]
fn a_node_that_does_not_decide_follows_and_never_goes_back() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let mut client = node.shm();
    let elsewhere = |mut table: Table| {
        table.definition.nodes = vec![NodeId(1), NodeId(3)];
        table
    };
    let before = elsewhere(Table::new(1, "t", 1, ROWS));
    before.load(&mut client);
    let [first, second] = [2, 3].map(|id| before.new_version(id, &[], ROWS));
    for next in [&first, &second] {
        keep(&mut client, next, 0, &WithheldRows::NONE);
        client.done(preparing(next, 1));
    }
    // Another node has decided for the first one, and after that for a new load, which was heard of
    // here before.
    let loaded = elsewhere(Table::new(4, "t", 1, ROWS));
    loaded.load(&mut client);
    client.done(commit(&first));
    assert_eq!(names(&node), [(3, false), (4, true)]);
    // And here for the second one, while the table was being dropped.
    client.done(Request::Drop { table: loaded.id() });
    client.done(commit(&second));
    assert_eq!(names(&node), [(3, true)]);
    drop(client);
    node.stop();
}

#[test]
fn a_maker_that_dies_before_its_new_version_is_prepared_leaves_nothing() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let before = loaded(&node);
    let (used, memory) = (used_bytes(&node), memory(&node));
    for (wire, id) in [(0, 2), (1, 3)] {
        let mut maker = if wire == 0 { node.shm() } else { node.tcp() };
        let next = before.new_version(id, &[5], ROWS);
        keep(&mut maker, &next, 0, &rows(0..700));
        keep(&mut maker, &next, 1, &WithheldRows::NONE);
        next.append_all(&mut maker);
        let (load, of, source) = (next.id(), before.id(), maker.target(0, 4096));
        maker.send(Request::Keep { load, of, segment: SegmentId(2), withheld_bytes: 400, source });
        drop(maker);
        settles(&node, used, memory);
        let mut client = node.shm();
        assert_eq!(client.refusal_code(preparing(&next, 3)), RefusalCode::NotFound);
        assert_eq!(names(&node), [(1, true)]);
        (0..3).for_each(|segment| is_read(&mut client, &before, &before, segment, &WithheldRows::NONE));
    }
    node.stop();
}

#[test]
fn what_cannot_be_kept_is_refused_by_name() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    loaded(&node);
    let (used, memory) = (used_bytes(&node), memory(&node));
    for wire in 0..2 {
        let mut client = if wire == 0 { node.shm() } else { node.tcp() };
        let mut is_refused = |(of, segment), bytes: &[u8], code, text: &str| {
            let refusal = keep_bytes(&mut client, 2, of, segment, bytes).unwrap_err();
            assert_eq!(refusal.code, code, "{refusal:?}");
            assert!(refusal.text.contains(text), "{text:?}: {}", refusal.text);
        };
        let outside = rows([1, ROWS]);
        let mut flipped = rows(0..100).as_bytes().to_vec();
        flipped[9] ^= 1;
        is_refused((8, 0), &[], RefusalCode::NotFound, "no table 8 is published");
        is_refused((1, 3), &[], RefusalCode::NotFound, "table 1 has no segment 3");
        is_refused((1, 0), b"garbage", RefusalCode::Malformed, "checksum");
        is_refused((1, 0), &flipped, RefusalCode::Malformed, "checksum");
        is_refused((1, 0), &vec![0; 1 << 20], RefusalCode::Malformed, "segment of 5000 rows");
        is_refused((1, 1), outside.as_bytes(), RefusalCode::Malformed, "segment 1 of table 1");
        let (load, of, segment) = (TableId(2), TableId(1), SegmentId(0));
        let ask = |withheld_bytes, source| Request::Keep { load, of, segment, withheld_bytes, source };
        let whole = rows(0..60).as_bytes().to_vec();
        client.region.copy_in(0, &whole).expect("it fits");
        let bytes = u32::try_from(whole.len()).expect("few");
        let short = ask(bytes, client.target(0, u64::from(bytes) - 1));
        assert_eq!(client.refusal_code(short), RefusalCode::Malformed, "more than the source has");
        let nowhere = ask(40, Target { key: 77, offset_bytes: 1 << 40, length_bytes: 40 });
        assert_eq!(client.refusal_code(nowhere), RefusalCode::Memory);
        drop(client);
        settles(&node, used, memory);
        assert_eq!(segments(&node, 1), [(1, 0, 0), (1, 1, 0), (1, 2, 0)]);
    }
    // A table that is only prepared has nothing to be kept yet.
    let mut client = node.shm();
    let prepared = Table::new(10, "other", 1, ROWS);
    prepared.append_all(&mut client);
    prepared.prepare(&mut client);
    assert_eq!(keep_bytes(&mut client, 2, 10, 0, &[]).unwrap_err().code, RefusalCode::NotFound);
    drop(client);
    node.stop();
}

#[test]
fn a_load_that_does_not_fit_what_it_keeps_is_not_prepared() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let before = loaded(&node);
    Table::new(9, "other", 1, ROWS).load(&mut node.shm());
    let mut client = node.shm();
    let next = before.new_version(2, &[1], ROWS);
    keep(&mut client, &next, 0, &WithheldRows::NONE);
    keep(&mut client, &next, 1, &WithheldRows::NONE);
    let twice = keep_bytes(&mut client, 2, 1, 0, &[]).unwrap_err();
    assert!(twice.code == RefusalCode::Malformed && twice.text.contains("before"), "{twice:?}");
    let taken = next.segments[0].append(&mut client).unwrap_err();
    assert!(taken.code == RefusalCode::Malformed && taken.text.contains("segment 1"), "{taken:?}");
    let published = keep_bytes(&mut client, 1, 9, 0, &[]).unwrap_err();
    assert_eq!(published.code, RefusalCode::Malformed, "table 1 is no load: {published:?}");
    type Change = fn(&mut Table);
    let changes: [(Change, RefusalCode, &str); 8] = [
        (|table| table.definition.succeeds = None, RefusalCode::Malformed, "expected no table"),
        (|table| table.definition.succeeds = Some(TableId(9)), RefusalCode::Replaced, "table 9"),
        (
            |table| table.definition.succeeds = Some(TableId(2)),
            RefusalCode::Malformed,
            "the table that it replaces is 2",
        ),
        (|table| table.definition.name = "u".to_owned(), RefusalCode::Replaced, "\"u\""),
        (|table| table.definition.columns[1].nullable = true, RefusalCode::Malformed, "other columns"),
        (|table| table.definition.partition_key = ColumnId(1), RefusalCode::Malformed, "other partition key"),
        (|table| table.definition.nodes.push(NodeId(4)), RefusalCode::Malformed, "other nodes"),
        (
            |table| table.definition.derived = vec![index("by text", 3)],
            RefusalCode::Malformed,
            "the indexed column is column 3 (derivation \"by text\")",
        ),
    ];
    for (change, code, text) in changes {
        let mut other = before.new_version(2, &[], ROWS);
        change(&mut other);
        let refusal = client.refused(preparing(&other, 2));
        assert_eq!(refusal.code, code, "{refusal:?}");
        assert!(refusal.text.contains(text), "{text:?}: {}", refusal.text);
    }
    client.done(preparing(&next, 2));
    client.done(preparing(&next, 2));
    drop(client);
    node.stop();
}

#[test]
fn rows_of_a_segment_that_a_load_has_written_can_be_withheld_until_it_is_published() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let before = loaded(&node);
    let mut client = node.shm();
    let next = before.new_version(2, &[7], ROWS);
    keep(&mut client, &next, 0, &WithheldRows::NONE);
    let early = keep_bytes(&mut client, 2, 2, 7, rows([3]).as_bytes()).unwrap_err();
    assert!(early.code == RefusalCode::NotFound && early.text.contains("no segment 7"), "{early:?}");
    next.segments[0].append(&mut client).expect("a segment of its own");
    let outside = keep_bytes(&mut client, 2, 2, 7, rows([ROWS]).as_bytes()).unwrap_err();
    assert_eq!(outside.code, RefusalCode::Malformed, "{outside:?}");
    assert_eq!(keep_bytes(&mut client, 2, 2, 7, rows([3]).as_bytes()), Ok(Answer::Done));
    assert_eq!(keep_bytes(&mut client, 2, 2, 7, rows([3, 9]).as_bytes()), Ok(Answer::Done));
    let back = keep_bytes(&mut client, 2, 2, 7, rows([9]).as_bytes()).unwrap_err();
    assert_eq!(back.code, RefusalCode::Malformed, "rows that are gone stay gone: {back:?}");
    let kept = keep_bytes(&mut client, 2, 2, 0, rows([3]).as_bytes()).unwrap_err();
    assert_eq!(kept.code, RefusalCode::NotFound, "a segment that is kept is another table's: {kept:?}");
    client.done(preparing(&next, 2));
    client.done(commit(&next));
    assert_eq!(segments(&node, 2), [(1, 0, 0), (2, 7, 2)]);
    drop(client);
    node.stop();
}

#[test]
fn a_program_is_held_against_the_columns_of_the_segment_that_it_is_to_scan() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let before = loaded(&node);
    let mut other = Table::new(9, "other", 1, ROWS);
    other.definition.columns[2].column_type = rackscan_format::schema::ColumnType::Int64;
    let mut client = node.shm();
    other.load(&mut client);
    // The second time the node knows the program.
    (0..2).for_each(|_| is_read(&mut client, &before, &before, 0, &WithheldRows::NONE));
    let refusal = process(&mut client, &before.program(500), (9, 0), &WithheldRows::NONE).unwrap_err();
    assert!(refusal.code == RefusalCode::Malformed && refusal.text.contains("text"), "{refusal:?}");
    drop(client);
    node.stop();
}

#[test]
fn nothing_of_an_aborted_load_is_taken_however_late_it_comes() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let before = loaded(&node);
    let mut client = node.shm();
    let (never, empty) = (before.new_version(2, &[4], ROWS), before.new_version(3, &[], ROWS));
    client.done(preparing(&empty, 0));
    for load in [never.id(), empty.id()] {
        client.done(Request::AbortLoad { load });
    }
    for late in [&never, &empty] {
        let refusal = client.refused(preparing(late, 0));
        assert!(refusal.code == RefusalCode::NotFound && refusal.text.contains("aborted"), "{refusal:?}");
    }
    let appended = never.segments[0].append(&mut client).unwrap_err();
    assert!(appended.code == RefusalCode::NotFound && appended.text.contains("aborted"), "{appended:?}");
    let kept = keep_bytes(&mut client, 2, 1, 0, &[]).unwrap_err();
    assert!(kept.code == RefusalCode::NotFound && kept.text.contains("aborted"), "{kept:?}");
    assert_eq!(names(&node), [(1, true)]);
    drop(client);
    node.stop();
}

#[test]
fn what_a_catalog_says_of_kept_segments_is_checked_at_the_start() {
    type Content = (Vec<u64>, u64, NodeCatalog);
    type Damage = fn(&mut Vec<NodeTable>);
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let before = loaded(&node);
    let mut client = node.shm();
    let next = before.new_version(2, &[], ROWS);
    keep(&mut client, &next, 0, &rows([1]));
    client.done(preparing(&next, 1));
    drop(client);
    node.stop();
    let file = node_folder.path("data").join("catalog");
    let whole = std::fs::read(&file).unwrap();
    let damages: [(Damage, &str); 5] = [
        (|tables| tables[1].segments[0].withheld = rows([ROWS]), "withheld rows"),
        (
            |tables| tables[1].segments[0].directory.chunks[0].pages[0].extent.offset_bytes += 4096,
            "with other pages",
        ),
        (|tables| tables[1].definition.succeeds = None, "succeeds no other"),
        (
            |tables| {
                let again = tables[1].segments[0].clone();
                tables[1].segments.push(again);
            },
            "twice",
        ),
        (|tables| tables[1].definition.derived = vec![index("by text", 3)], "the indexed column"),
    ];
    for (damage, text) in damages {
        let (labels, cluster, mut catalog): Content =
            codec::decode_envelope(Envelope::Catalog, "the catalog", &whole).unwrap();
        damage(&mut catalog.tables);
        std::fs::write(
            &file,
            codec::encode_envelope(Envelope::Catalog, &(labels, cluster, catalog)).unwrap(),
        )
        .unwrap();
        let error =
            node_folder.start_with(node_folder.config()).err().expect("it must not start").to_string();
        let names_it = error.contains("table 2") || error.contains("table \"t\"");
        assert!(error.contains(text) && names_it, "{text:?}: {error}");
    }
    std::fs::write(&file, &whole).unwrap();
    let node = node_folder.start();
    assert_eq!(segments(&node, 2), [(1, 0, 1)]);
    node.stop();
}

#[test]
fn a_new_version_derives_what_it_says_and_still_does_after_a_restart() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let mut before = Table::new(1, "t", 1, ROWS);
    before.definition.derived = vec![index("by value", 1)];
    before.load(&mut node.shm());
    let mut client = node.shm();
    let mut next = before.new_version(2, &[], ROWS);
    next.definition.derived = derived();
    keep(&mut client, &next, 0, &WithheldRows::NONE);
    client.done(preparing(&next, 1));
    client.done(preparing(&next, 1));
    let mut other = before.new_version(2, &[], ROWS);
    other.definition.derived = vec![index("by text", 2)];
    let refusal = client.refused(preparing(&other, 1));
    assert!(refusal.text.contains("another definition"), "{}", refusal.text);
    drop(client);
    let definitions = |node: &Running| tables(node).into_iter().map(|table| table.definition).collect();
    let both: Vec<TableDefinition> = definitions(&node);
    assert_eq!(both, [before.definition, next.definition.clone()]);
    node.stop();
    let node = node_folder.start();
    assert_eq!(definitions(&node), both, "prepared");
    node.shm().done(commit(&next));
    node.stop();
    let node = node_folder.start();
    assert_eq!((definitions(&node), names(&node)), (vec![next.definition], vec![(2, true)]));
    node.stop();
}

#[test]
fn a_catalog_of_before_tables_derived_anything_is_opened_and_replaced_by_the_next_change() {
    type Content<Tables> = (Vec<u64>, u64, Tables);
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let before = loaded(&node);
    let mut client = node.shm();
    let next = before.new_version(2, &[], ROWS);
    keep(&mut client, &next, 0, &rows([1]));
    client.done(preparing(&next, 1));
    drop(client);
    let there = tables(&node);
    node.stop();
    let file = node_folder.path("data").join("catalog");
    let whole = std::fs::read(&file).unwrap();
    let (labels, cluster, catalog): Content<NodeCatalog> =
        codec::decode_envelope(Envelope::Catalog, "the catalog", &whole).unwrap();
    let earlier =
        catalog.tables.into_iter().map(|NodeTable { definition: d, committed, segments, .. }| {
            let first = (d.id, d.name, d.columns, d.partition_key, d.sorted_by, d.page_size, d.segment_rows);
            (first, (d.nodes, d.rows, d.source, d.succeeds), committed, segments)
        });
    let earlier = (labels, cluster, (catalog.node, earlier.collect::<Vec<_>>()));
    std::fs::write(&file, codec::encode_envelope(Envelope::SucceedingCatalog, &earlier).unwrap()).unwrap();
    let node = node_folder.start();
    assert_eq!(tables(&node), there);
    node.shm().done(commit(&next));
    node.stop();
    let content: Result<Content<NodeCatalog>, _> =
        codec::decode_envelope(Envelope::Catalog, "the catalog", &std::fs::read(&file).unwrap());
    let [table] = &content.unwrap().2.tables[..] else { panic!("one table") };
    assert!(table.committed && table.definition == next.definition);
    let node = node_folder.start();
    assert_eq!((names(&node), segments(&node, 2)), (vec![(2, true)], vec![(1, 0, 1)]));
    node.stop();
}
