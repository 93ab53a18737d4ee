//! Posts the one-sided reads of pages in a node's cache, and answers the callers when they have
//! ended.
//!
//! Invariants
//! - At most `READS_POSTED_MAX` reads are posted at a time, so that the connection's queue always
//!   has room for requests.
//! - A job (some pages to read) is answered when all of its reads have succeeded. Otherwise it is
//!   dropped, and its pages are requested instead.
//! - The memory of a job stays reserved until its reads have ended or the connection is closed,
//!   also when the node does not answer and the caller reads the pages elsewhere.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use rackscan_fabric::{Connection, Operation};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    cache::{CachedPage, Opened},
    limits::READS_POSTED_MAX,
    target::Span,
};

/// The ids of reads have this bit set, those of requests do not.
pub(super) const READ: u64 = 1 << 63;

/// Pages to be read out of one node's cache.
#[derive(Debug)]
pub(crate) struct ReadJob {
    /// Position of the node in the cluster.
    pub(crate) node: usize,
    /// The cache when the places were looked up; after a reconnect it is another one.
    pub(crate) opened: Arc<Opened>,
    pub(crate) pages: Vec<CachedPage>,
    /// Where the pages go.
    pub(crate) span: Span,
    /// One of the node's permits.
    pub(crate) permit: OwnedSemaphorePermit,
    /// The deadline of the reads.
    pub(crate) deadline: Instant,
    /// Gets the memory back when everything is in it; `None` once the caller was told to go
    /// elsewhere.
    pub(crate) answer: Option<oneshot::Sender<Span>>,
}

#[derive(Debug)]
struct JobReads {
    job: ReadJob,
    remaining: usize,
    failed: bool,
}

/// The reads of one connection.
#[derive(Debug, Default)]
pub(super) struct Reads {
    jobs: HashMap<u64, JobReads>,
    waiting: VecDeque<(u64, Operation<'static>)>,
    posted: usize,
    next_job: u64,
}

impl Reads {
    /// Accepts a job. Its reads are posted by [`Reads::post`].
    pub(super) fn begin(&mut self, job: ReadJob) {
        let name = READ | self.next_job;
        let mut operations = Vec::with_capacity(2 * job.pages.len());
        for taking in &job.pages {
            let offset = job.span.offset_bytes() + taking.offset_bytes;
            let reads = job.opened.view.reads(taking.place, &taking.extent, job.span.region(), offset);
            // Reads that do not fit the span are a mistake of ours; the pages are requested.
            let Ok(reads) = reads else { return };
            operations.extend(reads.map(|read| (name, read)));
        }
        self.next_job = (self.next_job + 1) & (READ - 1);
        let remaining = operations.len();
        self.waiting.extend(operations);
        if remaining > 0 {
            self.jobs.insert(name, JobReads { job, remaining, failed: false });
        }
    }

    /// Posts as many reads as there is room for, with one announcement.
    pub(super) fn post(&mut self, connection: &mut Connection) {
        let room = READS_POSTED_MAX.saturating_sub(self.posted).min(self.waiting.len());
        if room == 0 {
            return;
        }
        let batch: Vec<_> = self.waiting.drain(..room).collect();
        let accepted = match connection.post_batch(&batch) {
            Ok(()) => batch.len(),
            // A full queue has room again later; the connection reports its end, which fails all
            // reads.
            Err(error) => error.accepted,
        };
        self.posted += accepted;
        for rest in batch.into_iter().skip(accepted).rev() {
            self.waiting.push_front(rest);
        }
    }

    /// A read has ended.
    pub(super) fn completed(&mut self, name: u64, is_done: bool) {
        // A connection that is ended in the middle of its events may still report reads that were
        // abandoned.
        self.posted = self.posted.saturating_sub(1);
        let Some(reads) = self.jobs.get_mut(&name) else { return };
        reads.remaining -= 1;
        reads.failed |= !is_done;
        if reads.remaining > 0 {
            return;
        }
        if let Some(JobReads { job, failed: false, .. }) = self.jobs.remove(&name) {
            let ReadJob { span, permit, answer, .. } = job;
            drop(permit);
            // If the caller has gone, the memory is freed.
            if let Some(answer) = answer {
                drop(answer.send(span));
            }
        }
    }

    /// Drops all jobs, because the connection is closed.
    pub(super) fn abandon(&mut self) {
        self.jobs.clear();
        self.waiting.clear();
        self.posted = 0;
    }

    /// Sends callers elsewhere, because the node does not answer. The memory of a job belongs to it
    /// until its reads have ended all the same.
    pub(super) fn give_up(&mut self) {
        for reads in self.jobs.values_mut() {
            if reads.job.answer.take().is_some() {
                reads.job.span.suspend();
            }
        }
    }

    /// Whether a caller waits for a read.
    pub(super) fn are_awaited(&self) -> bool {
        self.jobs.values().any(|reads| reads.job.answer.is_some())
    }

    /// The earliest deadline of the jobs that callers wait for.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let awaited = self.jobs.values().filter(|reads| reads.job.answer.is_some());
        awaited.map(|reads| reads.job.deadline).min()
    }
}
