//! Tests the guarantees of a version store one by one. The simulation (`tests/simulated`) tests all
//! of them together.

use super::{Commit, Store, StoreOptions};
use crate::{
    item::{Key, Metadata, Value, Version},
    limits::{KEY_OVERHEAD_BYTES, PARTICIPANTS_MAX, VERSION_OVERHEAD_BYTES},
    message::{Bounded, Epoch, Guard, Part, ParticipantId, Refusal, Vote},
    slot::{SlotFault, SlotVector, decode},
    timestamp::{ClientId, Timestamp},
};
use proptest::prelude::*;

fn at(time: u64) -> Timestamp {
    Timestamp { time, client: ClientId(1) }
}

fn key(text: &str) -> Key {
    Key::new(text.as_bytes()).unwrap()
}

fn value(text: &str) -> Value {
    Value::new(text.as_bytes()).unwrap()
}

fn part(time: u64, keys: &[&str]) -> Part {
    let mut set: Vec<_> = keys.iter().map(|name| key(name).fingerprint()).collect();
    set.sort_unstable();
    let items = keys.iter().map(|name| (key(name), value(&format!("{name}{time}")))).collect();
    let (participants, metadata) = (vec![ParticipantId(0), ParticipantId(1)], Metadata::WriteSet(set));
    Part { timestamp: at(time), participants, guard: Guard::Open, metadata, items }
}

fn store() -> Store<SlotVector> {
    Store::new(StoreOptions { budget_bytes: 1 << 20, life: 3 }, SlotVector::zeroed(1 << 16))
}

fn committed(store: &mut Store<SlotVector>, time: u64, keys: &[&str]) {
    assert_eq!(store.prepare(&part(time, keys)), Ok(true));
    assert_eq!(store.commit(at(time)), Commit::Now);
}

fn slot(store: &Store<SlotVector>, name: &str) -> Result<Version, SlotFault> {
    let place = store.get(&key(name)).place.unwrap();
    let from = usize::try_from(place.offset_bytes).unwrap();
    let to = from + usize::try_from(place.length_bytes).unwrap();
    decode(&store.area().memory().as_slice()[from..to], &key(name), 3)
}

#[test]
fn a_prepared_version_is_seen_by_its_timestamp_only() {
    let mut store = store();
    committed(&mut store, 10, &["a"]);
    store.prepare(&part(20, &["a", "b"])).unwrap();
    let found = store.get(&key("a"));
    assert_eq!((found.version.timestamp, store.latest(&key("a"))), (at(10), at(10)));
    assert_eq!(
        found.beside.iter().map(|version| version.timestamp).collect::<Vec<_>>(),
        [at(20)],
        "it lies beside"
    );
    assert_eq!(store.get(&key("b")).version, Version::first());
    assert_eq!(store.among(&key("b"), &[at(20)]).unwrap().value, value("b20"));
    assert_eq!(
        store.among(&key("a"), &[at(10), at(20), at(30)]).unwrap().timestamp,
        at(20),
        "the newest of them"
    );
    assert_eq!(store.among(&key("a"), &[at(15)]), None);
}

#[test]
fn a_slot_is_valid_unless_something_newer_is_prepared() {
    let mut store = store();
    committed(&mut store, 10, &["a"]);
    assert_eq!(slot(&store, "a").unwrap().value, value("a10"));
    store.prepare(&part(20, &["a"])).unwrap();
    assert!(matches!(slot(&store, "a"), Err(SlotFault::Invalid { found: 0, .. })));
    store.prepare(&part(30, &["a"])).unwrap();
    store.commit(at(20));
    assert!(matches!(slot(&store, "a"), Err(SlotFault::Invalid { .. })), "30 is on its way");
    store.refuse(at(30));
    assert_eq!(slot(&store, "a").unwrap().value, value("a20"), "30 did not come");
    store.prepare(&part(15, &["a"])).unwrap();
    assert!(slot(&store, "a").is_ok(), "what is older than the latest changes nothing");
}

