//! On whose CPU does a scan next to the data run?
//!
//! A fixed number of worker threads, each with a ring and buffers of its own, and one bounded
//! queue. When the queue is full the node refuses, and the engine fetches the segment instead. Why
//! workers read for themselves: `docs/decisions/0005-scan-workers-own-rings.md`.
//!
//! Invariants
//! - At most `scan_queue` jobs wait; a job is answered exactly once, also when the node stops.
//! - A worker holds no more than its share of the memory budget.

mod job;
mod programs;
mod reads;
mod worker;

pub(crate) use job::{ScanJob, ScanResult, Sink};
pub(crate) use programs::Programs;
pub(crate) use worker::{ScanQuota, WorkerParts, start};

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use rackscan_format::message::{BounceReason, Refusal, RefusalCode};

/// The jobs that wait, and how many run.
#[derive(Debug)]
pub(crate) struct ScanQueue {
    state: Mutex<State>,
    changed: Condvar,
    waiting_max: usize,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<ScanJob>,
    running: usize,
    closed: bool,
}

impl ScanQueue {
    pub(crate) fn new(waiting_max: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), waiting_max }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job, or says why not; the job is gone then.
    pub(crate) fn push(&self, job: ScanJob) -> Result<(), Refusal> {
        let mut state = self.state();
        if state.closed {
            return Err(Refusal::new(RefusalCode::Stopping, "the node is stopping"));
        }
        if state.waiting.len() >= self.waiting_max {
            let text = format!(
                "{} scans wait and {} run, at most {} may wait; fetch the segment or ask again",
                state.waiting.len(),
                state.running,
                self.waiting_max
            );
            return Err(Refusal::new(RefusalCode::Bounced(BounceReason::Queue), text));
        }
        state.waiting.push_back(job);
        self.changed.notify_one();
        Ok(())
    }

    /// The next job; waits for one. `None` when the queue is closed and empty.
    fn pop(&self) -> Option<ScanJob> {
        let mut state = self.state();
        loop {
            if let Some(job) = state.waiting.pop_front() {
                state.running += 1;
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self) {
        self.state().running -= 1;
    }

    /// Takes no more jobs; those that wait are still done.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// Jobs waiting and running.
    pub(crate) fn load(&self) -> (usize, usize) {
        let state = self.state();
        (state.waiting.len(), state.running)
    }
}
