//! Promise: the scratch area never overlaps a page, is filled with written bytes, and is freed when
//! it is no longer configured.

use rackscan_format::message::ScratchArea;
use rackscan_storage_node::ByteSize;

use crate::support::{
    node::{NodeFolder, Running},
    table::Table,
};

const SCRATCH_BYTES: u64 = 8 << 20;

fn started(node_folder: &NodeFolder, scratch_bytes: Option<u64>) -> Running {
    let mut config = node_folder.config();
    config.scratch = scratch_bytes.map(ByteSize);
    node_folder.start_with(config).expect("the node starts")
}

fn area(node: &Running) -> Option<ScratchArea> {
    node.shm().status().devices[0].scratch
}

/// What lies in an area, past the node.
fn content(node_folder: &NodeFolder, area: ScratchArea) -> Vec<u8> {
    let bytes = std::fs::read(node_folder.device(0)).expect("the device is a file");
    let place = |bytes: u64| usize::try_from(bytes).expect("a small device");
    bytes[place(area.offset_bytes)..][..place(area.length_bytes)].to_vec()
}

#[test]
fn loads_and_restarts_leave_the_area_as_it_is() {
    let node_folder = NodeFolder::new();
    let node = started(&node_folder, Some(SCRATCH_BYTES));
    let found = area(&node).expect("one is configured");
    assert_eq!(found.length_bytes, SCRATCH_BYTES);
    let before = content(&node_folder, found);
    assert!(before.chunks(512).all(|sector| sector.iter().any(|byte| *byte != 0)), "a sector is all zeroes");
    Table::new(1, "t", 4, 60_000).load(&mut node.shm());
    node.stop();
    let node = started(&node_folder, Some(SCRATCH_BYTES));
    Table::new(2, "u", 2, 60_000).load(&mut node.shm());
    assert_eq!(area(&node), Some(found));
    assert!(content(&node_folder, found) == before, "a page lies in the scratch area");
    node.stop();
}

#[test]
fn an_area_that_is_not_configured_any_more_is_free_and_another_size_is_made_anew() {
    let node_folder = NodeFolder::new();
    let node = started(&node_folder, Some(SCRATCH_BYTES));
    let with = node.shm().status().devices[0].used_bytes;
    node.stop();
    let node = started(&node_folder, None);
    let status = node.shm().status();
    assert_eq!((status.devices[0].scratch, with - status.devices[0].used_bytes), (None, SCRATCH_BYTES));
    node.stop();
    let node = started(&node_folder, Some(SCRATCH_BYTES / 2));
    assert_eq!(area(&node).map(|area| area.length_bytes), Some(SCRATCH_BYTES / 2));
    assert_eq!(node.shm().status().devices[1].scratch, None, "it lies on the first device");
    node.stop();
}

#[test]
fn a_record_that_is_damaged_costs_a_new_filling_and_nothing_else() {
    let node_folder = NodeFolder::new();
    let node = started(&node_folder, Some(SCRATCH_BYTES));
    Table::new(1, "t", 1, 3000).load(&mut node.shm());
    node.stop();
    std::fs::write(node_folder.path("data/scratch"), b"nonsense").expect("the folder is writable");
    let node = started(&node_folder, Some(SCRATCH_BYTES));
    assert_eq!(area(&node).map(|area| area.length_bytes), Some(SCRATCH_BYTES));
    assert_eq!(node.shm().catalog(1 << 20).tables.len(), 1);
    node.stop();
}

#[test]
fn an_area_for_which_there_is_no_room_stops_the_start_with_numbers() {
    let node_folder = NodeFolder::new();
    let mut config = node_folder.config();
    config.scratch = Some(ByteSize(32 << 20));
    let error = node_folder.start_with(config).err().expect("it must not start").to_string();
    assert!(error.contains("33554432 bytes") && error.contains("device0"), "{error}");
}
