//! Runs scans on the node, next to the data, in threads of their own (scan workers).
//!
//! There is a fixed number of worker threads, each with its own io_uring and buffers, and one
//! bounded queue. When the queue is full, the node refuses the scan, and the engine fetches the
//! segment instead. `docs/decisions/0005-scan-workers-own-rings.md` explains why workers read for
//! themselves.
//!
//! Invariants
//! - At most `scan_queue` jobs wait. Each job is answered exactly once, also when the node stops.
//! - A worker holds at most its share of the memory budget.

mod job;
mod programs;
mod reads;
mod result;
mod worker;

pub(crate) use job::{ScanJob, Sink};
pub(crate) use programs::Programs;
pub(crate) use result::ScanResult;
pub(crate) use worker::{ScanQuota, WorkerParts, start};

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use rackscan_format::message::{BounceReason, Refusal, RefusalCode};

/// The waiting jobs, and the number of running jobs.
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

    /// Queues a job. If that is refused, the job is dropped.
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

    /// Waits for the next job. `None` when the queue is closed and empty.
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

    /// Refuses further jobs; waiting jobs are still executed.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// The numbers of waiting and running jobs.
    pub(crate) fn load(&self) -> (usize, usize) {
        let state = self.state();
        (state.waiting.len(), state.running)
    }
}
