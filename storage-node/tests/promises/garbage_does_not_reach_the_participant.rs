//! Promise: a request about transactions that breaks a rule is refused, no part of it is executed,
//! and the node serves the next request.

use rackscan_fabric::sim::{Random, Seed};
use rackscan_format::{
    codec,
    limits::TRANSACT_BYTES_MAX,
    message::{Answer, Payload, RefusalCode, Request as NodeRequest, Target},
};
use rackscan_ramp::{
    message::{LeaseId, Reply, Request},
    timestamp::ClientId,
};
use rackscan_storage_node::ByteSize;

use crate::support::{
    client::Client,
    keys::{at, prepare},
    node::NodeFolder,
};

fn here(client: &Client, bytes: Vec<u8>) -> NodeRequest {
    NodeRequest::Transact { messages: Payload::Here(bytes), target: client.answers() }
}

fn beside(client: &Client, source: Target) -> NodeRequest {
    NodeRequest::Transact { messages: Payload::Beside(source), target: client.answers() }
}

#[test]
fn lists_that_break_a_rule_are_refused_whole() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    for (wire, mut client) in node.both() {
        let close = Request::Close { lease: LeaseId::default() };
        let commit = |time| Request::Commit { timestamp: at(time, 1) };
        let long = Request::Settled { timestamps: vec![at(1, 1); 257] };
        let lists = [
            vec![close.clone(); 65],
            vec![prepare(at(1, 1), &[("a", b"value")]), commit(1)],
            vec![long, prepare(at(1, 1), &[("a", b"value")])],
        ];
        for list in lists {
            let request = here(&client, codec::encode(&list).unwrap());
            assert_eq!(client.refusal_code(request), RefusalCode::Malformed, "{wire}: {list:?}");
        }
        assert_eq!(client.status().participant.prepared, 0, "{wire}: nothing was done");
        assert_eq!(client.tell(&vec![close; 64]), []);
    }
    node.stop();
}

#[test]
fn a_list_of_more_keys_than_may_be_is_refused_before_it_is_decoded() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    for (number, (wire, mut client)) in (1_u32..).zip(node.both()) {
        let lease = client.lease(number);
        let get = |keys| Request::Get { lease, keys: vec![crate::support::keys::key("a"); keys] };
        let asked = client.status().participant.requests;
        // In memory they would take a hundred times what may be on its way.
        for keys in [4097, 2_400_000] {
            let request = client.transact_request(&[get(keys)]);
            assert_eq!(client.refusal_code(request), RefusalCode::Malformed, "{wire}: {keys} keys");
        }
        assert_eq!(client.status().participant.requests, asked, "{wire}: the participant has not seen them");
        assert!(!client.tell(&[get(4096)]).is_empty(), "{wire}");
    }
    node.stop();
}

#[test]
fn random_bytes_are_refused_or_mean_something() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    let mut random = Random::new(Seed::new(0x5eed_0021));
    let good = codec::encode(&vec![prepare(at(1, 1), &[("a", b"value"), ("b", b"other")])]).unwrap();
    for (wire, mut client) in node.both() {
        for round in 0..300 {
            let mut bytes = good.clone();
            for _ in 0..1 + random.index(3) {
                let at = random.index(bytes.len());
                bytes[at] = u8::try_from(random.below(256)).unwrap();
            }
            bytes.truncate(1 + random.index(bytes.len()));
            let outcome = client.ask(here(&client, bytes.clone()));
            let refused = outcome.as_ref().is_err_and(|refusal| refusal.code == RefusalCode::Malformed);
            assert!(refused || outcome.is_ok(), "{wire}, round {round}: {bytes:?}: {outcome:?}");
        }
        client.lease(7);
    }
    node.stop();
}

#[test]
fn sources_and_targets_that_are_not_the_clients_are_refused_as_memory() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    for (number, (wire, mut client)) in (1_u32..).zip(node.both()) {
        let good = client.target(0, 100_000);
        let others = [
            Target { key: good.key ^ 1, ..good },
            Target { offset_bytes: 1 << 40, ..good },
            Target { offset_bytes: u64::MAX - 5, ..good },
        ];
        for source in others {
            let request = beside(&client, source);
            assert_eq!(client.refusal_code(request), RefusalCode::Memory, "{wire}: {source:?}");
        }
        for length_bytes in [0, 6 << 20, u64::MAX] {
            let request = beside(&client, Target { length_bytes, ..good });
            assert_eq!(client.refusal_code(request), RefusalCode::Malformed, "{wire}: {length_bytes}");
        }
        client.commit(at(number.into(), number), &[("a", &vec![7; 2 * TRANSACT_BYTES_MAX])]);
        let lease = client.lease(number);
        let get = codec::encode(&vec![Request::Get { lease, keys: vec![crate::support::keys::key("a")] }]);
        for target in others {
            let request = NodeRequest::Transact { messages: Payload::Here(get.clone().unwrap()), target };
            assert_eq!(client.refusal_code(request), RefusalCode::Memory, "{wire}: {target:?}");
        }
        assert_eq!(client.value(lease, "a").map(|value| value.len()), Some(2 * TRANSACT_BYTES_MAX));
    }
    node.stop();
}

#[test]
fn a_connection_speaks_for_few_clients() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    let mut client = node.shm();
    for number in 0..64 {
        client.lease(number);
    }
    assert_eq!(client.transact(Request::Lease { client: ClientId(64) }), Reply::Unleased);
    node.tcp().lease(64);
    node.stop();
}

#[test]
fn a_node_without_memory_for_keys_says_so() {
    let node_folder = NodeFolder::new();
    let mut config = node_folder.config_with_keys();
    config.transactions = Some(ByteSize(0));
    let node = node_folder.start_with(config).expect("the node starts");
    let mut client = node.shm();
    assert_eq!(client.ask(NodeRequest::OpenParticipant), Ok(Answer::Participant(None)));
    let request = client.transact_request(&[Request::Lease { client: ClientId(1) }]);
    let refusal = client.refused(request);
    assert_eq!(refusal.code, RefusalCode::NotFound);
    assert!(refusal.text.contains("transactions"), "{refusal:?}");
    assert_eq!(client.status().participant.budget_bytes, 0);
    node.stop();
}
