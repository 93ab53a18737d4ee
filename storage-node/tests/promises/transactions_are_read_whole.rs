//! Promise: the writes of a transaction are read exactly as they were written, by messages over
//! every wire and one-sidedly from the slots.

use std::time::{Duration, Instant};

use rackscan_fabric::{Access, Event, Operation, Region, RemoteRegion};
use rackscan_format::message::{Answer, Payload, RefusalCode, Request as NodeRequest};
use rackscan_ramp::{
    limits::{PART_BYTES_MAX, VALUE_BYTES_MAX},
    message::{Reply, Request},
    slot::{Place, decode},
};
use rackscan_storage_node::ByteSize;

use crate::support::{
    client::Client,
    keys::{at, key, prepare},
    node::{BRIDGES, NodeFolder},
};

#[test]
fn what_is_committed_is_found_over_every_wire_and_what_is_prepared_lies_beside_it() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    for (number, (wire, mut client)) in (1..).zip(node.both()) {
        let lease = client.lease(number);
        client.commit(at(number.into(), number), &[("a", b"one"), ("b", b"two")]);
        assert_eq!(client.value(lease, "a"), Some(b"one".to_vec()), "{wire}");
        assert_eq!(client.value(lease, "c"), None, "{wire}");
        let next = at(10 + u64::from(number), number);
        assert_eq!(client.transact(prepare(next, &[("a", b"three")])), Reply::Prepared);
        let found = client.get(lease, &["a"]).remove(0).1;
        assert_eq!((found.version.timestamp, found.beside[0].timestamp), (at(number.into(), number), next));
        assert_eq!(client.transact(Request::Abort { timestamp: next }), Reply::Aborted);
        assert_eq!(client.tell(&[Request::Close { lease }]), []);
        let settled = Request::Settled { timestamps: vec![at(number.into(), number)] };
        assert_eq!(client.tell(&[settled, Request::Get { lease, keys: vec![] }]), [Reply::Unleased]);
    }
    let status = node.shm().status().participant;
    assert_eq!((status.prepared, status.committed, status.in_doubt, status.keys), (4, 2, 0, 2));
    assert!(status.log_batches >= 6 && status.requests > 12 && status.log_bytes > 24, "{status:?}");
    assert!(status.budget_bytes > 8 << 20 && status.used_bytes > 0 && !status.log_full, "{status:?}");
    node.stop();
}

/// Reads a slot without asking.
fn read_slot(client: &mut Client, slots: &RemoteRegion, place: Place) -> Vec<u8> {
    let length = usize::try_from(place.length_bytes).expect("a slot is short");
    let into = Region::allocate(64 << 10).expect("memory for a test");
    client.connection.register(&into, Access::ReadWrite).expect("it is registered");
    let target = into.slice(0, length).expect("a slot fits");
    let read = Operation::Read { source: *slots, source_offset: place.offset_bytes, target };
    client.connection.post(77, read).expect("it is posted");
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let mut events = Vec::new();
        client.connection.wait(&mut events, deadline);
        assert!(Instant::now() < deadline, "the read does not end");
        for event in events {
            if let Event::Completed { id: 77, outcome } = event {
                outcome.expect("slots are granted for reading");
                return into.to_vec(0, length).expect("a slot fits");
            }
        }
    }
}

#[test]
fn a_slot_read_one_sidedly_says_what_a_message_says() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    for (number, (wire, mut client)) in (1_u32..).zip(node.both()) {
        let lease = client.lease(number);
        let region = client.open_participant();
        assert_eq!(client.open_participant(), region, "granted once");
        assert_eq!(region.life, lease.life);
        let slots = region.slots.unwrap();
        let slots = RemoteRegion { key: slots.key, address: slots.offset_bytes, length: slots.length_bytes };
        let bytes = vec![u8::try_from(number).unwrap(); 5000];
        client.commit(at(u64::from(number) * 10, number), &[("a", &bytes), ("b", b"short")]);
        for (key, found) in client.get(lease, &["a", "b"]) {
            let slot = read_slot(&mut client, &slots, found.place.unwrap());
            assert_eq!(decode(&slot, &key, region.life), Ok(found.version), "{wire}");
            assert!(decode(&slot, &key, region.life + 1).is_err(), "another life");
        }
        let timestamp = at(u64::from(number) * 10 + 1, number);
        let place = client.get(lease, &["a"]).remove(0).1.place.unwrap();
        assert_eq!(client.transact(prepare(timestamp, &[("a", b"newer")])), Reply::Prepared);
        let slot = read_slot(&mut client, &slots, place);
        assert!(decode(&slot, &key("a"), region.life).is_err(), "{wire}: something newer is prepared");
        assert_eq!(client.transact(Request::Abort { timestamp }), Reply::Aborted);
    }
    node.stop();
}

