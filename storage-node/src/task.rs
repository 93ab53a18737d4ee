//! Defines tasks, which are requests in progress, and the table of all tasks of a reactor.
//!
//! Invariants
//! - A task leaves the table only when none of its operations is in flight, so until then its index
//!   refers to no other task.
//! - Every task ends with exactly one reply, or when its connection ends.

use std::time::Instant;

use rackscan_device::{IoFault, IoMemory};
use rackscan_fabric::OperationError;
use rackscan_format::{
    ids::RequestId,
    message::{Answer, Refusal},
};
use rackscan_ramp::message::Reply;

use crate::{bridge::Core, copies::Kept, ids::TaskIndex, scan_pool::ScanResult};
pub(crate) use crate::{
    ids::Place,
    refusals::{bad_memory, malformed},
};

/// The progress of a request.
#[derive(Debug)]
pub(crate) enum Progress {
    /// An operation is in flight, and its completion will be reported.
    Working,
    /// It waits for memory or for room in a queue, and is advanced again when there may be some.
    Starved,
    /// It is done, and no operation is in flight.
    Finished(Result<Answer, Refusal>),
}

/// A request of one kind that is being served. A call of `advance` follows each event.
///
/// An event comes only to the request that began the operation: operations carry the index of their
/// task ([`Place::operation`], `ReplyTo`), which is not reused while any of them is in flight. So a
/// kind of request has the methods for what it begins, and the others are never called.
pub(crate) trait Work {
    /// Starts all operations that can be started.
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress;

    /// A read or write of a device has ended.
    fn device_done(
        &mut self,
        _core: &mut Core,
        _place: Place,
        _part: u32,
        _memory: IoMemory,
        _outcome: Result<(), Box<IoFault>>,
    ) {
        unreachable!("this request reads and writes no device")
    }

    /// A device has flushed earlier writes, or failed to.
    fn flushed(&mut self, _core: &mut Core, _outcome: Result<(), Box<IoFault>>) {
        unreachable!("this request flushes no device")
    }

    /// A transfer to or from the requester has ended.
    fn wire_done(
        &mut self,
        _core: &mut Core,
        _place: Place,
        _part: u32,
        _outcome: Result<(), OperationError>,
    ) {
        unreachable!("this request transfers nothing")
    }

    /// A scan has ended.
    fn scanned(&mut self, _core: &mut Core, _result: ScanResult) {
        unreachable!("this request queues no scan")
    }

    /// The participant has sent all its answers to the request.
    fn answered(&mut self, _replies: Vec<Reply>) {
        unreachable!("this request asks no participant")
    }

    /// A part of a log replica was kept or read.
    fn kept(&mut self, _outcome: Result<Kept, Refusal>) {
        unreachable!("this request concerns no log replica")
    }

    /// A catalog change has ended.
    fn published(&mut self, _outcome: Result<(), Refusal>) {
        unreachable!("this request changes no catalog")
    }
}

/// A request in progress.
pub(crate) struct Task {
    /// The client's id of the request.
    pub(crate) request: RequestId,
    pub(crate) place: Place,
    /// The index of the post box in which it arrived, if any.
    pub(crate) post: Option<usize>,
    /// Whether it is in the queue of tasks that wait for memory.
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

    /// Adds a task, and returns its index.
    pub(crate) fn insert(&mut self, make: impl FnOnce(TaskIndex) -> Task) -> TaskIndex {
        let index = self.free.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            u32::try_from(self.tasks.len() - 1).expect("fewer tasks than 2^32")
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
