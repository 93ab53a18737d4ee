//! Records what sessions write and read, and checks that the isolation level allows it.
//!
//! ```text
//! Recorder        the history of one session in a leg (a part of a run)
//! Ledger          what is kept from one leg to the next: writes that later legs may still read
//! Ledger::check   checks all recorders of a leg: history::check finds violations of the isolation
//!                 level, and each value that was read must be the one that its transaction wrote
//! ```
//!
//! Invariants
//! - A recorder belongs to its thread. Sessions share only one counter, which orders events without
//!   any clock.
//! - Memory is bounded: a full recorder ends the leg, and everything recorded is checked. Only
//!   writes that a later read may find are kept: the newest acknowledged write of each key, and a
//!   write of unknown outcome until every key that it wrote has a newer acknowledged write.
//! - If a later leg reads a write that was not kept, it is reported as a violation of the kind
//!   `intermediate`: the ledger does not know the write any more.

use super::token::{Token, writer};
use crate::limits::{UNKNOWN_MAX, WORDS_KEPT_MAX};
use rackscan_ramp::{
    history::{End, History, Read, Violation, Write, check},
    item::{Key, Version},
    timestamp::{ClientId, Timestamp},
};
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicU64, Ordering},
};

/// A timestamp that no transaction has: it stands for a value whose bytes are of no single writer.
const NOBODY: Timestamp = Timestamp { time: u64::MAX, client: ClientId(u32::MAX) };

/// A counter that orders the events of all sessions of a process.
#[derive(Debug, Default)]
pub(super) struct Order(AtomicU64);

impl Order {
    /// The next number: above all that were taken before, in any thread.
    pub(super) fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    /// How many numbers were taken: two per transaction.
    pub(super) fn taken(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The history of one session.
#[derive(Debug)]
pub(super) struct Recorder {
    session: u32,
    room: usize,
    operations: usize,
    writes: Vec<Write<u32>>,
    tokens: Vec<Token>,
    reads: Vec<Read<u32>>,
    /// The writers of the values that reads found, one after the other.
    writers: Vec<Option<Token>>,
    /// For a read whose answer has another order: fingerprints and numbers of its keys, ascending.
    numbers: Vec<(u64, u32)>,
}

impl Recorder {
    /// For a session that records at most `room` reads and writes.
    pub(super) fn new(session: u32, room: usize) -> Self {
        let (writes, tokens, reads, writers) = Default::default();
        Self { session, room, operations: 0, writes, tokens, reads, writers, numbers: Vec::new() }
    }

    /// Whether another transaction of `keys` keys fits.
    pub(super) fn has_room(&self, keys: usize) -> bool {
        self.operations + keys <= self.room
    }

    /// Records a write that has ended.
    pub(super) fn write(
        &mut self,
        keys: &[u32],
        timestamp: Timestamp,
        token: Token,
        during: (u64, u64),
        end: End,
    ) {
        self.operations += keys.len();
        let ((from, to), session) = (during, self.session);
        self.writes.push(Write {
            timestamp,
            keys: keys.to_vec(),
            expected: Vec::new(),
            session,
            from,
            to,
            end,
        });
        self.tokens.push(token);
    }

    /// Records a read that has ended. Returns whether it answered exactly the keys that it was
    /// asked for.
    pub(super) fn read(
        &mut self,
        (keys, numbers): (&[Key], &[u32]),
        items: &[(Key, Version)],
        (from, to): (u64, u64),
    ) -> bool {
        self.numbers.clear();
        let mut found = Vec::with_capacity(items.len());
        for (at, (key, version)) in items.iter().enumerate() {
            let in_place = keys.get(at).filter(|asked| *asked == key).and(numbers.get(at)).copied();
            let Some(number) = in_place.or_else(|| self.number(keys, numbers, key)) else { break };
            let writer = version.value.bytes().map(|bytes| writer(bytes, number));
            let whole = writer != Some(None);
            found.push((number, if whole { version.timestamp } else { NOBODY }));
            self.writers.push(writer.flatten());
        }
        let mut distinct: Vec<u32> = found.iter().map(|(number, _)| *number).collect();
        distinct.sort_unstable();
        distinct.dedup();
        self.operations += found.len();
        self.reads.push(Read { found, session: self.session, from, to });
        items.len() == keys.len() && distinct.len() == keys.len()
    }

    fn number(&mut self, keys: &[Key], numbers: &[u32], key: &Key) -> Option<u32> {
        if self.numbers.is_empty() {
            self.numbers.extend(keys.iter().map(|key| key.fingerprint().0).zip(numbers.iter().copied()));
            self.numbers.sort_unstable();
        }
        let at = self.numbers.binary_search_by_key(&key.fingerprint().0, |(fingerprint, _)| *fingerprint);
        self.numbers.get(at.ok()?).map(|(_, number)| *number)
    }

    /// The writes that the reads found, if nothing else happened at the time of the reads.
    pub(super) fn into_ground(self) -> Vec<(Write<u32>, Token)> {
        let mut writes: BTreeMap<Timestamp, (Vec<u32>, Token)> = BTreeMap::new();
        let found = self.reads.iter().flat_map(|read| &read.found);
        for ((key, timestamp), writer) in found.zip(&self.writers) {
            if *timestamp != Timestamp::FIRST {
                let (keys, _) = writes.entry(*timestamp).or_insert((Vec::new(), writer.unwrap_or_default()));
                keys.push(*key);
            }
        }
        let end = End::Committed;
        let write = |(timestamp, (keys, token))| {
            (Write { timestamp, keys, expected: Vec::new(), session: u32::MAX, from: 0, to: 0, end }, token)
        };
        writes.into_iter().map(write).collect()
    }
}

/// Result of the checks of histories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Number of checked transactions.
    pub transactions: u64,
    /// Keys that they read and wrote.
    pub operations: u64,
    /// Number of legs in which the history was checked.
    pub legs: u64,
    /// Number of violations of each kind.
    pub violations: BTreeMap<&'static str, u64>,
    /// Descriptions of the first violations.
    pub first: Vec<String>,
}

impl Checked {
    /// Number of all violations.
    #[must_use]
    pub fn violated(&self) -> u64 {
        self.violations.values().sum()
    }

