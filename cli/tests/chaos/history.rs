//! Checks whether the answers that clients recorded are possible for a correct store.
//!
//! ```text
//! Write   its number, the cells that it writes or deletes, its start and end, its outcome
//! Read    for each cell the number of the write whose value was found (or nothing); start and end
//! check   takes all writes and reads, and returns the violations
//! ```
//!
//! A cell is a key of `kv`, a row of a table, or the existence of a table. Each write stores its
//! own number, so a read identifies the write that it found.
//!
//! Checked properties
//! - **Linearizability of each cell** (Gibbons and Korach 1997, for registers whose values are
//!   unique). The operations of one value (its write and the reads that found it) form a group with
//!   the earliest end `f` and the latest start `s`. Two groups contradict each other exactly if an
//!   operation of each ends before one of the other starts: `f(a) < s(b)` and `f(b) < s(a)`. So an
//!   acknowledged write is only superseded by a write that ended after it began, and a value that
//!   was superseded never returns.
//! - **Writes in doubt** (killed clients, lost answers) have no end: they may take effect at any
//!   later time, or never. Once a read has found them, they stay. When no node has any transaction
//!   in doubt and nobody writes (`settle`), they are decided: a write that is not visible then
//!   never takes effect.
//! - **Refused writes** are never visible, and no read finds a value before its write began.
//! - **Atomic visibility**: a read that finds one part of a write never finds, in another cell of
//!   that write, a value that is certainly older.
//!
//! Invariants
//! - No false alarm: every reported violation contradicts every order of the operations. Reads that
//!   find nothing may belong to any deletion (deletions have no value of their own); a violation is
//!   reported only if no deletion explains the read.
//! - RAMP promises atomic visibility and no snapshots: a reader of several cells may see a write
//!   before it is committed at all of its cells, while a later reader of one cell may not see it
//!   yet. Such a read does not count as an end of the write (`is_weak`), unless nothing was in
//!   doubt at its time. The same holds for each reader by SQL.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// The number of a write. No write has [`NOTHING`].
pub(crate) type Number = u64;

/// What a read finds in an empty cell.
pub(crate) const NOTHING: Number = 0;

/// A place that is written and read: the name of a key, a row, or a table.
pub(crate) type Cell = String;

/// How a write ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was acknowledged.
    Acknowledged,
    /// It was refused, with a message that nothing was written.
    Refused,
    /// Its outcome is not known.
    InDoubt,
}

/// A transaction that wrote. Times are of one monotonic clock.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) number: Number,
    /// What it wrote: its number, or [`NOTHING`] where it deleted.
    pub(crate) cells: BTreeMap<Cell, Number>,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) end: End,
}

/// A transaction that read.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) found: BTreeMap<Cell, Number>,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Whether SQL answered it, which treats a write as committed everywhere once it is committed
    /// at one node.
    pub(crate) is_sql: bool,
    /// Whether nothing was in doubt and nobody wrote while it ran, so that what it found is final.
    pub(crate) is_settled: bool,
}

impl Read {
    /// Whether it may find a part of a write of several cells before that is committed everywhere.
    fn is_early(&self) -> bool {
        !self.is_settled && (self.is_sql || self.found.len() > 1)
    }

    fn is_weak(&self, write: &Write) -> bool {
        self.is_early() && write.cells.len() > 1
    }
}

/// An answer that no correct store gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The operations of one value of one cell.
#[derive(Clone, Copy, Debug)]
struct Group {
    first_end: u64,
    last_start: u64,
}

impl Group {
    fn contradicts(self, other: Self) -> bool {
        self.first_end < other.last_start && other.first_end < self.last_start
    }

    fn is_before(self, other: Self) -> bool {
        self.first_end < other.last_start
    }

    fn with(self, read: &Read, is_weak: bool) -> Self {
        Self {
            first_end: if is_weak { self.first_end } else { self.first_end.min(read.to) },
            last_start: self.last_start.max(read.from),
        }
    }
}