#[test]
fn commits_never_go_backwards() {
    let mut store = store();
    store.prepare(&part(10, &["a"])).unwrap();
    committed(&mut store, 20, &["a"]);
    assert_eq!(store.commit(at(10)), Commit::Now);
    assert_eq!((store.latest(&key("a")), slot(&store, "a").unwrap().timestamp), (at(20), at(20)));
    assert_eq!(store.commit(at(10)), Commit::Before);
    assert_eq!(store.commit(at(99)), Commit::Before, "nobody commits what not all have prepared");
}

#[test]
fn a_superseded_version_stays_for_those_who_began_before() {
    let mut store = store();
    committed(&mut store, 10, &["a"]);
    let lease = store.open_lease().unwrap();
    committed(&mut store, 20, &["a"]);
    committed(&mut store, 30, &["a"]);
    assert_eq!(store.among(&key("a"), &[at(10)]).unwrap().value, value("a10"));
    let told = store.epoch();
    committed(&mut store, 40, &["a"]);
    store.advance_lease(lease, told);
    assert_eq!(store.collect(100), 2, "10 and 20");
    assert_eq!(store.among(&key("a"), &[at(10), at(20), at(30)]).unwrap().timestamp, at(30));
    store.close_lease(lease);
    assert_eq!((store.collect(100), store.among(&key("a"), &[at(30)])), (1, None));
    assert_eq!(store.status().versions, 1);
}

#[test]
fn a_version_that_is_superseded_as_it_is_committed_stays_as_well() {
    let mut store = store();
    committed(&mut store, 5, &["a"]);
    let lease = store.open_lease().unwrap();
    // The clock of the reader is ahead of the slow writer of 10, whose transaction ends only now.
    store.prepare(&part(10, &["a"])).unwrap();
    committed(&mut store, 1000, &["a"]);
    store.commit(at(10));
    assert_eq!(store.collect(100), 0);
    assert_eq!(store.among(&key("a"), &[at(10)]).unwrap().timestamp, at(10));
    store.advance_lease(lease, Epoch(u64::MAX));
    assert_eq!(store.collect(100), 2);
}

#[test]
fn a_full_store_refuses_says_who_holds_what_and_goes_on_when_it_may() {
    let each = VERSION_OVERHEAD_BYTES + 8 + 3;
    let budget_bytes = KEY_OVERHEAD_BYTES + 1 + 2 * each;
    let mut store = Store::new(StoreOptions { budget_bytes, life: 1 }, SlotVector::zeroed(4096));
    committed(&mut store, 10, &["a"]);
    let lease = store.open_lease().unwrap();
    committed(&mut store, 20, &["a"]);
    let before = store.status();
    let full = Refusal::Full {
        wanted: each as u64,
        used: budget_bytes as u64,
        budget: budget_bytes as u64,
        held: each as u64,
    };
    assert_eq!(store.prepare(&part(30, &["a"])), Err(full));
    assert_eq!(store.status(), before, "nothing was changed");
    store.close_lease(lease);
    assert_eq!(store.prepare(&part(30, &["a"])), Ok(true), "the old version went");
}

#[test]
fn what_was_promised_to_be_refused_is_refused() {
    let mut store = store();
    assert_eq!((store.vote(at(10)), store.refuse(at(10))), (None, Some(Vote::Refused)));
    assert_eq!(store.prepare(&part(10, &["a"])), Err(Refusal::Promised { timestamp: at(10) }));
    committed(&mut store, 20, &["a"]);
    assert_eq!(store.refuse(at(20)), None, "it is committed");
    store.prepare(&part(30, &["a", "b"])).unwrap();
    assert_eq!(store.vote(at(30)), Some(Vote::Prepared));
    store.refuse(at(30));
    assert_eq!((store.among(&key("b"), &[at(30)]), store.vote(at(30))), (None, Some(Vote::Refused)));
    assert_eq!(store.commit(at(30)), Commit::Before);
    assert_eq!(store.latest(&key("a")), at(20));
}

#[test]
fn two_transactions_of_one_timestamp_are_told_apart() {
    let mut store = store();
    assert_eq!(store.prepare(&part(10, &["a"])), Ok(true));
    assert_eq!(store.prepare(&part(10, &["a"])), Ok(false), "said twice");
    assert_eq!(store.prepare(&part(10, &["b"])), Err(Refusal::Collision { timestamp: at(10) }));
    store.commit(at(10));
    store.settle(at(10));
    assert_eq!(store.prepare(&part(10, &["a"])), Err(Refusal::Collision { timestamp: at(10) }));
}

