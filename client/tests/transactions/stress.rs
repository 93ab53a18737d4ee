//! Tests that nobody reads a part of a transaction while several sessions write. The checker of
//! histories examines what was read.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use rackscan_client::{Operations, Session, SessionOptions, TransactionError};
use rackscan_fabric::sim::{Random, Seed};
use rackscan_ramp::{
    algorithm::Algorithm,
    history::{End, History, Read, Write, check},
    item::{Key, Value},
    timestamp::Timestamp,
};

use crate::{
    scene::{Scene, WIRES},
    sessions::{of, options},
};

const KEYS: u32 = 12;
const SESSIONS: u32 = 3;
const TRANSACTIONS: usize = 250;

fn key(number: u32) -> Key {
    of(&format!("key{number}"))
}

fn number(key: &Key) -> u32 {
    std::str::from_utf8(&key.bytes()[3..]).expect("digits").parse().expect("a number")
}

/// What was done, seen, and written under which timestamp.
#[derive(Default)]
struct Recorded {
    history: History<u32>,
    /// What a transaction wrote everywhere.
    words: HashMap<Timestamp, u64>,
    found: Vec<(Timestamp, Vec<u8>)>,
    one_sided: usize,
    second_rounds: usize,
}

fn some_keys(random: &mut Random) -> Vec<u32> {
    let mut keys: Vec<u32> = (0..1 + random.below(5))
        .map(|_| u32::try_from(random.below(u64::from(KEYS))).expect("few keys"))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn run(mut session: Session, number_of: u32, now: &AtomicU64, recorded: &Mutex<Recorded>, seed: Seed) {
    let mut random = Random::new(seed);
    let tick = || now.fetch_add(1, Ordering::SeqCst);
    for turn in 0..TRANSACTIONS {
        let keys = some_keys(&mut random);
        let from = tick();
        if random.below(2) == 0 {
            let word = u64::from(number_of) << 32 | turn as u64;
            // Lengths differ, so that slots move.
            let bytes = word.to_le_bytes().repeat(1 + random.index(40));
            let items = keys
                .iter()
                .map(|number| (key(*number), Value::new(&bytes).expect("a short value")))
                .collect();
            let written = match session.write(items) {
                Ok(written) => written,
                Err(TransactionError::Interrupted { .. }) => continue,
                Err(error) => panic!("all nodes are up: {error}"),
            };
            let mut recorded = recorded.lock().expect("no session panicked");
            recorded.words.insert(written.timestamp, word);
            let (timestamp, session, to, end) = (written.timestamp, number_of, tick(), End::Committed);
            recorded.history.writes.push(Write {
                timestamp,
                keys,
                expected: Vec::new(),
                session,
                from,
                to,
                end,
            });
        } else {
            let wanted: Vec<Key> = keys.iter().map(|number| key(*number)).collect();
            let read = session.read(&wanted).expect("all nodes are up");
            let to = tick();
            let mut recorded = recorded.lock().expect("no session panicked");
            recorded.one_sided += read.one_sided;
            recorded.second_rounds += usize::from(read.rounds > 1);
            for (_, version) in &read.items {
                recorded.found.extend(version.value.bytes().map(|bytes| (version.timestamp, bytes.to_vec())));
            }
            let found = read.items.iter().map(|(key, version)| (number(key), version.timestamp)).collect();
            recorded.history.reads.push(Read { found, session: number_of, from, to });
        }
    }
    session.close();
}

/// Several sessions at once over these nodes; checks what they saw.
pub(crate) fn stress(what: &str, options: &SessionOptions) {
    let (now, recorded) = (AtomicU64::new(0), Mutex::new(Recorded::default()));
    std::thread::scope(|scope| {
        for number in 0..SESSIONS {
            let session = Session::open(options.clone()).expect("all nodes are up");
            let (now, recorded) = (&now, &recorded);
            let seed = Seed::new(0x5eed_0000 + u64::from(number));
            scope.spawn(move || run(session, number, now, recorded, seed));
        }
    });
    let recorded = recorded.into_inner().expect("no session panicked");
    let SessionOptions { algorithm, operations, .. } = options;
    let what = format!("{what} {algorithm} {operations}");
    assert_eq!(check(&recorded.history), [], "{what}");
    for (timestamp, bytes) in &recorded.found {
        let word = recorded.words[timestamp].to_le_bytes();
        assert!(bytes.chunks(8).all(|chunk| chunk == word), "{what}: a value of several writes");
    }
    let looks =
        *operations == Operations::OneSided && matches!(algorithm, Algorithm::Fast | Algorithm::Hybrid);
    assert_eq!(recorded.one_sided > 0, looks, "{what}");
    let (reads, one_sided, second) =
        (recorded.history.reads.len(), recorded.one_sided, recorded.second_rounds);
    println!("{what}: {reads} reads, {one_sided} of slots, {second} second rounds");
}

/// All that keep transactions apart, with all operations.
pub(crate) fn combinations() -> impl Iterator<Item = (Algorithm, Operations)> {
    let algorithms = Algorithm::ALL.into_iter().filter(|algorithm| *algorithm != Algorithm::None);
    algorithms.flat_map(|algorithm| Operations::ALL.map(|operations| (algorithm, operations)))
}

#[test]
fn nobody_sees_a_part_of_a_transaction_while_several_write() {
    for wire in WIRES {
        for (algorithm, operations) in combinations() {
            let scene = Scene::start(wire, 3);
            stress(&format!("{wire:?}"), &options(&scene, algorithm, operations));
        }
    }
}
