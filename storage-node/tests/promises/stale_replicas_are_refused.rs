//! Promise: a write is acknowledged only when as many log replicas have it as the configuration
//! requires; with fewer available, it is refused at once. A replica that may lack an acknowledged
//! record is never used as the newest one: the node reports what may be missing, and waits for an
//! operator.
//!
//! Method: nodes that know each other; the test stops nodes, removes replicas or lets them miss
//! records, and compares what was acknowledged to a client with what the nodes have afterwards.

use std::{
    fs,
    time::{Duration, Instant},
};

use rackscan_fabric::Wire;
use rackscan_format::message::{Answer, RefusalCode, Request as NodeRequest};
use rackscan_ramp::message::{Refusal, Reply, Request};

use crate::{
    logs_are_copied::{LOG, comes_to_be_copied, has, has_copies, lose, write},
    support::{
        client::Client,
        cluster::{Cluster, open_participant, participants},
        keys::{at, part},
    },
};

const PATIENCE: Duration = Duration::from_secs(60);
const GENERATION: &str = "data/transactions.generation";

/// All that a node has of other nodes' logs is gone.
fn lose_replicas(cluster: &Cluster, id: u16) {
    fs::remove_dir_all(cluster.path(id, "data/copies")).expect("the folder was there");
}

/// A write in the first node alone.
fn put(client: &mut Client, time: u64) -> Reply {
    let part = rackscan_ramp::message::Part {
        participants: participants(&[1]),
        ..part(at(time, 1), &[("a", b"new")])
    };
    client.transact(Request::Prepare { part, settled: Vec::new(), preconditions: Default::default() })
}

