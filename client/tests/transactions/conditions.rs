//! Tests that no update is lost when several sessions change values that they have read. Method:
//! sessions add to counters, which must agree with the number of acknowledged additions.

use std::sync::atomic::{AtomicU64, Ordering};

use rackscan_client::{Operations, Session, TransactionError};
use rackscan_ramp::{
    algorithm::Algorithm,
    item::{Key, Value, Version, Write},
    timestamp::Timestamp,
};

use crate::{
    scene::{Scene, WIRES, Wire},
    sessions::{of, open, value},
    stress::combinations,
};

const SESSIONS: usize = 4;
const ADDITIONS: u64 = 40;

fn number(version: &Version) -> u64 {
    let bytes = version.value.bytes().unwrap_or(&[0; 8]);
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// Adds one to every counter; whether that was acknowledged.
fn add(session: &mut Session, counters: &[Key]) -> bool {
    let read = match session.read(counters) {
        Ok(read) => read,
        Err(TransactionError::Interrupted { .. }) => return false,
        Err(error) => panic!("all nodes are up: {error}"),
    };
    let one_more = read.items.into_iter().map(|(key, version)| {
        let value = Value::new(&(number(&version) + 1).to_le_bytes()).expect("a short value");
        Write { key, value, expected: Some(version.timestamp) }
    });
    match session.write_if(one_more.collect()) {
        Ok(_) => true,
        Err(TransactionError::Conflict { .. }) => false,
        Err(error) => panic!("all nodes are up: {error}"),
    }
}

#[test]
fn counters_that_several_sessions_add_to_say_how_many_additions_were_acknowledged() {
    for wire in WIRES {
        for (algorithm, operations) in combinations() {
            let scene = Scene::start(wire, 3);
            // One alone, and several of different nodes.
            for names in [vec!["x"], vec!["a", "b", "c", "d"]] {
                let counters: Vec<Key> = names.iter().map(|name| of(name)).collect();
                let conflicts = AtomicU64::new(0);
                std::thread::scope(|scope| {
                    for _ in 0..SESSIONS {
                        scope.spawn(|| {
                            let mut session = open(&scene, algorithm, operations);
                            let mut left = ADDITIONS;
                            while left > 0 {
                                if add(&mut session, &counters) {
                                    left -= 1;
                                } else {
                                    // Who is in each other's way goes on at different times.
                                    let conflicts = conflicts.fetch_add(1, Ordering::SeqCst);
                                    let pause = std::time::Duration::from_micros(100 * (conflicts % 7));
                                    std::thread::sleep(pause);
                                }
                            }
                            session.close();
                        });
                    }
                });
                let mut session = open(&scene, algorithm, operations);
                let read = session.read(&counters).expect("all nodes are up");
                let found: Vec<u64> = read.items.iter().map(|(_, version)| number(version)).collect();
                let all = SESSIONS as u64 * ADDITIONS;
                let what = format!("{wire:?} {algorithm} {operations}");
                assert_eq!(found, vec![all; counters.len()], "{what}");
                println!("{what}: {all} additions, {conflicts:?} conflicts");
            }
        }
    }
}

#[test]
fn a_conflict_names_the_key_and_both_versions_and_leaves_all_as_it_was() {
    for algorithm in Algorithm::ALL {
        let scene = Scene::start(Wire::Shm, 3);
        let mut session = open(&scene, algorithm, Operations::Messages);
        let first = session.write(vec![(of("a"), value("1"))]).unwrap().timestamp;
        let on = |name: &str, expected| Write { key: of(name), value: value("2"), expected: Some(expected) };
        let nothing = session.write_if(vec![on("a", Timestamp::FIRST)]).unwrap_err();
        let TransactionError::Conflict { key, expected, found, committed, .. } = nothing else {
            panic!("{nothing:?}")
        };
        assert_eq!((key, expected, found, committed), (of("a"), Timestamp::FIRST, first, true));
        session.write_if(vec![on("a", first), on("b", Timestamp::FIRST)]).unwrap();
        if algorithm != Algorithm::None {
            let never = |number| Write::from((of(&format!("k{number}")), value("never")));
            let many = (0..9).map(never);
            let error = session.write_if(many.chain([on("b", first)]).collect()).unwrap_err();
            assert!(error.to_string().starts_with("conflict: nothing was written"), "{error}");
            let keys: Vec<Key> = (0..9).map(|number| of(&format!("k{number}"))).collect();
            let read = session.read(&keys).unwrap();
            assert!(read.items.iter().all(|(_, version)| *version == Version::first()), "{algorithm}");
        }
        // A deleted key has a version, and one that was never written has none.
        let deleted = session.write(vec![(of("a"), Value::DELETED)]).unwrap().timestamp;
        assert!(session.write_if(vec![on("a", Timestamp::FIRST)]).is_err());
        session.write_if(vec![on("a", deleted), (of("c"), value("blind")).into()]).unwrap();
    }
}
