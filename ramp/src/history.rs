//! Checks a recorded history of transactions: reports every read and write that violates a
//! guarantee of the store.
//!
//! ```text
//! Write: timestamp, keys, session, from .. to, how it ended        Read: key -> timestamp of what was found, session, from .. to
//!                                   \                          /
//!                                    check -> the violations, or none
//! ```
//!
//! The violations (Bailis et al. 2014, section 3, and the guarantees that follow from an
//! acknowledgement)
//! - **fractured**: a read found one key of a transaction, and at another key, which the same
//!   transaction wrote, an older version.
//! - **aborted**: a read found a version of an aborted transaction.
//! - **intermediate**: a read found a version of a transaction that is not in the history, or that
//!   did not write this key.
//! - **future**: a read found a version of a transaction that began after the read had ended.
//! - **lost**: a write was acknowledged before the read began, and the read found an older version.
//! - **session**: a session does not find its own earlier write. (RAMP does not guarantee that
//!   repeated reads of a session move forward.)
//! - **collision**: two transactions have one timestamp.
//! - **outdated**: an acknowledged write is older than another write of the same key, which had
//!   been acknowledged before it began.
//! - **lost update**: an acknowledged write of a key was made on the condition that a certain
//!   version was the newest one, and another acknowledged write of the key lies between the two.
//!
//! The check takes O(n log n) time, where n counts the keys of all writes and, for each version
//! found, the keys that its transaction wrote.

use crate::timestamp::Timestamp;
use foldhash::fast::RandomState;
use std::{collections::HashMap, fmt, hash::Hash};

/// How a write ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was acknowledged.
    Committed,
    /// It was refused: nobody may ever see it.
    Aborted,
    /// The client or its connection was lost. The write may become visible completely, or not at
    /// all.
    Unknown,
}

/// A transaction that wrote. All times are of one clock, such as a simulation's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write<K> {
    /// Its timestamp.
    pub timestamp: Timestamp,
    /// The keys that it wrote, each once.
    pub keys: Vec<K>,
    /// The versions that it was conditional on, by key.
    pub expected: Vec<(K, Timestamp)>,
    /// The session that it belongs to.
    pub session: u32,
    /// When it began.
    pub from: u64,
    /// When its client learnt how it ended.
    pub to: u64,
    /// How it ended.
    pub end: End,
}

/// A transaction that read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read<K> {
    /// For each key the timestamp of the version that was found; [`Timestamp::FIRST`] if there was
    /// none.
    pub found: Vec<(K, Timestamp)>,
    /// The session that it belongs to.
    pub session: u32,
    /// When it began.
    pub from: u64,
    /// When it ended.
    pub to: u64,
}

/// A recorded history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History<K> {
    /// Transactions that wrote.
    pub writes: Vec<Write<K>>,
    /// Transactions that read.
    pub reads: Vec<Read<K>>,
}

impl<K> Default for History<K> {
    fn default() -> Self {
        Self { writes: Vec::new(), reads: Vec::new() }
    }
}

