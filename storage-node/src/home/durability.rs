//! When is a record durable enough to tell of it?
//!
//! When it is on this node's disk and in every copy of the log that counts. A copy that lacks a record for too long does not count until it has caught up.
//!
//! Invariants
//! - What is acknowledged never goes back.

use std::time::Instant;

use crate::limits::COPY_PATIENCE;

/// How far the log is durable, here and elsewhere. All are numbers of records.
#[derive(Debug)]
pub(crate) struct Durability {
    local: u64,
    /// What this node's disk had when it began.
    recovered: u64,
    acknowledged: u64,
    copies: Vec<Copied>,
}

/// What another node has.
#[derive(Clone, Copy, Debug)]
struct Copied {
    through: u64,
    standing: Standing,
    /// Whether it has the log's successor.
    ahead: bool,
}

/// Whether an acknowledgement waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It does, and it has everything.
    Counts,
    /// It does; since then it lacks this record, or one before.
    Lacks(Instant, u64),
    /// It does not, until it has this one: what was here when it last said what it has.
    Left(u64),
}

impl Durability {
    /// All up to `sequence` is on this node's disk; that and so many copies count, of which nothing is known yet: the end of what was
    /// recovered may be nowhere else, and who asks for it again must not be told that it is safe.
    pub(crate) fn new(sequence: u64, copies: usize) -> Self {
        let copy = Copied { through: 0, standing: Standing::Counts, ahead: false };
        let acknowledged = if copies == 0 { sequence } else { 0 };
        Self { local: sequence, recovered: sequence, acknowledged, copies: vec![copy; copies] }
    }

    /// All up to `sequence` is on this node's disk.
    pub(crate) fn here(&mut self, sequence: u64) {
        self.local = self.local.max(sequence);
    }

    /// All up to `sequence` is in the copy with this number. Whether it counts from now on, and did not before.
    pub(crate) fn copied(&mut self, copy: usize, sequence: u64) -> bool {
        let local = self.local;
        let Some(copy) = self.copies.get_mut(copy) else { return false };
        copy.through = copy.through.max(sequence);
        let Standing::Left(goal) = copy.standing else { return false };
        // What came while its answer was on its way is on its way to it.
        let is_back = copy.through >= goal.min(local);
        copy.standing = if is_back { Standing::Counts } else { Standing::Left(local) };
        is_back
    }

    /// All up to here may be told.
    pub(crate) fn acknowledged(&mut self) -> u64 {
        let counted = self.copies.iter().filter(|copy| copy.counts()).map(|copy| copy.through);
        self.acknowledged = self.acknowledged.max(counted.min().unwrap_or(u64::MAX).min(self.local));
        self.acknowledged
    }

    /// Looks at the time. Copies that do not count from now on, because they lacked something for too long.
    pub(crate) fn look(&mut self, now: Instant) -> Vec<usize> {
        let mut left = Vec::new();
        for (number, copy) in self.copies.iter_mut().enumerate().filter(|(_, copy)| copy.counts()) {
            let has_all = copy.through >= self.local;
            copy.standing = match copy.standing {
                _ if has_all => Standing::Counts,
                Standing::Lacks(since, sequence) if copy.through < sequence => {
                    if now.saturating_duration_since(since) < COPY_PATIENCE {
                        continue;
                    }
                    left.push(number);
                    Standing::Left(self.local)
                }
                _ => Standing::Lacks(now, self.local),
            };
        }
        left
    }

    /// Whether a copy that counts lacks something.
    pub(crate) fn waits(&self) -> bool {
        self.copies.iter().any(|copy| copy.counts() && copy.through < self.local)
    }

    /// The log gets a successor, of which no copy has anything yet.
    pub(crate) fn begin_ahead(&mut self) {
        self.copies.iter_mut().for_each(|copy| copy.ahead = false);
    }

    /// The copy with this number has the log's successor.
    pub(crate) fn ahead(&mut self, copy: usize) {
        if let Some(copy) = self.copies.get_mut(copy) {
            copy.ahead = true;
        }
    }

