//! Tests that stripes write to lost places of a node, and nowhere else.

use std::collections::BTreeMap;

use rackscan_format::{
    ids::{DeviceId, NodeId, SegmentId},
    label::DATA_OFFSET_BYTES,
    message::Verified,
    schema::{ColumnDefinition, ColumnType, Protection, TableDefinition},
    segment::{ChunkDirectory, PageEntry, SegmentDirectory},
    stripe_set::ParityCell,
    zone::Zone,
};

use super::*;
use crate::{
    config::{ByteSize, ClusterId, Config, DeviceConfig},
    store::{HeldSet, Published, TableSegment, protected::TableMapState, table::Table},
};

pub(crate) const CELL: u32 = 8192;
pub(crate) const TABLE: TableId = TableId(7);
pub(crate) const SET: SetId = SetId { load: TABLE, number: 0 };
/// The checksum of the cell of parity.
pub(crate) const PARITY: u32 = 0x0bad_cafe;

/// A store over one device of 16 MiB, and the folder that it is in.
pub(crate) fn opened() -> (Arc<Store>, tempfile::TempDir) {
    // Beside the program, because the folder for temporary files may be one where direct IO is
    // refused.
    let program = std::env::current_exe().unwrap();
    let folder = tempfile::TempDir::new_in(program.parent().unwrap()).unwrap();
    let path = |name: &str| folder.path().join(name);
    let device = DeviceConfig { path: path("device0"), size: Some(ByteSize(16 << 20)), reserve: false };
    let config = Config::new(NodeId(3), ClusterId(99), path("data"), device, path("key"));
    std::fs::create_dir_all(&config.data_dir).unwrap();
    let (store, _) = Store::open(&config, 1 << 20, Arc::default()).unwrap();
    (Arc::new(store), folder)
}

pub(crate) fn extent(number: u64, length_bytes: u32) -> Extent {
    Extent { device: DeviceId(0), offset_bytes: DATA_OFFSET_BYTES + number * 4096, length_bytes }
}

/// Publishes a table with three neighbouring pages (4, 8 and 4 KiB), another page of 4 KiB apart
/// from them, and a cell of parity behind that.
pub(crate) fn publish(store: &Store, is_adopted: bool) -> Arc<HeldSet> {
    let page = |extent| PageEntry { extent, first_row: 0, rows: 1, zone: Zone::default() };
    let extents = [extent(0, 4096), extent(1, 8192), extent(3, 4096), extent(8, 4096)];
    let chunks = vec![ChunkDirectory { pages: extents.map(page).into() }];
    let directory = SegmentDirectory { table: TABLE, segment: SegmentId(0), rows: 1, chunks };
    let cells = vec![ParityCell { extent: extent(9, CELL), checksum: PARITY }];
    let lies = [&extents[..], &[extent(9, CELL)]].concat();
    assert!(store.space.claim_all(&lies));
    let taken = |directory| Arc::new(StoredSegment::recovered(directory, &store.space).unwrap());
    let parity = vec![taken(parity_directory(TABLE, 0, &[extent(9, CELL)]))];
    let segment = taken(directory);
    let set = Arc::new(HeldSet::new(SET, vec![Arc::clone(&segment)], cells, parity));
    if is_adopted {
        set.mark_adopted(&store.space).unwrap();
    }
    let column = ColumnDefinition { name: "a".to_owned(), column_type: ColumnType::Int64, nullable: false };
    let definition = TableDefinition {
        id: TABLE,
        name: "t".to_owned(),
        columns: vec![column],
        partition_key: rackscan_format::ids::ColumnId(0),
        sorted_by: None,
        page_size: 4096,
        segment_rows: 2048,
        nodes: vec![NodeId(3)],
        rows: 1,
        source: "a test".to_owned(),
        succeeds: None,
        derived: Vec::new(),
        protection: Some(Protection::Xor),
    };
    let table = Table {
        definition: Arc::new(definition),
        committed: true,
        segments: BTreeMap::from([(SegmentId(0), TableSegment::written(segment))]),
        sets: vec![Arc::clone(&set)],
        map: TableMapState::NotProtected,
    };
    store.publish(Published::new(NodeId(3), [(TABLE, Arc::new(table))].into(), 1).unwrap());
    set
}

fn claim(store: &Store, kept: &[Vec<Extent>]) -> Result<Arc<PlacesClaim>, String> {
    store.claim_places((TABLE, SET), kept).map_err(|refusal| refusal.text)
}

fn verified(places: u64, corrupt: &[u64]) -> Verified {
    Verified { next: None, places, bytes: 0, corrupt: corrupt.to_vec() }
}

