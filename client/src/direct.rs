//! How does one thread drive one node, with as little as possible in between?
//!
//! ```text
//! read / write / echo   encode into memory that is used again            nothing is sent yet
//! flush                 hand all of them to the wire together            one wake-up or doorbell
//! reap                  flush, then take the replies that are there      or wait for one
//! ```
//!
//! For the laboratory and for replay: no other thread, no executor, no table of futures. What a request costs here is its
//! encoding (about 100 ns for one part, 25 ns for each further one: 30 bytes, and 11 more), the decoding of its reply (about 200 ns), and
//! the one allocation that the fabric makes for that. Queueing several requests before a flush adds an allocation for all of them.
//!
//! Invariants
//! - The line and its memory belong to one thread. Which part of the memory which request uses is the caller's business; the
//!   node may write a part from the request's submission until its reply.
//! - Requests outstanding are bounded by [`DIRECT_DEPTH_MAX`]; every one is answered, or the line ends with an error.
//! - A line that has ended says so again whatever it is asked.

mod error;

use std::time::{Duration, Instant};

use rackscan_device::Wait;
use rackscan_fabric::{
    Address, BatchError, ClusterKey, Connection, Event, Operation, PostError, Region, RemoteRegion,
};
use rackscan_format::{
    ids::{NodeId, RequestId},
    limits::RAW_TRANSFERS_MAX,
    message::{
        Answer, Cost, LoadReport, NodeStatus, RawRead, RawWrite, Refusal, ReplyMessage, Request,
        RequestMessage, Target,
    },
};

use crate::{
    ClientError,
    cluster::unexpected,
    dial::{Dial, Line},
    limits::DIRECT_DEPTH_MAX,
};
pub use error::DirectError;

/// What the messages of a direct line are called in errors.
const DURING: &str = "direct";
/// The number of a request for the status; callers' numbers are never it.
const STATUS: u64 = u64::MAX;

/// Whom to reach, and with how much memory.
#[derive(Debug, Clone)]
pub struct DirectOptions {
    /// The node that must answer there.
    pub node: NodeId,
    /// Where.
    pub address: Address,
    /// The cluster's key.
    pub key: ClusterKey,
    /// Registered memory for what is read and written; a positive multiple of 4 KiB.
    pub memory_bytes: usize,
    /// How long the node may be silent while it owes replies.
    pub patience: Duration,
}

/// The end of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectDone {
    /// What the caller named it.
    pub id: u64,
    /// What it took (nothing for an echo), or why the node did not do it.
    pub outcome: Result<Cost, Box<Refusal>>,
    /// How busy the node is.
    pub load: LoadReport,
}

/// Requests that are encoded and not handed to the wire.
#[derive(Debug, Default)]
struct Queued {
    bytes: Vec<u8>,
    /// Where each message ends.
    ends: Vec<usize>,
    /// Messages that the wire has taken.
    sent: usize,
}

/// A connection to one node, owned by one thread.
#[derive(Debug)]
pub struct DirectLine {
    node: NodeId,
    address: Address,
    connection: Connection,
    region: Region,
    target: Target,
    status: NodeStatus,
    patience: Duration,
    outstanding: Vec<u64>,
    queued: Queued,
    /// Memory for the next request's parts.
    reads: Vec<RawRead>,
    writes: Vec<RawWrite>,
    events: Vec<Event>,
    /// The last moment at which the node owed nothing or replied.
    heard: Instant,
    fresh_status: Option<NodeStatus>,
    ended: Option<ClientError>,
}

