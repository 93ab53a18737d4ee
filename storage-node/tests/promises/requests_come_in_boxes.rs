//! Promise: requests that a client writes into a node's boxes are served like messages, in the
//! order in which both were sent, and wake a node that sleeps; garbage in a box at most ends the
//! connection.

use std::time::{Duration, Instant};

use rackscan_fabric::{
    Operation,
    sim::{Random, Seed},
};
use rackscan_format::message::{Answer, RefusalCode, Request as NodeRequest};
use rackscan_ramp::{
    message::{Reply, Request, Vote},
    timestamp::ClientId,
};

use crate::support::{
    client::Client,
    keys::{at, key, prepare},
    node::{NodeFolder, Running},
    posts::{Posting, open},
};

/// What is said of a transaction to who asks after it was prepared; who asks before has it refused
/// for ever.
const PREPARED: [Reply; 1] = [Reply::Voted { vote: Vote::Prepared }];

/// Clients with four boxes for 8 KiB each.
fn both(node: &Running) -> [(&'static str, Posting); 2] {
    node.both().map(|(wire, client)| (wire, Posting::new(client, 4, 8 << 10)))
}

/// Later than all before, of this client and those before it.
fn later(client: u32, round: u64) -> u64 {
    u64::from(client) << 32 | round
}

/// Connections that a turn of the reactor looks at behind those that are tested: what is asked
/// meanwhile arrives in the middle of a turn.
fn others(node: &Running) -> Vec<Client> {
    (0..20).map(|_| node.small(0)).collect()
}

fn posted(client: &mut Client) -> u64 {
    client.status().counters.posted_messages
}

#[test]
fn what_comes_in_a_box_is_answered_in_that_box() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    for (number, (wire, mut posting)) in (1_u32..).zip(both(&node)) {
        let before = posted(&mut posting.client);
        let (replies, index) = posting.ask(&[Request::Lease { client: ClientId(number) }]);
        let [Reply::Leased { lease, .. }] = replies[..] else { panic!("{replies:?}") };
        assert_eq!(index, Some(0), "{wire}");
        let value = vec![7; 1000];
        for round in 1..20_u64 {
            let timestamp = at(later(number, round), number);
            let (replies, index) = posting.ask(&[prepare(timestamp, &[("a", &value)])]);
            assert_eq!(replies, [Reply::Prepared]);
            assert_eq!(index.map(|index| index as u64), Some((3 * round - 2) % 4), "{wire}");
            assert_eq!(posting.ask(&[Request::Commit { timestamp }]).0, [Reply::Committed]);
            let (replies, _) = posting.ask(&[Request::Get { lease, keys: vec![key("a")] }]);
            let [Reply::Found { items, .. }] = &replies[..] else { panic!("{replies:?}") };
            assert_eq!(items[0].1.version.timestamp, timestamp);
        }
        assert_eq!(posted(&mut posting.client), before + 1 + 19 * 3, "{wire}: all came in boxes");
        // What is not answered is answered with nothing.
        assert_eq!(posting.ask(&[Request::Close { lease }]).0, []);
    }
    node.stop();
}

#[test]
fn what_is_too_long_for_its_box_or_lies_elsewhere_is_answered_by_a_message_and_the_box_is_free() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    for (number, (wire, mut posting)) in (1_u32..).zip(both(&node)) {
        let lease = posting.client.lease(number);
        for (time, length) in [(1, 20_000), (2, 200_000)] {
            let timestamp = at(later(number, time), number);
            posting.client.commit(timestamp, &[("a", &vec![7; length])]);
            for _ in 0..5 {
                let (replies, index) = posting.ask(&[Request::Get { lease, keys: vec![key("a")] }]);
                let [Reply::Found { items, .. }] = &replies[..] else { panic!("{replies:?}") };
                let found = items[0].1.version.value.bytes().map(<[u8]>::len);
                assert_eq!((found, index), (Some(length), None), "{wire}");
                let (replies, index) = posting.ask(&[Request::Get { lease, keys: vec![key("none")] }]);
                assert!(matches!(replies[..], [Reply::Found { .. }]) && index.is_some(), "{wire}");
            }
        }
    }
    node.stop();
}

