//! Tests what following participants costs, and how it fails. `storage-node/tests` tests which
//! records a follower passes on, because there are log replicas there.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rackscan_client::{FollowError, Follower, FollowerOptions, Operations, TransactionError};
use rackscan_ramp::{
    algorithm::Algorithm,
    feed::Follow,
    item::{Key, SYSTEM_PREFIX, Value},
    log::Record,
    message::{Found, ParticipantId},
    timestamp::Timestamp,
};

use crate::{
    node::FEED_BYTES,
    scene::{Scene, WIRES},
    sessions::{of, open, options, value},
};

/// What was told, by one who knows no other transactions than those that were committed before it
/// was told.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) values: HashMap<Key, Value>,
    open: HashMap<Timestamp, Vec<(Key, Value)>>,
    /// So many rounds more are needed.
    rounds_wanted: u32,
}

impl Follow for Told {
    type Fault = Infallible;

    fn begin_anew(&mut self) {
        *self = Self::default();
    }

    fn scanned(&mut self, _: ParticipantId, items: Vec<(Key, Found)>) -> Result<(), Infallible> {
        self.values.extend(items.into_iter().map(|(key, found)| (key, found.version.value)));
        Ok(())
    }

    fn record(&mut self, _: ParticipantId, record: Record) -> Result<(), Infallible> {
        match record {
            Record::Prepare(part) => self.open.entry(part.timestamp).or_default().extend(part.items),
            Record::Commit(timestamp) => self.values.extend(self.open.remove(&timestamp).unwrap_or_default()),
            Record::Put(part) => self.values.extend(part.items),
            _ => {}
        }
        Ok(())
    }

    fn round_ended(&mut self) -> Result<bool, Infallible> {
        self.rounds_wanted = self.rounds_wanted.saturating_sub(1);
        Ok(self.rounds_wanted == 0)
    }
}

pub(crate) fn follower_options(scene: &Scene) -> FollowerOptions {
    let lines = options(scene, Algorithm::Fast, Operations::Messages).lines;
    FollowerOptions { lines, prefix: SYSTEM_PREFIX.to_vec(), timeout: Duration::from_secs(10), copies: None }
}

