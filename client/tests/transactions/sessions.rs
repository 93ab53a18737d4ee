//! Tests that a session reads what another session has written.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rackscan_client::{
    LinesOptions, NodeEndpoint, Operations, ReadOutcome, Session, SessionOptions, TransactionError,
};
use rackscan_ramp::{
    algorithm::Algorithm,
    item::{Key, Value},
    message::{ParticipantId, participant_of},
    timestamp::Timestamp,
};

use crate::{
    node::{Place, key},
    scene::{Scene, WIRES, Wire},
};

pub(crate) fn options(scene: &Scene, algorithm: Algorithm, operations: Operations) -> SessionOptions {
    let nodes = scene.places.iter().map(Place::endpoint).collect();
    options_for(nodes, algorithm, operations)
}

pub(crate) fn options_for(
    nodes: Vec<NodeEndpoint>,
    algorithm: Algorithm,
    operations: Operations,
) -> SessionOptions {
    let patience = Duration::from_secs(10);
    let lines = LinesOptions { nodes, key: key(), wire: None, memory_bytes: 4 << 20, patience, posts: false };
    SessionOptions { algorithm, operations, ..SessionOptions::new(lines) }
}

pub(crate) fn open(scene: &Scene, algorithm: Algorithm, operations: Operations) -> Session {
    Session::open(options(scene, algorithm, operations)).expect("the options work")
}

pub(crate) fn of(name: &str) -> Key {
    Key::new(name.as_bytes()).expect("a short key")
}

pub(crate) fn value(text: &str) -> Value {
    Value::new(text.as_bytes()).expect("a short value")
}

fn texts(read: &ReadOutcome) -> Vec<(String, Option<String>)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("texts were written");
    read.items.iter().map(|(key, version)| (text(key.bytes()), version.value.bytes().map(text))).collect()
}

/// A key that the node keeps, for each node.
fn key_at(scene: &Scene, node: usize) -> Key {
    let ids: Vec<ParticipantId> = scene.places.iter().map(|place| ParticipantId(place.id)).collect();
    (0..)
        .map(|number| of(&format!("k{number}")))
        .find(|key| participant_of(key.placement(), &ids) == ids[node])
        .expect("each node keeps some")
}

/// One key of each node, with a value each.
fn of_each(scene: &Scene, nodes: usize, text: &str) -> Vec<(Key, Value)> {
    (0..nodes).map(|node| (key_at(scene, node), value(text))).collect()
}

fn keys(items: &[(Key, Value)]) -> Vec<Key> {
    items.iter().map(|(key, _)| key.clone()).collect()
}