#[test]
fn a_part_beyond_a_limit_is_refused_with_numbers() {
    let mut store = store();
    let participants =
        Part { participants: vec![ParticipantId(0); PARTICIPANTS_MAX + 1], ..part(10, &["a"]) };
    let refusal = Refusal::TooMuch { what: Bounded::Participants, found: 257, most: 256 };
    assert_eq!(store.prepare(&participants), Err(refusal));
    let big = Value::new(&vec![0; 1 << 20]).unwrap();
    let items = (0..5).map(|at| (key(&format!("{at}")), big.clone())).collect();
    let found = store.prepare(&Part { items, ..part(10, &[]) }).unwrap_err().to_string();
    assert_eq!(
        found,
        "a request has 5242885 bytes at one participant, the maximum is 4194304: divide the request"
    );
}

#[test]
fn a_snapshot_makes_the_same_store_again() {
    let mut store = store();
    committed(&mut store, 10, &["a", "b"]);
    store.settle(at(10));
    committed(&mut store, 20, &["b"]);
    store.prepare(&part(30, &["a", "c"])).unwrap();
    store.refuse(at(40));
    committed(&mut store, 50, &["d"]);
    assert!(store.end(at(50)));
    store.raise_floor(at(35));
    let snapshot = store.snapshot();
    let mut again = Store::new(StoreOptions { budget_bytes: 1 << 20, life: 4 }, SlotVector::zeroed(1 << 16));
    snapshot.committed.iter().for_each(|part| again.put(part).unwrap());
    snapshot.prepared.iter().for_each(|part| assert_eq!(again.prepare(part), Ok(true)));
    for timestamp in &snapshot.refused {
        again.refuse(*timestamp);
    }
    snapshot.ended.iter().for_each(|timestamp| again.remember_ended(*timestamp));
    again.raise_floor(snapshot.floor);
    assert_eq!(again.snapshot(), snapshot);
    assert_eq!(again.newest(), at(50), "a client that begins again is told to go on after it");
    let votes = [10, 20, 30, 33, 40, 50].map(|time| again.vote(at(time)));
    let (forgotten, refused) = (Some(Vote::Forgotten), Some(Vote::Refused));
    assert_eq!(
        votes,
        [forgotten, Some(Vote::Committed), Some(Vote::Prepared), forgotten, refused, Some(Vote::Committed)],
        "10 had been settled"
    );
    again.commit(at(30));
    assert_eq!(["a", "b", "c"].map(|name| again.latest(&key(name))), [at(30), at(20), at(30)]);
}

/// What is done to a store, with small timestamps so that orders cross.
#[derive(Clone, Debug)]
enum Act {
    Prepare(u64, bool, bool),
    Commit(u64),
    Refuse(u64),
    Open,
    Advance(prop::sample::Index),
    Close(prop::sample::Index),
    Collect,
}

