//! Tests that relayed cells are read and written only where they may be, and that the node's store
//! is informed of the result.

use rackscan_format::{ids::DeviceId, message::ReserveParity};
use rackscan_stripe::Column;

use super::*;
use crate::{
    ids::ConnectionId,
    store::relayed_tests::{CELL, PARITY, SET, TABLE, extent, opened, publish},
};

const LOAD: TableId = TableId(9);
const CELLS: [Cell; 3] = [cell(0), cell(1), cell(2)];

const fn cell(slot: u8) -> Cell {
    Cell { column: Column(0), slot }
}

const fn name(stripe: u64) -> StripeName {
    StripeName { session: 1, stripe }
}

/// Begins a stripe of which the node holds and keeps so many cells.
fn begin(
    cells: &mut CellStore,
    stripe: u64,
    to: &RelayedTo,
    counts: (usize, usize),
) -> Result<Places, String> {
    let (what, (held, kept)) = (to.encode().unwrap(), counts);
    let (held, kept) = (&CELLS[..held], &CELLS[held..held + kept]);
    let beginning = Beginning { name: name(stripe), what: &what, held, kept, cell_bytes: CELL.into() };
    cells.begin(&beginning).map_err(|refusal| refusal.0)
}

fn stored(cells: &mut CellStore, stripe: u64, found: &[(Cell, u32)]) -> Result<(), String> {
    let found: Vec<StoredCell> =
        found.iter().map(|(cell, checksum)| StoredCell { cell: *cell, checksum: *checksum }).collect();
    cells.stored(name(stripe), &found).map_err(|refusal| refusal.0)
}

fn reserve(store: &store::Store, cells: u32) -> Vec<Extent> {
    let request = ReserveParity { load: LOAD, set: 0, first_cell: 0, cells, cell_bytes: CELL };
    store.reserve_parity(&request, ConnectionId(1)).unwrap()
}

fn parity(first_cell: u32, held: Vec<Vec<Extent>>) -> RelayedTo {
    RelayedTo::Parity { load: LOAD, set: 0, first_cell, held }
}

fn rebuild(held: Vec<Vec<Extent>>, kept: Vec<Vec<Extent>>) -> RelayedTo {
    RelayedTo::Rebuild { table: TABLE, set: SET, held, kept }
}

fn starts(places: &[Vec<Place>]) -> Vec<Vec<(u64, u64)>> {
    let of =
        |places: &Vec<Place>| places.iter().map(|place| (place.offset_bytes, place.length_bytes)).collect();
    places.iter().map(of).collect()
}

#[test]
fn cells_go_where_the_client_says_and_nowhere_else() {
    let (offset_bytes, length_bytes) = (1 << 20, 32768);
    let (store, _folder) = opened();
    let mut cells = CellStore::new(Arc::clone(&store), Some(ScratchArea { offset_bytes, length_bytes }));
    let nowhere = begin(&mut cells, 0, &RelayedTo::Memory, (0, 2)).unwrap();
    assert_eq!(nowhere.kept, [vec![], vec![]]);
    let places = begin(&mut cells, 0, &RelayedTo::Scratch, (0, 2)).unwrap();
    assert_eq!(starts(&places.kept), [[(offset_bytes, 8192)], [(offset_bytes + 8192, 8192)]]);
    for wrong in [&b""[..], &[77]] {
        let beginning = Beginning { name: name(1), what: wrong, held: &[], kept: &CELLS, cell_bytes: 8192 };
        assert!(cells.begin(&beginning).is_err());
    }
    let refused = begin(&mut cells, 1, &RelayedTo::Scratch, (1, 1)).unwrap_err();
    assert!(refused.contains("the extents of the cells that this node holds"), "{refused}");
    let refused = begin(&mut CellStore::new(store, None), 0, &RelayedTo::Scratch, (0, 2)).unwrap_err();
    assert!(refused.contains("scratch ="), "{refused}");
}

#[test]
fn the_area_is_free_again_when_a_stripe_has_ended() {
    let area = ScratchArea { offset_bytes: 0, length_bytes: 16384 };
    let (store, _folder) = opened();
    let mut cells = CellStore::new(store, Some(area));
    for round in 0..4 {
        begin(&mut cells, round, &RelayedTo::Scratch, (0, 2)).unwrap();
        let refused = begin(&mut cells, 9, &RelayedTo::Scratch, (0, 2));
        assert!(refused.is_err(), "the first stripe lies there");
        match round % 2 {
            0 => stored(&mut cells, round, &[]).unwrap(),
            _ => cells.given_up(name(round)),
        }
    }
}