    /// Adds the result of another check.
    pub(super) fn add(&mut self, other: &Self) {
        self.transactions += other.transactions;
        self.operations += other.operations;
        self.legs += other.legs;
        for (kind, count) in &other.violations {
            *self.violations.entry(kind).or_default() += count;
        }
        let room = WORDS_KEPT_MAX.saturating_sub(self.first.len());
        self.first.extend(other.first.iter().take(room).cloned());
    }

    fn found(&mut self, kind: &'static str, words: impl FnOnce() -> String) {
        *self.violations.entry(kind).or_default() += 1;
        if self.first.len() < WORDS_KEPT_MAX {
            self.first.push(words());
        }
    }
}

/// Too many transactions of unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found} transactions of unknown outcome may still become visible, expected at most {UNKNOWN_MAX}: check that all nodes run"
)]
pub struct TooManyUnknown {
    /// The number.
    pub found: usize,
}

/// The history of a run.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    carried: Vec<(Write<u32>, Token)>,
    checked: Checked,
}

impl Ledger {
    /// A history that begins with these writes.
    pub(super) fn on(ground: Vec<(Write<u32>, Token)>) -> Self {
        Self { carried: ground, checked: Checked::default() }
    }

    /// Checks what was recorded since the last check, while nothing is in flight.
    pub(super) fn check(&mut self, recorders: Vec<Recorder>) -> Result<(), TooManyUnknown> {
        let (mut history, mut tokens, mut writers) = (History::default(), Vec::new(), Vec::new());
        for (write, token) in self.carried.drain(..) {
            history.writes.push(write);
            tokens.push(token);
        }
        for recorder in recorders {
            self.checked.transactions += (recorder.writes.len() + recorder.reads.len()) as u64;
            self.checked.operations += recorder.operations as u64;
            history.writes.extend(recorder.writes);
            tokens.extend(recorder.tokens);
            history.reads.extend(recorder.reads);
            writers.extend(recorder.writers);
        }
        self.checked.legs += 1;
        for violation in check(&history) {
            self.checked.found(kind(&violation), || violation.to_string());
        }
        self.check_values(&history, &tokens, &writers);
        self.carried = carried(history.writes.into_iter().zip(tokens).collect());
        let unknown = self.carried.iter().filter(|(write, _)| write.end == End::Unknown).count();
        if unknown > UNKNOWN_MAX { Err(TooManyUnknown { found: unknown }) } else { Ok(()) }
    }

