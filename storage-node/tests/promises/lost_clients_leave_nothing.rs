//! Promise: a client that vanishes in the middle of its requests leaves nothing behind, and does
//! not affect other clients.

use std::time::{Duration, Instant};

use rackscan_format::{
    ids::SegmentId,
    message::{NodeStatus, RefusalCode, Request},
};

use crate::support::{
    client::Client,
    node::{BRIDGES, NodeFolder, Running},
    table::Table,
};

/// The state of a node that nobody else is connected to: clients of before have been let go.
fn alone(node: &Running) -> NodeStatus {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = node.shm().status();
        if found.counters.connections_open == 1 {
            return found;
        }
        assert!(Instant::now() < deadline, "somebody stays connected: {found:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the node is as it was.
fn settles(node: &Running, expected: &NodeStatus) {
    // The scans that wait are still done, on a machine that may be busy with other tests.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = node.shm().status();
        let memory = (found.counters.memory_used_bytes, found.counters.connections_open);
        let devices: Vec<u64> = found.devices.iter().map(|device| device.used_bytes).collect();
        let wanted: Vec<u64> = expected.devices.iter().map(|device| device.used_bytes).collect();
        if memory == (expected.counters.memory_used_bytes, 1) && devices == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{memory:?} {devices:?}, expected {expected:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ask_for_much(client: &mut Client, table: &Table) {
    let segment = &table.segments[0];
    for _ in 0..20 {
        let target = client.target(0, segment.stored_bytes());
        let (id, segment_id) = (table.id(), segment.directory.segment);
        client.send(Request::Fetch { table: id, segment: segment_id, pages: segment.wanted(), target });
        let (program, target) = (table.program(1000), client.target(16 << 20, 8 << 20));
        client.send(Request::Process {
            withheld: None,
            key_filters: Vec::new(),
            program,
            table: id,
            segment: SegmentId(0),
            first_block: 0,
            target,
            report_reads: false,
        });
    }
}

#[test]
fn requests_of_a_lost_client_give_everything_back() {
    for bridge in BRIDGES {
        let node_folder = NodeFolder::new();
        let node = node_folder.start_over(bridge);
        let table = Table::new(1, "t", 1, 60_000);
        table.load(&mut node.shm());
        let before = alone(&node);
        let mut holders = Vec::new();
        for _ in 0..5 {
            for connect in [Running::shm, Running::tcp] {
                let mut client = connect(&node);
                ask_for_much(&mut client, &table);
                holders.push(client.region.clone());
                drop(client);
            }
        }
        settles(&node, &before);
        for region in holders {
            assert_eq!(region.holders(), 1, "only this test holds the memory of a lost client");
        }
        node.stop();
    }
}

#[test]
fn a_client_that_turns_to_garbage_in_the_middle_of_its_requests_leaves_nothing() {
    for bridge in BRIDGES {
        let node_folder = NodeFolder::new();
        let node = node_folder.start_over(bridge);
        let table = Table::new(1, "t", 1, 60_000);
        table.load(&mut node.shm());
        let before = alone(&node);
        for connect in [Running::shm, Running::tcp] {
            let mut client = connect(&node);
            ask_for_much(&mut client, &table);
            client.send_bytes(b"nonsense");
            // Still there, so that only the node can end it.
            settles(&node, &before);
            drop(client);
        }
        node.stop();
    }
}

#[test]
fn an_append_of_a_lost_client_frees_its_room() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let before = alone(&node);
    let table = Table::new(1, "t", 2, 60_000);
    for connect in [Running::shm, Running::tcp] {
        let mut client = connect(&node);
        assert!(table.segments[0].append(&mut client).is_ok());
        let request = table.segments[1].stage(&client);
        client.send(request);
        drop(client);
        settles(&node, &before);
    }
    let mut client = node.shm();
    table.load(&mut client);
    drop(client);
    node.stop();
}

#[test]
fn a_table_dropped_under_its_readers_ends_their_fetches_in_good_order_and_frees_its_room() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let empty = alone(&node);
    let table = Table::new(1, "t", 1, 60_000);
    let mut client = node.shm();
    table.load(&mut client);
    let segment = &table.segments[0];
    let mut dropper = node.tcp();
    let mut fetches = Vec::new();
    for place in 0..50 {
        let target =
            client.target(place * segment.stored_bytes() % (24 << 20) / 4096 * 4096, segment.stored_bytes());
        let pages = segment.wanted();
        fetches.push(client.send(Request::Fetch { table: table.id(), segment: SegmentId(0), pages, target }));
        if place == 25 {
            dropper.done(Request::Drop { table: table.id() });
        }
    }
    let outcomes: Vec<_> = fetches.into_iter().map(|id| client.wait(id).outcome).collect();
    assert!(outcomes[0].is_ok() && outcomes[49].is_err(), "{outcomes:?}");
    for refusal in outcomes.into_iter().filter_map(Result::err) {
        assert_eq!(refusal.code, RefusalCode::NotFound, "{refusal:?}");
    }
    drop((client, dropper));
    settles(&node, &empty);
    node.stop();
}
