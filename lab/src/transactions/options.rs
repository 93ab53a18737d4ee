//! Defines the options of a run: its workload, its duration and its sessions.

use super::workload::Workload;
use crate::drive::Bounds;
use std::{sync::atomic::AtomicBool, time::Duration};

/// Options of one run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions<'a> {
    /// Transactions, keys and values.
    pub workload: Workload,
    /// Number of threads, each with a session.
    pub threads: u32,
    /// Time to run before anything is measured.
    pub warm_up: Duration,
    /// Bounds of the measured phase; `count_max` is per session.
    pub bounds: Bounds,
    /// Seed of the transactions.
    pub seed: u64,
    /// Whether the history is recorded and checked.
    pub check: bool,
    /// Reads and writes that all sessions together record before the history so far is checked.
    pub recorded_max: usize,
    /// Process ids of the nodes.
    pub peers: &'a [u32],
    /// How long to retry opening a session that failed.
    pub patience: Duration,
    /// Set by the caller to end the run early.
    pub stop: &'a AtomicBool,
}
