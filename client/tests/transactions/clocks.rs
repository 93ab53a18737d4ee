//! Tests that acknowledged writes are visible, whatever the clocks of clients and nodes say. Goal:
//! a write is acknowledged only if it is newer than what it supersedes. Method: clocks of sessions
//! and nodes are wrong by up to ten years, or jump, in every combination; every acknowledged write
//! is read at once.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use rackscan_client::{Operations, Session, SessionOptions, TransactionError};
use rackscan_fabric::WallClock;
use rackscan_ramp::{
    algorithm::Algorithm,
    item::{Key, Value},
    limits::CLOCK_SKEW_MS_MAX,
};

use crate::{
    scene::{Scene, Wire},
    sessions::{of, open, options, value},
};

const SECOND_MS: i64 = 1000;
const HOUR_MS: i64 = 3600 * SECOND_MS;
const YEAR_MS: i64 = 8766 * HOUR_MS;
/// Around the skew that is allowed, with room for a slow machine, and far beyond it.
const SKEWS_MS: [i64; 8] = [
    -10 * YEAR_MS,
    -40 * 24 * HOUR_MS,
    -HOUR_MS,
    -30 * SECOND_MS,
    30 * SECOND_MS,
    HOUR_MS,
    40 * 24 * HOUR_MS,
    10 * YEAR_MS,
];

/// Whose clocks are wrong.
const WRONG: [(&str, bool, usize); 4] =
    [("a client", true, 0), ("a node", false, 1), ("two nodes", false, 2), ("a client and a node", true, 1)];

/// A session whose clock is as wrong as is said.
fn session(scene: &Scene, algorithm: Algorithm, skew_ms: &Arc<AtomicI64>) -> Session {
    let skew_ms = Arc::clone(skew_ms);
    let read = move || WallClock::default().now_ms().saturating_add_signed(skew_ms.load(Ordering::SeqCst));
    let options =
        SessionOptions { wall: WallClock::new(read), ..options(scene, algorithm, Operations::Messages) };
    Session::open(options).expect("the options work")
}