impl DirectLine {
    /// Connects, registers memory and makes sure that it is the node that was meant.
    ///
    /// # Errors
    /// Memory that cannot be had, or a node that cannot be reached until the deadline, is another one, or refuses.
    pub fn connect(options: &DirectOptions, deadline: Instant) -> Result<Self, DirectError> {
        let DirectOptions { node, address, key, memory_bytes, patience } = options;
        let region = Region::allocate(*memory_bytes)
            .map_err(|source| DirectError::Memory { bytes: *memory_bytes, source })?;
        let dial = Dial {
            node: *node,
            address: address.clone(),
            key: key.clone(),
            memory: region.clone(),
            cluster: None,
        };
        let Line { connection, target, status } = dial.dial_until(deadline)?;
        let RemoteRegion { key, address: offset_bytes, length: length_bytes } = target;
        Ok(Self {
            node: *node,
            address: address.clone(),
            connection,
            region,
            target: Target { key, offset_bytes, length_bytes },
            status,
            patience: *patience,
            outstanding: Vec::with_capacity(DIRECT_DEPTH_MAX),
            queued: Queued::default(),
            reads: Vec::new(),
            writes: Vec::new(),
            events: Vec::new(),
            heard: Instant::now(),
            fresh_status: None,
            ended: None,
        })
    }

    /// What the node said of itself when the line was made or last asked: its devices, alignments and scratch area.
    #[must_use]
    pub fn status(&self) -> &NodeStatus {
        &self.status
    }

    /// The registered memory, to copy in and out.
    #[must_use]
    pub fn memory(&self) -> &Region {
        &self.region
    }

    /// Requests submitted whose reply has not been reaped.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Requests that may still be submitted before one must be reaped.
    #[must_use]
    pub fn room(&self) -> usize {
        DIRECT_DEPTH_MAX - self.outstanding.len()
    }

    /// Queues a request for parts of the node's devices, each to its place in the registered memory.
    ///
    /// # Errors
    /// Too many requests or parts, memory that is not there, or a line that has ended.
    pub fn read(&mut self, id: u64, parts: &[RawRead]) -> Result<(), DirectError> {
        let places = parts.iter().map(|part| (part.target_offset_bytes, part.length_bytes));
        self.check(id, parts.len(), places)?;
        let mut reads = std::mem::take(&mut self.reads);
        reads.clear();
        reads.extend_from_slice(parts);
        let message =
            RequestMessage { id: RequestId(id), request: Request::ReadRaw { reads, target: self.target } };
        let encoded = self.encode(&message);
        if let Request::ReadRaw { reads, .. } = message.request {
            self.reads = reads;
        }
        encoded
    }

    /// Queues a request to write parts of the registered memory into the node's scratch area.
    ///
    /// # Errors
    /// Too many requests or parts, memory that is not there, or a line that has ended.
    pub fn write(&mut self, id: u64, parts: &[RawWrite]) -> Result<(), DirectError> {
        let places = parts.iter().map(|part| (part.source_offset_bytes, part.length_bytes));
        self.check(id, parts.len(), places)?;
        let mut writes = std::mem::take(&mut self.writes);
        writes.clear();
        writes.extend_from_slice(parts);
        let request = Request::WriteRaw { writes, source: self.target };
        let message = RequestMessage { id: RequestId(id), request };
        let encoded = self.encode(&message);
        if let Request::WriteRaw { writes, .. } = message.request {
            self.writes = writes;
        }
        encoded
    }

    /// Queues a request for `length_bytes` of no meaning at a place of the registered memory: the wire alone.
    ///
    /// # Errors
    /// Too many requests, memory that is not there, or a line that has ended.
    pub fn echo(&mut self, id: u64, offset_bytes: u64, length_bytes: u32) -> Result<(), DirectError> {
        self.check(id, 1, std::iter::once((offset_bytes, length_bytes)))?;
        let bytes = u64::from(length_bytes);
        let offset_bytes = self.target.offset_bytes + offset_bytes;
        let target = Target { offset_bytes, length_bytes: bytes, ..self.target };
        self.encode(&RequestMessage { id: RequestId(id), request: Request::Echo { bytes, target } })
    }