#[test]
fn a_message_that_is_sent_behind_a_box_is_served_after_it() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    for (number, (wire, mut posting)) in (1_u32..).zip(both(&node)) {
        let _others = others(&node);
        for round in 1..2000_u64 {
            let timestamp = at(later(number, round), number);
            let by_post = posting.post(&[prepare(timestamp, &[("a", b"value")])]);
            let inquire = posting.client.transact_request(&[Request::Inquire { timestamp }]);
            let by_message = posting.client.send(inquire);
            let (reply, index) = posting.wait(by_post);
            assert!(index.is_some(), "{wire}");
            assert_eq!(posting.client.replies(reply.outcome), [Reply::Prepared], "{wire}, round {round}");
            let (reply, _) = posting.wait(by_message);
            assert_eq!(posting.client.replies(reply.outcome), PREPARED, "{wire}, round {round}");
            assert_eq!(posting.client.transact(Request::Commit { timestamp }), Reply::Committed);
        }
    }
    node.stop();
}

#[test]
fn a_message_does_not_overtake_a_box_while_the_node_serves_others() {
    const SLOW: usize = 4;
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    // A turn looks at boxes first and takes messages then. What is written during the first of
    // these requests, which take a while each, is not looked at again before the message behind
    // them is taken, all in one turn.
    let mut busy = node.shm();
    let lease = busy.lease(90);
    let slow = busy.transact_request(&[Request::Get { lease, keys: vec![key("a"); 4096] }]);
    for (number, (wire, mut posting)) in (1_u32..).zip(both(&node)) {
        for round in 1..=20_u64 {
            let timestamp = at(later(number, round), number);
            let inquire = posting.client.transact_request(&[Request::Inquire { timestamp }]);
            let meanwhile: Vec<u64> = (0..SLOW).map(|_| busy.send(slow.clone())).collect();
            let by_post = posting.post(&[prepare(timestamp, &[("a", b"value")])]);
            let by_message = posting.client.send(inquire);
            let (reply, _) = posting.wait(by_post);
            assert_eq!(posting.client.replies(reply.outcome), [Reply::Prepared], "{wire}, round {round}");
            let (reply, _) = posting.wait(by_message);
            assert_eq!(posting.client.replies(reply.outcome), PREPARED, "{wire}, round {round}");
            assert_eq!(posting.client.transact(Request::Commit { timestamp }), Reply::Committed);
            meanwhile.into_iter().for_each(|id| assert!(busy.wait(id).outcome.is_ok()));
        }
    }
    node.stop();
}

#[test]
fn a_box_wakes_a_node_that_sleeps_and_meets_it_however_it_falls_asleep() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    for (number, (wire, mut posting)) in (1_u32..).zip(both(&node)) {
        let _others = others(&node);
        let mut longest = Duration::ZERO;
        for round in 0..4000_u64 {
            // From none to longer than a reactor polls; now and then until it is certainly asleep.
            let pause = if round % 200 == 0 { 20_000 } else { round % 80 };
            let until = Instant::now() + Duration::from_nanos(pause * 1000);
            while Instant::now() < until {
                std::thread::yield_now();
            }
            let asked = Instant::now();
            let (replies, index) = posting.ask(&[Request::Lease { client: ClientId(number) }]);
            assert!(matches!(replies[..], [Reply::Leased { .. }]) && index.is_some(), "{wire}");
            longest = longest.max(asked.elapsed());
        }
        // A lost wake-up would last until the client gives up.
        assert!(longest < Duration::from_secs(5), "{wire}: {longest:?}");
    }
    node.stop();
}

#[test]
fn garbage_in_a_box_ends_its_connection_and_nothing_else() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    let mut random = Random::new(Seed::new(0x5eed_0023));
    let mut witness = Posting::new(node.shm(), 4, 8 << 10);
    for _ in 0..20 {
        for (wire, mut posting) in both(&node) {
            posting.ask(&[Request::Lease { client: ClientId(1) }]);
            let garbage: Vec<u8> =
                (0..random.index(200)).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
            posting.post_bytes(&garbage);
            let deadline = Instant::now() + Duration::from_secs(20);
            while posting.client.poll(deadline) {}
            assert!(posting.client.connection.ended().is_some(), "{wire}: {garbage:?}");
            let (replies, _) = witness.ask(&[Request::Lease { client: ClientId(2) }]);
            assert!(matches!(replies[..], [Reply::Leased { .. }]));
        }
    }
    node.stop();
}

