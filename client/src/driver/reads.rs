//! How do pages of a node's cache come here by one-sided reads?
//!
//! Invariants
//! - At most `READS_POSTED_MAX` reads are posted at a time, so that requests always find room in
//!   the connection's queue.
//! - A job is answered when all of its reads are done, or dropped: then its pages are asked for
//!   instead.
//! - The memory of a job belongs to it until its reads are done or the connection is closed, also
//!   when its node does not answer and the caller has gone elsewhere.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use rackscan_fabric::{Connection, Operation};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    cache::{Opened, Taking},
    limits::READS_POSTED_MAX,
    target::Span,
};

/// The names of reads have this bit, those of requests do not.
pub(super) const READ: u64 = 1 << 63;

/// Pages to be taken from one node.
#[derive(Debug)]
pub(crate) struct ReadJob {
    /// Position of the node.
    pub(crate) node: usize,
    /// The cache as it was when the places were looked up: another connection has another.
    pub(crate) opened: Arc<Opened>,
    pub(crate) pages: Vec<Taking>,
    /// Where they go.
    pub(crate) span: Span,
    /// One of the node's requests.
    pub(crate) permit: OwnedSemaphorePermit,
    /// When they must be there.
    pub(crate) deadline: Instant,
    /// Gets the memory again when everything is in it; absent once the caller was told to ask
    /// elsewhere.
    pub(crate) answer: Option<oneshot::Sender<Span>>,
}

#[derive(Debug)]
struct Reading {
    job: ReadJob,
    left: usize,
    failed: bool,
}

/// The reads of one connection.
#[derive(Debug, Default)]
pub(super) struct Reads {
    jobs: HashMap<u64, Reading>,
    waiting: VecDeque<(u64, Operation<'static>)>,
    posted: usize,
    next_job: u64,
}

impl Reads {
    /// Takes a job. Its reads are posted by [`Reads::post`].
    pub(super) fn begin(&mut self, job: ReadJob) {
        let name = READ | self.next_job;
        let mut operations = Vec::with_capacity(2 * job.pages.len());
        for taking in &job.pages {
            let offset = job.span.offset_bytes() + taking.offset_bytes;
            let reads = job.opened.view.reads(taking.place, &taking.extent, job.span.region(), offset);
            // What does not fit its span is a mistake of ours; the pages are asked for.
            let Ok(reads) = reads else { return };
            operations.extend(reads.map(|read| (name, read)));
        }
        self.next_job = (self.next_job + 1) & (READ - 1);
        let left = operations.len();
        self.waiting.extend(operations);
        if left > 0 {
            self.jobs.insert(name, Reading { job, left, failed: false });
        }
    }

    /// Posts what there is room for, with one announcement.
    pub(super) fn post(&mut self, connection: &mut Connection) {
        let room = READS_POSTED_MAX.saturating_sub(self.posted).min(self.waiting.len());
        if room == 0 {
            return;
        }
        let batch: Vec<_> = self.waiting.drain(..room).collect();
        let accepted = match connection.post_batch(&batch) {
            Ok(()) => batch.len(),
            // A full queue has room again later; an end is reported by the connection, and fails
            // everything.
            Err(error) => error.accepted,
        };
        self.posted += accepted;
        for rest in batch.into_iter().skip(accepted).rev() {
            self.waiting.push_front(rest);
        }
    }

    /// A read has ended.
    pub(super) fn completed(&mut self, name: u64, is_done: bool) {
        self.posted = self.posted.saturating_sub(1);
        let Some(reading) = self.jobs.get_mut(&name) else { return };
        reading.left -= 1;
        reading.failed |= !is_done;
        if reading.left > 0 {
            return;
        }
        if let Some(Reading { job, failed: false, .. }) = self.jobs.remove(&name) {
            let ReadJob { span, permit, answer, .. } = job;
            drop(permit);
            // A caller who has left does not mind; the memory is free again then.
            if let Some(answer) = answer {
                drop(answer.send(span));
            }
        }
    }

    /// The connection is closed: nothing is under way any more.
    pub(super) fn abandon(&mut self) {
        self.jobs.clear();
        self.waiting.clear();
        self.posted = 0;
    }

    /// The node does not answer: callers ask elsewhere. The memory of a job belongs to it until its
    /// reads are done all the same.
    pub(super) fn give_up(&mut self) {
        for reading in self.jobs.values_mut() {
            if reading.job.answer.take().is_some() {
                reading.job.span.suspend();
            }
        }
    }

    /// Whether somebody waits for a read.
    pub(super) fn are_awaited(&self) -> bool {
        self.jobs.values().any(|reading| reading.job.answer.is_some())
    }

    /// When the first job must be done that somebody waits for.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let awaited = self.jobs.values().filter(|reading| reading.job.answer.is_some());
        awaited.map(|reading| reading.job.deadline).min()
    }
}
