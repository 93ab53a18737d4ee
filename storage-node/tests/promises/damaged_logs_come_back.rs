//! Promise: a node whose log is damaged restores the lost records from its log replicas; it waits
//! for their nodes for a limited time, and then continues with the intact part of the log.
//!
//! Method: nodes that know each other; the log of one is damaged while the node is down, and the
//! others are down or up when it starts again.

use std::{fs, time::Duration};

use rackscan_fabric::Wire;
use rackscan_format::message::RefusalCode;
use rackscan_storage_node::LogPatience;

use crate::{
    logs_are_copied::{LOG, comes_to_be_copied, copy, has, has_copies, log, whole, write},
    support::cluster::{Cluster, open_participant},
};

const CUT: &str = "data/transactions.log.cut";
/// Longer than any test takes.
const FOR_EVER: LogPatience =
    LogPatience { others: Duration::from_secs(3600), first: Duration::from_secs(3600) };
/// Not for ever, but nobody comes who is not there.
const SHORT: LogPatience =
    LogPatience { others: Duration::from_millis(300), first: Duration::from_millis(900) };

/// Where a log is damaged: in its middle, in what was written last, in its last record.
const PLACES: [fn(usize, usize) -> usize; 3] =
    [|before, _| before / 2, |before, _| before + 30, |_, end| end - 2];

/// A cluster whose first node has written until this time, and is down with a damaged log; the
/// bytes from the damage on.
fn damaged(nodes: usize, place: fn(usize, usize) -> usize) -> (Cluster, Vec<u8>) {
    let mut cluster = Cluster::new(nodes, Wire::Shm);
    // It goes on when it is alone.
    cluster.log_replicas_min = Some(0);
    cluster.start_all();
    let mut client = cluster.client(1);
    write(&mut client, 1..=7);
    let before = whole(&cluster.path(1, LOG)).len();
    write(&mut client, 8..=8);
    has_copies(&cluster, 1, u16::try_from(nodes - 1).expect("few nodes"));
    // As kill -9 would leave it.
    let mut bytes = whole(&cluster.path(1, LOG));
    cluster.stop(1);
    let at = place(before, bytes.len());
    bytes[at] ^= 1;
    fs::write(cluster.path(1, LOG), &bytes).expect("the folder is writable");
    // Zeroes at the end are not told from those behind the log.
    let last = bytes.iter().rposition(|byte| *byte != 0).expect("it is not empty");
    (cluster, bytes[at..=last].to_vec())
}

#[test]
fn a_damaged_log_comes_back_whole_from_its_copies() {
    for place in PLACES {
        let (mut cluster, damage) = damaged(3, place);
        cluster.log_patience = FOR_EVER;
        cluster.start(1);
        let mut client = cluster.ready(1);
        has(&mut client, 8);
        assert_eq!(client.status().participant.log_cut_bytes, 0, "nothing is missing");
        let kept = fs::read(cluster.path(1, CUT)).expect("what was damaged is kept beside");
        assert!(kept.ends_with(&damage));
        // It goes on as before, and nothing was taken off the copies.
        write(&mut client, 9..=10);
        has_copies(&cluster, 1, 2);
        comes_to_be_copied(&cluster, 1, &[2, 3]);
        for replica_node in [2, 3] {
            assert!(!cluster.path(replica_node, "data/copies/1.log.cut").exists());
        }
        cluster.stop(1);
        cluster.start(1);
        has(&mut cluster.ready(1), 10);
        cluster.stop_all();
    }
}

#[test]
fn nodes_whose_logs_are_all_damaged_have_all_of_them_from_each_other() {
    let mut cluster = Cluster::new(3, Wire::Shm);
    cluster.start_all();
    for id in 1..=3 {
        write(&mut cluster.client(id), 1..=u64::from(id) + 4);
        has_copies(&cluster, id, 2);
    }
    // As if the current had failed for all of them.
    (1..=3).for_each(|id| cluster.stop(id));
    for id in 1..=3 {
        let mut bytes = whole(&cluster.path(id, LOG));
        let at = bytes.len() - 2;
        bytes[at] ^= 1;
        fs::write(cluster.path(id, LOG), &bytes).expect("the folder is writable");
    }
    cluster.log_patience = FOR_EVER;
    cluster.start_all();
    for id in 1..=3 {
        let mut client = cluster.ready(id);
        has(&mut client, u64::from(id) + 4);
        assert_eq!(client.status().participant.log_cut_bytes, 0, "node {id}");
        has_copies(&cluster, id, 2);
    }
    cluster.stop_all();
}

#[test]
fn one_copy_is_enough_when_the_other_one_stays_unavailable() {
    for unavailable in [2, 3] {
        let (mut cluster, _) = damaged(3, PLACES[1]);
        cluster.stop(unavailable);
        cluster.log_patience = LogPatience { others: SHORT.others, ..FOR_EVER };
        cluster.start(1);
        let mut client = cluster.ready(1);
        has(&mut client, 8);
        assert_eq!(client.status().participant.log_cut_bytes, 0);
        cluster.start(unavailable);
        has_copies(&cluster, 1, 2);
        cluster.stop_all();
    }
}

