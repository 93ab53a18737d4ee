//! Sorts records that arrive slightly out of order.
//!
//! Invariants
//! - Memory contains at most a fixed number of records; when one more arrives, the earliest is
//!   returned.
//! - Records of the same time keep the order in which they arrived.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use crate::Record;

/// A buffer that sorts records.
#[derive(Debug)]
pub struct Reorder {
    held: BinaryHeap<Reverse<Held>>,
    held_max: usize,
    number: u64,
}

#[derive(Debug)]
struct Held {
    record: Record,
    number: u64,
}

impl Held {
    fn key(&self) -> (std::time::Duration, u64) {
        (self.record.at, self.number)
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Reorder {
    /// Holds up to `held_max` records.
    #[must_use]
    pub fn new(held_max: usize) -> Self {
        Self { held: BinaryHeap::new(), held_max, number: 0 }
    }

    /// Adds a record; returns the earliest one if too many are held now.
    pub fn push(&mut self, record: Record) -> Option<Record> {
        self.held.push(Reverse(Held { record, number: self.number }));
        self.number += 1;
        if self.held.len() > self.held_max { self.pop() } else { None }
    }

    /// Removes and returns the earliest record.
    pub fn pop(&mut self) -> Option<Record> {
        self.held.pop().map(|Reverse(held)| held.record)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Operation;

    fn record(at: u64, offset_bytes: u64) -> Record {
        Record {
            at: Duration::from_nanos(at),
            node: 0,
            device: 0,
            offset_bytes,
            length_bytes: 512,
            operation: Operation::Read,
            table: None,
            column: None,
            thread: None,
        }
    }

    #[test]
    fn records_that_are_late_by_less_than_is_held_come_in_order() {
        let mut order = Reorder::new(2);
        let mut came = Vec::new();
        for (at, offset) in [(3, 0), (1, 1), (2, 2), (5, 3), (4, 4), (4, 5)] {
            came.extend(order.push(record(at, offset)));
        }
        came.extend(std::iter::from_fn(|| order.pop()));
        let keys: Vec<u64> = came.iter().map(|record| record.offset_bytes).collect();
        assert_eq!(keys, [1, 2, 0, 4, 5, 3]);
    }
}