/// Something that no store does that keeps its guarantees; the module lists them. A read is named
/// by its position in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation<K> {
    /// A part of a transaction was found, and another part missed.
    Fractured {
        /// Position of the read.
        read: usize,
        /// The key where it was missed.
        key: K,
        /// The timestamp of the version that was found.
        found: Timestamp,
        /// The transaction of which a version, or a newer one, should have been found.
        missed: Timestamp,
    },
    /// A read found a version of an aborted transaction.
    Aborted {
        /// Position of the read.
        read: usize,
        /// The key.
        key: K,
        /// The timestamp of the version that was found.
        found: Timestamp,
    },
    /// A read found a version that nobody wrote to this key.
    Intermediate {
        /// Position of the read.
        read: usize,
        /// The key.
        key: K,
        /// The timestamp of the version that was found.
        found: Timestamp,
    },
    /// A read found a version of a transaction that had not begun.
    Future {
        /// Position of the read.
        read: usize,
        /// The key.
        key: K,
        /// The timestamp of the version that was found.
        found: Timestamp,
    },
    /// A read missed a newer version that had been acknowledged.
    Lost {
        /// Position of the read.
        read: usize,
        /// The key.
        key: K,
        /// The timestamp of the version that was found.
        found: Timestamp,
        /// The newer version.
        acknowledged: Timestamp,
    },
    /// A read missed a newer version that its own session had written.
    Session {
        /// Position of the read.
        read: usize,
        /// The key.
        key: K,
        /// The timestamp of the version that was found.
        found: Timestamp,
        /// The session's version, which had been acknowledged before the read began.
        own: Timestamp,
    },
    /// Two transactions have one timestamp.
    Collision {
        /// The timestamp.
        timestamp: Timestamp,
    },
    /// An acknowledged write is older than the version that it should have superseded.
    Outdated {
        /// The write.
        timestamp: Timestamp,
        /// The key.
        key: K,
        /// The version that had been acknowledged before it began.
        acknowledged: Timestamp,
    },
    /// Another write lies between a write and the version that it was conditional on.
    LostUpdate {
        /// The write.
        timestamp: Timestamp,
        /// The key.
        key: K,
        /// The version that it was conditional on.
        expected: Timestamp,
        /// The version that it overwrote without having read it.
        between: Timestamp,
    },
}

impl<K: fmt::Display> fmt::Display for Violation<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fractured { read, key, found, missed } => {
                write!(
                    f,
                    "fractured: read {read} found version {found} at {key}, and at another key a version of the newer transaction {missed}, which wrote both"
                )
            }
            Self::Aborted { read, key, found } => {
                write!(
                    f,
                    "aborted: read {read} found version {found} at {key}, whose transaction was aborted"
                )
            }
            Self::Intermediate { read, key, found } => {
                write!(
                    f,
                    "intermediate: read {read} found version {found} at {key}, which no transaction wrote there"
                )
            }
            Self::Future { read, key, found } => {
                write!(
                    f,
                    "future: read {read} found version {found} at {key}, whose transaction began after the read had ended"
                )
            }
            Self::Lost { read, key, found, acknowledged } => {
                write!(
                    f,
                    "lost: read {read} found version {found} at {key}, although the newer {acknowledged} had been acknowledged before the read began"
                )
            }
            Self::Session { read, key, found, own } => {
                write!(
                    f,
                    "session: read {read} found version {found} at {key}, although its own session had written the newer {own} before"
                )
            }
            Self::Collision { timestamp } => {
                write!(f, "collision: two transactions have the timestamp {timestamp}")
            }
            Self::Outdated { timestamp, key, acknowledged } => {
                write!(
                    f,
                    "outdated: {timestamp} was acknowledged at {key}, although the newer {acknowledged} had been acknowledged before it began"
                )
            }
            Self::LostUpdate { timestamp, key, expected, between } => {
                write!(
                    f,
                    "lost update: {timestamp} was written to {key} on the condition that {expected} was the newest version, but {between} was written between them"
                )
            }
        }
    }
}

/// For each place the highest timestamp that had been acknowledged at any time. A place is a key,
/// or a key and a session.
struct Acknowledged<P> {
    /// Times, each with the highest timestamp acknowledged until then, both ascending.
    times: HashMap<P, Vec<(u64, Timestamp)>, RandomState>,
}

impl<P: Eq + Hash> Acknowledged<P> {
    /// `ended` is in the order of acknowledgements.
    fn of<'h, K: 'h>(ended: &[&'h Write<K>], place: impl Fn(&Write<K>, &'h K) -> P) -> Self {
        let mut times: HashMap<P, Vec<(u64, Timestamp)>, RandomState> = HashMap::default();
        for write in ended {
            for key in &write.keys {
                let times = times.entry(place(write, key)).or_default();
                let highest = times.last().map_or(write.timestamp, |(_, last)| write.timestamp.max(*last));
                times.push((write.to, highest));
            }
        }
        Self { times }
    }