/// Writes; whether it was acknowledged. What was not is a clock that is ahead, and says so; without
/// concurrency control some nodes may have taken it.
fn writes(session: &mut Session, algorithm: Algorithm, items: &[(Key, Value)], what: &str) -> bool {
    match session.write(items.to_vec()) {
        Ok(_) => true,
        Err(TransactionError::Unknown { .. }) if algorithm == Algorithm::None => false,
        Err(TransactionError::ClockAhead { client_ms, host, host_ms, .. }) => {
            assert!(client_ms > host_ms + CLOCK_SKEW_MS_MAX, "{what}");
            assert_eq!(host, "the node's host", "{what}");
            false
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

fn found(reader: &mut Session, keys: &[Key]) -> Vec<Value> {
    let read = reader.read(keys).expect("all nodes are up");
    read.items.into_iter().map(|(_, version)| version.value).collect()
}

/// Several transactions of a client whose clock may be wrong and of one whose clock is right, by
/// turns; each that is acknowledged is found.
fn by_turns(scene: &Scene, algorithm: Algorithm, wrong: i64, nodes_wrong: i64, what: &str) {
    // One key, and keys of all nodes together.
    let groups = [vec![of("a")], (0..9).map(|number| of(&format!("k{number}"))).collect::<Vec<Key>>()];
    let right = Arc::new(AtomicI64::new(0));
    let wrong = Arc::new(AtomicI64::new(wrong));
    let mut sessions = [&right, &wrong, &right].map(|skew_ms| session(scene, algorithm, skew_ms));
    let mut reader = open(scene, algorithm, Operations::Messages);
    for keys in &groups {
        for (turn, by) in [1, 0, 1, 2, 0].into_iter().enumerate() {
            for deletes in [false, true] {
                let new = if deletes { Value::DELETED } else { value(&format!("{what} {turn}")) };
                let items: Vec<(Key, Value)> = keys.iter().map(|key| (key.clone(), new.clone())).collect();
                let before = found(&mut reader, keys);
                let is_written = writes(&mut sessions[by], algorithm, &items, what);
                let after = found(&mut reader, keys);
                if is_written {
                    assert!(after.iter().all(|found| *found == new), "{what}: {turn} by {by}: {after:?}");
                } else if algorithm != Algorithm::None {
                    assert_eq!(after, before, "{what}: {turn} by {by}");
                }
                let behind = if nodes_wrong < -SECOND_MS { -nodes_wrong } else { 0 };
                let ahead = if by == 1 { wrong.load(Ordering::SeqCst) } else { 0 };
                if ahead + behind < i64::try_from(CLOCK_SKEW_MS_MAX).expect("a minute") / 2 + SECOND_MS {
                    assert!(is_written, "{what}: {turn} by {by}: no clock is ahead of a node's");
                }
                if by == 1 && keys.len() > 1 && ahead > HOUR_MS / 2 && nodes_wrong <= 0 {
                    assert!(!is_written, "{what}: {turn}: the clock of the client is ahead");
                }
            }
        }
    }
    sessions.into_iter().chain([reader]).for_each(Session::close);
}

#[test]
fn what_is_acknowledged_is_found_whatever_the_clocks_say_and_data_of_wrong_clocks_is_overwritten_at_once() {
    for algorithm in [Algorithm::Fast, Algorithm::Locking, Algorithm::None] {
        let mut scene = Scene::start(Wire::Shm, 3);
        for (who, is_client_wrong, nodes) in WRONG {
            for skew_ms in SKEWS_MS {
                let what = format!("{algorithm}, {who} {skew_ms} ms");
                let client_ms = if is_client_wrong { skew_ms } else { 0 };
                // Data of wrong clocks is in the logs, too.
                scene.stop(0);
                scene.start_again(0);
                for node in 0..nodes {
                    scene.knobs(node).skew_ms.store(skew_ms, Ordering::SeqCst);
                }
                by_turns(&scene, algorithm, client_ms, if nodes > 0 { skew_ms } else { 0 }, &what);
                for node in 0..nodes {
                    scene.knobs(node).skew_ms.store(0, Ordering::SeqCst);
                }
                by_turns(&scene, algorithm, 0, 0, &format!("{what}, and all are right again"));
            }
        }
    }
}

#[test]
fn a_clock_that_jumps_during_a_session_loses_nothing() {
    for algorithm in [Algorithm::Fast, Algorithm::Locking, Algorithm::None] {
        let scene = Scene::start(Wire::Shm, 3);
        let skew_ms = Arc::new(AtomicI64::new(0));
        let mut jumps = session(&scene, algorithm, &skew_ms);
        let mut other = open(&scene, algorithm, Operations::Messages);
        let mut reader = open(&scene, algorithm, Operations::Messages);
        let keys: Vec<Key> = (0..5).map(|number| of(&format!("k{number}"))).collect();
        for (turn, jump_ms) in SKEWS_MS.into_iter().chain([0, -YEAR_MS, 0]).enumerate() {
            // Nodes jump with it, or it is refused; both, one after the other, and then all jump
            // back.
            for nodes_ms in [jump_ms, 0] {
                skew_ms.store(jump_ms, Ordering::SeqCst);
                for node in 0..3 {
                    scene.knobs(node).skew_ms.store(nodes_ms, Ordering::SeqCst);
                }
                let what = format!("{algorithm}: {turn}: {jump_ms} ms, nodes {nodes_ms} ms");
                let items = |text: &str| -> Vec<(Key, Value)> {
                    keys.iter().map(|key| (key.clone(), value(text))).collect()
                };
                let is_written = writes(&mut jumps, algorithm, &items(&what), &what);
                assert!(is_written || jump_ms > nodes_ms, "{what}");
                if is_written {
                    assert!(found(&mut reader, &keys).iter().all(|found| *found == value(&what)));
                }
                scene.knobs(0).skew_ms.store(0, Ordering::SeqCst);
                (1..3).for_each(|node| scene.knobs(node).skew_ms.store(0, Ordering::SeqCst));
                skew_ms.store(0, Ordering::SeqCst);
                for session in [&mut other, &mut jumps] {
                    assert!(
                        writes(session, algorithm, &items("right"), &what),
                        "{what}: all clocks are right"
                    );
                    assert!(found(&mut reader, &keys).iter().all(|found| *found == value("right")));
                }
            }
        }
    }
}

#[test]
fn the_error_of_a_clock_that_is_ahead_names_both_hosts_both_clocks_and_the_difference() {
    let scene = Scene::start(Wire::Shm, 1);
    let mut ahead = session(&scene, Algorithm::Fast, &Arc::new(AtomicI64::new(HOUR_MS)));
    let error = ahead.write(vec![(of("a"), value("1"))]).unwrap_err().to_string();
    let own = rackscan_fabric::host_name();
    for part in
        [&own, "the node's host", "participant 3", " UTC", " s ahead", "at most 60 s", "set the clocks"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
    // The node reads its clock later than the client: on a busy machine the difference is a little
    // less.
    let ahead_s = error.split(" s ahead").next().and_then(|text| text.rsplit(' ').next());
    let ahead_s: i64 = ahead_s.and_then(|text| text.parse().ok()).unwrap();
    assert!((3500..=3600).contains(&ahead_s), "{error}");
    let wall = WallClock::new(|| u64::MAX);
    let options = SessionOptions { wall, ..options(&scene, Algorithm::Fast, Operations::Messages) };
    let error = Session::open(options).unwrap().write(vec![(of("a"), value("1"))]).unwrap_err();
    assert!(matches!(error, TransactionError::Clock(_)), "{error}");
}

#[test]
fn a_write_that_meets_nothing_newer_takes_one_message_and_one_that_does_takes_two() {
    let scene = Scene::start(Wire::Shm, 1);
    let behind = Arc::new(AtomicI64::new(-HOUR_MS));
    let mut first = session(&scene, Algorithm::Fast, &behind);
    first.write(vec![(of("b"), value("1"))]).unwrap();
    let mut second = open(&scene, Algorithm::Fast, Operations::Messages);
    second.write(vec![(of("a"), value("1"))]).unwrap();
    second.write(vec![(of("a"), value("2"))]).unwrap();
    let prepared = || scene.knobs(0).seen("prepare");
    assert_eq!(prepared(), 3);
    first.write(vec![(of("a"), value("3"))]).unwrap();
    assert_eq!((prepared(), scene.knobs(0).seen("abort")), (5, 0), "nobody is told what it has refused");
    first.write(vec![(of("a"), value("4"))]).unwrap();
    assert_eq!(prepared(), 6, "it has heard");
}