/// All operations since everything was last settled.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    writes: BTreeMap<Number, Write>,
    reads: Vec<Read>,
    /// Writes that were superseded, or did not take effect, before everything was settled.
    past: BTreeSet<Number>,
    /// Cells that had a value when the history began, and so did not begin empty.
    began_with: BTreeSet<Cell>,
}

/// The groups of one cell.
#[derive(Default)]
struct Groups {
    values: BTreeMap<Number, Group>,
    deletions: Vec<Group>,
    /// Indexes of reads that found nothing.
    nothing: Vec<usize>,
}

impl History {
    pub(crate) fn wrote(&mut self, write: Write) {
        let number = write.number;
        assert!(number != NOTHING, "no write has the number of nothing");
        assert!(self.writes.insert(number, write).is_none(), "two writes have the number {number}");
    }

    pub(crate) fn read(&mut self, read: Read) {
        self.reads.push(read);
    }

    /// The number of writes in doubt, and of those that some read has found.
    pub(crate) fn in_doubt(&self) -> (u64, u64) {
        let found: BTreeSet<Number> =
            self.reads.iter().flat_map(|read| read.found.values().copied()).collect();
        let in_doubt = self.writes.values().filter(|write| write.end == End::InDoubt);
        in_doubt.fold((0, 0), |(all, seen), write| (all + 1, seen + u64::from(found.contains(&write.number))))
    }

    /// All violations: those of single reads, of cells, and of atomic visibility.
    pub(crate) fn check(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        let mut groups = self.groups(&mut violations);
        for (cell, groups) in &mut groups {
            self.check_cell(cell, groups, &mut violations);
        }
        for read in self.reads.iter().filter(|read| read.found.len() > 1) {
            self.check_atomicity(read, &groups, &mut violations);
        }
        violations
    }

    /// The group of each value; also reports reads that are wrong by themselves.
    fn groups(&self, violations: &mut Vec<Violation>) -> BTreeMap<&Cell, Groups> {
        let mut cells: BTreeMap<&Cell, Groups> = BTreeMap::new();
        for write in self.writes.values().filter(|write| write.end != End::Refused) {
            let first_end = if write.end == End::Acknowledged { write.to } else { u64::MAX };
            let group = Group { first_end, last_start: write.from };
            for (cell, value) in &write.cells {
                let groups = cells.entry(cell).or_default();
                match *value {
                    NOTHING => groups.deletions.push(group),
                    number => drop(groups.values.insert(number, group)),
                }
            }
        }
        for (position, read) in self.reads.iter().enumerate() {
            for (cell, number) in &read.found {
                if *number == NOTHING {
                    cells.entry(cell).or_default().nothing.push(position);
                } else if let Some(problem) = self.problem(read, cell, *number) {
                    violations.push(Violation(format!(
                        "{cell}: a read from {} to {} found write {number}, {problem}",
                        shown(read.from),
                        shown(read.to)
                    )));
                } else if let Some(group) =
                    cells.get_mut(cell).and_then(|groups| groups.values.get_mut(number))
                {
                    *group =
                        group.with(read, self.writes.get(number).is_some_and(|write| read.is_weak(write)));
                }
            }
        }
        cells
    }

    /// Why no read may find this number in the cell.
    fn problem(&self, read: &Read, cell: &Cell, number: Number) -> Option<String> {
        let Some(write) = self.writes.get(&number) else {
            let is_past = self.past.contains(&number);
            let problem = if is_past {
                "which was superseded or came to nothing before everything was settled"
            } else {
                "which nobody wrote"
            };
            return Some(problem.to_owned());
        };
        if write.cells.get(cell) != Some(&number) {
            return Some("which wrote elsewhere".to_owned());
        }
        if write.end == End::Refused {
            return Some(format!("which was refused at {}", shown(write.to)));
        }
        (write.from > read.to).then(|| format!("which began later, at {}", shown(write.from)))
    }

