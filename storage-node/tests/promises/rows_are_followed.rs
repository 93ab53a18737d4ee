//! Promise: a client that follows all nodes knows every row that was acknowledged before it asked,
//! and never sees only a part of a transaction: while others write, after a node was unavailable,
//! and after the client was unavailable for longer than the feeds reach back.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use rackscan_client::{
    CaughtUp, FollowError, Follower, FollowerOptions, Session, SessionOptions, TransactionError,
};
use rackscan_delta::{
    identity::{ROW_PREFIX, RowIdentity},
    replica::Replica,
};
use rackscan_fabric::Wire;
use rackscan_format::ids::{SegmentId, TableId};
use rackscan_ramp::{
    item::{Key, Value},
    message::ParticipantId,
    timestamp::Timestamp,
};

use crate::support::cluster::Cluster;

pub(crate) const WIRES: [Wire; 2] = [Wire::Shm, Wire::Tcp];
pub(crate) const TABLE: TableId = TableId(7);
/// Rows that every transaction updates, each of a segment of its own, and rows that it inserts.
const STORED: u32 = 8;
const INSERTED: u32 = 4;
const WRITERS: usize = 2;
const TRANSACTIONS: usize = 100;
/// More pictures than these are seen while they write.
const PICTURES: usize = 10;

pub(crate) fn started(nodes: usize, wire: Wire) -> Cluster {
    let mut cluster = Cluster::new(nodes, wire);
    cluster.start_all();
    cluster
}

pub(crate) fn session(cluster: &Cluster) -> Session {
    Session::open(SessionOptions::new(cluster.lines())).expect("all nodes are up")
}

fn follower(cluster: &Cluster) -> Follower {
    let (lines, timeout) = (cluster.lines(), Duration::from_secs(30));
    let options = FollowerOptions { lines, prefix: ROW_PREFIX.to_vec(), timeout, copies: None };
    Follower::open(options).expect("the options work")
}

pub(crate) fn stored(row: u32) -> RowIdentity {
    RowIdentity::Stored { segment: SegmentId(row), row }
}

/// All rows that the transaction writes. They have many participants.
fn rows_of(by: Timestamp) -> impl Iterator<Item = RowIdentity> {
    let inserted = (0..INSERTED).map(move |number| RowIdentity::Inserted { by, number });
    (0..STORED).map(stored).chain(inserted)
}

pub(crate) fn item(row: RowIdentity, bytes: &[u8]) -> (Key, Value) {
    (row.key(TABLE).expect("keys of rows are short"), Value::new(bytes).expect("a short value"))
}

/// Long enough that scans have several pages.
pub(crate) fn bytes_of(timestamp: Timestamp) -> Vec<u8> {
    timestamp.to_bytes().repeat(50)
}

pub(crate) fn write(session: &mut Session) -> Timestamp {
    let make = |timestamp: Timestamp| {
        let items = rows_of(timestamp).map(|row| item(row, &bytes_of(timestamp)));
        Ok::<_, TransactionError>(items.collect())
    };
    let written = session.write_with_timestamp(make).expect("all nodes are up");
    assert_eq!(written.untold, []);
    written.timestamp
}

/// Inserts rows only: they have one participant.
fn insert(session: &mut Session) -> Timestamp {
    let make = |timestamp: Timestamp| {
        let inserted = (0..INSERTED).map(|number| RowIdentity::Inserted { by: timestamp, number });
        Ok::<_, TransactionError>(inserted.map(|row| item(row, &bytes_of(timestamp))).collect())
    };
    session.write_with_timestamp(make).expect("all nodes are up").timestamp
}

