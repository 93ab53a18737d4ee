//! Tests that parity cells are written once, by one stripe at a time, and for the load for which
//! they were reserved.

use rackscan_format::message::RefusalCode;

use super::*;
use crate::store::{
    ConnectionId,
    allocate::{Space, StoredSegment},
    free_extents::DeviceCapacity,
    protected::{parity_directory, parity_lengths},
};

const LOAD: TableId = TableId(9);
const LOADER: ConnectionId = ConnectionId(1);
const CELL: u32 = 8192;

fn room() -> Arc<Space> {
    Arc::new(Space::new(
        vec![DeviceCapacity { path: "d".into(), capacity_bytes: 2 << 20, is_sparse: true }],
        1 << 20,
        Arc::default(),
    ))
}

fn reserve(loads: &mut Loads, space: &Arc<Space>, first_cell: u32, cells: usize) -> Result<(), Refusal> {
    loads.begin(LOAD, LOADER).unwrap();
    let directory = parity_directory(LOAD, first_cell, &parity_lengths(cells, CELL));
    let stored = Arc::new(StoredSegment::allocate(directory, space).unwrap());
    loads.end_parity(LOAD, (0, first_cell), ParityPiece::reserved(stored, cells))
}

fn cells(first_cell: u32, cells: usize) -> ParityCells {
    ParityCells { load: LOAD, set: 0, first_cell, cells }
}

fn claim(loads: &mut Loads, wanted: ParityCells) -> Result<(Vec<Extent>, Arc<ParityClaim>), String> {
    loads.claim_parity(&wanted, CELL.into()).map_err(|refusal| refusal.text)
}

fn refused(loads: &mut Loads, wanted: ParityCells) -> String {
    claim(loads, wanted).map(|(extents, _)| extents).unwrap_err()
}

#[test]
fn a_cell_is_written_once_and_by_one_stripe_at_a_time() {
    let (mut loads, space) = (Loads::default(), room());
    reserve(&mut loads, &space, 0, 4).unwrap();
    let (extents, first) = claim(&mut loads, cells(1, 2)).unwrap();
    let next = refused(&mut loads, cells(2, 2));
    assert!(next.contains("cell 2 of parity of set 9.0 is being written by another stripe"), "{next}");
    // Nothing of it was taken: the cell behind is free, and so is the one before.
    let (_, others) = claim(&mut loads, cells(3, 1)).unwrap();
    loads.parity_stored(&cells(3, 1), &others, &[33]).unwrap();
    drop(first);
    let (again, second) = claim(&mut loads, cells(1, 2)).unwrap();
    assert_eq!(again, extents, "the stripe was given up and has let go");
    loads.parity_stored(&cells(1, 2), &second, &[11, 22]).unwrap();
    drop(second);
    let before = refused(&mut loads, cells(0, 2));
    assert!(before.contains("cell 1 of parity of set 9.0 has been written before"), "{before}");
    assert!(claim(&mut loads, cells(0, 1)).is_ok());
}

#[test]
fn neighbours_are_found_in_whichever_piece_they_were_reserved_and_nothing_else_is() {
    let (mut loads, space) = (Loads::default(), room());
    reserve(&mut loads, &space, 4, 2).unwrap();
    reserve(&mut loads, &space, 6, 3).unwrap();
    let (extents, _held) = claim(&mut loads, cells(5, 2)).unwrap();
    assert_eq!(extents.len(), 2);
    for (first, count, missing) in [(3, 1, 3), (8, 2, 9), (u32::MAX, 2, u64::from(u32::MAX))] {
        let text = refused(&mut loads, cells(first, count));
        assert!(
            text.contains(&format!("cell {missing} of parity of set 9.0 is not reserved here")),
            "{text}"
        );
    }
    assert!(refused(&mut loads, ParityCells { set: 1, ..cells(4, 1) }).contains("is not reserved here"));
    assert!(
        refused(&mut loads, ParityCells { load: TableId(8), ..cells(4, 1) }).contains("load 8 was aborted")
    );
    let smaller = loads.claim_parity(&cells(4, 1), 4096).map(|(extents, _)| extents).unwrap_err();
    assert!(smaller.text.contains("has 8192 bytes here, the stripe's cells have 4096"), "{smaller:?}");
    for (first, count) in [(4, 1), (5, 1), (3, 2), (8, 1), (0, 20)] {
        let twice = reserve(&mut loads, &space, first, count).unwrap_err();
        assert!(twice.text.contains("has arrived before"), "{first}: {twice:?}");
    }
    assert_eq!(reserve(&mut loads, &space, u32::MAX, 2).unwrap_err().code, RefusalCode::Malformed);
    reserve(&mut loads, &space, 0, 4).unwrap();
}

#[test]
fn what_a_stripe_has_written_counts_only_for_the_load_for_which_it_began() {
    let (mut loads, space) = (Loads::default(), room());
    let empty = space.used_bytes(0);
    reserve(&mut loads, &space, 0, 2).unwrap();
    let (extents, stripe) = claim(&mut loads, cells(0, 2)).unwrap();
    // The loader's connection is gone, another one loads under the same number.
    loads.connection_closed(LOADER);
    assert!(space.used_bytes(0) > empty, "something may still be written there");
    assert_eq!(loads.parity_stored(&cells(0, 2), &stripe, &[1, 2]).unwrap_err().code, RefusalCode::NotFound);
    reserve(&mut loads, &space, 0, 2).unwrap();
    assert_eq!(loads.parity_stored(&cells(0, 2), &stripe, &[1, 2]).unwrap_err().code, RefusalCode::NotFound);
    let (anew, other) = claim(&mut loads, cells(0, 2)).unwrap();
    assert!(anew.iter().all(|extent| !extents.contains(extent)));
    drop(stripe);
    loads.parity_stored(&cells(0, 2), &other, &[1, 2]).unwrap();
    drop(other);
    loads.abort(LOAD);
    assert_eq!(space.used_bytes(0), empty);
    assert!(refused(&mut loads, cells(0, 1)).contains("was aborted"));
}