    /// The highest timestamp that had been acknowledged there before `time`.
    fn before(&self, place: &P, time: u64) -> Timestamp {
        let Some(times) = self.times.get(place) else { return Timestamp::FIRST };
        let position = times.partition_point(|(to, _)| *to < time);
        position.checked_sub(1).map_or(Timestamp::FIRST, |position| times[position].1)
    }
}

/// All violations: collisions, those of writes, and then those of the reads in their order.
#[must_use]
pub fn check<K: Clone + Eq + Hash>(history: &History<K>) -> Vec<Violation<K>> {
    let mut checker = Checker::of(history);
    checker.acknowledged_writes(history);
    for (position, read) in history.reads.iter().enumerate() {
        checker.read(position, read);
    }
    checker.violations
}

struct Checker<'h, K> {
    writes: HashMap<Timestamp, &'h Write<K>, RandomState>,
    by_all: Acknowledged<&'h K>,
    by_session: Acknowledged<(u32, &'h K)>,
    /// For the read being checked: the oldest version of each key that is consistent with what it
    /// found at other keys.
    wanted: HashMap<&'h K, Timestamp, RandomState>,
    violations: Vec<Violation<K>>,
}

impl<'h, K: Clone + Eq + Hash> Checker<'h, K> {
    fn of(history: &'h History<K>) -> Self {
        let mut violations = Vec::new();
        let mut writes = HashMap::with_capacity_and_hasher(history.writes.len(), RandomState::default());
        for write in &history.writes {
            if writes.insert(write.timestamp, write).is_some() {
                violations.push(Violation::Collision { timestamp: write.timestamp });
            }
        }
        let ended = history.writes.iter().filter(|write| write.end == End::Committed);
        let mut ended: Vec<&Write<K>> = ended.collect();
        ended.sort_unstable_by_key(|write| write.to);
        let by_all = Acknowledged::of(&ended, |_, key| key);
        let by_session = Acknowledged::of(&ended, |write, key| (write.session, key));
        Self { writes, by_all, by_session, wanted: HashMap::default(), violations }
    }

    /// Checks that each acknowledged write is newer than those acknowledged before it began, and
    /// that nothing lies between it and the versions that it was conditional on.
    fn acknowledged_writes(&mut self, history: &'h History<K>) {
        let mut timestamps: HashMap<&K, Vec<Timestamp>, RandomState> = HashMap::default();
        let acknowledged = || history.writes.iter().filter(|write| write.end == End::Committed);
        for write in acknowledged() {
            write.keys.iter().for_each(|key| timestamps.entry(key).or_default().push(write.timestamp));
        }
        timestamps.values_mut().for_each(|timestamps| timestamps.sort_unstable());
        for write in acknowledged() {
            let timestamp = write.timestamp;
            for key in &write.keys {
                let acknowledged = self.by_all.before(&key, write.from);
                if timestamp < acknowledged {
                    self.violations.push(Violation::Outdated { timestamp, key: key.clone(), acknowledged });
                }
            }
            for (key, expected) in &write.expected {
                let all = timestamps.get(key).map(Vec::as_slice).unwrap_or_default();
                let behind = all.get(all.partition_point(|other| other <= expected));
                if let Some(between) = behind.copied().filter(|between| *between < timestamp) {
                    let (key, expected) = (key.clone(), *expected);
                    self.violations.push(Violation::LostUpdate { timestamp, key, expected, between });
                }
            }
        }
    }

    fn read(&mut self, position: usize, read: &'h Read<K>) {
        self.wanted.clear();
        for (key, found) in &read.found {
            self.origin(position, read, key, *found);
            self.age(position, read, key, *found);
        }
        for (key, found) in &read.found {
            if let Some(missed) = self.wanted.get(key).filter(|missed| found < *missed) {
                let (found, missed) = (*found, *missed);
                self.violations.push(Violation::Fractured {
                    read: position,
                    key: key.clone(),
                    found,
                    missed,
                });
            }
        }
    }

