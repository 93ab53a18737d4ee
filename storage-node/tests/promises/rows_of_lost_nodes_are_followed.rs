//! Promise: a client that follows all nodes and may do without some of them still knows every
//! acknowledged row when these are lost, and never sees only a part of a transaction: it reads the
//! replicas of their logs.

use std::time::{Duration, Instant};

use rackscan_client::{
    Cluster as Catalogs, ClusterOptions, FollowError, Follower, FollowerOptions, Session, SessionOptions,
    TransactionError,
};
use rackscan_delta::{identity::ROW_PREFIX, replica::Replica};
use rackscan_fabric::Wire;
use rackscan_ramp::{
    message::{Guard, Part, ParticipantId, Reply, Request},
    timestamp::Timestamp,
};

use crate::{
    rows_are_followed::{
        TABLE, WIRES, bytes_of, catch_up_when_back, check, item, session, started, stored, write,
    },
    support::{
        cluster::{Cluster, participants},
        keys::{at, part},
    },
};

const PATIENCE: Duration = Duration::from_secs(60);

fn follower(cluster: &Cluster, unavailable_max: usize) -> Follower {
    let lines = cluster.lines();
    let options =
        ClusterOptions { unavailable_max, ..ClusterOptions::new(lines.nodes.clone(), lines.key.clone()) };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("the machine allows it");
    let copies = runtime.block_on(Catalogs::connect(options)).expect("few enough nodes are unavailable");
    let prefix = ROW_PREFIX.to_vec();
    Follower::open(FollowerOptions { lines, prefix, timeout: PATIENCE, copies: Some(copies) })
        .expect("the options work")
}

#[test]
fn what_was_acknowledged_is_known_with_one_node_and_with_two_of_four_unavailable() {
    // The second one keeps a copy of the first one's log.
    for (wire, first, second) in [(Wire::Shm, 2, 3), (Wire::Tcp, 1, 3)] {
        let mut cluster = started(4, wire);
        let mut writer = session(&cluster);
        let mut acknowledged = vec![write(&mut writer)];
        let (mut before, mut told) = (follower(&cluster, 2), Replica::new());
        before.catch_up(&mut told).unwrap();
        acknowledged.extend((0..5).map(|_| write(&mut writer)));
        drop(writer);
        // One replica has every acknowledged record; both must, because one of them is lost, too.
        cluster.settles(first, |participant| {
            participant.log_copies == 2 && participant.log_generation_unaware == 0
        });
        for (lost, id) in [first, second].into_iter().enumerate() {
            cluster.stop(id);
            let caught = before.catch_up(&mut told).unwrap();
            assert!(caught.began_anew, "{wire:?}");
            assert_eq!(before.unavailable().len(), lost + 1, "{wire:?}");
            check(&told, &acknowledged);
            let (mut later, mut replica) = (follower(&cluster, 2), Replica::new());
            later.catch_up(&mut replica).unwrap();
            check(&replica, &acknowledged);
            let caught = later.catch_up(&mut replica).unwrap();
            assert_eq!((caught.records, caught.began_anew), (0, false), "{wire:?}: nothing is new");
        }
        cluster.start(first);
        cluster.start(second);
        let deadline = Instant::now() + PATIENCE;
        while catch_up_when_back(&mut before, &mut told).began_anew || !before.unavailable().is_empty() {
            assert!(
                Instant::now() < deadline,
                "{wire:?}: {:?} is still taken for unavailable",
                before.unavailable()
            );
        }
        check(&told, &acknowledged);
        // Both replicas of a node may have been unavailable: it takes writes when one has caught
        // up.
        for id in 1..=4 {
            cluster.comes_to(id, |node| node.participant_refuses.is_none());
        }
        acknowledged.push(write(&mut session(&cluster)));
        before.catch_up(&mut told).unwrap();
        check(&told, &acknowledged);
        cluster.stop_all();
    }
}

#[test]
fn more_nodes_than_may_be_unavailable_are_named() {
    let mut cluster = started(4, Wire::Shm);
    write(&mut session(&cluster));
    let (mut follower, mut replica) = (follower(&cluster, 1), Replica::new());
    follower.catch_up(&mut replica).unwrap();
    cluster.stop(1);
    follower.catch_up(&mut replica).unwrap();
    cluster.stop(3);
    let error = follower.catch_up(&mut replica).unwrap_err();
    let is_named = matches!(
        error,
        FollowError::Participant(TransactionError::NodeDown { participant: ParticipantId(1 | 3), .. })
    );
    assert!(is_named, "{error}");
    cluster.stop_all();
}

/// Rows of a transaction that writes one at node 1 and one at node 2.
fn part_of(timestamp: Timestamp, row: u32) -> Part {
    let items = vec![item(stored(row), &bytes_of(timestamp))];
    Part { participants: participants(&[1, 2]), guard: Guard::Open, items, ..part(timestamp, &[]) }
}

