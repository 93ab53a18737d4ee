//! Promise: nodes that know each other end the transactions that a client has left in doubt: with
//! the same outcome on all nodes, which follows from the votes of the participants.
//!
//! Method: clients execute some steps of a transaction over several nodes and vanish; the test
//! polls the status of the nodes until no transaction is in doubt.

use rackscan_fabric::Wire;
use rackscan_ramp::{
    message::{Guard, Mode, Part, Reply, Request, Vote},
    timestamp::Timestamp,
};
use rackscan_storage_node::ClusterId;

use crate::support::{
    client::Client,
    cluster::{Cluster, participants},
    keys::{at, key, part},
};

const WIRES: [Wire; 2] = [Wire::Shm, Wire::Tcp];
const TIMESTAMP: Timestamp = Timestamp { time: 5, client: rackscan_ramp::timestamp::ClientId(1) };

/// What a transaction of nodes 1 and 2 writes in either.
fn prepare(guard: Guard) -> Request {
    let part = Part { participants: participants(&[1, 2]), guard, ..part(TIMESTAMP, &[("a", b"value")]) };
    Request::Prepare { part, settled: Vec::new(), preconditions: Default::default() }
}

fn value(client: &mut Client) -> Option<Vec<u8>> {
    let lease = client.lease(9);
    client.value(lease, "a")
}

fn has_value(client: &mut Client) -> bool {
    value(client).as_deref() == Some(b"value")
}

#[test]
fn what_is_prepared_everywhere_is_committed_everywhere() {
    for wire in WIRES {
        let mut cluster = Cluster::new(2, wire);
        cluster.start_all();
        let mut clients = [1, 2].map(|id| cluster.client(id));
        for client in &mut clients {
            assert_eq!(client.transact(prepare(Guard::Open)), Reply::Prepared);
        }
        drop(clients);
        let ended =
            [1, 2].map(|id| cluster.settles(id, |participant| participant.in_doubt == 0).ended_by_asking);
        assert!(ended.iter().sum::<u64>() >= 1, "{ended:?}");
        for id in [1, 2] {
            assert!(has_value(&mut cluster.client(id)), "{wire:?}, node {id}");
        }
        cluster.stop_all();
    }
}

#[test]
fn what_is_prepared_at_one_participant_only_is_aborted_and_never_prepared_at_the_other() {
    for wire in WIRES {
        let mut cluster = Cluster::new(2, wire);
        cluster.start_all();
        let (mut gone, mut stays) = (cluster.client(1), cluster.client(2));
        assert_eq!(gone.transact(prepare(Guard::Open)), Reply::Prepared);
        drop(gone);
        let ended = cluster.settles(1, |participant| participant.in_doubt == 0).ended_by_asking;
        assert_eq!(ended, 1);
        let late = stays.transact(prepare(Guard::Open));
        assert!(matches!(late, Reply::Refused { .. }), "{wire:?}: {late:?}");
        for id in [1, 2] {
            assert_eq!(value(&mut cluster.client(id)), None, "{wire:?}, node {id}");
        }
        cluster.stop_all();
    }
}

#[test]
fn what_is_committed_at_one_participant_is_committed_at_the_other() {
    for wire in WIRES {
        let mut cluster = Cluster::new(2, wire);
        cluster.start_all();
        // The connection to the other participant stays, so nobody misses its client there.
        let (mut first, mut second) = (cluster.client(1), cluster.client(2));
        assert_eq!(first.transact(prepare(Guard::Open)), Reply::Prepared);
        assert_eq!(second.transact(prepare(Guard::Open)), Reply::Prepared);
        assert_eq!(first.transact(Request::Commit { timestamp: TIMESTAMP }), Reply::Committed);
        drop(first);
        let participant = cluster.settles(2, |participant| participant.in_doubt == 0);
        assert_eq!(participant.ended_by_asking, 0, "it was told: {participant:?}");
        assert!(has_value(&mut second));
        cluster.stop_all();
    }
}

#[test]
fn locks_are_free_when_their_transaction_has_ended_without_its_client() {
    let mut cluster = Cluster::new(2, Wire::Shm);
    cluster.start_all();
    let lock = |timestamp| Request::Lock { owner: timestamp, wanted: vec![(key("a"), Mode::Exclusive)] };
    let mut clients = [1, 2].map(|id| cluster.client(id));
    for client in &mut clients {
        assert!(matches!(client.transact(lock(TIMESTAMP)), Reply::Locked { .. }));
        assert_eq!(client.transact(prepare(Guard::Locked)), Reply::Prepared);
    }
    // Who waits for the lock gets it when the transaction has ended, and not before.
    let mut other = cluster.client(1);
    let request = other.transact_request(&[lock(at(9, 2))]);
    let waits = other.send(request);
    assert!(matches!(
        other.transact(Request::Inquire { timestamp: TIMESTAMP }),
        Reply::Voted { vote: Vote::Prepared }
    ));
    drop(clients);
    let outcome = other.wait(waits).outcome;
    assert!(matches!(other.replies(outcome)[..], [Reply::Locked { .. }]));
    assert!(has_value(&mut other));
    cluster.stop_all();
}