#[test]
fn parity_goes_into_the_cells_that_were_reserved_and_is_known_when_it_is_stored() {
    let (store, _folder) = opened();
    let extents = reserve(&store, 3);
    let mut cells = CellStore::new(Arc::clone(&store), None);
    // The first held cell in two parts, the second one behind its stream's end.
    let held = vec![vec![extent(700, 4096), extent(3, 4096)], vec![]];
    let places = begin(&mut cells, 0, &parity(2, held.clone()), (2, 1)).unwrap();
    let [first, second] = [700, 3].map(|number| (extent(number, 4096).offset_bytes, 4096));
    assert_eq!(starts(&places.held), [vec![first, second], vec![]]);
    assert_eq!(starts(&places.kept), [[(extents[2].offset_bytes, u64::from(CELL))]]);
    assert!(places.guard.is_some());
    let busy = begin(&mut cells, 1, &parity(2, held.clone()), (2, 1)).unwrap_err();
    assert!(busy.contains("cell 2 of parity of set 9.0 is being written by another stripe"), "{busy}");
    // Given up, but the devices are not done with it.
    cells.given_up(name(0));
    assert!(begin(&mut cells, 1, &parity(2, held.clone()), (2, 1)).is_err());
    drop(places);
    let places = begin(&mut cells, 1, &parity(2, held.clone()), (2, 1)).unwrap();
    drop(places);
    stored(&mut cells, 1, &[(cell(2), 5)]).unwrap();
    let again = begin(&mut cells, 2, &parity(2, held), (2, 1)).unwrap_err();
    assert!(again.contains("has been written before"), "{again}");
    // A stripe of which the node keeps nothing needs no room.
    let places = begin(&mut cells, 3, &parity(77, vec![vec![extent(5, 4096)]]), (1, 0)).unwrap();
    assert!(places.kept.is_empty() && places.guard.is_none());
    stored(&mut cells, 3, &[]).unwrap();
}

#[test]
fn parity_of_a_load_that_was_forgotten_meanwhile_is_refused_and_its_room_free_when_nothing_is_written() {
    let (store, _folder) = opened();
    let used = || store.device_statuses()[0].used_bytes;
    let empty = used();
    reserve(&store, 2);
    let mut cells = CellStore::new(Arc::clone(&store), None);
    let places = begin(&mut cells, 0, &parity(0, vec![]), (0, 2)).unwrap();
    store.connection_closed(ConnectionId(1));
    let late = stored(&mut cells, 0, &[(cell(0), 1), (cell(1), 2)]).unwrap_err();
    assert!(late.contains("load 9 was aborted or its connection was lost"), "{late}");
    assert!(used() > empty);
    drop(places);
    assert_eq!(used(), empty);
    assert!(begin(&mut cells, 1, &parity(0, vec![]), (0, 2)).unwrap_err().contains("load 9"));
}

#[test]
fn cells_that_cannot_lie_where_they_are_said_to_are_refused() {
    let (store, _folder) = opened();
    reserve(&store, 3);
    let mut cells = CellStore::new(store, None);
    let beyond = Extent { offset_bytes: (16 << 20) - 4096, ..extent(0, CELL) };
    let elsewhere = Extent { device: DeviceId(1), ..extent(0, 4096) };
    for (held, counts, says) in [
        (vec![], (1, 1), "extents of 0 cells of a stripe of which this node holds 1"),
        (vec![vec![], vec![]], (1, 1), "extents of 2 cells"),
        (vec![vec![beyond]], (1, 1), "for a cell that this node holds; the device has"),
        (vec![vec![elsewhere]], (1, 1), "of device 1 for a cell that this node holds; the device has 0"),
        (vec![vec![extent(0, CELL), extent(9, 4096)]], (1, 1), "extents of 12288 bytes for a cell of 8192"),
    ] {
        let refused = begin(&mut cells, 0, &parity(0, held), counts).unwrap_err();
        assert!(refused.contains(says), "{refused}, expected {says}");
    }
    begin(&mut cells, 0, &parity(0, vec![vec![]]), (1, 1)).unwrap();
    let wrong = stored(&mut cells, 0, &[(cell(0), 1)]).unwrap_err();
    assert!(wrong.contains("1 cells were stored, expected the 1"), "another one: {wrong}");
}

#[test]
fn lost_places_are_rebuilt_and_those_that_may_be_whole_are_not_touched() {
    let (store, _folder) = opened();
    let set = publish(&store, true);
    let mut cells = CellStore::new(Arc::clone(&store), None);
    let kept = vec![vec![extent(0, 4096)], vec![extent(9, CELL)]];
    let to = rebuild(vec![vec![extent(3, 4096)]], kept.clone());
    let places = begin(&mut cells, 0, &to, (1, 2)).unwrap();
    assert_eq!(starts(&places.kept)[0], [(extent(0, 0).offset_bytes, 4096)], "shorter than a cell");
    assert!(places.guard.is_some());
    assert!(begin(&mut cells, 1, &to, (1, 2)).unwrap_err().contains("being written by another stripe"));
    let wrong = stored(&mut cells, 0, &[(cell(1), 8), (cell(2), PARITY ^ 1)]).unwrap_err();
    assert!(wrong.contains("is not its parity"), "{wrong}");
    drop(places);
    begin(&mut cells, 1, &to, (1, 2)).unwrap();
    stored(&mut cells, 1, &[(cell(2), PARITY), (cell(1), 8)]).unwrap();
    let refused = begin(&mut cells, 2, &rebuild(vec![], vec![vec![extent(4, 4096)]]), (0, 1)).unwrap_err();
    assert!(refused.contains("elsewhere than to places of set 7.0"), "{refused}");
    let refused = begin(&mut cells, 2, &rebuild(vec![], kept.clone()), (0, 1)).unwrap_err();
    assert!(refused.contains("extents of 2 cells of a stripe of which this node keeps 1"), "{refused}");
    set.verified(0, &rackscan_format::message::Verified { next: None, places: 5, bytes: 0, corrupt: vec![] });
    let refused = begin(&mut cells, 2, &to, (1, 2)).unwrap_err();
    assert!(refused.contains("its places take only their bytes"), "{refused}");
}