    fn check_cell(&self, cell: &Cell, groups: &Groups, violations: &mut Vec<Violation>) {
        let values: Vec<(Number, Group)> =
            groups.values.iter().map(|(number, group)| (*number, *group)).collect();
        for (position, (number, group)) in values.iter().enumerate() {
            for (other_number, other) in &values[position + 1..] {
                if group.contradicts(*other) {
                    violations.push(Violation(format!(
                        "{cell}: writes {number} ({}) and {other_number} ({}) supersede each other",
                        shown_group(*group),
                        shown_group(*other)
                    )));
                }
            }
            for deletion in groups.deletions.iter().filter(|deletion| group.contradicts(**deletion)) {
                violations.push(Violation(format!(
                    "{cell}: write {number} ({}) was seen before and after a deletion ({})",
                    shown_group(*group),
                    shown_group(*deletion)
                )));
            }
        }
        for position in &groups.nothing {
            let read = &self.reads[*position];
            if self.explanations(cell, read, groups).is_empty() {
                let values =
                    values.iter().map(|(number, group)| format!("write {number} ({})", shown_group(*group)));
                violations.push(Violation(format!(
                    "{cell}: a read from {} to {} found nothing, beside {}",
                    shown(read.from),
                    shown(read.to),
                    values.collect::<Vec<_>>().join(", ")
                )));
            }
        }
    }

    /// The groups to which a read that found nothing may belong: the beginning, or a deletion.
    fn explanations(&self, cell: &Cell, read: &Read, groups: &Groups) -> Vec<Group> {
        let beginning = Group { first_end: 0, last_start: 0 };
        let begins = (!self.began_with.contains(cell)).then_some(beginning);
        // A deletion may be of several cells, and it is not known which deletion the read found.
        let deletions = groups.deletions.iter().copied().filter(|deletion| deletion.last_start <= read.to);
        let with = |group: Group| group.with(read, read.is_early());
        let candidates = begins.into_iter().chain(deletions).map(with);
        candidates.filter(|group| groups.values.values().all(|value| !value.contradicts(*group))).collect()
    }

    fn check_atomicity(
        &self,
        read: &Read,
        groups: &BTreeMap<&Cell, Groups>,
        violations: &mut Vec<Violation>,
    ) {
        let met = read.found.values().filter_map(|number| self.writes.get(number));
        for write in met.filter(|write| write.cells.len() > 1) {
            for (cell, value) in &write.cells {
                let (Some(found), Some(groups)) = (read.found.get(cell), groups.get(cell)) else { continue };
                // Where the write deleted, its group is not known by a number.
                if found == value || *value == NOTHING {
                    continue;
                }
                let Some(own) = groups.values.get(value) else { continue };
                let is_older = if *found == NOTHING {
                    let explanations = self.explanations(cell, read, groups);
                    !explanations.is_empty() && explanations.iter().all(|group| group.is_before(*own))
                } else {
                    groups.values.get(found).is_some_and(|group| group.is_before(*own))
                };
                if is_older {
                    violations.push(Violation(format!(
                        "{cell}: a read from {} to {} found {found}, and elsewhere write {} that also wrote there",
                        shown(read.from),
                        shown(read.to),
                        write.number
                    )));
                }
            }
        }
    }

    /// Starts a new history from a read of all cells while nothing was in doubt. Writes in doubt
    /// that it did not find are decided: they never become visible. `present` are cells that exist,
    /// but whose number the read does not tell.
    pub(crate) fn settle(&mut self, last: &Read, present: impl IntoIterator<Item = Cell>) {
        assert!(last.is_settled, "only what is settled may be forgotten");
        let found: BTreeSet<Number> = last.found.values().copied().collect();
        let mut kept = BTreeMap::new();
        for (number, mut write) in std::mem::take(&mut self.writes) {
            let is_refused = write.end == End::Refused;
            if found.contains(&number) {
                // The write counts only where it was found; elsewhere it was superseded.
                write.cells.retain(|cell, _| last.found.get(cell).is_none_or(|found| *found == number));
                (write.end, write.to) = (End::Acknowledged, write.to.min(last.to));
                kept.insert(number, write);
            } else if is_refused {
                kept.insert(number, write);
            } else {
                self.past.insert(number);
            }
        }
        self.writes = kept;
        self.began_with = last
            .found
            .iter()
            .filter(|(_, number)| **number != NOTHING)
            .map(|(cell, _)| cell.clone())
            .chain(present)
            .collect();
        self.reads = vec![last.clone()];
    }
}