    /// Checks that each value belongs to the timestamp that it was found with.
    fn check_values(&mut self, history: &History<u32>, tokens: &[Token], writers: &[Option<Token>]) {
        let written: HashMap<Timestamp, Token> =
            history.writes.iter().zip(tokens).map(|(write, token)| (write.timestamp, *token)).collect();
        let found = history.reads.iter().flat_map(|read| &read.found);
        for ((key, timestamp), writer) in found.zip(writers) {
            // Values without a single writer were reported by the previous check.
            if let (Some(expected), Some(writer)) = (written.get(timestamp), writer)
                && expected != writer
            {
                self.checked.found("foreign value", || {
                    format!("foreign value: key {key} with timestamp {timestamp} had the value of another transaction")
                });
            }
        }
    }

    pub(super) fn into_checked(self) -> Checked {
        self.checked
    }
}

fn kind<K>(violation: &Violation<K>) -> &'static str {
    match violation {
        Violation::Intermediate { found, .. } if *found == NOBODY => "torn value",
        Violation::Fractured { .. } => "fractured",
        Violation::Aborted { .. } => "aborted",
        Violation::Intermediate { .. } => "intermediate",
        Violation::Future { .. } => "future",
        Violation::Lost { .. } => "lost",
        Violation::Session { .. } => "session",
        Violation::Collision { .. } => "collision",
        Violation::Outdated { .. } => "outdated",
        Violation::LostUpdate { .. } => "lost update",
    }
}