#[test]
fn a_transaction_that_is_in_doubt_at_a_lost_node_ends_as_its_other_participants_say() {
    for wire in WIRES {
        let mut cluster = started(4, wire);
        let (committed, superseding, open, half) = (at(10, 1), at(20, 2), at(30, 3), at(40, 4));
        let (mut first, mut second) = (cluster.ready(1), cluster.ready(2));
        let prepare =
            |part| Request::Prepare { part, settled: Vec::new(), preconditions: Default::default() };
        // Committed at node 2, where nothing tells of it any more; at node 1 nobody has said so.
        assert_eq!(first.transact(prepare(part_of(committed, 0))), Reply::Prepared);
        assert_eq!(second.transact(prepare(part_of(committed, 1))), Reply::Prepared);
        assert_eq!(second.transact(Request::Commit { timestamp: committed }), Reply::Committed);
        let alone = Part { participants: participants(&[2]), ..part_of(superseding, 1) };
        assert_eq!(second.transact(prepare(alone)), Reply::Committed);
        // All have prepared it, so it is committed, and somebody may know.
        assert_eq!(first.transact(prepare(part_of(open, 2))), Reply::Prepared);
        assert_eq!(second.transact(prepare(part_of(open, 3))), Reply::Prepared);
        // Node 2 has never heard of it.
        assert_eq!(first.transact(prepare(part_of(half, 4))), Reply::Prepared);
        cluster.stop(1);
        let (mut follower, mut replica) = (follower(&cluster, 1), Replica::new());
        follower.catch_up(&mut replica).unwrap();
        let rows = replica.table(TABLE).expect("there are rows");
        let timestamp_of = |row| rows.row(stored(row)).map(|version| version.timestamp);
        let found: Vec<_> = (0..5).map(timestamp_of).collect();
        assert_eq!(found, [Some(committed), Some(superseding), Some(open), Some(open), None], "{wire:?}");
        cluster.stop_all();
    }
}

#[test]
fn a_log_that_was_made_shorter_tells_as_much() {
    let mut cluster = Cluster::new(3, Wire::Shm);
    cluster.log_bytes_max = Some(2 << 20);
    cluster.start_all();
    let mut session = Session::open(SessionOptions::new(cluster.lines())).unwrap();
    let written: Vec<Timestamp> = (0..40)
        .map(|number: u32| {
            // Other people's keys are there, too.
            let mut items: Vec<_> = (0..6).map(|row| item(stored(row), &vec![7; 40_000])).collect();
            items.push((crate::support::keys::key(&number.to_string()), crate::support::keys::value(b"x")));
            session.write(items).unwrap().timestamp
        })
        .collect();
    drop(session);
    let through = std::fs::metadata(cluster.path(1, "data/transactions.log")).unwrap().len();
    assert!(through < 3 << 20, "it was never made shorter: {through} bytes");
    cluster.stop(1);
    let (mut follower, mut replica) = (follower(&cluster, 1), Replica::new());
    follower.catch_up(&mut replica).unwrap();
    let rows = replica.table(TABLE).expect("there are rows");
    assert_eq!(rows.rows().count(), 6);
    assert!(rows.rows().all(|(_, version)| Some(&version.timestamp) == written.last()));
    cluster.stop_all();
}

#[test]
fn a_replica_that_may_lack_acknowledged_rows_is_not_read() {
    let mut cluster = started(3, Wire::Shm);
    let mut client = cluster.ready(1);
    let row = |time, row| Part { participants: participants(&[1]), ..part_of(at(time, 1), row) };
    let prepare = |part| Request::Prepare { part, settled: Vec::new(), preconditions: Default::default() };
    assert_eq!(client.transact(prepare(row(10, 0))), Reply::Committed);
    cluster.settles(1, |participant| participant.log_copies == 2);
    cluster.stop(3);
    assert_eq!(client.transact(prepare(row(20, 1))), Reply::Committed);
    drop(client);
    cluster.stop(1);
    // Node 3 was left behind, and cannot know.
    cluster.stop(2);
    cluster.start(3);
    let (mut alone, mut replica) = (follower(&cluster, 2), Replica::new());
    let error = alone.catch_up(&mut replica).unwrap_err().to_string();
    assert!(error.contains("may be missing") || error.contains("node 2"), "{error}");
    cluster.start(2);
    let deadline = Instant::now() + PATIENCE;
    let (mut both, mut replica) = (follower(&cluster, 1), Replica::new());
    while let Err(error) = both.catch_up(&mut replica) {
        assert!(Instant::now() < deadline, "{error}");
    }
    let rows = replica.table(TABLE).expect("there are rows");
    assert!(rows.row(stored(1)).is_some(), "what was acknowledged without node 3");
    cluster.stop_all();
}