fn shown(time: u64) -> String {
    if time == u64::MAX {
        "never".to_owned()
    } else {
        format!("{}.{:03} ms", time / 1_000_000, time / 1_000 % 1_000)
    }
}

fn shown_group(group: Group) -> String {
    format!("first end {}, last start {}", shown(group.first_end), shown(group.last_start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(number: Number, cells: &[&str], from: u64, to: u64, end: End) -> Write {
        Write {
            number,
            cells: cells.iter().map(|cell| ((*cell).to_owned(), number)).collect(),
            from,
            to,
            end,
        }
    }

    fn deletion(number: Number, cell: &str, from: u64, to: u64, end: End) -> Write {
        Write { number, cells: [(cell.to_owned(), NOTHING)].into(), from, to, end }
    }

    fn read(found: &[(&str, Number)], from: u64, to: u64) -> Read {
        let found = found.iter().map(|(cell, number)| ((*cell).to_owned(), *number)).collect();
        Read { found, from, to, is_sql: false, is_settled: false }
    }

    fn of(writes: Vec<Write>, reads: Vec<Read>) -> Vec<String> {
        let mut history = History::default();
        writes.into_iter().for_each(|write| history.wrote(write));
        reads.into_iter().for_each(|read| history.read(read));
        history.check().iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn says(violations: &[String], part: &str) {
        assert!(
            violations.iter().any(|violation| violation.contains(part)),
            "expected {part:?} in {violations:?}"
        );
    }

    #[test]
    fn what_a_store_may_do_is_no_violation() {
        use End::{Acknowledged, InDoubt, Refused};
        let writes = vec![
            write(1, &["a"], 0, 5, Acknowledged),
            // Concurrent with 3: either may be the last.
            write(2, &["a"], 10, 20, Acknowledged),
            write(3, &["a"], 11, 19, Acknowledged),
            write(4, &["a"], 12, 18, Refused),
            write(5, &["a"], 13, 17, InDoubt),
            deletion(6, "b", 1, 2, Acknowledged),
        ];
        let reads = vec![
            read(&[("a", NOTHING)], 1, 4),
            read(&[("a", 1)], 6, 12),
            read(&[("a", 3)], 21, 22),
            read(&[("a", 5)], 1000, 1001),
            read(&[("a", 5)], 1002, 1003),
            read(&[("b", NOTHING)], 3, 4),
        ];
        assert_eq!(of(writes.clone(), reads), Vec::<String>::new());
        assert_eq!(of(writes, vec![read(&[("a", 2)], 21, 22)]), Vec::<String>::new());
    }

    #[test]
    fn an_acknowledged_write_that_is_gone_is_a_violation() {
        let writes =
            || vec![write(1, &["a"], 0, 1, End::Acknowledged), write(2, &["a"], 2, 3, End::Acknowledged)];
        says(&of(writes(), vec![read(&[("a", 1)], 4, 5)]), "a: writes 1");
        says(&of(writes(), vec![read(&[("a", NOTHING)], 4, 5)]), "found nothing");
        assert_eq!(
            of(writes(), vec![read(&[("a", 1)], 3, 5)]),
            Vec::<String>::new(),
            "the read began as it was acknowledged"
        );
    }

    #[test]
    fn what_was_read_stays_even_if_it_is_in_doubt() {
        let writes = || vec![write(1, &["a"], 0, 1, End::Acknowledged), write(2, &["a"], 2, 3, End::InDoubt)];
        let back = vec![read(&[("a", 2)], 4, 5), read(&[("a", 1)], 6, 7)];
        says(&of(writes(), back), "supersede each other");
        let nothing = vec![read(&[("a", 2)], 4, 5), read(&[("a", NOTHING)], 6, 7)];
        says(&of(writes(), nothing), "found nothing");
    }

    #[test]
    fn refused_future_and_unwritten_values_are_violations() {
        let refused = vec![write(1, &["a"], 0, 1, End::Refused)];
        says(&of(refused, vec![read(&[("a", 1)], 2, 3)]), "refused");
        let future = vec![write(1, &["a"], 5, 6, End::Acknowledged)];
        says(&of(future, vec![read(&[("a", 1)], 2, 3)]), "began later");
        says(&of(vec![], vec![read(&[("a", 9)], 2, 3)]), "nobody wrote");
        let elsewhere = vec![write(1, &["b"], 0, 1, End::Acknowledged)];
        says(&of(elsewhere, vec![read(&[("a", 1)], 2, 3)]), "elsewhere");
    }

    #[test]
    fn a_lost_deletion_is_a_violation_and_one_in_doubt_is_not() {
        let writes = |end| vec![write(1, &["a"], 1, 2, End::Acknowledged), deletion(2, "a", 3, 4, end)];
        says(&of(writes(End::Acknowledged), vec![read(&[("a", 1)], 5, 6)]), "deletion");
        for found in [1, NOTHING] {
            assert_eq!(of(writes(End::InDoubt), vec![read(&[("a", found)], 4, 5)]), Vec::<String>::new());
        }
        says(
            &of(writes(End::InDoubt), vec![read(&[("a", NOTHING)], 4, 5), read(&[("a", 1)], 6, 7)]),
            "found nothing",
        );
        says(&of(writes(End::Refused), vec![read(&[("a", NOTHING)], 4, 5)]), "found nothing");
    }

    #[test]
    fn a_part_of_a_transaction_beside_an_older_value_is_a_violation() {
        let writes =
            || vec![write(1, &["b"], 0, 1, End::Acknowledged), write(2, &["a", "b"], 2, 9, End::InDoubt)];
        says(&of(writes(), vec![read(&[("a", 2), ("b", 1)], 3, 4)]), "b: a read");
        says(
            &of(
                vec![write(2, &["a", "b"], 2, 9, End::InDoubt)],
                vec![read(&[("a", 2), ("b", NOTHING)], 3, 4)],
            ),
            "elsewhere write 2",
        );
        let newer =
            vec![write(2, &["a", "b"], 2, 9, End::Acknowledged), write(3, &["b"], 3, 10, End::Acknowledged)];
        assert_eq!(of(newer, vec![read(&[("a", 2), ("b", 3)], 11, 12)]), Vec::<String>::new());
    }

    #[test]
    fn readers_of_several_cells_may_see_a_transaction_before_readers_of_one_until_it_is_settled() {
        let writes =
            || vec![write(1, &["b"], 0, 1, End::Acknowledged), write(2, &["a", "b"], 2, 9, End::InDoubt)];
        let both = |is_settled| Read { is_settled, ..read(&[("a", 2), ("b", 2)], 3, 4) };
        assert_eq!(of(writes(), vec![both(false), read(&[("b", 1)], 5, 6)]), Vec::<String>::new());
        says(&of(writes(), vec![both(true), read(&[("b", 1)], 5, 6)]), "supersede each other");
    }

    #[test]
    fn what_is_settled_is_remembered_and_what_is_past_never_returns() {
        let mut history = History::default();
        history.wrote(write(1, &["a", "b"], 0, 1, End::Acknowledged));
        history.wrote(write(2, &["a"], 2, 3, End::Acknowledged));
        history.wrote(write(3, &["a"], 2, 3, End::InDoubt));
        history.wrote(write(4, &["a"], 2, 3, End::Refused));
        let last = Read { is_settled: true, ..read(&[("a", 2), ("b", 1), ("c", NOTHING)], 10, 11) };
        history.read(last.clone());
        assert_eq!(history.check(), []);
        history.settle(&last, ["d".to_owned()]);
        let with = |found: &[(&str, Number)]| {
            let mut history = history.clone();
            history.read(read(found, 20, 21));
            history.check().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(with(&[("a", 2), ("b", 1), ("c", NOTHING)]), Vec::<String>::new());
        says(&with(&[("a", 3)]), "before everything was settled");
        says(&with(&[("a", 1)]), "which wrote elsewhere");
        says(&with(&[("a", 4)]), "refused");
        says(&with(&[("a", NOTHING)]), "found nothing");
        says(&with(&[("b", NOTHING)]), "found nothing");
        says(&with(&[("d", NOTHING)]), "found nothing");
    }
}