#[test]
fn long_messages_lie_beside_both_ways() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    for (number, (wire, mut client)) in (1..).zip(node.both()) {
        let lease = client.lease(number);
        let value =
            |fill: u8| (0..251).map(|byte| fill ^ byte).cycle().take(VALUE_BYTES_MAX).collect::<Vec<u8>>();
        let values = [value(1), value(2), value(3)];
        let items = [("a", &values[0][..]), ("b", &values[1]), ("c", &values[2])];
        client.commit(at(number.into(), number), &items);
        let found = client.get(lease, &["a", "b", "c"]);
        for ((_, found), value) in found.iter().zip(&values) {
            assert!(found.version.value.bytes() == Some(&value[..]), "{wire}");
        }
        let request = Request::Get { lease, keys: vec![key("a")] };
        let NodeRequest::Transact { messages, .. } = client.transact_request(&[request]) else { panic!() };
        let small = NodeRequest::Transact { messages, target: client.target(0, 4096) };
        let refusal = client.refused(small.clone());
        assert_eq!(refusal.code, RefusalCode::TargetTooSmall);
        assert!(refusal.needed_bytes > VALUE_BYTES_MAX as u64, "{refusal:?}");
        let NodeRequest::Transact { messages, .. } = small else { panic!() };
        let target = client.target(8 << 20, refusal.needed_bytes);
        let answer = client.ask(NodeRequest::Transact { messages, target });
        assert_eq!(client.replies(answer).len(), 1, "what it says does");
    }
    let memory = node.shm().status().counters.memory_used_bytes;
    assert!(memory <= (32 << 20) + (32 << 20), "staging memory is given back: {memory}");
    node.stop();
}

#[test]
fn the_largest_transaction_is_taken() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    let mut client = node.tcp();
    let items: Vec<(String, Vec<u8>)> =
        (0..4096).map(|number| (format!("{number:04}"), vec![7; PART_BYTES_MAX / 4096 - 4])).collect();
    let items: Vec<(&str, &[u8])> = items.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    client.commit(at(1, 1), &items);
    let lease = client.lease(1);
    assert_eq!(client.value(lease, "4095").map(|value| value.len()), Some(PART_BYTES_MAX / 4096 - 4));
    node.stop();
}

#[test]
fn every_reactor_reaches_the_participant() {
    for bridge in BRIDGES {
        let node_folder = NodeFolder::new();
        let mut config = node_folder.config_over(bridge);
        (config.reactors, config.pollers) = (4, 4);
        (config.memory_budget, config.transactions) = (ByteSize(400 << 20), Some(ByteSize(32 << 20)));
        let node = node_folder.start_with(config).expect("the node starts");
        // Connections are dealt among the reactors in turn.
        let mut clients: Vec<Client> = (0..8).map(|number| node.small(number % 2)).collect();
        for (number, client) in (1_u32..).zip(&mut clients) {
            let timestamp = at(number.into(), number);
            let request = |message: Request| NodeRequest::Transact {
                messages: Payload::Here(rackscan_format::codec::encode(&vec![message]).unwrap()),
                target: client.target(0, 4096),
            };
            let (first, second) =
                (request(prepare(timestamp, &[("a", b"value")])), request(Request::Commit { timestamp }));
            let Ok(Answer::Transacted { messages: Payload::Here(prepared) }) = client.ask(first) else {
                panic!("{bridge:?}: not prepared")
            };
            assert_eq!(prepared, rackscan_format::codec::encode(&vec![Reply::Prepared]).unwrap());
            assert!(client.ask(second).is_ok());
        }
        let mut reader = node.shm();
        let lease = reader.lease(99);
        assert_eq!(reader.get(lease, &["a"]).remove(0).1.version.timestamp, at(8, 8), "{bridge:?}");
        assert_eq!(reader.status().participant.committed, 8);
        assert_eq!(reader.open_participant().life, lease.life);
        drop(clients);
        node.stop();
    }
}
