//! Defines a direct line: one connection to one node, which one thread drives with as little
//! overhead as possible. The laboratory (the measuring tools) and the replay of traces use it.
//!
//! ```text
//! read / write / echo   encodes a request into reused memory            sends nothing yet
//! flush                 posts all encoded requests together             one wake-up or doorbell
//! reap                  flushes, then takes the replies that are there, or waits for one
//! ```
//!
//! There is no other thread, no executor and no table of futures. A request costs its encoding
//! (about 100 ns for one part, 25 ns for each further one: 30 bytes, and 11 more), the decoding of
//! its reply (about 200 ns), and the one allocation that the fabric makes for the reply. Queueing
//! several requests before a flush adds one allocation for all of them.
//!
//! Invariants
//! - The line and its memory belong to one thread. The caller decides which request uses which part
//!   of the memory; the node may write a part from the submission of its request until the reply.
//! - At most [`DIRECT_DEPTH_MAX`] requests are outstanding; every one is answered, or the line ends
//!   with an error.
//! - A line that has ended returns that error again at every call.

mod cached;
mod error;
mod replies;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use rackscan_device::Wait;
use rackscan_fabric::{
    Address, BatchError, ClusterKey, Connection, Event, Operation, PostError, Region, RemoteRegion,
};
use rackscan_format::{
    ids::{NodeId, RequestId},
    limits::RAW_TRANSFERS_MAX,
    message::{
        CachePlace, Cost, LoadReport, NodeStatus, RawRead, RawWrite, Refusal, Request, RequestMessage, Target,
    },
};

use crate::{
    ClientError,
    dial::{Dial, VerifiedConnection},
    limits::DIRECT_DEPTH_MAX,
    members::ExpectedIdentity,
};
use cached::{Cached, TakeOutcome};
pub use error::DirectError;

/// The name of a direct line's requests in errors.
const DURING: &str = "direct";
/// The id of a status request; callers' ids are never this.
const STATUS: u64 = u64::MAX;
/// The id of a request that opens the node's cache.
const CACHE: u64 = u64::MAX - 1;
/// The id of messages that tell which cached parts were used; nobody waits for their replies.
const USED: u64 = u64::MAX - 2;

/// Options of a direct line.
#[derive(Debug, Clone)]
pub struct DirectOptions {
    /// The node that must answer there.
    pub node: NodeId,
    /// The node's address.
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
    /// The caller's id of the request.
    pub id: u64,
    /// Its cost (nothing for an echo), or why the node refused it.
    pub outcome: Result<Cost, Box<Refusal>>,
    /// The load that the node reported last.
    pub load: LoadReport,
    /// Whether it was read one-sidedly out of the node's cache.
    pub is_one_sided: bool,
}

/// Requests that are encoded and not handed to the wire yet.
#[derive(Debug, Default)]
struct Queued {
    bytes: Vec<u8>,
    /// Where each message ends.
    ends: Vec<usize>,
    /// Number of messages that the wire has accepted.
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
    /// The node's page cache, once it was opened.
    cached: Option<Cached>,
    /// Requested parts whose place in the cache the reply will name, by request: those of one part.
    asked: HashMap<u64, RawRead>,
    /// Requests that have ended without a reply.
    ready: Vec<u64>,
    load: LoadReport,
    /// Reused memory for the next request's parts.
    reads: Vec<RawRead>,
    writes: Vec<RawWrite>,
    events: Vec<Event>,
    /// The last time at which the node owed nothing or replied.
    heard: Instant,
    fresh_status: Option<NodeStatus>,
    ended: Option<ClientError>,
}

