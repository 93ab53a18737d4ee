//! Promise: a place (a page or parity cell of a stripe set, at its fixed extent) accepts only its
//! original bytes, whichever client sends them; and a lost part of a table is adopted at its former
//! extents or not at all.
//!
//! Method: the test changes the device file directly, without the node.

use std::{fs::File, os::unix::fs::FileExt};

use rackscan_format::{
    ids::{DeviceId, TableId},
    message::{Adopt, Answer, Refusal, RefusalCode, Repair, Request, Verified, Verify},
    segment::Extent,
    stripe_set::{SetId, StreamSegment, TableMap},
};

use crate::{
    protected_tables_need_their_maps::{
        CELL, held, keep_map, map, parity, prepare, read_map, table, used_bytes,
    },
    support::{client::Client, node::NodeFolder, table::Table},
};

const SET: SetId = SetId { load: TableId(7), number: 0 };

/// Where places lie, and their bytes.
type Places = Vec<(Extent, Vec<u8>)>;

pub(crate) fn bytes(node_folder: &NodeFolder, extent: &Extent) -> Vec<u8> {
    let mut bytes = vec![0; extent.length_bytes as usize];
    let file = File::open(node_folder.device(extent.device.0.into())).expect("the device is there");
    file.read_exact_at(&mut bytes, extent.offset_bytes).expect("it is as long");
    bytes
}

fn spoil(node_folder: &NodeFolder, extent: &Extent, at: u64) {
    let file = File::options().write(true).open(node_folder.device(extent.device.0.into()));
    let file = file.expect("the device is there");
    let was = bytes(node_folder, extent)[usize::try_from(at).expect("small")];
    file.write_all_at(&[was ^ 9], extent.offset_bytes + at).expect("it can be written");
    file.sync_all().expect("it can be synced");
}

/// Loads table 7, whose other node nobody asks; says its map and what lies where.
fn loaded(node_folder: &NodeFolder, client: &mut Client) -> (Table, TableMap, Places) {
    let table = table(7);
    table.append_all(client);
    let cells = parity(client, 7);
    let segments = held(client, 7);
    let map = map(&table, segments, cells);
    assert_eq!(keep_map(client, 7, &map.encode_envelope().expect("it is right")), Ok(Answer::Done));
    assert_eq!(prepare(client, &table), Ok(Answer::Done));
    client.done(Request::CommitPublish { load: table.id() });
    let stream = &map.sets[0].streams[0];
    let extents = stream.extents().chain(stream.parity.iter().map(|cell| cell.extent));
    let places = extents.map(|extent| (extent, bytes(node_folder, &extent))).collect();
    (table, map, places)
}

fn verify(client: &mut Client, from: u64, bytes_max: u64) -> Result<Verified, Refusal> {
    match client.ask(Request::Verify(Verify { set: SET, from, bytes_max }))? {
        Answer::Verified(found) => Ok(found),
        other => panic!("{other:?}"),
    }
}