/// Catches up as soon as all nodes are there.
fn catch_up_when_back(follower: &mut Follower, told: &mut Told) -> rackscan_client::CaughtUp {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match follower.catch_up(told) {
            Ok(caught) => return caught,
            Err(FollowError::Participant(TransactionError::NodeDown { .. })) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn what_is_written_after_the_first_time_comes_without_a_message_and_in_pieces_that_go_round_the_ring() {
    for wire in WIRES {
        let scene = Scene::start(wire, 2);
        let mut session = open(&scene, Algorithm::Fast, Operations::Messages);
        session.write(vec![(of("\0before"), value("before"))]).unwrap();
        let mut follower = Follower::open(follower_options(&scene)).unwrap();
        let mut told = Told::default();
        let caught = follower.catch_up(&mut told).unwrap();
        assert!(caught.began_anew && caught.records == 0, "{wire:?} {caught:?}");
        let asked = |kind| scene.knobs(0).seen(kind) + scene.knobs(1).seen(kind);
        assert_eq!((asked("mark"), asked("scan")), (2, 2), "{wire:?}");
        // Round the ring several times, in steps that a reader can follow.
        let bytes = FEED_BYTES / 5;
        for number in 0_u8..30 {
            let written = Value::new(&vec![number; bytes]).unwrap();
            session.write(vec![(of("\0a"), written.clone()), (of("\0b"), value("x"))]).unwrap();
            let caught = follower.catch_up(&mut told).unwrap();
            assert!(!caught.began_anew, "{wire:?} {number}");
            assert!(told.values[&of("\0a")] == written, "{wire:?} {number}");
            let caught = follower.catch_up(&mut told).unwrap();
            assert_eq!((caught.records, caught.rounds, caught.began_anew), (0, 1, false), "{wire:?}");
        }
        session.write(vec![(of("of a user"), value("x"))]).unwrap();
        assert_eq!(follower.catch_up(&mut told).unwrap().records, 0, "{wire:?}: nobody follows users' keys");
        assert_eq!(told.values[&of("\0before")], value("before"));
        assert_eq!((asked("mark"), asked("scan")), (2, 2), "{wire:?}: nobody was asked again");
        assert_eq!((asked("lease"), asked("close")), (4, 2), "{wire:?}: leases went back");
        told.rounds_wanted = 3;
        let caught = follower.catch_up(&mut told).unwrap();
        assert_eq!((caught.rounds, caught.began_anew), (3, false), "{wire:?}");
    }
}

#[test]
fn who_was_unavailable_for_too_long_begins_anew_and_has_everything() {
    for wire in WIRES {
        let scene = Scene::start(wire, 2);
        let mut session = open(&scene, Algorithm::Fast, Operations::Messages);
        let mut follower = Follower::open(follower_options(&scene)).unwrap();
        let mut told = Told::default();
        follower.catch_up(&mut told).unwrap();
        for number in 0..20_u8 {
            let bytes = Value::new(&vec![number; FEED_BYTES / 8]).unwrap();
            session.write(vec![(of("\0a"), bytes), (of(&format!("\0{number}")), value("x"))]).unwrap();
        }
        assert!(follower.catch_up(&mut told).unwrap().began_anew, "{wire:?}");
        assert_eq!(told.values.len(), 21, "{wire:?}");
        assert!(told.values[&of("\0a")] == Value::new(&vec![19; FEED_BYTES / 8]).unwrap());
        assert!(!follower.catch_up(&mut told).unwrap().began_anew, "{wire:?}");
    }
}

#[test]
fn a_participant_that_is_down_is_named_and_followed_anew_when_it_is_back() {
    for wire in WIRES {
        let mut scene = Scene::start(wire, 3);
        let mut session = open(&scene, Algorithm::Fast, Operations::Messages);
        session.write((0..9).map(|number| (of(&format!("\0{number}")), value("x"))).collect()).unwrap();
        let mut follower = Follower::open(follower_options(&scene)).unwrap();
        let mut told = Told::default();
        follower.catch_up(&mut told).unwrap();
        let down = ParticipantId(scene.places[1].id);
        scene.stop(1);
        let error = follower.catch_up(&mut told).unwrap_err();
        let named = |error: &FollowError<_>| matches!(error, FollowError::Participant(TransactionError::NodeDown { participant, .. }) if *participant == down);
        assert!(named(&error), "{wire:?} {error}");
        let mut other = Follower::open(follower_options(&scene)).unwrap();
        let error = other.catch_up(&mut Told::default()).unwrap_err();
        assert!(named(&error), "{wire:?} {error}");
        scene.start_again(1);
        told.values.clear();
        assert!(catch_up_when_back(&mut follower, &mut told).began_anew, "{wire:?}");
        assert_eq!(told.values.len(), 9, "{wire:?}");
        // Also where it was down and back between two calls.
        scene.stop(2);
        scene.start_again(2);
        told.values.clear();
        assert!(catch_up_when_back(&mut follower, &mut told).began_anew, "{wire:?}");
        assert_eq!(told.values.len(), 9, "{wire:?}");
    }
}

#[test]
fn a_participant_that_says_nothing_is_named_when_time_is_over() {
    for wire in WIRES {
        let scene = Scene::start(wire, 2);
        let timeout = Duration::from_millis(300);
        let mut follower = Follower::open(FollowerOptions { timeout, ..follower_options(&scene) }).unwrap();
        scene.knobs(1).silent.store(true, Ordering::SeqCst);
        let error = follower.catch_up(&mut Told::default()).unwrap_err();
        let silent = ParticipantId(scene.places[1].id);
        let is_named = matches!(&error, FollowError::Participant(TransactionError::TimedOut { participants, .. }) if *participants == [silent]);
        assert!(is_named, "{wire:?} {error}");
    }
}

#[test]
fn only_keys_of_the_system_can_be_followed() {
    let scene = Scene::start(WIRES[0], 1);
    let prefix = b"user".to_vec();
    let error = Follower::open(FollowerOptions { prefix, ..follower_options(&scene) }).unwrap_err();
    assert!(
        error.to_string().contains("the prefix 'user', expected one that begins with '\\x00'"),
        "{error}"
    );
}

#[test]
fn a_follower_with_too_little_memory_is_refused() {
    let scene = Scene::start(WIRES[0], 1);
    let mut options = follower_options(&scene);
    options.lines.memory_bytes = 128 << 10;
    let error = Follower::open(options).unwrap_err().to_string();
    assert!(error.contains("131072"), "{error}");
}