/// Why the node has no participant, when it says that a person is to decide.
fn doubt(cluster: &Cluster, id: u16) -> String {
    let deadline = Instant::now() + PATIENCE;
    let mut client = cluster.client(id);
    loop {
        match open_participant(&mut client) {
            Err(refusal) if refusal.code == RefusalCode::Storage => return refusal.text,
            Err(refusal) => assert!(Instant::now() < deadline, "{refusal:?}"),
            Ok(()) => panic!("node {id} takes what may be stale"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn accept_loss(cluster: &Cluster, id: u16) {
    let answer = cluster.client(id).ask(NodeRequest::AcceptLoss);
    assert_eq!(answer, Ok(Answer::Done));
}

#[test]
fn below_the_least_number_of_replicas_writes_are_refused_at_once_and_go_on_by_themselves() {
    for wire in [Wire::Shm, Wire::Tcp] {
        let mut cluster = Cluster::new(3, wire);
        cluster.start_all();
        let mut client = cluster.client(1);
        write(&mut client, 1..=3);
        cluster.stop(2);
        write(&mut client, 4..=5);
        cluster.stop(3);
        cluster.comes_to(1, |node| node.participant_refuses.is_some());
        for time in 10..13 {
            let Reply::Refused { why: Refusal::Unrecorded { why } } = put(&mut client, time) else {
                panic!("{wire:?}: it is acknowledged by one disk")
            };
            for part in ["2 of 2 log replicas of node 1 are unavailable", "at least 1", "start node 2 or 3"] {
                assert!(why.contains(part), "{part}: {why}");
            }
        }
        has(&mut client, 5);
        cluster.start(2);
        cluster.comes_to(1, |node| node.participant_refuses.is_none());
        write(&mut client, 20..=21);
        cluster.start(3);
        has_copies(&cluster, 1, 2);
        comes_to_be_copied(&cluster, 1, &[2, 3]);
        cluster.stop_all();
    }
}

#[test]
fn a_node_that_has_lost_its_log_takes_the_replica_that_was_not_left_behind() {
    let mut cluster = Cluster::new(3, Wire::Shm);
    cluster.start_all();
    let mut client = cluster.client(1);
    write(&mut client, 1..=4);
    has_copies(&cluster, 1, 2);
    cluster.stop(3);
    write(&mut client, 5..=8);
    drop(client);
    cluster.stop(1);
    lose(&cluster, 1);
    // The stale one is there first, and alone.
    cluster.stop(2);
    cluster.start(3);
    cluster.start(1);
    let refusal = open_participant(&mut cluster.client(1)).expect_err("it may be stale");
    assert!(refusal.text.contains("waits for node"), "{refusal:?}");
    cluster.start(2);
    has(&mut cluster.ready(1), 8);
    has_copies(&cluster, 1, 2);
    comes_to_be_copied(&cluster, 1, &[2, 3]);
    cluster.stop_all();
}

#[test]
fn a_stale_replica_alone_is_refused_with_what_may_be_missing_until_a_person_accepts_that() {
    let mut cluster = Cluster::new(3, Wire::Shm);
    cluster.start_all();
    let mut client = cluster.client(1);
    write(&mut client, 1..=4);
    has_copies(&cluster, 1, 2);
    let nobody_asks = cluster.client(1).ask(NodeRequest::AcceptLoss).map_err(|refusal| refusal.code);
    assert_eq!(nobody_asks, Err(RefusalCode::NotFound));
    cluster.stop(3);
    write(&mut client, 5..=8);
    drop(client);
    cluster.stop(1);
    cluster.stop(2);
    lose(&cluster, 1);
    lose_replicas(&cluster, 2);
    cluster.start_all();
    let text = doubt(&cluster, 1);
    let parts = ["node 3 has records up to 4 of generation 1", "node 2 knows nothing", "records from 5 on"];
    for part in parts.into_iter().chain(["rackscan recover --node 1 --accept-loss"]) {
        assert!(text.contains(part), "{part}: {text}");
    }
    let status = cluster.client(1).status();
    assert!(status.participant_refuses.is_some_and(|why| why.contains("records from 5 on")));
    // A restart changes nothing of that.
    cluster.stop(1);
    cluster.start(1);
    doubt(&cluster, 1);
    accept_loss(&cluster, 1);
    let mut client = cluster.ready(1);
    has(&mut client, 4);
    write(&mut client, 30..=31);
    has_copies(&cluster, 1, 2);
    comes_to_be_copied(&cluster, 1, &[2, 3]);
    // From now on there is no doubt.
    drop(client);
    cluster.stop(1);
    lose(&cluster, 1);
    cluster.start(1);
    has(&mut cluster.ready(1), 31);
    cluster.stop_all();
}

#[test]
fn a_node_that_may_have_gone_on_alone_waits_for_a_person() {
    let mut cluster = Cluster::new(3, Wire::Shm);
    cluster.log_replicas_min = Some(0);
    cluster.start_all();
    let mut client = cluster.client(1);
    write(&mut client, 1..=4);
    has_copies(&cluster, 1, 2);
    cluster.stop(2);
    cluster.stop(3);
    write(&mut client, 5..=8);
    drop(client);
    cluster.stop(1);
    lose(&cluster, 1);
    cluster.start_all();
    assert!(doubt(&cluster, 1).contains("may be missing"));
    accept_loss(&cluster, 1);
    has(&mut cluster.ready(1), 4);
    cluster.stop_all();
}

#[test]
fn of_four_nodes_two_may_lose_everything_and_nobody_has_to_decide() {
    let mut cluster = Cluster::new(4, Wire::Shm);
    cluster.start_all();
    let mut client = cluster.client(1);
    write(&mut client, 1..=4);
    cluster.settles(1, |participant| participant.log_copies == 2 && participant.log_generation_unaware == 0);
    drop(client);
    cluster.stop(1);
    cluster.stop(2);
    lose(&cluster, 1);
    lose(&cluster, 2);
    lose_replicas(&cluster, 2);
    cluster.start(1);
    cluster.start(2);
    has(&mut cluster.ready(1), 4);
    cluster.stop_all();
}

#[test]
fn a_log_that_is_older_than_its_replicas_stops_its_node_and_says_how_to_go_on() {
    let mut cluster = Cluster::new(3, Wire::Shm);
    cluster.start_all();
    let mut client = cluster.client(1);
    write(&mut client, 1..=4);
    has_copies(&cluster, 1, 2);
    let [older_log, older_generation] =
        [LOG, GENERATION].map(|file| fs::read(cluster.path(1, file)).expect("the file is there"));
    cluster.stop(3);
    write(&mut client, 5..=8);
    drop(client);
    cluster.stop(1);
    fs::write(cluster.path(1, LOG), older_log).expect("the folder is writable");
    fs::write(cluster.path(1, GENERATION), older_generation).expect("the folder is writable");
    let why = cluster.fails(1);
    for part in ["generation 1", "node 2 knows generation 2", "move both out"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    for file in [LOG, GENERATION] {
        fs::remove_file(cluster.path(1, file)).expect("the file was there");
    }
    cluster.start(1);
    cluster.start(3);
    has(&mut cluster.ready(1), 8);
    cluster.stop_all();
}
