//! When is a record durable enough to tell of it?
//!
//! When it is on this node's disk and in the logs of as many other nodes as are wanted.
//!
//! Invariants
//! - What is acknowledged never goes back.

/// How far the log is durable, here and elsewhere. All are numbers of records.
#[derive(Debug)]
pub(crate) struct Durability {
    local: u64,
    /// Of each node that keeps a copy.
    copies: Vec<u64>,
    /// How many copies must have a record.
    wanted: usize,
}

impl Durability {
    /// All up to `sequence` is durable already; from now on, this disk and `wanted` of `copies` other nodes count.
    pub(crate) fn new(sequence: u64, copies: usize, wanted: usize) -> Self {
        Self { local: sequence, copies: vec![sequence; copies], wanted: wanted.min(copies) }
    }

    /// All up to `sequence` is on this node's disk.
    pub(crate) fn here(&mut self, sequence: u64) {
        self.local = self.local.max(sequence);
    }

    /// All up to `sequence` is in the log of the copy with this number.
    #[cfg_attr(not(test), expect(dead_code, reason = "no node keeps copies of another's log yet"))]
    pub(crate) fn copied(&mut self, copy: usize, sequence: u64) {
        if let Some(copied) = self.copies.get_mut(copy) {
            *copied = sequence.max(*copied);
        }
    }

    /// All up to here may be told.
    pub(crate) fn acknowledged(&self) -> u64 {
        if self.wanted == 0 {
            return self.local;
        }
        let mut copies = self.copies.clone();
        copies.sort_unstable_by(|a, b| b.cmp(a));
        // As many copies as are wanted have at least this much.
        let copied = copies.get(self.wanted - 1).copied().unwrap_or(0);
        self.local.min(copied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_copies_the_own_disk_counts() {
        let mut durability = Durability::new(7, 0, 2);
        assert_eq!(durability.acknowledged(), 7);
        durability.here(9);
        durability.here(8);
        assert_eq!(durability.acknowledged(), 9);
    }

    #[test]
    fn a_record_counts_when_it_is_here_and_in_as_many_copies_as_are_wanted() {
        let mut durability = Durability::new(7, 3, 2);
        durability.here(20);
        durability.copied(2, 15);
        assert_eq!(durability.acknowledged(), 7, "one copy");
        durability.copied(0, 12);
        assert_eq!(durability.acknowledged(), 12, "the slower of two");
        durability.copied(0, 11);
        durability.copied(1, 40);
        durability.copied(9, 99);
        assert_eq!(durability.acknowledged(), 15);
        durability.copied(0, 40);
        assert_eq!(durability.acknowledged(), 20, "not more than is here");
    }
}
