//! Promise: after a crash, every acknowledged write is there, prepared transactions are in doubt,
//! and a damaged end of the log is cut off, saved in a file and reported.
//!
//! Method: the test copies the files of a running node, as a crash would leave them, and starts a
//! node over the copy.

use rackscan_ramp::message::{Reply, Request, Vote};
use rackscan_storage_node::StartError;

use crate::support::{
    keys::{at, prepare},
    node::NodeFolder,
};

#[test]
fn what_was_acknowledged_is_there_after_a_crash() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    let mut client = node.shm();
    let before = client.lease(1);
    for time in 1..=20 {
        client.commit(at(time, 1), &[("a", &time.to_le_bytes()), ("b", &vec![7; 2000])]);
    }
    assert_eq!(client.transact(prepare(at(30, 1), &[("a", b"in doubt")])), Reply::Prepared);
    assert_eq!(
        client.transact(Request::Inquire { timestamp: at(31, 1) }),
        Reply::Voted { vote: Vote::Refused }
    );
    let crashed = node_folder.copy_with_keys();
    node.stop();
    for lives in 1..=2 {
        let node = crashed.start_with_keys();
        let mut client = node.tcp();
        let lease = client.lease(1);
        assert_eq!(lease.life, before.life + lives, "a life is lived once");
        assert_eq!(client.transact(Request::Get { lease: before, keys: vec![] }), Reply::Unleased);
        assert_eq!(client.value(lease, "a"), Some(20_u64.to_le_bytes().to_vec()));
        let votes = [at(30, 1), at(31, 1)].map(|timestamp| client.transact(Request::Inquire { timestamp }));
        assert_eq!(votes, [Vote::Prepared, Vote::Refused].map(|vote| Reply::Voted { vote }));
        assert_eq!(client.status().participant.in_doubt, 1);
        node.stop();
    }
    let node = crashed.start_with_keys();
    let mut client = node.shm();
    assert_eq!(client.transact(Request::Commit { timestamp: at(30, 1) }), Reply::Committed);
    let lease = client.lease(1);
    assert_eq!(client.value(lease, "a"), Some(b"in doubt".to_vec()));
    node.stop();
}

#[test]
fn a_damaged_end_is_cut_off_kept_and_the_rest_stays() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with_keys();
    let mut client = node.shm();
    client.commit(at(1, 1), &[("a", b"first")]);
    let whole = usize::try_from(client.status().participant.log_bytes).unwrap();
    client.commit(at(2, 1), &[("a", b"second")]);
    let end = usize::try_from(client.status().participant.log_bytes).unwrap();
    let crashed = node_folder.copy_with_keys();
    node.stop();
    let log = crashed.path("data/transactions.log");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[whole + 20] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let node = crashed.start_with_keys();
    let written = bytes[..end].iter().rposition(|byte| *byte != 0).unwrap();
    assert_eq!(std::fs::read(crashed.path("data/transactions.log.cut")).unwrap(), bytes[whole..=written]);
    let mut client = node.shm();
    let lease = client.lease(1);
    assert_eq!(client.value(lease, "a"), Some(b"first".to_vec()));
    let status = client.status().participant;
    assert_eq!((status.log_bytes, status.log_cut_bytes), (whole as u64, (written + 1 - whole) as u64));
    client.commit(at(3, 1), &[("a", b"third")]);
    node.stop();
    let node = crashed.start_with_keys();
    let mut client = node.shm();
    let lease = client.lease(1);
    assert_eq!(client.value(lease, "a"), Some(b"third".to_vec()), "what was cut off did not come back");
    assert_eq!(client.status().participant.log_cut_bytes, 0, "it is said of one start");
    node.stop();
}

#[test]
fn a_file_that_is_no_log_stops_the_start() {
    let node_folder = NodeFolder::new();
    node_folder.start_with_keys().stop();
    let log = node_folder.path("data/transactions.log");
    std::fs::write(&log, [7; 100]).unwrap();
    let Err(error) = node_folder.start_with(node_folder.config_with_keys()) else { panic!("it starts") };
    assert!(matches!(error, StartError::Participant(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("transactions.log") && text.contains("expected"), "{text}");
    assert_eq!(std::fs::read(&log).unwrap(), [7; 100]);
}