#[test]
fn what_is_longer_than_its_box_and_what_lies_in_another_than_the_next_is_no_request() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    for (wire, mut posting) in both(&node) {
        let before = posted(&mut posting.client);
        // A header that names a longer body than there may be, with the right number, in every box.
        for index in 0..4 {
            for length in [(8 << 10) + 1, 1 << 20, u32::MAX] {
                let mut image = u64::from(length).to_le_bytes().to_vec();
                image.extend(1_u64.to_le_bytes());
                let (bytes, target, target_offset) = (&image[..], posting.remote, index * 8256);
                let write = Operation::WriteBytes { bytes, target, target_offset };
                posting.client.connection.post(u64::MAX, write).unwrap();
            }
        }
        assert_eq!(posted(&mut posting.client), before, "{wire}");
        // Box 2, where 0 is the next one.
        let lease = posting.client.transact_request(&[Request::Lease { client: ClientId(1) }]);
        let (_, bytes) = posting.client.encode(lease);
        posting.requests.send(&mut posting.client.connection, u64::MAX, 2, &bytes).unwrap();
        assert_eq!(posted(&mut posting.client), before, "{wire}");
        let (replies, _) = posting.ask(&[Request::Lease { client: ClientId(1) }]);
        assert!(matches!(replies[..], [Reply::Leased { .. }]), "{wire}: what is whole is served");
        assert_eq!(posted(&mut posting.client), before + 1, "{wire}");
    }
    node.stop();
}

#[test]
fn boxes_are_bounded_and_each_connection_has_them_once() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    for (wire, mut client) in node.both() {
        for (boxes, bytes) in [(0, 100), (17, 100), (1, 0), (1, (16 << 10) + 1), (16, 4096), (4, u32::MAX)] {
            let refusal = open(&mut client, boxes, bytes).unwrap_err();
            assert_eq!(refusal.code, RefusalCode::Malformed, "{wire}: {boxes} for {bytes}");
        }
        let replies = client.target(0, 4096);
        let small = NodeRequest::OpenPosts { boxes: 4, body_bytes_max: 8 << 10, replies };
        assert_eq!(client.refusal_code(small), RefusalCode::Memory, "{wire}: they do not lie there");
        assert!(matches!(open(&mut client, 4, 8 << 10), Ok(Answer::Posts { .. })), "{wire}");
        assert_eq!(open(&mut client, 4, 8 << 10).unwrap_err().code, RefusalCode::Malformed, "{wire}: once");
    }
    node.stop();
}

#[test]
fn boxes_take_memory_of_connections_and_are_refused_when_there_is_none() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    // Bounded, whatever the node's memory: as many connections as one reactor may have.
    let mut clients = Vec::new();
    let refusal = loop {
        assert!(clients.len() < 256, "memory for connections is bounded");
        let mut client = node.small(0);
        let replies = client.target(0, 1 << 20);
        let used = client.status().counters.memory_used_bytes;
        match client.ask(NodeRequest::OpenPosts { boxes: 4, body_bytes_max: 8 << 10, replies }) {
            Ok(_) => assert!(client.status().counters.memory_used_bytes > used),
            Err(refusal) => break refusal,
        }
        clients.push(client);
    };
    assert_eq!(refusal.code, RefusalCode::Busy, "{refusal:?}");
    assert!(!clients.is_empty() && refusal.text.contains("send messages"), "{refusal:?}");
    node.stop();
}

#[test]
fn a_client_that_leaves_its_requests_in_boxes_leaves_nothing_behind() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    for _ in 0..20 {
        for (_, mut posting) in both(&node) {
            for number in 0..4 {
                posting.post(&[Request::Lease { client: ClientId(number) }]);
            }
        }
    }
    let (mut client, deadline) = (node.shm(), Instant::now() + Duration::from_secs(20));
    let left = |client: &mut Client| {
        let counters = client.status().counters;
        (counters.connections_open, counters.connections_with_boxes)
    };
    while left(&mut client) != (1, 0) {
        assert!(Instant::now() < deadline, "{:?}", left(&mut client));
    }
    node.stop();
}
