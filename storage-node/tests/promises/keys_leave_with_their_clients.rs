//! Promise: when the connection of a client of transactions is closed, only the transactions that
//! it has prepared remain.

use std::time::{Duration, Instant};

use rackscan_format::message::ParticipantStatus;
use rackscan_ramp::message::{Mode, Reply, Request};

use crate::support::{
    client::Client,
    keys::{at, key, prepare},
    node::{NodeFolder, Running},
};

/// Waits until the participant is in that state.
fn settles(node: &Running, settled: impl Fn(&ParticipantStatus) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let status = node.shm().status().participant;
        if settled(&status) {
            return;
        }
        assert!(Instant::now() < deadline, "{status:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn old_versions_go_when_the_reader_has_gone_that_may_ask_for_them() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    for (round, connect) in (1..).zip([Running::shm, Running::tcp]) {
        let mut writer = node.shm();
        writer.commit(at(10 * round, 1), &[("a", &[1; 1000])]);
        let mut reader: Client = connect(&node);
        let lease = reader.lease(2);
        writer.commit(at(10 * round + 1, 1), &[("a", &[2; 1000])]);
        let held = writer.status().participant.held_bytes;
        assert!(held > 1000, "{held}");
        assert_eq!(reader.value(lease, "a"), Some(vec![2; 1000]));
        drop(reader);
        settles(&node, |status| status.held_bytes == 0);
    }
    node.stop();
}

#[test]
fn locks_of_a_lost_client_are_free_and_what_it_prepared_stays_in_doubt() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    let lock = |time, client, name| {
        let wanted = vec![(key(name), Mode::Exclusive)];
        Request::Lock { owner: at(time, client), wanted }
    };
    let mut lost = node.tcp();
    lost.lease(1);
    assert!(matches!(lost.transact(lock(1, 1, "a")), Reply::Locked { .. }));
    assert_eq!(lost.transact(prepare(at(2, 1), &[("b", b"in doubt")])), Reply::Prepared);
    let mut other = node.shm();
    let request = other.transact_request(&[lock(3, 2, "a")]);
    let waits = other.send(request);
    drop(lost);
    let outcome = other.wait(waits).outcome;
    assert!(matches!(other.replies(outcome)[..], [Reply::Locked { .. }]), "the lock is free");
    settles(&node, |status| status.in_doubt == 1);
    // A request that waits for a lock ends with its connection, too.
    let mut waiting = node.tcp();
    let request = waiting.transact_request(&[lock(4, 3, "a")]);
    waiting.send(request);
    drop(waiting);
    assert_eq!(other.transact(Request::Unlock { owner: at(3, 2) }), Reply::Unlocked { held: true });
    assert!(matches!(other.transact(lock(5, 2, "a")), Reply::Locked { .. }), "nobody else has it");
    node.stop();
}

#[test]
fn a_client_goes_with_the_connection_over_which_it_leased_last() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    let (mut first, mut second) = (node.tcp(), node.shm());
    first.lease(1);
    let lease = second.lease(1);
    drop(first);
    settles(&node, |_| node.shm().status().counters.connections_open <= 3);
    assert_eq!(second.value(lease, "a"), None, "the lease is still there");
    node.stop();
}