/// All corrupt places, asked for in pieces.
fn corrupt(client: &mut Client, count: u64, bytes_max: u64) -> Vec<u64> {
    let (mut corrupt, mut from, mut places) = (Vec::new(), 0, 0);
    loop {
        let found = verify(client, from, bytes_max).expect("the set is here");
        assert!(found.places >= 1 && (found.bytes <= bytes_max || found.places == 1), "{found:?}");
        corrupt.extend(&found.corrupt);
        places += found.places;
        match found.next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(places, count);
    corrupt
}

fn repair(client: &mut Client, places: &[u64], bytes: &[u8]) -> Result<Answer, Refusal> {
    client.region.copy_in(0, bytes).expect("it fits");
    let source = client.target(0, bytes.len() as u64);
    client.ask(Request::Repair(Repair { set: SET, places: places.to_vec(), source }))
}

#[test]
fn corrupt_places_are_named_and_take_nothing_but_their_bytes() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let (_, _, places) = loaded(&node_folder, &mut node.shm());
    let count = places.len() as u64;
    assert!(count > 8, "pages and two cells");
    let (page, other, cell) = (2_u64, 5_u64, count - 1);
    let of = |place: u64| &places[usize::try_from(place).expect("few")];
    for (wire, mut client) in node.both() {
        assert_eq!(corrupt(&mut client, count, 1 << 20), [0_u64; 0], "{wire}");
        spoil(&node_folder, &of(page).0, 100);
        spoil(&node_folder, &of(cell).0, u64::from(CELL) - 1);
        let spoiled: Vec<Vec<u8>> = places.iter().map(|(extent, _)| bytes(&node_folder, extent)).collect();
        for bytes_max in [0, 20_000, 1 << 20, u64::MAX] {
            assert_eq!(corrupt(&mut client, count, bytes_max), [page, cell], "{wire}");
        }
        let whole = |place: u64| of(place).1.clone();
        let flipped = |place: u64, at: usize| {
            let mut bytes = whole(place);
            bytes[at] ^= 1;
            bytes
        };
        let (long, short) = ([&whole(page)[..], &[0; 512]].concat(), whole(page)[512..].to_vec());
        let wrongs = [
            ("a corrupt page", vec![page], flipped(page, 700)),
            ("another header", vec![page], flipped(page, 20)),
            ("another page, which is right", vec![page], whole(other)),
            ("a page for a cell", vec![cell], whole(page)),
            ("another cell", vec![cell], whole(cell - 1)),
            ("a corrupt cell", vec![cell], flipped(cell, 0)),
            ("zeros", vec![page], vec![0; whole(page).len()]),
            ("too much", vec![page], long),
            ("too little", vec![page], short),
            ("nothing", vec![page], Vec::new()),
            ("behind the last one", vec![count], whole(cell)),
            ("far behind the last one", vec![u64::MAX], whole(cell)),
        ];
        for (what, to, with) in wrongs {
            let refused = repair(&mut client, &to, &with).expect_err(what);
            let is_it = matches!(refused.code, RefusalCode::Malformed | RefusalCode::Memory);
            assert!(is_it, "{wire}: {what}: {refused:?}");
            for ((extent, _), before) in places.iter().zip(&spoiled) {
                assert!(bytes(&node_folder, extent) == *before, "{wire}: {what} was written");
            }
        }
        let both = [whole(cell), whole(page)].concat();
        assert_eq!(repair(&mut client, &[cell, page], &both), Ok(Answer::Done), "{wire}");
        for (extent, before) in &places {
            assert!(bytes(&node_folder, extent) == *before, "{wire}");
        }
        assert_eq!(corrupt(&mut client, count, 4096), [0_u64; 0], "{wire}");
        assert_eq!(repair(&mut client, &[page], &whole(page)), Ok(Answer::Done), "{wire}: again");
    }
    let mut client = node.shm();
    assert_eq!(verify(&mut client, count, 1).expect("the end").places, 0);
    assert_eq!(verify(&mut client, count + 1, 1).unwrap_err().code, RefusalCode::Malformed);
    let unknown = Verify { set: SetId { number: 1, ..SET }, from: 0, bytes_max: 1 };
    assert_eq!(client.refusal_code(Request::Verify(unknown)), RefusalCode::NotFound);
    let source = client.target(0, 0);
    let unknown = Repair { set: SetId { load: TableId(8), ..SET }, places: vec![0], source };
    assert_eq!(client.refusal_code(Request::Repair(unknown)), RefusalCode::NotFound);
    node.stop();
}

#[test]
fn a_repaired_page_is_what_a_scan_finds_and_it_is_durable() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let mut client = node.shm();
    let (_, _, places) = loaded(&node_folder, &mut client);
    let all: Vec<u64> = (0..places.len() as u64).collect();
    for (extent, _) in &places {
        spoil(&node_folder, extent, 64);
    }
    assert_eq!(corrupt(&mut client, all.len() as u64, 1 << 20), all);
    for (place, (_, whole)) in (0..).zip(&places) {
        assert_eq!(repair(&mut client, &[place], whole), Ok(Answer::Done));
    }
    drop(client);
    node.stop();
    let node = node_folder.start();
    assert_eq!(corrupt(&mut node.shm(), all.len() as u64, 1 << 20), [0_u64; 0]);
    node.stop();
}

/// The folder and the devices go: a node does not start without the folder on devices that have its
/// label.
pub(crate) fn lose(node_folder: &NodeFolder) {
    std::fs::remove_dir_all(node_folder.path("data")).expect("it had a folder");
    (0..2).for_each(|device| std::fs::remove_file(node_folder.device(device)).expect("it had two devices"));
}

fn adopt(client: &mut Client, id: u32) -> Result<Answer, Refusal> {
    client.ask(Request::Adopt(Adopt { table: TableId(id) }))
}

#[test]
fn a_lost_part_is_adopted_where_it_lay_and_its_places_take_their_bytes() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let (_, map, places) = loaded(&node_folder, &mut node.shm());
    let (used, encoded) = (used_bytes(&node), map.encode_envelope().unwrap());
    let before = node.shm().catalog(1 << 20).tables;
    node.stop();
    lose(&node_folder);
    let node = node_folder.start();
    let mut client = node.shm();
    let refused = adopt(&mut client, 7).unwrap_err();
    assert!(refused.text.contains("the map of load 7 is not here"), "{refused:?}");
    assert_eq!(keep_map(&mut client, 7, &encoded), Ok(Answer::Done));
    assert_eq!(adopt(&mut client, 7), Ok(Answer::Done));
    assert_eq!(adopt(&mut client, 7), Ok(Answer::Done), "again");
    assert_eq!((used_bytes(&node), client.catalog(1 << 20).tables), (used, before.clone()));
    assert_eq!(read_map(&mut client, 7), Ok(encoded.clone()));
    drop(client);
    node.stop();
    let node = node_folder.start();
    let mut client = node.shm();
    assert_eq!((used_bytes(&node), client.catalog(1 << 20).tables), (used, before));
    let all: Vec<u64> = (0..places.len() as u64).collect();
    assert_eq!(corrupt(&mut client, all.len() as u64, 1 << 20), all);
    let whole: Vec<u8> = places.iter().flat_map(|(_, whole)| whole.clone()).collect();
    assert_eq!(repair(&mut client, &all, &whole), Ok(Answer::Done));
    assert_eq!(corrupt(&mut client, all.len() as u64, 1 << 20), [0_u64; 0]);
    drop(client);
    node.stop();
}