#[test]
fn while_it_waits_it_refuses_and_says_for_whom_and_nothing_is_cut_off() {
    let (mut cluster, _) = damaged(3, PLACES[1]);
    let bytes = fs::read(cluster.path(1, LOG)).expect("the log is there");
    cluster.stop(2);
    cluster.stop(3);
    cluster.log_patience = FOR_EVER;
    cluster.start(1);
    let refusal = open_participant(&mut cluster.client(1)).expect_err("it waits");
    assert_eq!(refusal.code, RefusalCode::Busy, "it may be asked again");
    assert!(
        refusal.text.contains("waits for node 2 and node 3") && refusal.text.contains("damaged"),
        "{refusal:?}"
    );
    // It may be told to stop, or be killed, and asks again when it starts again.
    cluster.stop(1);
    let after = fs::read(cluster.path(1, LOG)).expect("the log is there");
    assert!(after == bytes && !cluster.path(1, CUT).exists());
    (2..=3).for_each(|replica_node| cluster.start(replica_node));
    cluster.start(1);
    has(&mut cluster.ready(1), 8);
    cluster.stop_all();
}

#[test]
fn a_node_whose_replica_nodes_stay_unavailable_goes_on_with_what_is_left_and_says_so() {
    let (mut cluster, damage) = damaged(3, PLACES[1]);
    cluster.stop(2);
    cluster.stop(3);
    cluster.log_patience = SHORT;
    cluster.start(1);
    let mut client = cluster.ready(1);
    has(&mut client, 7);
    let kept = fs::read(cluster.path(1, CUT)).expect("it is kept beside");
    assert!(kept.ends_with(&damage));
    assert_eq!(client.status().participant.log_cut_bytes, kept.len() as u64);
    write(&mut client, 9..=9);
    // What they have more is not of this log any more; it stays beside.
    for replica_node in [2, 3] {
        cluster.start(replica_node);
    }
    has_copies(&cluster, 1, 2);
    comes_to_be_copied(&cluster, 1, &[2, 3]);
    for replica_node in [2, 3] {
        assert!(cluster.path(replica_node, "data/copies/1.log.cut").exists());
    }
    has(&mut cluster.client(1), 9);
    cluster.stop_all();
}

#[test]
fn a_torn_end_of_which_nobody_has_more_is_cut_off_at_once() {
    let (mut cluster, _) = damaged(3, PLACES[2]);
    let mut bytes = fs::read(cluster.path(1, LOG)).expect("the log is there");
    // The damage undone, and a batch of which only the beginning was written, and nobody was told.
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    let torn = [&[200, 0, 0, 0][..], &[7; 60]].concat();
    fs::write(cluster.path(1, LOG), [&bytes[..], &torn].concat()).expect("the folder is writable");
    cluster.log_patience = FOR_EVER;
    cluster.start(1);
    let mut client = cluster.ready(1);
    has(&mut client, 8);
    assert_eq!(client.status().participant.log_cut_bytes, torn.len() as u64);
    assert!(fs::read(cluster.path(1, CUT)).expect("it is kept beside") == torn);
    write(&mut client, 9..=9);
    has_copies(&cluster, 1, 2);
    cluster.stop_all();
}

#[test]
fn a_copy_that_goes_on_differently_is_not_taken_however_long_it_is() {
    let mut cluster = Cluster::new(2, Wire::Shm);
    cluster.start_all();
    let mut client = cluster.client(1);
    write(&mut client, 1..=5);
    let before = whole(&cluster.path(1, LOG));
    write(&mut client, 6..=15);
    has_copies(&cluster, 1, 1);
    cluster.stop(1);
    cluster.stop(2);
    drop(client);
    // An older state of the log, by hand, and it goes on from there while nobody else is up.
    fs::write(cluster.path(1, LOG), &before).expect("the folder is writable");
    cluster.start(1);
    let mut client = cluster.ready(1);
    write(&mut client, 16..=17);
    let end = whole(&cluster.path(1, LOG)).len();
    write(&mut client, 18..=18);
    let mut bytes = whole(&cluster.path(1, LOG));
    cluster.stop(1);
    drop(client);
    bytes[end + 30] ^= 1;
    fs::write(cluster.path(1, LOG), &bytes).expect("the folder is writable");
    let (number, records) = copy(&cluster, 2, 1);
    let own = log(&cluster.path(1, LOG));
    assert!(number == own.0 && records.len() > own.1.len(), "of the same log, and longer");
    cluster.log_patience = FOR_EVER;
    cluster.start(2);
    cluster.start(1);
    let mut client = cluster.ready(1);
    has(&mut client, 17);
    assert!(client.status().participant.log_cut_bytes > 0);
    assert!(!cluster.path(1, "data/transactions.log.fetched").exists(), "it is not kept");
    cluster.stop_all();
}