    /// Checks which transaction wrote a version that was found, and notes its other keys.
    fn origin(&mut self, position: usize, read: &'h Read<K>, key: &'h K, found: Timestamp) {
        if found == Timestamp::FIRST {
            return;
        }
        let write = self.writes.get(&found).filter(|write| write.keys.contains(key));
        let Some(write) = write else {
            return self.violations.push(Violation::Intermediate { read: position, key: key.clone(), found });
        };
        if write.end == End::Aborted {
            self.violations.push(Violation::Aborted { read: position, key: key.clone(), found });
        }
        if write.from > read.to {
            self.violations.push(Violation::Future { read: position, key: key.clone(), found });
        }
        if read.found.len() > 1 {
            for key in &write.keys {
                let timestamp = self.wanted.entry(key).or_insert(found);
                *timestamp = found.max(*timestamp);
            }
        }
    }

    /// Checks that no newer version had been acknowledged before the read.
    fn age(&mut self, position: usize, read: &'h Read<K>, key: &'h K, found: Timestamp) {
        let acknowledged = self.by_all.before(&key, read.from);
        if found >= acknowledged {
            return;
        }
        // Acknowledged writes of the session are among all acknowledged writes.
        let own = self.by_session.before(&(read.session, key), read.from);
        let key = key.clone();
        self.violations.push(if found < own {
            Violation::Session { read: position, key, found, own }
        } else {
            Violation::Lost { read: position, key, found, acknowledged }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::ClientId;

    fn at(time: u64) -> Timestamp {
        Timestamp { time, client: ClientId(1) }
    }

    fn write(time: u64, keys: &[u8], from: u64, to: u64, end: End) -> Write<u8> {
        Write { timestamp: at(time), keys: keys.to_vec(), expected: Vec::new(), session: 1, from, to, end }
    }

    fn read(found: &[(u8, u64)], from: u64, to: u64) -> Read<u8> {
        let found =
            found.iter().map(|(key, time)| (*key, if *time == 0 { Timestamp::FIRST } else { at(*time) }));
        Read { found: found.collect(), session: 2, from, to }
    }

    fn of(writes: Vec<Write<u8>>, reads: Vec<Read<u8>>) -> Vec<Violation<u8>> {
        check(&History { writes, reads })
    }

    #[test]
    fn what_a_store_may_do_is_no_violation() {
        let writes = vec![
            write(10, &[1, 2], 0, 5, End::Committed),
            write(20, &[2, 3], 6, 9, End::Unknown),
            write(30, &[1], 6, 9, End::Aborted),
        ];
        let before = read(&[(1, 0), (2, 0)], 1, 2);
        let during = read(&[(1, 10), (2, 10), (3, 0)], 3, 4);
        let unknown = read(&[(1, 10), (2, 20), (3, 20)], 7, 8);
        let or_not = read(&[(1, 10), (2, 10), (3, 0)], 10, 11);
        assert_eq!(of(writes, vec![before, during, unknown, or_not]), []);
    }

    #[test]
    fn each_anomaly_is_named_with_what_was_found_and_what_should_have_been() {
        let both = || write(10, &[1, 2], 0, 5, End::Unknown);
        let committed = || write(10, &[1, 2], 0, 5, End::Committed);
        let fractured = of(vec![both()], vec![read(&[(1, 10), (2, 0)], 1, 2)]);
        assert_eq!(
            fractured,
            [Violation::Fractured { read: 0, key: 2, found: Timestamp::FIRST, missed: at(10) }]
        );
        let aborted = of(vec![write(10, &[1], 0, 5, End::Aborted)], vec![read(&[(1, 10)], 6, 7)]);
        assert_eq!(aborted, [Violation::Aborted { read: 0, key: 1, found: at(10) }]);
        let elsewhere = of(vec![both()], vec![read(&[(3, 10)], 1, 2)]);
        assert_eq!(elsewhere, [Violation::Intermediate { read: 0, key: 3, found: at(10) }]);
        let nobodys = of(vec![], vec![read(&[(3, 10)], 1, 2)]);
        assert_eq!(nobodys, [Violation::Intermediate { read: 0, key: 3, found: at(10) }]);
        let future = of(vec![write(10, &[1], 8, 9, End::Committed)], vec![read(&[(1, 10)], 1, 2)]);
        assert_eq!(future, [Violation::Future { read: 0, key: 1, found: at(10) }]);
        let lost = of(vec![committed()], vec![read(&[(1, 0)], 6, 7)]);
        assert_eq!(
            lost,
            [Violation::Lost { read: 0, key: 1, found: Timestamp::FIRST, acknowledged: at(10) }]
        );
        let own = Read { session: 1, ..read(&[(1, 0)], 6, 7) };
        let session = of(vec![committed()], vec![own]);
        assert_eq!(session, [Violation::Session { read: 0, key: 1, found: Timestamp::FIRST, own: at(10) }]);
        let collision = of(vec![both(), write(10, &[4], 0, 5, End::Unknown)], vec![]);
        assert_eq!(collision, [Violation::Collision { timestamp: at(10) }]);
    }

    #[test]
    fn an_acknowledged_write_is_newer_than_what_was_acknowledged_before_it_began() {
        let first = || write(20, &[1, 2], 0, 5, End::Committed);
        let outdated = of(vec![first(), write(10, &[2, 3], 6, 9, End::Committed)], vec![]);
        assert_eq!(outdated, [Violation::Outdated { timestamp: at(10), key: 2, acknowledged: at(20) }]);
        for (from, end) in [(5, End::Committed), (6, End::Aborted), (6, End::Unknown)] {
            assert_eq!(of(vec![first(), write(10, &[2], from, 9, end)], vec![]), []);
        }
    }

    #[test]
    fn nothing_acknowledged_lies_between_a_write_and_what_it_was_conditional_on() {
        let on = |time, expected| Write {
            expected: vec![(1, at(expected))],
            ..write(time, &[1], 0, 9, End::Committed)
        };
        let first = || write(10, &[1], 0, 5, End::Committed);
        assert_eq!(of(vec![first(), on(20, 10), on(30, 20)], vec![]), []);
        let lost = of(vec![first(), on(20, 10), on(30, 10)], vec![]);
        assert_eq!(
            lost,
            [Violation::LostUpdate { timestamp: at(30), key: 1, expected: at(10), between: at(20) }]
        );
        assert_eq!(of(vec![write(10, &[1], 0, 5, End::Unknown), on(20, 5)], vec![]), [], "it may be aborted");
    }

    #[test]
    fn an_acknowledgement_counts_from_when_it_was_heard() {
        let writes = || vec![write(10, &[1], 0, 5, End::Committed)];
        assert_eq!(of(writes(), vec![read(&[(1, 0)], 5, 9)]), [], "it came as the read began");
        assert_eq!(of(writes(), vec![read(&[(1, 0)], 6, 9)]).len(), 1);
    }

    #[test]
    fn an_older_write_that_ends_later_is_not_lost() {
        let writes = vec![write(20, &[1], 0, 5, End::Committed), write(10, &[1], 0, 8, End::Committed)];
        assert_eq!(of(writes, vec![read(&[(1, 20)], 9, 10)]), []);
    }

    #[test]
    fn a_newer_version_beside_an_older_transaction_is_no_fracture() {
        let writes = vec![write(10, &[1, 2], 0, 5, End::Committed), write(20, &[2], 6, 7, End::Committed)];
        assert_eq!(of(writes, vec![read(&[(1, 10), (2, 20)], 8, 9)]), []);
    }

    #[test]
    fn a_million_operations_are_checked_in_near_linear_work() {
        // 100,000 writes of two keys, each read once: what takes quadratic time would not end.
        let writes: Vec<Write<u8>> = (1..=100_000_u64)
            .map(|at| {
                write(at, &[(at % 250) as u8, ((at + 1) % 250) as u8], 2 * at, 2 * at + 1, End::Committed)
            })
            .collect();
        let reads = (1..=100_000_u64).map(|at| read(&[(((at + 1) % 250) as u8, at)], 2 * at + 1, 2 * at + 2));
        assert_eq!(of(writes, reads.collect()), []);
    }
}