/// Catches up as soon as all nodes are there.
pub(crate) fn catch_up_when_back(follower: &mut Follower, replica: &mut Replica) -> CaughtUp {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match follower.catch_up(replica) {
            Ok(caught) => return caught,
            Err(FollowError::Participant(TransactionError::NodeDown { .. })) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Every transaction is there wholly or not at all, and these are. How many there are.
pub(crate) fn check(replica: &Replica, acknowledged: &[Timestamp]) -> usize {
    let mut inserted: BTreeMap<Timestamp, u32> = BTreeMap::new();
    let mut updated: BTreeMap<Timestamp, u32> = BTreeMap::new();
    for (row, version) in replica.table(TABLE).into_iter().flat_map(|rows| rows.rows()) {
        assert_eq!(version.value.bytes(), Some(&bytes_of(version.timestamp)[..]), "{row}");
        let counts = if matches!(row, RowIdentity::Stored { .. }) { &mut updated } else { &mut inserted };
        *counts.entry(version.timestamp).or_default() += 1;
    }
    assert!(inserted.values().all(|rows| *rows == INSERTED), "a part of a transaction: {inserted:?}");
    // Everybody writes all of these, so they are the newest transaction's.
    let newest = inserted.keys().last().map(|timestamp| (*timestamp, STORED));
    assert_eq!(updated.into_iter().collect::<Vec<_>>(), newest.into_iter().collect::<Vec<_>>());
    for timestamp in acknowledged {
        assert!(inserted.contains_key(timestamp), "{timestamp} was acknowledged");
    }
    inserted.len()
}

#[test]
fn what_was_acknowledged_is_known_and_nothing_is_told_twice() {
    for wire in WIRES {
        let cluster = started(4, wire);
        let mut session = session(&cluster);
        let mut acknowledged = vec![write(&mut session), write(&mut session)];
        let (mut follower, mut replica) = (follower(&cluster), Replica::new());
        assert!(follower.catch_up(&mut replica).unwrap().began_anew, "{wire:?}");
        assert_eq!(check(&replica, &acknowledged), 2, "{wire:?}");
        for _ in 0..5 {
            acknowledged.push(write(&mut session));
            let caught = follower.catch_up(&mut replica).unwrap();
            assert!(!caught.began_anew && caught.records >= 2, "{wire:?} {caught:?}");
            assert_eq!(check(&replica, &acknowledged), acknowledged.len(), "{wire:?}");
            let caught = follower.catch_up(&mut replica).unwrap();
            assert_eq!(caught, CaughtUp { rounds: 1, records: 0, began_anew: false }, "{wire:?}");
        }
        cluster.stop_all();
    }
}

#[test]
fn what_has_one_participant_is_told_by_one_record_as_soon_as_it_is_acknowledged() {
    for wire in WIRES {
        let cluster = started(4, wire);
        let (mut follower, mut replica) = (follower(&cluster), Replica::new());
        follower.catch_up(&mut replica).unwrap();
        let (mut session, mut known) = (session(&cluster), 0);
        for number in 1..=20 {
            let timestamp = insert(&mut session);
            let caught = follower.catch_up(&mut replica).unwrap();
            assert_eq!((caught.records, caught.began_anew), (1, false), "{wire:?} {number}");
            let rows = replica.table(TABLE).map_or(0, |rows| rows.rows().count());
            let of_this = replica.table(TABLE).into_iter().flat_map(|rows| rows.rows());
            let of_this = of_this.filter(|(_, version)| version.timestamp == timestamp).count();
            assert_eq!((rows - known, of_this), (INSERTED as usize, INSERTED as usize), "{wire:?}");
            known = rows;
        }
        cluster.stop_all();
    }
}

#[test]
fn transactions_over_four_nodes_are_seen_wholly_or_not_at_all_while_others_write() {
    for wire in WIRES {
        let cluster = started(4, wire);
        let (acknowledged, at_work) = (Mutex::new(Vec::new()), AtomicUsize::new(WRITERS));
        let (mut follower, mut replica) = (follower(&cluster), Replica::new());
        let (mut looks, mut scans, mut rounds, mut seen) = (0, 1, 0, Vec::new());
        // Writers go on until enough was seen of what they do, however the machine shares its
        // processors out.
        let (pictures, deadline) = (AtomicUsize::new(0), Instant::now() + Duration::from_secs(120));
        std::thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| {
                    let mut session = session(&cluster);
                    let is_wanted = |written| {
                        written < TRANSACTIONS
                            || pictures.load(SeqCst) <= PICTURES && Instant::now() < deadline
                    };
                    for _ in (0..).take_while(|written| is_wanted(*written)) {
                        let timestamp = write(&mut session);
                        acknowledged.lock().expect("nobody panicked").push(timestamp);
                    }
                    at_work.fetch_sub(1, SeqCst);
                });
            }
            while at_work.load(SeqCst) > 0 {
                let before = acknowledged.lock().expect("nobody panicked").clone();
                if before.len() > 10 * scans {
                    // Scans that are under way while others write.
                    scans += 1;
                    follower.begin_anew();
                }
                rounds += follower.catch_up(&mut replica).expect("all nodes are up").rounds;
                seen.push(check(&replica, &before));
                seen.dedup();
                pictures.store(seen.len(), SeqCst);
                looks += 1;
            }
        });
        let all = acknowledged.into_inner().expect("nobody panicked");
        follower.catch_up(&mut replica).unwrap();
        assert_eq!(check(&replica, &all), all.len(), "{wire:?}");
        assert!(
            seen.len() > PICTURES,
            "{wire:?}: it followed, while others wrote, only {} times",
            seen.len()
        );
        println!("{wire:?}: {looks} looks, {rounds} rounds, {} different pictures", seen.len());
        cluster.stop_all();
    }
}