    /// Whether every copy that counts has it.
    pub(crate) fn all_ahead(&self) -> bool {
        self.copies.iter().all(|copy| copy.ahead || !copy.counts())
    }

    /// How many copies have everything that was acknowledged, now or before this node began.
    pub(crate) fn whole_copies(&self) -> usize {
        let whole = self.acknowledged.max(self.recovered);
        self.copies.iter().filter(|copy| copy.counts() && copy.through >= whole).count()
    }
}

impl Copied {
    fn counts(&self) -> bool {
        !matches!(self.standing, Standing::Left(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_copies_the_own_disk_counts() {
        let mut durability = Durability::new(7, 0);
        assert_eq!(durability.acknowledged(), 7);
        durability.here(9);
        durability.here(8);
        assert_eq!((durability.acknowledged(), durability.waits()), (9, false));
    }

    #[test]
    fn a_record_counts_when_it_is_here_and_in_every_copy() {
        let mut durability = Durability::new(7, 2);
        assert_eq!(
            (durability.acknowledged(), durability.whole_copies()),
            (0, 0),
            "the end may be only here"
        );
        durability.here(20);
        durability.copied(1, 15);
        assert_eq!(durability.acknowledged(), 0, "one copy");
        durability.copied(0, 12);
        assert_eq!(durability.acknowledged(), 12, "the slower of two");
        durability.copied(0, 11);
        durability.copied(9, 99);
        assert_eq!((durability.acknowledged(), durability.whole_copies()), (12, 2));
        durability.copied(0, 40);
        durability.copied(1, 40);
        assert_eq!(durability.acknowledged(), 20, "not more than is here");
    }

    #[test]
    fn a_copy_that_lacks_something_for_too_long_is_not_waited_for_until_it_has_caught_up() {
        let start = Instant::now();
        let mut durability = Durability::new(0, 2);
        durability.here(5);
        durability.copied(0, 5);
        assert!(durability.look(start).is_empty());
        assert!(durability.look(start + COPY_PATIENCE / 2).is_empty());
        assert_eq!((durability.acknowledged(), durability.waits()), (0, true));
        assert_eq!(durability.look(start + COPY_PATIENCE), [1]);
        assert_eq!((durability.acknowledged(), durability.whole_copies(), durability.waits()), (5, 1, false));
        durability.here(9);
        durability.copied(0, 9);
        assert_eq!(durability.acknowledged(), 9);
        assert!(!durability.copied(1, 3), "it has not caught up");
        assert_eq!((durability.acknowledged(), durability.whole_copies()), (9, 1));
        durability.here(12);
        assert!(durability.copied(1, 9), "what came meanwhile is on its way");
        assert_eq!(durability.acknowledged(), 9, "both are waited for again");
        durability.copied(0, 12);
        durability.copied(1, 12);
        assert_eq!((durability.acknowledged(), durability.whole_copies()), (12, 2));
    }

    #[test]
    fn a_successor_of_the_log_waits_for_the_copies_that_count() {
        let start = Instant::now();
        let mut durability = Durability::new(0, 2);
        durability.begin_ahead();
        durability.ahead(0);
        durability.here(1);
        durability.copied(0, 1);
        assert!(!durability.all_ahead());
        durability.look(start);
        assert_eq!(durability.look(start + COPY_PATIENCE), [1]);
        assert!(durability.all_ahead(), "the other one does not count");
        durability.begin_ahead();
        assert!(!durability.all_ahead(), "another one");
        durability.ahead(0);
        assert!(durability.all_ahead() && Durability::new(0, 0).all_ahead());
    }

    #[test]
    fn a_copy_that_is_behind_and_moves_is_waited_for() {
        let start = Instant::now();
        let mut durability = Durability::new(0, 1);
        for second in 0..20 {
            durability.here(second + 1);
            durability.copied(0, second);
            let now = start + COPY_PATIENCE * u32::try_from(second).unwrap();
            assert!(durability.look(now).is_empty());
        }
    }
}
