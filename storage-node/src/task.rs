//! What is a request in progress, whatever its kind?
//!
//! Invariants
//! - A task leaves the table only when nothing that it started is under way, so its place names
//!   nothing else meanwhile.
//! - Every task ends with exactly one reply, or with its connection.

use std::time::Instant;

use rackscan_device::{IoFault, IoMemory};
use rackscan_fabric::OperationError;
use rackscan_format::{
    ids::RequestId,
    message::{Answer, Refusal, RefusalCode},
};
use rackscan_ramp::message::Reply;

use crate::{bridge::Core, copies::Kept, message_queue::TaskIndex, scan_pool::ScanResult};

/// How far a request is.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Something it started will report.
    Working,
    /// It waits for memory or for room in a queue; to be asked again when there may be some.
    Starved,
    /// It is done, and nothing it started is under way.
    Finished(Result<Answer, Refusal>),
}

/// Where a task stands: whose it is and how its operations are named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Its own place in the task table.
    pub(crate) task: TaskIndex,
    /// The place of its connection.
    pub(crate) link: usize,
}

impl Place {
    /// The name of one of its operations, at a device or at the wire.
    pub(crate) fn operation(self, part: u32) -> u64 {
        u64::from(self.task.0) << 32 | u64::from(part)
    }

    /// The task and the part that an operation's name means.
    #[expect(clippy::cast_possible_truncation, reason = "takes the two halves apart")]
    pub(crate) fn of_operation(name: u64) -> (TaskIndex, u32) {
        (TaskIndex((name >> 32) as u32), name as u32)
    }
}

/// One kind of request being served. Each event is followed by a call of `advance`.
pub(crate) trait Work {
    /// Starts what can be started.
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress;

    /// A read or write of a device has ended.
    fn device_done(
        &mut self,
        core: &mut Core,
        place: Place,
        part: u32,
        memory: IoMemory,
        outcome: Result<(), Box<IoFault>>,
    ) {
        let _ = (core, place, part, memory, outcome);
    }

    /// A device has made durable what was written before, or has not.
    fn flushed(&mut self, core: &mut Core, outcome: Result<(), Box<IoFault>>) {
        let _ = (core, outcome);
    }

    /// A transfer to or from the requester has ended.
    fn wire_done(&mut self, core: &mut Core, place: Place, part: u32, outcome: Result<(), OperationError>) {
        let _ = (core, place, part, outcome);
    }

    /// A scan has ended.
    fn scanned(&mut self, core: &mut Core, result: ScanResult) {
        let _ = (core, result);
    }

    /// The home of transactions has answered, all at once.
    fn answered(&mut self, replies: Vec<Reply>) {
        let _ = replies;
    }

    /// A copy of a log is kept, or read.
    fn kept(&mut self, outcome: Result<Kept, Refusal>) {
        let _ = outcome;
    }

    /// A catalog change has ended.
    fn published(&mut self, outcome: Result<(), Refusal>) {
        let _ = outcome;
    }
}

/// A request in progress.
pub(crate) struct Task {
    /// The client's number for it.
    pub(crate) request: RequestId,
    pub(crate) place: Place,
    /// The box in which it came, if it did.
    pub(crate) post: Option<usize>,
    /// Whether it is in the queue of those that wait for memory.
    pub(crate) queued: bool,
    pub(crate) began: Instant,
    pub(crate) span: tracing::Span,
    pub(crate) work: Box<dyn Work>,
}

/// The requests of one reactor.
#[derive(Default)]
pub(crate) struct Tasks {
    tasks: Vec<Option<Task>>,
    free: Vec<u32>,
}

impl Tasks {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len() - self.free.len()
    }

    /// Finds a place for a task.
    pub(crate) fn insert(&mut self, make: impl FnOnce(TaskIndex) -> Task) -> TaskIndex {
        let index = self.free.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            u32::try_from(self.tasks.len() - 1).unwrap_or(u32::MAX)
        });
        self.tasks[index as usize] = Some(make(TaskIndex(index)));
        TaskIndex(index)
    }

    pub(crate) fn get_mut(&mut self, index: TaskIndex) -> Option<&mut Task> {
        self.tasks.get_mut(index.0 as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, index: TaskIndex) -> Option<Task> {
        let task = self.tasks.get_mut(index.0 as usize)?.take()?;
        self.free.push(index.0);
        Some(task)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Task> {
        self.tasks.iter_mut().flatten()
    }
}

/// The refusal of a request that breaks a rule.
pub(crate) fn malformed(text: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::Malformed, text)
}

/// The refusal of a request whose memory cannot be used.
pub(crate) fn bad_memory(text: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::Memory, text)
}
