//! May a store that keeps its promises have done what clients saw?
//!
//! ```text
//! Write: stamp, keys, session, from .. to, how it ended        Read: key -> stamp of what was found, session, from .. to
//!                                   \                          /
//!                                    check -> the violations, or none
//! ```
//!
//! What is checked (Bailis et al. 2014, section 3, and what a store says when it acknowledges)
//! - **fractured**: of a transaction that a read met at one key it misses what that wrote to another key that it read.
//! - **aborted**, **intermediate**: what was found belongs to a transaction that did not end well, or that wrote no such key; or nobody wrote it.
//! - **future**: what was found was written by a transaction that began after the read had ended.
//! - **lost**: a write had been acknowledged before the read began, and the read found something older.
//! - **session**: a session does not find its own write again. (RAMP promises nothing of what a session reads twice.)
//! - **collision**: two transactions have one stamp.
//!
//! Takes O(n log n) for n writes and reads of keys, of which each read looks at the write sets of what it found.

use crate::stamp::Stamp;
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

/// How a write ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was acknowledged.
    Committed,
    /// It was refused: nobody may ever see it.
    Aborted,
    /// Nobody knows: the client or its wire was lost. It may be seen, wholly, or not.
    Unknown,
}

/// A transaction that wrote. Times are of one clock for all clients, such as a simulation's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write<K> {
    /// Its place.
    pub stamp: Stamp,
    /// What it wrote to, each once.
    pub keys: Vec<K>,
    /// Whose it was.
    pub session: u32,
    /// When it began.
    pub from: u64,
    /// When its client knew how it ended.
    pub to: u64,
    /// How.
    pub end: End,
}

/// A transaction that read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read<K> {
    /// What was found at each key: the stamp of the transaction that wrote it, [`Stamp::FIRST`] where there was nothing.
    pub found: Vec<(K, Stamp)>,
    /// Whose it was.
    pub session: u32,
    /// When it began.
    pub from: u64,
    /// When it ended.
    pub to: u64,
}

/// All that happened.
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

/// What no store that keeps its promises does. `read` is the position of the read in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation<K> {
    /// See the module; at `key` there should have been `missed`, of which the read met another part.
    Fractured { read: usize, key: K, found: Stamp, missed: Stamp },
    /// Of a transaction that was aborted.
    Aborted { read: usize, key: K, found: Stamp },
    /// Nobody wrote that there.
    Intermediate { read: usize, key: K, found: Stamp },
    /// It was not yet there.
    Future { read: usize, key: K, found: Stamp },
    /// `acknowledged` was there already.
    Lost { read: usize, key: K, found: Stamp, acknowledged: Stamp },
    /// The session had written `own` there.
    Session { read: usize, key: K, found: Stamp, own: Stamp },
    /// Two transactions have this stamp.
    Collision { stamp: Stamp },
}

impl<K: fmt::Display> fmt::Display for Violation<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fractured { read, key, found, missed } => {
                write!(f, "fractured: read {read} found {found} at {key}, and elsewhere what {missed} wrote there, too")
            }
            Self::Aborted { read, key, found } => {
                write!(f, "aborted: read {read} found {found} at {key}, which was aborted")
            }
            Self::Intermediate { read, key, found } => {
                write!(f, "intermediate: read {read} found {found} at {key}, which nobody wrote there")
            }
            Self::Future { read, key, found } => {
                write!(f, "future: read {read} found {found} at {key}, which began after the read had ended")
            }
            Self::Lost { read, key, found, acknowledged } => {
                write!(f, "lost: read {read} found {found} at {key}, where {acknowledged} had been acknowledged")
            }
            Self::Session { read, key, found, own } => {
                write!(f, "session: read {read} found {found} at {key}, where its own session had written {own}")
            }
            Self::Collision { stamp } => write!(f, "collision: two transactions have the stamp {stamp}"),
        }
    }
}

/// For each key the highest stamp that was acknowledged by a time.
struct Acknowledged<'h, K> {
    /// By key: times and the highest stamp until then, both ascending.
    by_key: HashMap<&'h K, Vec<(u64, Stamp)>>,
}

impl<'h, K: Eq + std::hash::Hash> Acknowledged<'h, K> {
    fn of(writes: impl Iterator<Item = &'h Write<K>>) -> Self {
        let mut ended: Vec<&Write<K>> = writes.filter(|write| write.end == End::Committed).collect();
        ended.sort_unstable_by_key(|write| write.to);
        let mut by_key: HashMap<&K, Vec<(u64, Stamp)>> = HashMap::new();
        for write in ended {
            for key in &write.keys {
                let times = by_key.entry(key).or_default();
                let highest = times.last().map_or(write.stamp, |(_, last)| write.stamp.max(*last));
                times.push((write.to, highest));
            }
        }
        Self { by_key }
    }

    /// The highest stamp at `key` that had been acknowledged before `time`.
    fn before(&self, key: &K, time: u64) -> Stamp {
        let Some(times) = self.by_key.get(key) else { return Stamp::FIRST };
        let position = times.partition_point(|(to, _)| *to < time);
        position.checked_sub(1).map_or(Stamp::FIRST, |position| times[position].1)
    }
}