#[test]
fn a_node_that_is_down_is_named_and_all_is_there_when_it_is_back() {
    for wire in WIRES {
        let mut cluster = started(3, wire);
        let mut acknowledged = Vec::new();
        let mut writer = session(&cluster);
        acknowledged.push(write(&mut writer));
        let (mut follower, mut replica) = (follower(&cluster), Replica::new());
        follower.catch_up(&mut replica).unwrap();
        acknowledged.push(write(&mut writer));
        cluster.stop(2);
        let error = follower.catch_up(&mut replica).unwrap_err();
        let is_named = matches!(
            error,
            FollowError::Participant(TransactionError::NodeDown { participant: ParticipantId(2), .. })
        );
        assert!(is_named, "{wire:?} {error}");
        cluster.start(2);
        assert!(catch_up_when_back(&mut follower, &mut replica).began_anew, "{wire:?}");
        assert_eq!(check(&replica, &acknowledged), 2, "{wire:?}");
        let mut writer = session(&cluster);
        acknowledged.push(write(&mut writer));
        assert!(!follower.catch_up(&mut replica).unwrap().began_anew, "{wire:?}");
        assert_eq!(check(&replica, &acknowledged), 3, "{wire:?}");
        cluster.stop_all();
    }
}

#[test]
fn what_feeds_do_not_hold_any_more_is_scanned_and_what_is_long_comes_in_pieces() {
    for wire in WIRES {
        let cluster = started(1, wire);
        let mut session = session(&cluster);
        let (mut follower, mut replica) = (follower(&cluster), Replica::new());
        follower.catch_up(&mut replica).unwrap();
        // More than its feed, an eighth of its memory.
        for number in 0..50_u8 {
            session.write(vec![item(stored(0), &vec![number; 100_000])]).unwrap();
        }
        assert!(follower.catch_up(&mut replica).unwrap().began_anew, "{wire:?}");
        let value = |replica: &Replica, row| {
            let version = replica.table(TABLE).and_then(|rows| rows.row(stored(row))).expect("it is there");
            version.value.bytes().map(|bytes| (bytes.len(), bytes[0]))
        };
        assert_eq!(value(&replica, 0), Some((100_000, 49)), "{wire:?}");
        // More than is read of a feed at once is told of in pieces.
        session.write(vec![item(stored(1), &vec![1; 600_000]), item(stored(2), &vec![2; 600_000])]).unwrap();
        assert!(!follower.catch_up(&mut replica).unwrap().began_anew, "{wire:?}");
        let found = [1, 2].map(|row| value(&replica, row));
        assert_eq!(found, [Some((600_000, 1)), Some((600_000, 2))], "{wire:?}");
        assert!(!follower.catch_up(&mut replica).unwrap().began_anew, "{wire:?}");
        cluster.stop_all();
    }
}
