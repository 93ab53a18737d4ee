//! Promise: while the log has its maximum length, no transaction is prepared, but prepared ones
//! still end; when the log has room again, transactions continue without intervention.

use std::time::{Duration, Instant};

use rackscan_ramp::message::{Refusal, Reply, Request};
use rackscan_storage_node::ByteSize;

use crate::support::{
    client::Client,
    keys::{at, prepare},
    node::{NodeFolder, Running},
};

fn start(node_folder: &NodeFolder) -> Running {
    let mut config = node_folder.config_with_keys();
    config.transactions_log = Some(ByteSize(1 << 20));
    node_folder.start_with(config).expect("the node starts")
}

/// Prepares until the log is full; the timestamps of what is in doubt then.
fn fill(client: &mut Client) -> Vec<u64> {
    let mut prepared = Vec::new();
    for time in 1..100 {
        let name = format!("key{time}");
        match client.transact(prepare(at(time, 1), &[(&name, &[7; 100_000])])) {
            Reply::Prepared => prepared.push(time),
            Reply::Refused { why } => {
                assert_eq!(why, Refusal::LogFull);
                return prepared;
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("the log is never full");
}

#[test]
fn a_full_log_refuses_what_is_new_ends_what_is_prepared_and_goes_on() {
    let node_folder = NodeFolder::new();
    let node = start(&node_folder);
    let mut client = node.shm();
    let lease = client.lease(1);
    let prepared = fill(&mut client);
    assert!(prepared.len() >= 9, "{prepared:?}");
    assert!(client.status().participant.log_full);
    let (kept, aborted) = prepared.split_at(1);
    assert_eq!(client.transact(Request::Commit { timestamp: at(kept[0], 1) }), Reply::Committed);
    for time in aborted {
        assert_eq!(client.transact(Request::Abort { timestamp: at(*time, 1) }), Reply::Aborted);
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while client.status().participant.log_full {
        assert!(Instant::now() < deadline, "{:?}", client.status().participant);
        assert!(client.value(lease, "key1").is_some(), "reads go on");
    }
    assert!(client.status().participant.log_bytes < 1 << 19, "{:?}", client.status().participant);
    client.commit(at(200, 1), &[("key2", b"new")]);
    let crashed = node_folder.copy_with_keys();
    node.stop();
    let node = start(&crashed);
    let mut client = node.tcp();
    let lease = client.lease(1);
    assert_eq!(client.value(lease, "key1"), Some(vec![7; 100_000]));
    assert_eq!(client.value(lease, "key2"), Some(b"new".to_vec()));
    assert_eq!(client.value(lease, "key3"), None);
    node.stop();
}

#[test]
fn a_log_that_is_made_shorter_under_writers_loses_nothing_that_was_acknowledged() {
    let node_folder = NodeFolder::new();
    let node = start(&node_folder);
    std::thread::scope(|threads| {
        for number in 1..=3_u32 {
            let node = &node;
            threads.spawn(move || {
                let mut client = node.small(usize::try_from(number).unwrap() % 2);
                client.lease_small(number);
                let mut time = 1_u64;
                while time <= 150 {
                    let name = format!("key{number}");
                    let value = [&time.to_le_bytes()[..], &[7; 2000]].concat();
                    match client.put_small(at(time, number), &name, &value) {
                        Reply::Committed => time += 1,
                        Reply::Refused { why: Refusal::LogFull } => {}
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    let mut client = node.shm();
    let log_bytes = client.status().participant.log_bytes;
    assert!(log_bytes < 900_000, "it was never made shorter: {log_bytes}");
    let crashed = node_folder.copy_with_keys();
    node.stop();
    let node = start(&crashed);
    let mut client = node.shm();
    let lease = client.lease(9);
    for number in 1..=3 {
        let found = client.get(lease, &[&format!("key{number}")]).remove(0).1;
        assert_eq!(found.version.timestamp, at(150, number));
    }
    node.stop();
}