#[test]
fn a_participant_that_was_down_ends_it_when_it_is_back() {
    for wire in WIRES {
        let mut cluster = Cluster::new(3, wire);
        cluster.start_all();
        let mut clients = [1, 2].map(|id| cluster.client(id));
        for client in &mut clients {
            assert_eq!(client.transact(prepare(Guard::Open)), Reply::Prepared);
        }
        let [first, mut second] = clients;
        // Node 2 goes while its client is there, and the client's other connection goes after that:
        // 1 cannot know how 2 voted.
        assert_eq!(second.status().participant.in_doubt, 1);
        cluster.stop(2);
        drop((first, second));
        // What others write meanwhile does not wait for that.
        let mut other = cluster.client(1);
        other.commit(at(6, 2), &[("b", b"other")]);
        let participant = cluster.client(1).status().participant;
        assert_eq!((participant.in_doubt, participant.ended_by_asking), (1, 0), "{participant:?}");
        cluster.start(2);
        for id in [1, 2] {
            cluster.settles(id, |participant| participant.in_doubt == 0);
            assert!(has_value(&mut cluster.client(id)), "{wire:?}, node {id}");
        }
        cluster.stop_all();
    }
}

#[test]
fn a_node_that_starts_with_something_in_doubt_ends_it() {
    let mut cluster = Cluster::new(2, Wire::Shm);
    cluster.start_all();
    let mut client = cluster.client(1);
    assert_eq!(client.transact(prepare(Guard::Open)), Reply::Prepared);
    cluster.stop(2);
    cluster.stop(1);
    drop(client);
    cluster.start(1);
    assert_eq!(cluster.client(1).status().participant.in_doubt, 1, "the other participant is down");
    cluster.start(2);
    cluster.settles(1, |participant| participant.in_doubt == 0 && participant.ended_by_asking == 1);
    assert_eq!(value(&mut cluster.client(1)), None);
    let late = cluster.client(2).transact(prepare(Guard::Open));
    assert!(matches!(late, Reply::Refused { .. }), "{late:?}");
    cluster.stop_all();
}

#[test]
fn many_are_ended_though_those_of_a_participant_that_is_down_are_before_them() {
    let mut cluster = Cluster::new(3, Wire::Shm);
    cluster.start(1);
    cluster.start(2);
    let mut clients = [1, 2].map(|id| cluster.client(id));
    let prepare = |time, ids: &[u16]| {
        let part =
            Part { participants: participants(ids), ..part(at(time, 1), &[("a", &time.to_le_bytes())]) };
        Request::Prepare { part, settled: Vec::new(), preconditions: Default::default() }
    };
    // More than are ended at a time wait for node 3, which is down.
    for time in 1..=70 {
        assert_eq!(clients[0].transact(prepare(time, &[1, 3])), Reply::Prepared);
    }
    for time in 101..=110 {
        for client in &mut clients {
            assert_eq!(client.transact(prepare(time, &[1, 2])), Reply::Prepared);
        }
    }
    // The other one is not missed, so node 1 alone ends them.
    let [gone, _stays] = clients;
    drop(gone);
    let asking =
        |id, in_doubt| cluster.settles(id, |participant| participant.in_doubt == in_doubt).ended_by_asking;
    assert_eq!([asking(2, 0), asking(1, 70)], [0, 10]);
    let mut client = cluster.client(2);
    let lease = client.lease(9);
    assert_eq!(client.value(lease, "a"), Some(110_u64.to_le_bytes().to_vec()));
    cluster.start(3);
    // Node 3 never heard of them: it refuses them when it is asked, and can be.
    let participant = cluster.settles(1, |participant| participant.in_doubt == 0);
    assert_eq!(participant.ended_by_asking, 80);
    cluster.stop_all();
}

#[test]
fn a_node_of_another_cluster_is_asked_nothing() {
    let mut cluster = Cluster::new(2, Wire::Shm);
    cluster.start(1);
    cluster.start_in(2, ClusterId(98));
    let mut gone = cluster.client(1);
    assert_eq!(gone.transact(prepare(Guard::Open)), Reply::Prepared);
    drop(gone);
    // It proves to be another one, is hung up on, and tried again, again and again.
    let other = cluster.comes_to(2, |node| node.counters.connections_refused >= 5);
    assert_eq!(other.participant.requests, 0, "{other:?}");
    assert_eq!(cluster.client(1).status().participant.in_doubt, 1);
    cluster.stop_all();
}

#[test]
fn a_node_that_knows_no_others_leaves_it_in_doubt() {
    let node_folder = crate::support::node::NodeFolder::new();
    let node = node_folder.start_with_keys();
    let mut gone = node.shm();
    assert_eq!(gone.transact(crate::support::keys::prepare(TIMESTAMP, &[("a", b"value")])), Reply::Prepared);
    drop(gone);
    let mut client = node.shm();
    // By then its connection is seen to be gone.
    client.commit(at(6, 2), &[("b", b"other")]);
    assert_eq!(
        client.transact(Request::Inquire { timestamp: TIMESTAMP }),
        Reply::Voted { vote: Vote::Prepared }
    );
    node.stop();
}