    /// Hands what is queued to the wire, as far as it takes it now.
    ///
    /// # Errors
    /// A line that has ended.
    pub fn flush(&mut self) -> Result<(), DirectError> {
        self.check_open()?;
        let Queued { bytes, ends, sent } = &mut self.queued;
        if *sent == ends.len() {
            return Ok(());
        }
        let message = |index: usize| {
            let begin = if index == 0 { 0 } else { ends[index - 1] };
            Operation::Send { bytes: &bytes[begin..ends[index]] }
        };
        let outcome = if *sent + 1 == ends.len() {
            self.connection.post(0, message(*sent)).map_err(|error| BatchError { accepted: 0, error })
        } else {
            let batch: Vec<(u64, Operation<'_>)> =
                (*sent..ends.len()).map(|index| (0, message(index))).collect();
            self.connection.post_batch(&batch)
        };
        match outcome {
            Ok(()) => {
                bytes.clear();
                ends.clear();
                *sent = 0;
                Ok(())
            }
            Err(BatchError { accepted, error: PostError::QueueFull { .. } }) => {
                *sent += accepted;
                Ok(())
            }
            Err(BatchError { error, .. }) => Err(self.lost(&error.to_string())),
        }
    }

    /// Hands over what is queued and appends the replies that have come to `done`; says how many. Waits as told: `ForOne` returns
    /// at once if nothing is outstanding, `Until` sleeps until the instant even then.
    ///
    /// # Errors
    /// A line that has ended, or that ends because the node is lost, silent for longer than it may be, or talks nonsense.
    pub fn reap(&mut self, wait: Wait, done: &mut Vec<DirectDone>) -> Result<usize, DirectError> {
        self.flush()?;
        let before = done.len();
        self.poll(done)?;
        while done.len() == before {
            let until = match wait {
                Wait::Now => None,
                Wait::ForOne if self.outstanding.is_empty() => None,
                Wait::ForOne => Some(self.heard + self.patience),
                Wait::Until(instant) => Some(instant),
            };
            let now = Instant::now();
            let silent_since = (!self.outstanding.is_empty()).then(|| self.heard + self.patience);
            if silent_since.is_some_and(|end| now >= end) {
                return Err(self.timed_out());
            }
            let Some(until) = until.filter(|until| now < *until) else { return Ok(0) };
            let until = silent_since.map_or(until, |end| until.min(end));
            self.connection.wait(&mut self.events, until);
            self.take_events(done)?;
        }
        Ok(done.len() - before)
    }

    /// Asks the node how it is now, and waits for its answer.
    ///
    /// # Errors
    /// [`DirectError::Unfinished`] while other requests are outstanding; a line that has ended or ends.
    pub fn ask_status(&mut self) -> Result<&NodeStatus, DirectError> {
        if !self.outstanding.is_empty() {
            return Err(DirectError::Unfinished { outstanding: self.outstanding.len() });
        }
        self.check_open()?;
        self.encode(&RequestMessage { id: RequestId(STATUS), request: Request::Status })?;
        let mut done = Vec::new();
        while self.fresh_status.is_none() {
            self.reap(Wait::ForOne, &mut done)?;
            if let Some(DirectDone { outcome: Err(refusal), .. }) = done.pop() {
                return Err(ClientError::Refused { node: self.node, during: "status", refusal }.into());
            }
        }
        if let Some(status) = self.fresh_status.take() {
            self.status = status;
        }
        Ok(&self.status)
    }

    /// Ends the line on purpose. Dropping it does the same.
    pub fn close(self) {
        self.connection.close();
    }

    fn check_open(&self) -> Result<(), DirectError> {
        self.ended.clone().map_or(Ok(()), |error| Err(error.into()))
    }

    fn check(
        &self,
        id: u64,
        parts: usize,
        places: impl Iterator<Item = (u64, u32)>,
    ) -> Result<(), DirectError> {
        self.check_open()?;
        let (outstanding, depth_max) = (self.outstanding.len(), DIRECT_DEPTH_MAX);
        if outstanding >= depth_max {
            return Err(DirectError::QueueFull { outstanding, depth_max });
        }
        if id == STATUS || self.outstanding.contains(&id) {
            return Err(DirectError::InUse { id });
        }
        if parts == 0 || parts > RAW_TRANSFERS_MAX {
            return Err(DirectError::Parts { parts, parts_max: RAW_TRANSFERS_MAX });
        }
        let memory_bytes = self.region.bytes() as u64;
        for (offset_bytes, length_bytes) in places {
            let end = offset_bytes.checked_add(length_bytes.into());
            if end.is_none_or(|end| end > memory_bytes) {
                return Err(DirectError::Outside { offset_bytes, length_bytes, memory_bytes });
            }
        }
        Ok(())
    }

    fn encode(&mut self, message: &RequestMessage) -> Result<(), DirectError> {
        let Queued { bytes, ends, .. } = &mut self.queued;
        let before = bytes.len();
        if let Err(source) = message.encode_into(bytes) {
            bytes.truncate(before);
            return Err(ClientError::TooLarge { node: self.node, during: DURING, source }.into());
        }
        ends.push(bytes.len());
        if self.outstanding.is_empty() {
            self.heard = Instant::now();
        }
        self.outstanding.push(message.id.0);
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<DirectDone>) -> Result<(), DirectError> {
        self.connection.poll(&mut self.events);
        self.take_events(done)
    }

    fn take_events(&mut self, done: &mut Vec<DirectDone>) -> Result<(), DirectError> {
        if self.events.is_empty() {
            return Ok(());
        }
        let mut events = std::mem::take(&mut self.events);
        let mut outcome = Ok(());
        for event in events.drain(..) {
            if outcome.is_ok() {
                outcome = self.take_event(event, done);
            }
        }
        self.events = events;
        outcome?;
        // Completions may have made room for what had none.
        self.flush()
    }

    fn take_event(&mut self, event: Event, done: &mut Vec<DirectDone>) -> Result<(), DirectError> {
        match event {
            Event::Message { bytes } => self.replied(&bytes, done),
            Event::Closed(ending) => Err(self.lost(&ending.to_string())),
            // A message that was not delivered shows in the connection's end, which follows.
            Event::Completed { .. } | Event::Immediate { .. } => Ok(()),
        }
    }

    fn replied(&mut self, bytes: &[u8], done: &mut Vec<DirectDone>) -> Result<(), DirectError> {
        let ReplyMessage { id: RequestId(id), outcome, load } = match ReplyMessage::decode(bytes) {
            Ok(reply) => reply,
            Err(source) => {
                return Err(self.end(ClientError::Codec { node: self.node, during: DURING, source }));
            }
        };
        let Some(place) = self.outstanding.iter().position(|outstanding| *outstanding == id) else {
            return Err(self.end(ClientError::BadAnswer {
                node: self.node,
                during: DURING,
                found: format!("a reply to request {id}"),
                expected: "one that is outstanding".to_owned(),
            }));
        };
        self.outstanding.swap_remove(place);
        self.heard = Instant::now();
        let outcome = match outcome {
            Ok(Answer::Transferred { cost }) => Ok(cost),
            Ok(Answer::Done) => Ok(Cost::default()),
            Ok(Answer::Status(status)) if id == STATUS => {
                self.fresh_status = Some(*status);
                Ok(Cost::default())
            }
            Ok(other) => return Err(self.end(unexpected(self.node, DURING, &other, "what was asked for"))),
            Err(refusal) => Err(Box::new(refusal)),
        };
        done.push(DirectDone { id, outcome, load });
        Ok(())
    }

    fn lost(&mut self, reason: &str) -> DirectError {
        let (node, address, during) = (self.node, self.address.clone(), DURING);
        self.end(ClientError::NodeLost { node, address, during, reason: reason.to_owned() })
    }

    fn timed_out(&mut self) -> DirectError {
        let (node, address, waited) = (self.node, self.address.clone(), self.patience);
        self.end(ClientError::TimedOut { node, address, during: DURING, waited })
    }

    fn end(&mut self, error: ClientError) -> DirectError {
        self.ended = Some(error.clone());
        error.into()
    }
}
