//! Counts transactions, of one session or of all sessions together.
//!
//! Invariants
//! - Counting allocates nothing, except for the first failure of a kind.
//! - A failed transaction increments only the counter of failures.

use super::store::{Failure, ReadDone};
use crate::latency::Latencies;
use std::{collections::BTreeMap, time::Duration};

/// Counters of the sessions in one phase.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Latencies of whole transactions; for reads that are followed by writes, of both together.
    pub latencies: Latencies,
    /// Latencies of reads and scans.
    pub reads: Latencies,
    /// Latencies of writes.
    pub writes: Latencies,
    /// Transactions that succeeded.
    pub transactions: u64,
    /// Of these, those that ended within the duration.
    pub in_time: u64,
    /// Keys that they read or wrote.
    pub operations: u64,
    /// Keys that were read.
    pub keys_read: u64,
    /// Of these, those read one-sidedly.
    pub one_sided: u64,
    /// Of these, those without a value.
    pub absent: u64,
    /// Round trips of reads, summed.
    pub rounds: u64,
    /// Reads that took one round trip.
    pub one_round: u64,
    /// Scans.
    pub scans: u64,
    /// Of these, those done as reads of single keys, because the store has no scans.
    pub scans_by_key: u64,
    /// Transactions that failed, by kind.
    pub failures: BTreeMap<&'static str, u64>,
    /// Message of the first failure.
    pub first_failure: Option<String>,
    /// Sessions that were opened because a previous one had ended.
    pub reopened: u64,
    /// Time from the start of the phase until the last transaction ended.
    pub elapsed: Duration,
}

impl Counters {
    pub(super) fn read(&mut self, done: &ReadDone, latency: Duration) {
        self.reads.record(latency);
        self.keys_read += done.items.len() as u64;
        self.operations += done.items.len() as u64;
        self.one_sided += u64::from(done.one_sided);
        self.absent +=
            done.items.iter().filter(|(_, version)| version.value.bytes().is_none()).count() as u64;
        self.rounds += u64::from(done.rounds);
        self.one_round += u64::from(done.rounds <= 1);
    }

    pub(super) fn written(&mut self, keys: usize, latency: Duration) {
        self.writes.record(latency);
        self.operations += keys as u64;
    }

    pub(super) fn failed(&mut self, failure: &Failure) {
        *self.failures.entry(failure.kind).or_default() += 1;
        self.first_failure.get_or_insert_with(|| failure.why.clone());
    }

    /// Adds the counters of another session of the same phase.
    pub fn add(&mut self, other: &Self) {
        self.latencies.add(&other.latencies);
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.transactions += other.transactions;
        self.in_time += other.in_time;
        self.operations += other.operations;
        self.keys_read += other.keys_read;
        self.one_sided += other.one_sided;
        self.absent += other.absent;
        self.rounds += other.rounds;
        self.one_round += other.one_round;
        self.scans += other.scans;
        self.scans_by_key += other.scans_by_key;
        for (kind, count) in &other.failures {
            *self.failures.entry(kind).or_default() += count;
        }
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
        self.reopened += other.reopened;
        self.elapsed = self.elapsed.max(other.elapsed);
    }

    /// Adds the counters of a later phase.
    pub(super) fn follow(&mut self, later: &Self) {
        let elapsed = self.elapsed + later.elapsed;
        self.add(later);
        self.elapsed = elapsed;
    }
}
