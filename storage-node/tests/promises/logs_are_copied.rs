//! Promise: everything that a participant has acknowledged is also in the log replicas on two other
//! nodes; a node that has lost its log recovers its keys from them, whatever else happens to it.
//!
//! Method: nodes that know each other; the test reads, damages and removes their files, and
//! compares what was acknowledged to a client with what the nodes have afterwards.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rackscan_fabric::{ClusterKey, Wire};
use rackscan_format::{
    ids::NodeId,
    message::{Answer, CopyOfLog, KeepLog, LogKept, Payload, RefusalCode, Request as NodeRequest, Start},
};
use rackscan_ramp::{
    log::{Record, Tail, read},
    message::{Part, ParticipantId, Reply, Request, Vote},
    timestamp::Timestamp,
};
use rackscan_storage_node::{ClusterId, Config, Node};

use crate::support::{
    client::Client,
    cluster::{Cluster, open_participant, participants},
    keys::{at, part},
};

const WIRES: [Wire; 2] = [Wire::Shm, Wire::Tcp];
/// Says to a process of this program which node it is.
const PROCESS: &str = "RACKSCAN_TEST_NODE";
pub(super) const LOG: &str = "data/transactions.log";

/// The records of a log or of a copy, and its number; what is being written at this moment left
/// out.
pub(super) fn log(path: &Path) -> (u32, Vec<Record>) {
    let bytes = fs::read(path).expect("the file is there");
    let start = Tail::from_header(&bytes).expect("it is a log");
    let (records, _, _) = read(start, &bytes[24..]);
    (Tail::salt(&bytes).expect("it is a log"), records)
}

/// The bytes of a log up to the end of its last whole record, whose last bytes may be zeroes.
pub(super) fn whole(path: &Path) -> Vec<u8> {
    let mut bytes = fs::read(path).expect("the file is there");
    let start = Tail::from_header(&bytes).expect("it is a log");
    let (_, end, _) = read(start, &bytes[24..]);
    bytes.truncate(usize::try_from(end.offset_bytes).expect("a short log"));
    bytes
}

/// Waits until the copies are what the log is, which may be replaced once more after the last
/// write.
pub(super) fn comes_to_be_copied(cluster: &Cluster, id: u16, replica_nodes: &[u16]) -> (u32, Vec<Record>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let own = log(&cluster.path(id, LOG));
        let lacking = replica_nodes.iter().find(|replica_node| copy(cluster, **replica_node, id) != own);
        let Some(replica_node) = lacking else { return own };
        assert!(Instant::now() < deadline, "the copy in node {replica_node}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(super) fn copy(cluster: &Cluster, replica_node: u16, origin: u16) -> (u32, Vec<Record>) {
    log(&cluster.path(replica_node, &format!("data/copies/{origin}.log")))
}

/// The files that a node has of another one's log.
fn names(cluster: &Cluster, replica_node: u16, origin: u16) -> Vec<String> {
    let folder = fs::read_dir(cluster.path(replica_node, "data/copies")).expect("the folder is there");
    let names = folder.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(&format!("{origin}.log"))).collect();
    names.sort();
    names
}

/// Waits until so many copies of a node's log have everything.
pub(super) fn has_copies(cluster: &Cluster, id: u16, copies: u16) {
    cluster.settles(id, |participant| participant.log_copies == copies);
}

