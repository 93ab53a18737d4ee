//! Promise: requests in progress are charged the memory of their decoded messages, not the number
//! of their bytes; a request that finds no free memory waits.
//!
//! Method: keys of a few bytes, which need many times as much memory when they are decoded, and a
//! node with half a MiB for requests.

use rackscan_format::message::RefusalCode;
use rackscan_ramp::{
    message::{LeaseId, Mode, Reply, Request},
    timestamp::Timestamp,
};
use rackscan_storage_node::ByteSize;

use crate::support::{
    keys::{at, key},
    node::{NodeFolder, Running},
};

/// What a participant of the least memory has for requests.
const TRANSIT_BYTES: usize = 512 << 10;

fn least(node_folder: &NodeFolder) -> Running {
    let mut config = node_folder.config_with_keys();
    config.transactions = Some(ByteSize(1 << 20));
    node_folder.start_with(config).expect("the node starts")
}

/// Keys of five bytes, of which the first is the same.
fn lock(owner: Timestamp, count: u32) -> Request {
    let name = |number: u32| key(&format!("{number:05}"));
    Request::Lock { owner, wanted: (0..count).map(|number| (name(number), Mode::Exclusive)).collect() }
}

#[test]
fn a_request_that_takes_more_than_there_is_is_refused_whatever_its_bytes_are() {
    let node_folder = NodeFolder::new();
    let node = least(&node_folder);
    for (wire, mut client) in node.both() {
        let lease = LeaseId::default();
        let among = Request::Among { lease, keys: vec![key("a"); 4096], timestamps: vec![at(1, 1); 4096] };
        let settled = Request::Settled { timestamps: vec![at(1, 1); 256] };
        let all = [vec![settled; 63], vec![among.clone()]].concat();
        let bytes = rackscan_format::codec::encode(&all).expect("messages are encoded").len();
        assert!(2 * bytes < TRANSIT_BYTES / 4, "{bytes} bytes: they do not show it");
        let request = client.transact_request(&all);
        assert_eq!(client.refusal_code(request), RefusalCode::Full, "{wire}");
        assert_eq!(client.transact(among), Reply::Unleased, "{wire}: alone it fits");
    }
    node.stop();
}

#[test]
fn requests_wait_for_the_memory_that_they_take_and_all_are_served() {
    const LOCKERS: u32 = 24;
    const KEYS: u32 = 1000;
    let node_folder = NodeFolder::new();
    let node = least(&node_folder);
    for (first, (wire, mut client)) in
        [(1, 100), (2, 200)].into_iter().map(|(time, client)| at(time, client)).zip(node.both())
    {
        let holder = client.transact(lock(first, 1));
        assert!(matches!(holder, Reply::Locked { .. }), "{wire}: {holder:?}");
        let before = client.status().participant.requests;
        let owners: Vec<Timestamp> = (1..=LOCKERS).map(|number| at(u64::from(number), number)).collect();
        let asked: Vec<u64> = owners
            .iter()
            .map(|owner| {
                let request = client.transact_request(&[lock(*owner, KEYS)]);
                client.send(request)
            })
            .collect();
        // They are served in the order in which they were sent, and wait for the lock or for memory
        // by now.
        let waiting = client.status().participant.requests - before;
        // A key is 24 bytes, and its own in the least allocation.
        let most = TRANSIT_BYTES as u64 / (u64::from(KEYS) * (24 + 16));
        assert!(
            (1..=most).contains(&waiting),
            "{wire}: {waiting} wait for the lock, expected at most {most}"
        );
        assert!(matches!(client.transact(Request::Unlock { owner: first }), Reply::Unlocked { held: true }));
        for (owner, id) in owners.into_iter().zip(asked) {
            let outcome = client.wait(id).outcome;
            let replies = client.replies(outcome);
            assert!(matches!(replies[..], [Reply::Locked { .. }]), "{wire}: {owner}: {replies:?}");
            let unlocked = client.transact(Request::Unlock { owner });
            assert!(matches!(unlocked, Reply::Unlocked { held: true }), "{wire}: {owner}: {unlocked:?}");
        }
    }
    node.stop();
}
