//! Promise: disk space that nothing on a node needs any more returns to the filesystem while the
//! node runs, and all other data stays.

use std::{
    os::unix::fs::MetadataExt,
    time::{Duration, Instant},
};

use rackscan_format::{ids::SegmentId, message::Request};
use rackscan_storage_node::Config;

use crate::support::{
    client::Client,
    node::{NodeFolder, Running},
    table::Table,
};

const TIME_MAX: Duration = Duration::from_secs(60);
/// Blocks that filesystems take for the places of others.
const OTHER_BYTES: u64 = 64 << 10;

fn sparse(node_folder: &NodeFolder) -> Config {
    let mut config = node_folder.config();
    config.devices.iter_mut().for_each(|device| device.reserve = false);
    config
}

fn start(node_folder: &NodeFolder) -> Running {
    node_folder.start_with(sparse(node_folder)).expect("the node starts")
}

/// Disk space that the device files take.
fn taken_bytes(node_folder: &NodeFolder) -> u64 {
    let file = |device| std::fs::metadata(node_folder.device(device)).expect("a device file");
    (0..2).map(|device| file(device).blocks() * 512).sum()
}

fn returns_to(node_folder: &NodeFolder, bytes: u64) {
    let deadline = Instant::now() + TIME_MAX;
    while taken_bytes(node_folder) > bytes + OTHER_BYTES {
        assert!(Instant::now() < deadline, "{} bytes taken, expected {bytes}", taken_bytes(node_folder));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether all pages of a table are what was loaded.
fn is_whole(client: &mut Client, table: &Table) {
    for (number, segment) in (0..).zip(&table.segments) {
        let target = client.target(0, segment.stored_bytes());
        let pages = segment.wanted();
        let fetch = Request::Fetch { table: table.id(), segment: SegmentId(number), pages, target };
        client.ask(fetch).expect("the pages are there");
        assert_eq!(client.copy_out(0, segment.stored_bytes()), segment.pages.concat());
    }
}

#[test]
fn aborted_loads_lost_clients_and_dropped_tables_return_their_space_and_other_tables_keep_theirs() {
    let node_folder = NodeFolder::new();
    let node = start(&node_folder);
    let mut client = node.shm();
    let kept = Table::new(1, "kept", 1, 60_000);
    kept.load(&mut client);
    let before = taken_bytes(&node_folder);
    let other = |id| Table::new(id, "other", 2, 60_000);
    let needed =
        || assert!(taken_bytes(&node_folder) > before + 4 * OTHER_BYTES, "the load takes disk space");

    other(2).append_all(&mut client);
    needed();
    client.done(Request::AbortLoad { load: other(2).id() });
    returns_to(&node_folder, before);

    let mut lost = node.tcp();
    other(3).append_all(&mut lost);
    needed();
    drop(lost);
    returns_to(&node_folder, before);

    other(4).append_all(&mut client);
    other(4).prepare(&mut client);
    client.done(Request::AbortLoad { load: other(4).id() });
    returns_to(&node_folder, before);

    other(5).load(&mut client);
    needed();
    // In its place, with what it returned.
    other(6).load(&mut client);
    client.done(Request::Drop { table: other(6).id() });
    returns_to(&node_folder, before);

    is_whole(&mut client, &kept);
    drop(client);
    node.stop();
    let node = start(&node_folder);
    is_whole(&mut node.shm(), &kept);
    node.stop();
}

#[test]
fn a_node_that_stops_returns_nothing_of_what_its_tables_have() {
    let node_folder = NodeFolder::new();
    let table = Table::new(1, "t", 2, 60_000);
    for _ in 0..3 {
        let node = start(&node_folder);
        let mut client = node.shm();
        if client.catalog(1 << 20).tables.is_empty() {
            table.load(&mut client);
        }
        // What a load has beside it is gone with the node.
        Table::new(9, "other", 1, 60_000).append_all(&mut client);
        node.stop();
        let node = start(&node_folder);
        is_whole(&mut node.shm(), &table);
        node.stop();
    }
}
