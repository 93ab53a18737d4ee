//! Promise: what a load took of the filesystem below sparse device files is free again as soon as the load is aborted, its client dies, or its table is dropped.
//!
//! Method: blocks of the device files are counted, without a restart of the node.

use std::{
    os::unix::fs::MetadataExt,
    time::{Duration, Instant},
};

use rackscan_format::message::{Answer, Request};

use crate::support::{
    node::{Home, Running},
    table::Table,
};

fn taken_bytes(home: &Home) -> u64 {
    let blocks = |device| std::fs::metadata(home.device(device)).expect("the file is there").blocks();
    (0..2).map(blocks).sum::<u64>() * 512
}

fn start(home: &Home) -> Running {
    let mut config = home.config();
    config.devices.iter_mut().for_each(|device| device.reserve = false);
    home.start_with(config).expect("the node starts")
}

/// Waits until no more is taken than before.
fn comes_back(home: &Home, before: u64, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while taken_bytes(home) > before {
        assert!(Instant::now() < deadline, "{what}: {} bytes, {before} before", taken_bytes(home));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn space_of_loads_and_tables_that_are_gone_is_free_at_once() {
    let home = Home::new();
    let node = start(&home);
    let before = taken_bytes(&home);
    let table = Table::new(1, "t", 2, 60_000);
    let mut client = node.shm();
    table.append_all(&mut client);
    assert!(taken_bytes(&home) > before, "the load took something");
    assert_eq!(client.ask(Request::AbortLoad { load: table.id() }), Ok(Answer::Done));
    comes_back(&home, before, "an aborted load");
    let table = Table::new(2, "t", 2, 60_000);
    table.append_all(&mut client);
    drop(client);
    comes_back(&home, before, "a load whose client died");
    let (mut client, table) = (node.shm(), Table::new(3, "t", 2, 60_000));
    table.load(&mut client);
    assert!(taken_bytes(&home) > before, "the table takes something");
    assert_eq!(client.ask(Request::Drop { table: table.id() }), Ok(Answer::Done));
    comes_back(&home, before, "a dropped table");
    // What takes its place is whole.
    let table = Table::new(4, "t", 2, 60_000);
    table.load(&mut client);
    assert!(taken_bytes(&home) > before);
    node.stop();
}