impl DirectLine {
    /// Connects, registers memory and checks that the node is the one in the options.
    ///
    /// # Errors
    /// Memory that cannot be allocated, or a node that cannot be reached until the deadline, is
    /// another one, or refuses.
    pub fn connect(options: &DirectOptions, deadline: Instant) -> Result<Self, DirectError> {
        let DirectOptions { node, address, key, memory_bytes, patience } = options;
        let region = Region::allocate(*memory_bytes)
            .map_err(|source| DirectError::Memory { bytes: *memory_bytes, source })?;
        let dial = Dial {
            node: *node,
            address: address.clone(),
            key: key.clone(),
            memory: region.clone(),
            cache: Arc::default(),
            reads_cache: false,
            cluster: None,
            posts: false,
            expected: ExpectedIdentity::default(),
        };
        let VerifiedConnection { connection, target, status, .. } = dial.dial_until(deadline)?;
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
            cached: None,
            asked: HashMap::new(),
            ready: Vec::new(),
            load: LoadReport::default(),
            reads: Vec::new(),
            writes: Vec::new(),
            events: Vec::new(),
            heard: Instant::now(),
            fresh_status: None,
            ended: None,
        })
    }

    /// The status that the node reported when the line was made or last asked: its devices,
    /// alignments and scratch area.
    #[must_use]
    pub fn status(&self) -> &NodeStatus {
        &self.status
    }

    /// The registered memory, to copy in and out.
    #[must_use]
    pub fn memory(&self) -> &Region {
        &self.region
    }

    /// Number of submitted requests whose reply has not been reaped.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Number of requests that may still be submitted before one must be reaped.
    #[must_use]
    pub fn room(&self) -> usize {
        DIRECT_DEPTH_MAX - self.outstanding.len()
    }

    /// Queues a request that reads parts of the node's devices, each to its place in the registered
    /// memory.
    ///
    /// # Errors
    /// Too many requests or parts, memory that is not there, or a line that has ended.
    pub fn read(&mut self, id: u64, parts: &[RawRead]) -> Result<(), DirectError> {
        let places = parts.iter().map(|part| (part.target_offset_bytes, part.length_bytes));
        self.check(id, parts.len(), places)?;
        if let ([part], Some(cached)) = (parts, &mut self.cached) {
            let taken = cached.take(id, part, &self.region, &mut self.connection);
            if taken == TakeOutcome::Unknown {
                self.asked.insert(id, *part);
            } else {
                self.expect(id);
                self.ready.extend((taken == TakeOutcome::Here).then_some(id));
                return Ok(());
            }
        }
        self.ask_to_read(id, parts)
    }

    fn ask_to_read(&mut self, id: u64, parts: &[RawRead]) -> Result<(), DirectError> {
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

    /// Queues a request for `length_bytes` arbitrary bytes at a place of the registered memory:
    /// measures the wire alone.
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

    /// Hands queued requests to the wire, as many as it accepts now.
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

    /// Flushes, and appends the replies that have come to `done`. Returns their number. Waits as
    /// `wait` says: `ForOne` returns at once if nothing is outstanding, `Until` sleeps until the
    /// instant even then.
    ///
    /// # Errors
    /// A line that has ended, or that ends because the node is lost, is silent for longer than the
    /// patience, or breaks the protocol.
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

    /// Asks the node for its status, and waits for the answer.
    ///
    /// # Errors
    /// [`DirectError::Unfinished`] while other requests are outstanding; a line that has ended or
    /// ends.
    pub fn ask_status(&mut self) -> Result<&NodeStatus, DirectError> {
        if let Some(places) = self.cached.as_mut().and_then(Cached::take_all) {
            // The node learns of all uses first, so that its counters are right.
            self.tell_used(places)?;
        }
        self.ask_alone(STATUS, Request::Status)?;
        if let Some(status) = self.fresh_status.take() {
            self.status = status;
        }
        Ok(&self.status)
    }

    /// Opens the node's page cache: from now on reads of one part whose place is known are
    /// one-sided. Returns false if the node has no cache.
    ///
    /// # Errors
    /// [`DirectError::Unfinished`] while other requests are outstanding; a refusing node; a line
    /// that has ended or ends.
    pub fn open_cache(&mut self) -> Result<bool, DirectError> {
        self.ask_alone(CACHE, Request::OpenCache)?;
        Ok(self.cached.is_some())
    }

    /// Sends one request of the line's own and waits for its reply.
    fn ask_alone(&mut self, id: u64, request: Request) -> Result<(), DirectError> {
        if !self.outstanding.is_empty() {
            return Err(DirectError::Unfinished { outstanding: self.outstanding.len() });
        }
        self.check_open()?;
        let during = request.name();
        self.encode(&RequestMessage { id: RequestId(id), request })?;
        let mut done = Vec::new();
        while done.is_empty() {
            self.reap(Wait::ForOne, &mut done)?;
        }
        match done.pop() {
            Some(DirectDone { outcome: Err(refusal), .. }) => {
                Err(ClientError::Refused { node: self.node, during, refusal }.into())
            }
            _ => Ok(()),
        }
    }

    /// Tells the node which parts of its cache were used.
    fn tell_used(&mut self, places: Vec<CachePlace>) -> Result<(), DirectError> {
        let request = Request::CacheUsed { places };
        self.encode_only(&RequestMessage { id: RequestId(USED), request })
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
        if id >= USED || self.outstanding.contains(&id) {
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
        self.encode_only(message)?;
        self.expect(message.id.0);
        Ok(())
    }

    /// Records that the end of a request is owed.
    fn expect(&mut self, id: u64) {
        if self.outstanding.is_empty() {
            self.heard = Instant::now();
        }
        self.outstanding.push(id);
    }

    fn encode_only(&mut self, message: &RequestMessage) -> Result<(), DirectError> {
        let Queued { bytes, ends, .. } = &mut self.queued;
        let before = bytes.len();
        if let Err(source) = message.encode_into(bytes) {
            bytes.truncate(before);
            return Err(ClientError::TooLarge { node: self.node, during: DURING, source }.into());
        }
        ends.push(bytes.len());
        Ok(())
    }
}