#[test]
fn a_part_is_not_adopted_where_something_else_lies_and_nothing_is_taken() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let (_, map, _) = loaded(&node_folder, &mut node.shm());
    node.stop();
    lose(&node_folder);
    let node = node_folder.start();
    let mut client = node.shm();
    // It lies where the lost one lay, as the first one on the device.
    let other = Table::new(9, "other", 1, 1000);
    other.load(&mut client);
    let used = used_bytes(&node);
    type Change = (&'static str, fn(&mut TableMap));
    let changes: [Change; 3] = [
        ("cannot be adopted at its former extents", |_| {}),
        ("cannot be adopted at its former extents", |map| {
            moved(map, |extent| extent.offset_bytes += 1 << 40)
        }),
        ("cannot be adopted at its former extents", |map| moved(map, |extent| extent.device = DeviceId(2))),
    ];
    for (says, change) in changes {
        let mut map = map.clone();
        change(&mut map);
        let mut client = node.shm();
        assert_eq!(keep_map(&mut client, 7, &map.encode_envelope().unwrap()), Ok(Answer::Done), "{says}");
        let refused = adopt(&mut client, 7).unwrap_err();
        assert!(refused.text.contains(says), "{refused:?}, expected {says}");
        assert_eq!(used_bytes(&node), used);
    }
    let mut named = map.clone();
    named.definition.name = "other".to_owned();
    assert_eq!(keep_map(&mut client, 7, &named.encode_envelope().unwrap()), Ok(Answer::Done));
    let refused = adopt(&mut client, 7).unwrap_err();
    assert!(refused.text.contains("table 9 is published here"), "{refused:?}");
    assert_eq!(used_bytes(&node), used);
    // When it is gone there is room.
    client.done(Request::Drop { table: other.id() });
    let empty = used_bytes(&node);
    let mut late = map.clone();
    late.sets[0].streams[0].parity[1].extent.offset_bytes += 1 << 40;
    assert_eq!(keep_map(&mut client, 7, &late.encode_envelope().unwrap()), Ok(Answer::Done));
    assert!(adopt(&mut client, 7).is_err(), "its last cell lies nowhere");
    assert_eq!(used_bytes(&node), empty, "the others do not stay");
    assert_eq!(keep_map(&mut client, 7, &map.encode_envelope().unwrap()), Ok(Answer::Done));
    assert_eq!(adopt(&mut client, 7), Ok(Answer::Done));
    drop(client);
    node.stop();
}

/// Changes where everything of the node lies.
fn moved(map: &mut TableMap, change: fn(&mut Extent)) {
    let directories = map.parts[0].segments.iter_mut().map(|segment| &mut segment.directory);
    for directory in directories {
        directory.chunks.iter_mut().flat_map(|chunk| &mut chunk.pages).for_each(|p| change(&mut p.extent));
    }
    let stream = &mut map.sets[0].streams[0];
    let parts = &map.parts[0].segments;
    stream.segments = parts.iter().map(|segment| StreamSegment::of(&segment.directory)).collect();
    stream.parity.iter_mut().for_each(|cell| change(&mut cell.extent));
}

#[test]
fn a_map_is_taken_again_only_for_a_table_whose_map_is_lost_and_only_if_it_is_its() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let (_, map, _) = loaded(&node_folder, &mut node.shm());
    let encoded = map.encode_envelope().unwrap();
    let not_lost = keep_map(&mut node.shm(), 7, &encoded);
    assert!(not_lost.is_err(), "it has it");
    node.stop();
    let file = node_folder.path("data").join("maps").join("00000007");
    std::fs::remove_file(&file).unwrap();
    let node = node_folder.start();
    let mut client = node.shm();
    let mut wrong = map.clone();
    wrong.sets[0].streams[0].parity[0].checksum ^= 1;
    let refused = keep_map(&mut client, 7, &wrong.encode_envelope().unwrap()).unwrap_err();
    assert!(refused.text.contains("other stripes than are here"), "{refused:?}");
    assert_eq!(keep_map(&mut client, 7, &encoded), Ok(Answer::Done));
    assert_eq!(read_map(&mut client, 7), Ok(encoded.clone()));
    drop(client);
    assert!(std::fs::read(file).unwrap() == encoded);
    node.stop();
}