/// The writes that a correct store may still return.
fn carried(writes: Vec<(Write<u32>, Token)>) -> Vec<(Write<u32>, Token)> {
    let mut acknowledged: HashMap<u32, Timestamp> = HashMap::new();
    for (write, _) in writes.iter().filter(|(write, _)| write.end == End::Committed) {
        for key in &write.keys {
            let newest = acknowledged.entry(*key).or_insert(write.timestamp);
            *newest = write.timestamp.max(*newest);
        }
    }
    let newest = |key: &u32| acknowledged.get(key).copied().unwrap_or(Timestamp::FIRST);
    let may_be_found = |write: &Write<u32>| match write.end {
        End::Committed | End::Unknown => write.keys.iter().any(|key| write.timestamp >= newest(key)),
        End::Aborted => false,
    };
    writes.into_iter().filter(|(write, _)| may_be_found(write)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::token::value;
    use super::super::workload::key_name;
    use super::*;
    use rackscan_ramp::item::Metadata;

    fn at(time: u64) -> Timestamp {
        Timestamp { time, client: ClientId(1) }
    }

    fn key(number: u32) -> Key {
        Key::new(key_name(number).as_bytes()).unwrap()
    }

    fn read(recorder: &mut Recorder, numbers: &[u32], items: &[(Key, Version)], from: u64) -> bool {
        let keys: Vec<Key> = numbers.iter().map(|number| key(*number)).collect();
        recorder.read((&keys, numbers), items, (from, from + 1))
    }

    fn found(number: u32, time: u64, token: Token) -> (Key, Version) {
        let value = value(token, number, 100, &mut Vec::new()).unwrap();
        (key(number), Version { timestamp: at(time), metadata: Metadata::Timestamp, value })
    }

    fn token(write: u32) -> Token {
        Token::of(1, 1, write)
    }

    fn recorder(writes: &[(u64, &[u32], End)], first: u64) -> Recorder {
        let mut recorder = Recorder::new(1, 1000);
        for (moment, (time, keys, end)) in (first..).step_by(2).zip(writes) {
            let write = token(u32::try_from(*time).unwrap());
            recorder.write(keys, at(*time), write, (moment, moment + 1), *end);
        }
        recorder
    }

    fn kinds(ledger: Ledger) -> Vec<(&'static str, u64)> {
        ledger.into_checked().violations.into_iter().collect()
    }

    #[test]
    fn what_an_earlier_leg_wrote_may_be_found_in_a_later_one_and_must_be() {
        let mut ledger = Ledger::default();
        let writes: [(u64, &[u32], End); 3] =
            [(10, &[1, 2], End::Committed), (20, &[1], End::Committed), (30, &[2, 3], End::Unknown)];
        ledger.check(vec![recorder(&writes, 0)]).unwrap();
        let mut later = recorder(&[], 100);
        let good: [&[(u32, u64)]; 3] = [&[(1, 20), (2, 10), (3, 0)], &[(2, 30), (3, 30)], &[(1, 20)]];
        for (at, items) in (100..).step_by(2).zip(good) {
            let numbers: Vec<_> = items.iter().map(|(number, _)| *number).collect();
            let items: Vec<_> = items
                .iter()
                .map(|(number, time)| match time {
                    0 => (key(*number), Version::first()),
                    _ => found(*number, *time, token(u32::try_from(*time).unwrap())),
                })
                .collect();
            assert!(read(&mut later, &numbers, &items, at));
        }
        ledger.check(vec![later]).unwrap();
        assert_eq!(ledger.checked.violated(), 0, "{:?}", ledger.checked);
        let mut late = recorder(&[], 200);
        assert!(read(&mut late, &[1], &[found(1, 10, token(10))], 200));
        let half = [found(2, 30, token(30)), (key(3), Version::first())];
        assert!(read(&mut late, &[2, 3], &half, 202));
        ledger.check(vec![late]).unwrap();
        assert_eq!(ledger.checked.legs, 3);
        assert_eq!(kinds(ledger), [("fractured", 1), ("session", 1)]);
    }

    #[test]
    fn what_nobody_may_find_any_more_is_not_carried() {
        let mut ledger = Ledger::default();
        for leg in 0..50_u64 {
            let (time, first) = (leg * 10, leg * 100);
            let writes: [(u64, &[u32], End); 4] = [
                (time + 1, &[1, 2], End::Unknown),
                (time + 2, &[1, 2], End::Aborted),
                (time + 3, &[1], End::Committed),
                (time + 4, &[2], End::Committed),
            ];
            ledger.check(vec![recorder(&writes, first)]).unwrap();
            assert_eq!(ledger.carried.len(), 2, "{:?}", ledger.carried);
        }
    }

    #[test]
    fn a_value_of_two_writers_and_a_value_of_another_transaction_are_violations() {
        let mut ledger = Ledger::default();
        let mut first = recorder(&[(10, &[1], End::Committed), (20, &[2], End::Committed)], 0);
        let mut torn = found(1, 10, token(10));
        let mut bytes = torn.1.value.bytes().unwrap().to_vec();
        bytes[50] ^= 1;
        torn.1.value = rackscan_ramp::item::Value::new(&bytes).unwrap();
        assert!(read(&mut first, &[1], &[torn], 10));
        assert!(read(&mut first, &[2], &[found(2, 20, token(10))], 12));
        assert!(read(&mut first, &[2], &[found(2, 20, token(20))], 14));
        ledger.check(vec![first]).unwrap();
        assert_eq!(kinds(ledger), [("foreign value", 1), ("torn value", 1)]);
    }

    #[test]
    fn an_answer_in_another_order_is_the_same_and_one_of_other_keys_is_none() {
        let mut recorder = recorder(&[], 0);
        let items = [found(3, 10, token(1)), found(1, 10, token(1)), found(2, 10, token(1))];
        assert!(read(&mut recorder, &[1, 2, 3], &items, 0));
        assert_eq!(recorder.reads[0].found, [(3, at(10)), (1, at(10)), (2, at(10))]);
        assert!(!read(&mut recorder, &[1, 2], &items, 2), "a key that was not asked for");
        assert!(!read(&mut recorder, &[1, 2, 3, 4], &items, 2), "one is missing");
        let twice = [items[0].clone(), items[0].clone()];
        assert!(!read(&mut recorder, &[3, 1], &twice, 4), "one comes twice");
    }

    #[test]
    fn a_full_recorder_says_so_before_the_transaction() {
        let mut recorder = Recorder::new(1, 10);
        assert!(recorder.has_room(10));
        recorder.write(&[1, 2, 3], at(1), token(1), (0, 1), End::Committed);
        assert!(recorder.has_room(7) && !recorder.has_room(8));
    }
}