/// The value of the only key, as of that time.
fn value_of(time: u64) -> Vec<u8> {
    // Some travel inside of a request, some beside it, some in several pieces.
    let bytes = [10, 1000, 60_000, 900_000][usize::try_from(time % 4).expect("a small number")];
    time.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

/// Writes in the only participant that a client talks to.
fn commit(
    client: &mut Client,
    timestamp: Timestamp,
    participants: Vec<ParticipantId>,
    items: &[(&str, &[u8])],
) {
    let part = Part { participants, ..part(timestamp, items) };
    // No other participant has a vote.
    assert_eq!(
        client.transact(Request::Prepare { part, settled: Vec::new(), preconditions: Default::default() }),
        Reply::Committed
    );
}

pub(super) fn write(client: &mut Client, times: std::ops::RangeInclusive<u64>) {
    let own = participants(&[client.status().node.0]);
    for time in times {
        let (value, other) = (value_of(time), value_of(time + 2));
        commit(client, at(time, 1), own.clone(), &[("a", &value), (&format!("b{}", time % 3), &other)]);
    }
}

pub(super) fn has(client: &mut Client, time: u64) {
    let lease = client.lease(9);
    assert!(client.value(lease, "a") == Some(value_of(time)), "the value of {time}");
    let other = client.value(lease, &format!("b{}", time % 3));
    assert!(other == Some(value_of(time + 2)), "the other value of {time}");
}

/// What is left of a node's participant when its folder is lost.
pub(super) fn lose(cluster: &Cluster, id: u16) {
    for file in [LOG, "data/transactions.life", "data/transactions.generation"] {
        fs::remove_file(cluster.path(id, file)).expect("the file was there");
    }
}

#[test]
fn what_was_acknowledged_is_in_two_other_nodes_and_comes_back_from_there() {
    for wire in WIRES {
        let mut cluster = Cluster::of_new_nodes(3, wire);
        cluster.start_all();
        let mut client = cluster.ready(1);
        let life = client.lease(1).life;
        for times in [1..=3, 4..=8] {
            write(&mut client, times);
            let own = log(&cluster.path(1, LOG));
            for replica_node in [2, 3] {
                assert!(copy(&cluster, replica_node, 1) == own, "{wire:?}: the copy in node {replica_node}");
            }
        }
        // Nobody knows how it ends: there is no such participant.
        let part = Part { participants: participants(&[1, 9]), ..part(at(20, 1), &[("c", b"in doubt")]) };
        let prepared = client.transact(Request::Prepare {
            part,
            settled: Vec::new(),
            preconditions: Default::default(),
        });
        assert_eq!(prepared, Reply::Prepared);
        assert_eq!(client.status().participant.log_copies, 2);
        assert!(!cluster.path(1, "data/copies/1.log").exists());
        // Its participant is lost as by kill -9 and a new disk: all that it may write in stopping
        // is not there.
        cluster.stop(1);
        drop(client);
        lose(&cluster, 1);
        cluster.start(1);
        let mut client = cluster.ready(1);
        has(&mut client, 8);
        has_copies(&cluster, 1, 2);
        let vote = client.transact(Request::Inquire { timestamp: at(20, 1) });
        assert_eq!(vote, Reply::Voted { vote: Vote::Prepared }, "{wire:?}");
        assert!(client.lease(1).life.abs_diff(life) > 2, "a life is lived once");
        // It goes on as before.
        write(&mut client, 21..=22);
        has_copies(&cluster, 1, 2);
        comes_to_be_copied(&cluster, 1, &[2, 3]);
        cluster.stop_all();
    }
}

/// What the other process does: it is a node, until it is killed.
fn serve(config: &str) -> ! {
    let config = Config::from_file(config).expect("the configuration is right");
    let _node = Node::start(config).expect("the node starts");
    eprintln!("ready");
    loop {
        std::thread::park();
    }
}

/// A node in a process of its own, which is this test again.
fn start_process(config: &Path) -> Child {
    let program = std::env::current_exe().expect("this program has a path");
    let arguments = [
        "--exact",
        "logs_are_copied::a_process_that_was_killed_with_its_disk_has_lost_nothing_that_it_acknowledged",
        "--nocapture",
    ];
    let mut command = Command::new(program);
    command.args(arguments).env(PROCESS, config).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts again");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line == "ready")), "the node starts");
    child
}

#[test]
fn a_process_that_was_killed_with_its_disk_has_lost_nothing_that_it_acknowledged() {
    if let Ok(config) = std::env::var(PROCESS) {
        serve(&config);
    }
    let mut cluster = Cluster::of_new_nodes(3, Wire::Shm);
    cluster.start(2);
    cluster.start(3);
    let config = cluster.config(1, ClusterId(99));
    let (address, file) = (config.listen[0].clone(), cluster.path(1, "node.toml"));
    fs::write(&file, config.to_toml().expect("paths are texts")).expect("the folder is writable");
    let key = ClusterKey::from_bytes([7; 32]);
    let mut time = 0;
    for round in 1..=3 {
        let mut child = start_process(&file);
        let mut client = Client::connect(&address, &key);
        while open_participant(&mut client).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        if time > 0 {
            has(&mut client, time);
        }
        write(&mut client, time + 1..=time + 10);
        time += 10;
        // What is on its way may be there or not.
        let part =
            Part { participants: participants(&[1]), ..part(at(time + 1, 2), &[("z", &value_of(round))]) };
        let request = client.transact_request(&[Request::Prepare {
            part,
            settled: Vec::new(),
            preconditions: Default::default(),
        }]);
        client.send(request);
        child.kill().expect("it can be killed");
        child.wait().expect("it was killed");
        lose(&cluster, 1);
    }
    let mut child = start_process(&file);
    let mut client = Client::connect(&address, &key);
    while open_participant(&mut client).is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    has(&mut client, time);
    child.kill().expect("it can be killed");
    child.wait().expect("it was killed");
    cluster.stop_all();
}

#[test]
fn of_two_nodes_either_keeps_the_others_log() {
    let mut cluster = Cluster::of_new_nodes(2, Wire::Shm);
    cluster.start_all();
    for id in [1, 2] {
        let mut client = cluster.ready(id);
        write(&mut client, 1..=5);
        assert_eq!(client.status().participant.log_copies, 1);
        assert!(copy(&cluster, 3 - id, id) == log(&cluster.path(id, LOG)));
    }
    cluster.stop_all();
}

#[test]
fn a_node_without_its_log_waits_for_all_who_may_have_it() {
    let mut cluster = Cluster::of_new_nodes(3, Wire::Shm);
    cluster.start_all();
    let mut client = cluster.ready(1);
    write(&mut client, 1..=3);
    cluster.stop(1);
    cluster.stop(3);
    drop(client);
    lose(&cluster, 1);
    cluster.start(1);
    let mut client = cluster.client(1);
    // Node 2 answers, node 3 cannot: what it has may be more.
    let only_third = |text: &str| text.contains("waits for node 3 to say");
    let refusal = loop {
        match open_participant(&mut client) {
            Err(refusal) if only_third(&refusal.text) => break refusal,
            Err(refusal) => assert!(refusal.text.contains("waits for node"), "{refusal:?}"),
            Ok(()) => panic!("a participant without keys"),
        }
    };
    assert_eq!(refusal.code, RefusalCode::Busy, "it may be asked again");
    let request = client.transact_request(&[Request::Mark]);
    assert_eq!(client.ask(request).map_err(|refusal| refusal.code), Err(RefusalCode::Busy));
    assert!(!cluster.path(1, LOG).exists(), "nothing is begun");
    cluster.start(3);
    has(&mut cluster.ready(1), 3);
    cluster.stop_all();
}

#[test]
fn a_node_that_waits_for_its_log_stops_when_it_is_told() {
    let mut cluster = Cluster::of_new_nodes(3, Wire::Shm);
    cluster.start(1);
    assert!(open_participant(&mut cluster.client(1)).is_err());
    cluster.stop_all();
}

#[test]
fn writes_go_on_without_copies_and_those_that_missed_some_catch_up() {
    for wire in WIRES {
        let mut cluster = Cluster::new(3, wire);
        cluster.log_replicas_min = Some(0);
        cluster.start_all();
        let mut client = cluster.client(1);
        write(&mut client, 1..=4);
        has_copies(&cluster, 1, 2);
        cluster.stop(2);
        write(&mut client, 5..=8);
        assert_eq!(client.status().participant.log_copies, 1);
        cluster.stop(3);
        write(&mut client, 9..=12);
        assert_eq!(client.status().participant.log_copies, 0);
        cluster.start(2);
        has_copies(&cluster, 1, 1);
        // One that has lost its copies gets them anew.
        fs::remove_dir_all(cluster.path(3, "data/copies")).expect("the folder was there");
        cluster.start(3);
        has_copies(&cluster, 1, 2);
        let own = log(&cluster.path(1, LOG));
        assert!(copy(&cluster, 2, 1) == own && copy(&cluster, 3, 1) == own, "{wire:?}");
        write(&mut client, 13..=13);
        assert!(copy(&cluster, 3, 1) == log(&cluster.path(1, LOG)), "it is waited for again");
        cluster.stop_all();
    }
}

#[test]
fn a_shorter_log_is_copied_and_takes_the_place_of_the_longer_one() {
    for wire in WIRES {
        let mut cluster = Cluster::new(3, wire);
        cluster.log_bytes_max = Some(4 << 20);
        cluster.start_all();
        let mut client = cluster.client(1);
        let (first, _) = log(&cluster.path(1, LOG));
        let write = |client: &mut Client, time: u64| {
            commit(client, at(time, 1), participants(&[1]), &[("a", &vec![time.to_le_bytes()[0]; 100_000])]);
        };
        let mut time = 0;
        while log(&cluster.path(1, LOG)).0 == first {
            time += 1;
            write(&mut client, time);
            assert!(time < 200, "the log was never replaced");
        }
        (time + 1..=time + 3).for_each(|time| write(&mut client, time));
        has_copies(&cluster, 1, 2);
        let own = log(&cluster.path(1, LOG));
        for replica_node in [2, 3] {
            let found = copy(&cluster, replica_node, 1);
            assert!(found == own, "{wire:?}: {} records of {}", found.1.len(), own.1.len());
            assert_eq!(names(&cluster, replica_node, 1), ["1.log"], "nothing is left of the longer one");
        }
        cluster.stop(1);
        drop(client);
        lose(&cluster, 1);
        cluster.start(1);
        let mut client = cluster.ready(1);
        let lease = client.lease(9);
        assert!(client.value(lease, "a") == Some(vec![(time + 3).to_le_bytes()[0]; 100_000]));
        cluster.stop_all();
    }
}

#[test]
fn nothing_is_lost_of_what_many_write_while_logs_are_replaced_and_a_replica_node_comes_and_goes() {
    const WRITERS: u32 = 3;
    const WRITES: u64 = 100;
    let value = |writer: u32, time: u64| -> Vec<u8> {
        [&writer.to_le_bytes()[..], &time.to_le_bytes()].concat().into_iter().cycle().take(90_000).collect()
    };
    let mut cluster = Cluster::new(3, Wire::Shm);
    cluster.log_bytes_max = Some(16 << 20);
    cluster.start_all();
    let (first, _) = log(&cluster.path(1, LOG));
    let clients: Vec<(u32, Client)> = (1..=WRITERS).map(|writer| (writer, cluster.client(1))).collect();
    std::thread::scope(|scope| {
        for (writer, mut client) in clients {
            scope.spawn(move || {
                for time in 1..=WRITES {
                    let items = [(&*format!("k{writer}"), &*value(writer, time))];
                    commit(&mut client, at(time, writer), participants(&[1]), &items);
                }
            });
        }
        cluster.settles(1, |participant| participant.committed >= WRITES / 2);
        cluster.stop(2);
        cluster.settles(1, |participant| participant.committed >= WRITES);
        cluster.start(2);
    });
    has_copies(&cluster, 1, 2);
    assert_ne!(comes_to_be_copied(&cluster, 1, &[2, 3]).0, first, "the log was replaced");
    for replica_node in [2, 3] {
        let mut names = names(&cluster, replica_node, 1);
        names.retain(|name| name != "1.log.new");
        assert_eq!(names, ["1.log"], "nothing was begun anew or cut in node {replica_node}");
    }
    cluster.stop(1);
    lose(&cluster, 1);
    cluster.start(1);
    let mut client = cluster.ready(1);
    let lease = client.lease(9);
    for writer in 1..=WRITERS {
        assert!(client.value(lease, &format!("k{writer}")) == Some(value(writer, WRITES)), "of {writer}");
    }
    cluster.stop_all();
}

#[test]
fn a_copy_with_a_damaged_end_is_completed() {
    let mut cluster = Cluster::new(2, Wire::Shm);
    cluster.start_all();
    let mut client = cluster.client(1);
    write(&mut client, 1..=9);
    has_copies(&cluster, 1, 1);
    cluster.stop(2);
    let path = cluster.path(2, "data/copies/1.log");
    let mut bytes = fs::read(&path).expect("the copy is there");
    let last = bytes.iter().rposition(|byte| *byte != 0).expect("it is not empty");
    bytes[last - 2] ^= 1;
    fs::write(&path, &bytes).expect("the folder is writable");
    cluster.start(2);
    write(&mut client, 10..=10);
    has_copies(&cluster, 1, 1);
    comes_to_be_copied(&cluster, 1, &[2]);
    cluster.stop_all();
}

#[test]
fn what_a_copy_has_and_its_origin_lost_unacknowledged_does_not_stay_in_it() {
    let mut cluster = Cluster::new(2, Wire::Shm);
    cluster.start_all();
    let mut client = cluster.client(1);
    write(&mut client, 1..=5);
    let before = whole(&cluster.path(1, LOG));
    write(&mut client, 6..=6);
    has_copies(&cluster, 1, 1);
    cluster.stop(1);
    drop(client);
    // As if the last batch had reached the other node, and not the own disk.
    fs::write(cluster.path(1, LOG), &before).expect("the folder is writable");
    cluster.start(1);
    let mut client = cluster.client(1);
    has(&mut client, 5);
    write(&mut client, 7..=9);
    has_copies(&cluster, 1, 1);
    comes_to_be_copied(&cluster, 1, &[2]);
    assert!(cluster.path(2, "data/copies/1.log.cut").exists(), "and is kept beside");
    cluster.stop_all();
}

#[test]
fn a_log_that_is_begun_anew_does_not_take_the_place_of_a_copy_unseen() {
    let mut cluster = Cluster::new(2, Wire::Shm);
    cluster.start_all();
    let mut client = cluster.client(1);
    write(&mut client, 1..=5);
    has_copies(&cluster, 1, 1);
    let (number, records) = copy(&cluster, 2, 1);
    cluster.stop(1);
    drop(client);
    // Somebody makes an empty log by hand.
    fs::write(cluster.path(1, LOG), Tail::header(0, 0x7777_0000).0).expect("the folder is writable");
    cluster.start(1);
    let mut client = cluster.client(1);
    write(&mut client, 6..=6);
    has_copies(&cluster, 1, 1);
    let aside = format!("data/copies/1.log.{number:08x}-{}", records.len());
    assert!(log(&cluster.path(2, &aside)) == (number, records));
    cluster.stop_all();
}

#[test]
fn nonsense_about_copies_is_refused_and_changes_nothing() {
    let mut cluster = Cluster::new(3, Wire::Tcp);
    cluster.start_all();
    write(&mut cluster.client(1), 1..=5);
    has_copies(&cluster, 1, 2);
    let mut client = cluster.client(2);
    let (number, records) = copy(&cluster, 2, 1);
    let keep = |origin: u16, log, offset_bytes, bytes: Payload| {
        let origin = NodeId(origin);
        let generation = None;
        let start = Start::default();
        let part = KeepLog { origin, start, log, offset_bytes, cut: None, is_whole: true, bytes, generation };
        NodeRequest::KeepLog(part)
    };
    let sevens = || Payload::Here(vec![7; 100]);
    let unknown = client.ask(keep(9, 1, 0, sevens())).unwrap_err();
    assert!(unknown.code == RefusalCode::NotFound && unknown.text.contains("node 9"), "{unknown:?}");
    let Ok(Answer::LogKept(kept)) = client.ask(keep(1, number, 0, Payload::Here(Vec::new()))) else {
        panic!("what there is was expected")
    };
    assert!(kept.is_whole && kept.end.sequence == records.len() as u64, "{kept:?}");
    let outside = client.target(client.region.bytes() as u64, 4096);
    for (bytes, offset) in [
        (sevens(), 0),
        (Payload::Here(vec![0; 1000]), kept.through_bytes),
        (Payload::Here(vec![0xff; 1000]), kept.through_bytes),
        (Payload::Beside(client.target(0, 1 << 20)), kept.through_bytes),
        (Payload::Beside(outside), kept.through_bytes),
    ] {
        let refused = client.ask(keep(1, number, offset, bytes));
        assert!(refused.is_err(), "{refused:?}");
    }
    let gap = client.ask(keep(1, number, u64::MAX, sevens()));
    assert!(
        matches!(gap, Ok(Answer::LogKept(LogKept { through_bytes, .. })) if through_bytes == kept.through_bytes)
    );
    let far = CopyOfLog { origin: NodeId(1), from_bytes: u64::MAX, target: client.target(0, u64::MAX) };
    let far = client.ask(NodeRequest::CopyOfLog(far));
    assert!(matches!(far, Ok(Answer::CopyOfLog { held: Some(_), written_bytes: 0, .. })), "{far:?}");
    assert!(copy(&cluster, 2, 1) == (number, records));
    write(&mut cluster.client(1), 6..=7);
    has_copies(&cluster, 1, 2);
    cluster.stop_all();
}

/// A folder was restored whose last start had written for less than a second: its peers had kept
/// what it wrote, and had not connected to it yet. It cut that off their replicas.
#[test]
fn a_node_knows_the_start_of_a_folder_before_it_answers_that_it_keeps_a_part_of_its_log() {
    let mut cluster = Cluster::new(3, Wire::Tcp);
    cluster.start_all();
    write(&mut cluster.client(1), 1..=5);
    has_copies(&cluster, 1, 2);
    let mut client = cluster.client(2);
    let (log, records) = copy(&cluster, 2, 1);
    let seen = |client: &mut Client| client.status().identity.seen_of(NodeId(1)).expect("node 1 was seen");
    let start = seen(&mut client);
    let mut keep = |start| {
        let (origin, bytes) = (NodeId(1), Payload::Here(Vec::new()));
        let nothing = KeepLog {
            origin,
            start,
            log,
            offset_bytes: 0,
            cut: None,
            is_whole: false,
            bytes,
            generation: None,
        };
        let outcome = client.ask(NodeRequest::KeepLog(nothing));
        (outcome, seen(&mut client))
    };
    let next = Start { number: start.number + 1, id: 7, ..start };
    let (kept, seen) = keep(next);
    assert!(matches!(kept, Ok(Answer::LogKept(_))), "{kept:?}");
    assert_eq!(seen, next);
    let identity = fs::read_to_string(cluster.path(2, "data/identity.toml")).expect("it is there");
    assert!(identity.contains("0000000000000007"), "{identity}");
    // The same start again, and those of a folder that was restored.
    assert!(keep(next).0.is_ok());
    for restored in [start, Start { id: 8, ..next }] {
        let (refused, seen) = keep(restored);
        let refused = refused.expect_err("another start was seen");
        assert!(refused.text.contains("its data folder is outdated"), "{refused:?}");
        assert_eq!(seen, next);
    }
    // A folder that was rebuilt begins another lineage.
    let rebuilt = Start { lineage: start.lineage ^ 1, number: 1, id: 9 };
    assert!(keep(rebuilt).0.is_ok());
    assert_eq!(copy(&cluster, 2, 1), (log, records));
    cluster.stop_all();
}