#[test]
fn cells_go_to_places_of_a_set_that_is_lost_and_nowhere_else() {
    let (store, _folder) = opened();
    publish(&store, true);
    for right in [
        vec![vec![extent(0, 4096), extent(1, 4096)], vec![extent(2, 8192)]],
        vec![vec![extent(0, 16_384)]],
        vec![vec![extent(3, 4096), extent(8, 4096)], vec![]],
        vec![vec![extent(9, CELL)], vec![extent(8, 4096)]],
    ] {
        claim(&store, &right).unwrap();
    }
    for wrong in [
        vec![vec![extent(3, 8192)]],
        vec![vec![extent(4, 4096)]],
        vec![vec![extent(7, 8192)]],
        vec![vec![extent(11, 4096)]],
        vec![vec![extent(9, 4096)]],
        vec![vec![extent(8, 12_288)]],
        vec![vec![extent(8, 4096), extent(9, CELL)]],
        vec![vec![Extent { device: DeviceId(1), ..extent(0, 4096) }]],
        vec![vec![Extent { offset_bytes: 0, ..extent(0, 4096) }]],
        vec![vec![extent(0, 4096)], vec![extent(0, 4096)]],
    ] {
        let refused = claim(&store, &wrong).unwrap_err();
        assert!(refused.contains("a stripe is to write"), "{wrong:?}: {refused}");
    }
    for (table, set) in [(TableId(8), SET), (TABLE, SetId { number: 1, ..SET })] {
        let refused = store.claim_places((table, set), &[]).unwrap_err();
        assert_eq!(refused.code, RefusalCode::NotFound, "{refused:?}");
    }
}

#[test]
fn a_place_is_written_by_one_stripe_at_a_time_and_its_room_stays_until_that_has_ended() {
    let (store, _folder) = opened();
    let set = publish(&store, true);
    let used = store.space.used_bytes(0);
    let first = claim(&store, &[vec![extent(1, 8192)]]).unwrap();
    let busy = store.claim_places((TABLE, SET), &[vec![extent(0, 8192)]]).unwrap_err();
    assert_eq!(busy.code, RefusalCode::Busy, "{busy:?}");
    let other = claim(&store, &[vec![extent(0, 4096)]]).unwrap();
    drop(other);
    // The table is dropped.
    drop(set);
    store.publish(Published::new(NodeId(3), BTreeMap::new(), 2).unwrap());
    assert_eq!(store.space.used_bytes(0), used);
    drop(first);
    assert!(store.space.used_bytes(0) < used);
}

#[test]
fn what_was_not_adopted_or_was_found_whole_takes_no_stripes() {
    let (store, _folder) = opened();
    publish(&store, false);
    let refused = claim(&store, &[vec![extent(0, 4096)]]).unwrap_err();
    assert!(refused.contains("take only their bytes"), "{refused}");
    let (store, _folder) = opened();
    let set = publish(&store, true);
    let is_lost = || claim(&store, &[vec![extent(0, 4096)]]).is_ok();
    assert_eq!(set.places(), 5);
    let pieces = |pieces: &[(u64, u64, &[u64])]| {
        pieces.iter().for_each(|(from, places, corrupt)| set.verified(*from, &verified(*places, corrupt)));
    };
    pieces(&[(0, 5, &[2])]);
    assert!(is_lost(), "one is corrupt");
    pieces(&[(0, 2, &[]), (3, 2, &[])]);
    assert!(is_lost(), "one was not looked at");
    pieces(&[(0, 3, &[])]);
    assert!(is_lost(), "a stripe begins");
    pieces(&[(3, 2, &[])]);
    assert!(is_lost(), "what was whole before it may not be any more");
    let under_way = claim(&store, &[vec![extent(0, 4096)]]).unwrap();
    pieces(&[(0, 5, &[])]);
    drop(under_way);
    assert!(is_lost(), "a stripe was under way");
    pieces(&[(0, 2, &[]), (2, 2, &[4]), (0, 3, &[]), (3, 2, &[])]);
    assert!(!is_lost(), "all of it is whole");
    pieces(&[(0, 5, &[0])]);
    assert!(!is_lost(), "and corrupt, not lost, from then on");
}

#[test]
fn rebuilt_parity_must_be_what_the_catalog_says() {
    let (store, _folder) = opened();
    publish(&store, true);
    let claim = claim(&store, &[vec![extent(0, 4096)], vec![extent(9, CELL)]]).unwrap();
    claim.check(&[1, PARITY]).unwrap();
    let refused = claim.check(&[1, PARITY ^ 1]).unwrap_err().text;
    assert!(refused.contains("0badcaff, expected 0badcafe"), "{refused}");
}