proptest! {
    #[test]
    fn accounts_slots_and_protected_versions_are_right_after_any_acts(
        acts in prop::collection::vec(prop_oneof![
            4 => (1_u64..30, any::<bool>(), any::<bool>()).prop_map(|(time, a, b)| Act::Prepare(time, a, b)),
            4 => (1_u64..30).prop_map(Act::Commit),
            1 => (1_u64..30).prop_map(Act::Refuse),
            1 => Just(Act::Open),
            1 => any::<prop::sample::Index>().prop_map(Act::Advance),
            1 => any::<prop::sample::Index>().prop_map(Act::Close),
            1 => Just(Act::Collect),
        ], 0..60),
    ) {
        let mut store = store();
        // Leases, and which versions each is promised: those that were there, superseded or not, at
        // its epoch or came later.
        let mut leases = Vec::new();
        let mut newest = [Timestamp::FIRST; 2];
        for act in acts {
            match act {
                Act::Prepare(time, a, b) => {
                    let keys: Vec<&str> = [(a, "a"), (b, "b")].iter().filter(|key| key.0).map(|key| key.1).collect();
                    let _ = store.prepare(&part(time, &keys));
                }
                Act::Commit(time) => {
                    store.commit(at(time));
                }
                Act::Refuse(time) => {
                    store.refuse(at(time));
                }
                Act::Open => leases.extend(store.open_lease().map(|lease| (lease, store.epoch(), newest))),
                Act::Advance(which) if !leases.is_empty() => {
                    let place = which.index(leases.len());
                    store.advance_lease(leases[place].0, store.epoch());
                    leases[place] = (leases[place].0, store.epoch(), newest);
                }
                Act::Close(which) if !leases.is_empty() => {
                    store.close_lease(leases.swap_remove(which.index(leases.len())).0);
                }
                Act::Advance(_) | Act::Close(_) => {}
                Act::Collect => {
                    store.collect(usize::MAX);
                }
            }
            for (place, name) in ["a", "b"].into_iter().enumerate() {
                let latest = store.latest(&key(name));
                prop_assert!(latest >= newest[place], "{} went back to {}", name, latest);
                newest[place] = latest;
                let found = store.get(&key(name));
                if latest > Timestamp::FIRST {
                    let seen = found.place.and_then(|_| slot(&store, name).ok());
                    prop_assert_eq!(seen.map(|version| version.timestamp), found.beside.is_empty().then_some(latest));
                }
                for (_, _, promised) in &leases {
                    let there = store.among(&key(name), &[promised[place]]).is_some();
                    prop_assert!(there || promised[place] == Timestamp::FIRST, "{} of {} is gone", promised[place], name);
                }
            }
        }
        leases.iter().for_each(|lease| store.close_lease(lease.0));
        store.collect(usize::MAX);
        let status = store.status();
        prop_assert_eq!(status.superseded_bytes, 0);
        let unsettled: Vec<u64> = store.unsettled().filter(|(_, of)| !of.committed).map(|(timestamp, _)| timestamp.time).collect();
        for time in unsettled {
            store.refuse(at(time));
        }
        prop_assert_eq!(store.status().versions, newest.iter().filter(|timestamp| **timestamp > Timestamp::FIRST).count());
        prop_assert_eq!(store.status().keys, store.status().versions);
        let left: Vec<Version> = ["a", "b"].iter().map(|name| store.get(&key(name)).version).collect();
        let left = left.iter().filter(|version| version.timestamp > Timestamp::FIRST);
        let sums = left.fold([0; 3], |[values, metadata, used], version| {
            let all = VERSION_OVERHEAD_BYTES + KEY_OVERHEAD_BYTES + 1 + version.value.len() + version.metadata.len();
            [values + version.value.len(), metadata + version.metadata_bytes(), used + all]
        });
        let status = store.status();
        prop_assert_eq!([status.value_bytes, status.metadata_bytes, status.used_bytes], sums);
    }
}

#[test]
fn a_scan_finds_keys_of_a_prefix_in_order_and_goes_on_behind_any_of_them() {
    let mut store = store();
    committed(&mut store, 10, &["a1", "a2", "b1"]);
    store.prepare(&part(20, &["a2", "a3"])).unwrap();
    store.refuse(at(30));
    let names = |prefix: &str, after: Option<&str>| {
        let after = after.map(key);
        let found = store.scan(prefix.as_bytes(), after.as_ref()).collect::<Vec<_>>();
        found
            .into_iter()
            .map(|(key, found)| (key, found.version.timestamp, found.beside.len()))
            .collect::<Vec<_>>()
    };
    let all = [(key("a1"), at(10), 0), (key("a2"), at(10), 1), (key("a3"), Timestamp::FIRST, 1)];
    assert_eq!(names("a", None), all);
    assert_eq!(names("a", Some("a1")), all[1..]);
    assert_eq!(names("a", Some("A")), all, "a place before the prefix");
    assert_eq!(names("a", Some("a3")), []);
    assert_eq!(names("", None).len(), 4);
    assert_eq!(names("c", None), []);
    store.refuse(at(20));
    let left: Vec<Key> = store.scan(b"a", None).map(|(key, _)| key).collect();
    assert_eq!(left, [key("a1"), key("a2")], "a key of which nothing is left is gone");
}