/// All violations, in the order of the reads.
#[must_use]
pub fn check<K: Clone + Ord + std::hash::Hash>(history: &History<K>) -> Vec<Violation<K>> {
    let mut violations = Vec::new();
    let mut writes: HashMap<Stamp, &Write<K>> = HashMap::with_capacity(history.writes.len());
    for write in &history.writes {
        if writes.insert(write.stamp, write).is_some() {
            violations.push(Violation::Collision { stamp: write.stamp });
        }
    }
    let all = Acknowledged::of(history.writes.iter());
    let mut sessions: HashMap<u32, Vec<&Write<K>>> = HashMap::new();
    history.writes.iter().for_each(|write| sessions.entry(write.session).or_default().push(write));
    let sessions: HashMap<u32, Acknowledged<'_, K>> = sessions
        .into_iter()
        .map(|(session, writes)| (session, Acknowledged::of(writes.into_iter())))
        .collect();
    for (read, transaction) in history.reads.iter().enumerate() {
        let mut wanted: BTreeMap<&K, Stamp> = BTreeMap::new();
        for (key, found) in &transaction.found {
            let (key_of, found) = (key.clone(), *found);
            if found != Stamp::FIRST {
                match writes.get(&found) {
                    Some(write) if write.keys.contains(key) => {
                        if write.end == End::Aborted {
                            violations.push(Violation::Aborted { read, key: key_of.clone(), found });
                        }
                        if write.from > transaction.to {
                            violations.push(Violation::Future { read, key: key_of.clone(), found });
                        }
                        for key in &write.keys {
                            let stamp = wanted.entry(key).or_insert(found);
                            *stamp = found.max(*stamp);
                        }
                    }
                    _ => violations.push(Violation::Intermediate { read, key: key_of.clone(), found }),
                }
            }
            let own = sessions.get(&transaction.session).map(|own| own.before(key, transaction.from));
            if let Some(own) = own.filter(|own| found < *own) {
                violations.push(Violation::Session { read, key: key_of, found, own });
                continue;
            }
            let acknowledged = all.before(key, transaction.from);
            if found < acknowledged {
                violations.push(Violation::Lost { read, key: key_of, found, acknowledged });
            }
        }
        for (key, found) in &transaction.found {
            if let Some(missed) = wanted.get(key).filter(|missed| found < *missed) {
                violations.push(Violation::Fractured { read, key: key.clone(), found: *found, missed: *missed });
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::ClientId;

    fn at(time: u64) -> Stamp {
        Stamp { time, client: ClientId(1) }
    }

    fn write(time: u64, keys: &[u8], from: u64, to: u64, end: End) -> Write<u8> {
        Write { stamp: at(time), keys: keys.to_vec(), session: 1, from, to, end }
    }

    fn read(found: &[(u8, u64)], from: u64, to: u64) -> Read<u8> {
        let found = found.iter().map(|(key, time)| (*key, if *time == 0 { Stamp::FIRST } else { at(*time) }));
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
        assert_eq!(fractured, [Violation::Fractured { read: 0, key: 2, found: Stamp::FIRST, missed: at(10) }]);
        let aborted = of(vec![write(10, &[1], 0, 5, End::Aborted)], vec![read(&[(1, 10)], 6, 7)]);
        assert_eq!(aborted, [Violation::Aborted { read: 0, key: 1, found: at(10) }]);
        let elsewhere = of(vec![both()], vec![read(&[(3, 10)], 1, 2)]);
        assert_eq!(elsewhere, [Violation::Intermediate { read: 0, key: 3, found: at(10) }]);
        let nobodys = of(vec![], vec![read(&[(3, 10)], 1, 2)]);
        assert_eq!(nobodys, [Violation::Intermediate { read: 0, key: 3, found: at(10) }]);
        let future = of(vec![write(10, &[1], 8, 9, End::Committed)], vec![read(&[(1, 10)], 1, 2)]);
        assert_eq!(future, [Violation::Future { read: 0, key: 1, found: at(10) }]);
        let lost = of(vec![committed()], vec![read(&[(1, 0)], 6, 7)]);
        assert_eq!(lost, [Violation::Lost { read: 0, key: 1, found: Stamp::FIRST, acknowledged: at(10) }]);
        let own = Read { session: 1, ..read(&[(1, 0)], 6, 7) };
        let session = of(vec![committed()], vec![own]);
        assert_eq!(session, [Violation::Session { read: 0, key: 1, found: Stamp::FIRST, own: at(10) }]);
        let collision = of(vec![both(), write(10, &[4], 0, 5, End::Unknown)], vec![]);
        assert_eq!(collision, [Violation::Collision { stamp: at(10) }]);
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
            .map(|at| write(at, &[(at % 250) as u8, ((at + 1) % 250) as u8], 2 * at, 2 * at + 1, End::Committed))
            .collect();
        let reads = (1..=100_000_u64).map(|at| read(&[(((at + 1) % 250) as u8, at)], 2 * at + 1, 2 * at + 2));
        assert_eq!(of(writes, reads.collect()), []);
    }
}