/// Reads until the node is back.
fn read_when_back(session: &mut Session, keys: &[Key]) -> ReadOutcome {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match session.read(keys) {
            Ok(read) => return read,
            Err(TransactionError::NodeDown { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1))
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn what_one_session_writes_another_reads_in_the_order_it_asks() {
    for wire in WIRES {
        for algorithm in Algorithm::ALL {
            for operations in Operations::ALL {
                let scene = Scene::start(wire, 3);
                let mut writer = open(&scene, algorithm, operations);
                let mut reader = open(&scene, algorithm, operations);
                let names = ["d", "a", "c", "b", "e", "f"];
                let written =
                    writer.write(names.iter().map(|name| (of(name), value(&format!("1{name}")))).collect());
                let written = written.unwrap();
                assert_eq!(written.untold, []);
                let asked = ["f", "a", "zzz", "d", "a"].map(of);
                let some = |key: &str, text: &str| (key.to_owned(), Some(text.to_owned()));
                for round in 0..3 {
                    let read = reader.read(&asked).unwrap();
                    let none = ("zzz".to_owned(), None);
                    let expected = [some("f", "1f"), some("a", "1a"), none, some("d", "1d"), some("a", "1a")];
                    assert_eq!(texts(&read), expected, "{wire:?} {algorithm} {operations} {round}");
                    assert_eq!(read.items[0].1.timestamp, written.timestamp);
                    assert_eq!(read.items[2].1.timestamp, Timestamp::FIRST);
                }
                writer.write(vec![(of("a"), value("2a")), (of("f"), Value::DELETED)]).unwrap();
                let read = reader.read(&["f", "a"].map(of)).unwrap();
                assert_eq!(texts(&read), [("f".to_owned(), None), some("a", "2a")]);
                writer.close();
                reader.close();
            }
        }
    }
}

#[test]
fn a_second_read_by_get_star_asks_nobody() {
    for wire in WIRES {
        let scene = Scene::start(wire, 2);
        let mut session = open(&scene, Algorithm::Fast, Operations::OneSided);
        let items = of_each(&scene, 2, "value");
        session.write(items.clone()).unwrap();
        assert_eq!(session.read(&keys(&items)).unwrap().one_sided, 0, "no place is known yet");
        let gets = [scene.knobs(0).seen("get"), scene.knobs(1).seen("get")];
        for _ in 0..5 {
            let read = session.read(&keys(&items)).unwrap();
            assert_eq!((read.one_sided, read.rounds), (2, 1), "{wire:?}");
            assert!(read.items.iter().all(|(_, version)| version.value == value("value")));
        }
        let after = [scene.knobs(0).seen("get"), scene.knobs(1).seen("get")];
        assert!(
            after[0] <= gets[0] + 1 && after[1] <= gets[1] + 1,
            "but to move a lease on: {gets:?} {after:?}"
        );
    }
}

#[test]
fn a_slot_that_was_given_to_another_key_or_holds_what_is_not_valid_is_asked_for() {
    for wire in WIRES {
        let scene = Scene::start(wire, 1);
        let mut writer = open(&scene, Algorithm::Fast, Operations::Messages);
        let mut reader = open(&scene, Algorithm::Fast, Operations::OneSided);
        writer.write(vec![(of("a"), value("small"))]).unwrap();
        reader.read(&[of("a")]).unwrap();
        assert_eq!(reader.read(&[of("a")]).unwrap().one_sided, 1);
        // Its slot is too small now, and another key gets it.
        let large = "large".repeat(400);
        writer.write(vec![(of("a"), value(&large))]).unwrap();
        writer.write(vec![(of("b"), value("other"))]).unwrap();
        let read = reader.read(&[of("a")]).unwrap();
        assert_eq!((read.one_sided, read.items[0].1.value.clone()), (0, value(&large)), "{wire:?}");
        let read = reader.read(&[of("a")]).unwrap();
        assert_eq!((read.one_sided, read.items[0].1.value.clone()), (1, value(&large)), "{wire:?}");
    }
}

#[test]
fn what_is_too_long_for_a_message_travels_beside_it_and_what_is_too_long_for_that_in_parts() {
    for wire in WIRES {
        let scene = Scene::start(wire, 1);
        let mut session = open(&scene, Algorithm::Fast, Operations::Messages);
        let text = "0123456789abcdef".repeat(16 << 10);
        let items: Vec<(Key, Value)> =
            (0..10).map(|number| (of(&format!("k{number}")), value(&text))).collect();
        for five in items.chunks(5) {
            session.write(five.to_vec()).unwrap();
        }
        let read = session.read(&keys(&items)).unwrap();
        assert!(read.items.iter().all(|(_, version)| version.value == value(&text)));
        let knobs = scene.knobs(0);
        assert!(knobs.beside.load(Ordering::SeqCst) >= 4, "two requests, and at least two answers");
        assert!(knobs.too_small.load(Ordering::SeqCst) >= 1, "not all at once");
        let error = session.write(items).unwrap_err();
        assert!(matches!(error, TransactionError::TooLarge { bytes, .. } if bytes > 2 << 20), "{error}");
        assert_eq!(knobs.seen("prepare"), 2, "nothing was sent");
    }
}

#[test]
fn a_transaction_whose_node_is_down_is_aborted_with_its_name_and_works_when_it_is_back() {
    for wire in WIRES {
        for operations in Operations::ALL {
            let mut scene = Scene::start(wire, 2);
            let mut session = open(&scene, Algorithm::Fast, operations);
            let items = of_each(&scene, 2, "before");
            session.write(items.clone()).unwrap();
            session.read(&keys(&items)).unwrap();
            scene.stop(1);
            let down = ParticipantId(scene.places[1].id);
            let error = session.read(&keys(&items)).unwrap_err();
            let is_down = |error: &TransactionError| matches!(error, TransactionError::NodeDown { participant, .. } if *participant == down);
            assert!(is_down(&error), "{wire:?} {operations}: {error}");
            let error = session.write(of_each(&scene, 2, "never")).unwrap_err();
            assert!(is_down(&error), "{error}");
            let elsewhere = session.read(&[items[0].0.clone()]).unwrap();
            assert_eq!(elsewhere.items[0].1.value, value("before"), "others go on");
            scene.start_again(1);
            let read = read_when_back(&mut session, &keys(&items));
            assert!(read.items.iter().all(|(_, version)| version.value == value("before")));
            session.write(of_each(&scene, 2, "after")).unwrap();
            let read = session.read(&keys(&items)).unwrap();
            assert!(read.items.iter().all(|(_, version)| version.value == value("after")));
        }
    }
}

#[test]
fn a_node_that_is_lost_before_it_votes_leaves_the_transaction_unknown_and_named() {
    let mut scene = Scene::start(Wire::Shm, 2);
    let mut session = Session::open(SessionOptions {
        timeout: Duration::from_millis(300),
        ..options(&scene, Algorithm::Fast, Operations::Messages)
    })
    .unwrap();
    let items = of_each(&scene, 2, "value");
    session.write(items.clone()).unwrap();
    // It takes no request any more: the connection ends with the PREPARE, and with every other one.
    scene.knobs(1).silent.store(true, Ordering::SeqCst);
    let error = session.write(items.clone()).unwrap_err();
    let TransactionError::Unknown { participants, .. } = &error else { panic!("{error}") };
    assert_eq!(*participants, [ParticipantId(scene.places[1].id)]);
    scene.stop(1);
    scene.start_again(1);
    // The first write is there, and of the second all or nothing.
    let read = read_when_back(&mut session, &keys(&items[1..]));
    assert_eq!(read.items[0].1.value, value("value"));
}

#[test]
fn a_vote_that_was_lost_on_its_way_is_asked_for_when_the_node_is_back() {
    for wire in WIRES {
        let scene = Scene::start(wire, 2);
        let mut session = open(&scene, Algorithm::Fast, Operations::Messages);
        let items = of_each(&scene, 2, "value");
        session.write(items.clone()).unwrap();
        // Hangs up on the next request, without having done it.
        scene.knobs(1).hangs_up_at.store(1, Ordering::SeqCst);
        let error = session.write(items).unwrap_err();
        assert!(
            matches!(error, TransactionError::NodeDown { .. } | TransactionError::Aborted { .. }),
            "{error}"
        );
        assert_eq!(scene.knobs(1).seen("inquire"), 1);
    }
}

#[test]
fn a_participant_that_was_lost_before_it_knew_of_a_commit_is_told_when_it_is_back() {
    for wire in WIRES {
        let scene = Scene::start(wire, 2);
        let mut session = open(&scene, Algorithm::Fast, Operations::Messages);
        let items = of_each(&scene, 2, "before");
        session.write(items).unwrap();
        // PREPARE, and then not COMMIT.
        scene.knobs(1).hangs_up_at.store(2, Ordering::SeqCst);
        let items = of_each(&scene, 2, "after");
        let written = session.write(items.clone()).unwrap();
        let participant = ParticipantId(scene.places[1].id);
        assert!(written.untold.contains(&participant), "{wire:?} {written:?}");
        let read = read_when_back(&mut session, &keys(&items[1..]));
        assert_eq!(read.items[0].1.value, value("after"), "a session reads what it wrote");
        let deadline = Instant::now() + Duration::from_secs(20);
        while session.untold() > 0 && Instant::now() < deadline {
            session.read(&keys(&items)).unwrap();
        }
        assert_eq!(session.untold(), 0);
    }
}

#[test]
fn a_session_that_waited_for_a_lock_in_vain_works_on() {
    for wire in WIRES {
        let scene = Scene::start(wire, 1);
        let brief = |timeout| SessionOptions {
            timeout: Duration::from_millis(timeout),
            ..options(&scene, Algorithm::Locking, Operations::Messages)
        };
        let mut holder = Session::open(brief(20_000)).unwrap();
        let mut waiter = Session::open(brief(50)).unwrap();
        holder.write(vec![(of("a"), value("1"))]).unwrap();
        waiter.read(&[of("a")]).unwrap();
        // A lock that nobody releases before the test says so.
        scene.knobs(0).keeps_locks.store(true, Ordering::SeqCst);
        holder.read(&[of("a")]).unwrap();
        let error = waiter.write(vec![(of("a"), value("2"))]).unwrap_err();
        assert!(matches!(error, TransactionError::TimedOut { .. }), "{error}");
        scene.knobs(0).keeps_locks.store(false, Ordering::SeqCst);
        assert_eq!(waiter.read(&[of("b")]).unwrap().items[0].1.timestamp, Timestamp::FIRST, "{wire:?}");
        holder.read(&[of("b")]).unwrap();
    }
}

#[test]
fn requests_go_in_boxes_if_the_operations_say_so_and_what_does_not_fit_as_messages() {
    for wire in WIRES {
        for operations in Operations::ALL {
            let scene = Scene::start(wire, 2);
            let mut session = open(&scene, Algorithm::Fast, operations);
            let small = of_each(&scene, 2, "small");
            session.write(small.clone()).unwrap();
            session.read(&keys(&small)).unwrap();
            let posted = |node| scene.knobs(node).posted.load(Ordering::SeqCst);
            let before = [posted(0), posted(1)];
            assert!(before.iter().all(|posted| (*posted > 0) == (operations != Operations::Messages)));
            // Too long for a box, as a request and as an answer; and for a message.
            for length in [10_000, 200_000] {
                let large = of_each(&scene, 2, &"x".repeat(length));
                session.write(large.clone()).unwrap();
                let mut other = open(&scene, Algorithm::Fast, operations);
                let read = other.read(&keys(&large)).unwrap();
                assert!(read.items.iter().all(|(_, version)| version.value == value(&"x".repeat(length))));
            }
            session.write(small.clone()).unwrap();
            let read = session.read(&keys(&small)).unwrap();
            assert!(read.items.iter().all(|(_, version)| version.value == value("small")));
            assert!(operations == Operations::Messages || posted(0) > before[0], "boxes are used again");
        }
    }
}

#[test]
fn a_session_that_rests_keeps_no_versions_and_goes_on_later() {
    let scene = Scene::start(Wire::Shm, 2);
    let mut session = open(&scene, Algorithm::Fast, Operations::OneSided);
    let items = of_each(&scene, 2, "value");
    session.write(items.clone()).unwrap();
    session.read(&keys(&items)).unwrap();
    session.rest();
    let knobs = scene.knobs(0);
    assert_eq!((knobs.seen("close"), knobs.seen("settled"), knobs.seen("lease")), (1, 1, 1));
    assert!(session.read(&keys(&items)).is_ok());
    assert_eq!(knobs.seen("lease"), 2);
}

#[test]
fn a_participant_that_is_not_there_yet_is_asked_again_with_pauses_and_its_reason_is_told() {
    let scene = Scene::start(Wire::Shm, 1);
    let absent = &scene.knobs(0).absent;
    absent.store(1000, Ordering::SeqCst);
    let timeout = Duration::from_millis(200);
    let options = SessionOptions { timeout, ..options(&scene, Algorithm::Fast, Operations::Messages) };
    let mut session = Session::open(options).expect("the options work");
    let error = session.read(&[of("a")]).expect_err("there is no participant").to_string();
    assert!(error.contains("it waits for its log"), "{error}");
    let asked = 1000 - absent.load(Ordering::SeqCst);
    // Two requests wait, each for two milliseconds at least.
    assert!((2..=210).contains(&asked), "{asked} times in {timeout:?}");
    absent.store(3, Ordering::SeqCst);
    let mut session = open(&scene, Algorithm::Fast, Operations::Messages);
    session.read(&[of("a")]).expect("the participant is there at last");
}
