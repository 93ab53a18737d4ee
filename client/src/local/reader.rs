//! Runs the thread that reads local devices for all callers.
//!
//! Pages are read into the buffers of a pool without a copy, and the caller keeps the buffer while
//! it scans. Callers may keep the pages of one batch while they wait for the next, so the thread
//! must not wait for them when the pool is exhausted. Then it reads pages into a reserve (memory
//! that no caller ever keeps) and copies them out.
//!
//! Invariants
//! - Batches are served in the order of their arrival; every batch is answered once.
//! - Reads in flight never exceed the depth of the `io_uring`. Memory never exceeds pool and
//!   reserve, besides the copies that callers keep.
//! - While no read is in flight the reserve is free and has room for any page, so reading always
//!   makes progress.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::AsFd,
    sync::Arc,
    time::Instant,
};

use rackscan_device::{
    Buffer, BufferPool, Completion, DeviceIndex, DeviceIo, Interest, IoFault, IoMemory, PoolError, Read,
    Repeat, Ring, SubmitError, TakeError, Token, Wait, Watch,
};
use rackscan_format::{ids::NodeId, limits::PAGE_BYTES_MAX, segment::Extent};
use tokio::sync::{mpsc, mpsc::error::TryRecvError, oneshot};

use super::error::{LocalError, bad_extent};
use crate::{
    PageBuffer,
    doorbell::Doorbell,
    limits::{LOCAL_GROWTH_PAUSE, LOCAL_PIECE_BYTES, LOCAL_POOL_BYTES, LOCAL_RESERVE_BYTES},
    page_buffer::PagePool,
};

/// An extent of a device of this thread's ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExtentRead {
    pub(super) device: DeviceIndex,
    pub(super) extent: Extent,
}

/// Reads that are answered together.
#[derive(Debug)]
pub(super) struct Batch {
    node: NodeId,
    wanted: Vec<ExtentRead>,
    pages: Vec<Option<PageBuffer>>,
    /// The first read that was not submitted yet.
    next: usize,
    in_flight: usize,
    failed: Option<LocalError>,
    answer: oneshot::Sender<Result<Vec<PageBuffer>, LocalError>>,
}

impl Batch {
    pub(super) fn new(
        node: NodeId,
        wanted: Vec<ExtentRead>,
        answer: oneshot::Sender<Result<Vec<PageBuffer>, LocalError>>,
    ) -> Self {
        let pages = wanted.iter().map(|_| None).collect();
        Self { node, wanted, pages, next: 0, in_flight: 0, failed: None, answer }
    }

    /// Whether no more reads are to be submitted.
    fn is_submitted(&self) -> bool {
        self.next == self.wanted.len() || self.failed.is_some() || self.answer.is_closed()
    }

    fn finish(self) {
        let answer = match self.failed {
            Some(error) => Err(error),
            None => Ok(self.pages.into_iter().flatten().collect()),
        };
        // If the caller has gone, the pages are dropped.
        let _ = self.answer.send(answer);
    }
}

/// Where the memory of a read in flight comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Pool,
    Reserve,
}

#[derive(Debug, Clone, Copy)]
struct InFlight {
    batch: u64,
    page: usize,
    source: Source,
}

/// What pages are read into.
struct Memory {
    /// The pieces of the pool. Each is allocated when those before it are exhausted: most commands
    /// read few pages.
    pool: Vec<BufferPool>,
    reserve: BufferPool,
    /// When a lack of memory ended the last attempt to allocate a piece.
    refused: Option<Instant>,
}

impl Memory {
    fn allocate() -> Result<Self, PoolError> {
        Ok(Self { pool: Vec::new(), reserve: new_pool(LOCAL_RESERVE_BYTES)?, refused: None })
    }

    /// Memory for a page, from the pool or else from the reserve; `None` if both are exhausted.
    fn take(&mut self, bytes: usize) -> Result<Option<(Buffer, Source)>, TakeError> {
        for piece in &self.pool {
            if let Some(buffer) = available(piece.take(bytes))? {
                return Ok(Some((buffer, Source::Pool)));
            }
        }
        if let Some(piece) = self.grow() {
            return Ok(Some((piece.take(bytes)?, Source::Pool)));
        }
        let buffer = available(self.reserve.take(bytes))?;
        Ok(buffer.map(|buffer| (buffer, Source::Reserve)))
    }

    /// Allocates another piece of the pool. `None` if it has all of its memory, or the system had
    /// none a moment ago: then the pool is as good as exhausted.
    fn grow(&mut self) -> Option<&BufferPool> {
        let is_whole = self.pool.len() == LOCAL_POOL_BYTES / LOCAL_PIECE_BYTES;
        if is_whole || self.refused.is_some_and(|refused| refused.elapsed() < LOCAL_GROWTH_PAUSE) {
            return None;
        }
        match new_pool(LOCAL_PIECE_BYTES) {
            Ok(piece) => {
                self.pool.push(piece);
                self.pool.last()
            }
            Err(error) => {
                tracing::warn!(%error, "local reads are slower: the memory that they read into cannot grow");
                self.refused = Some(Instant::now());
                None
            }
        }
    }
}

fn new_pool(bytes: usize) -> Result<BufferPool, PoolError> {
    BufferPool::new(bytes, PAGE_BYTES_MAX as usize)
}

/// The buffer, or `None` if all of its pool are taken.
fn available(taken: Result<Buffer, TakeError>) -> Result<Option<Buffer>, TakeError> {
    match taken {
        Ok(buffer) => Ok(Some(buffer)),
        Err(TakeError::Exhausted { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The thread's state.
pub(super) struct Reader {
    ring: Ring,
    received: mpsc::Receiver<Batch>,
    bell: Arc<Doorbell>,
    /// Allocated for the first read: most commands never read a local device.
    memory: Option<Memory>,
    copies: Arc<PagePool>,
    batches: HashMap<u64, Batch>,
    /// Batches with reads not submitted yet, oldest first.
    waiting: VecDeque<u64>,
    in_flight: HashMap<u64, InFlight>,
    next_batch: u64,
    next_token: u64,
}

const BELL: Token = Token(u64::MAX);

impl Reader {
    pub(super) fn new(
        mut ring: Ring,
        received: mpsc::Receiver<Batch>,
        bell: Arc<Doorbell>,
    ) -> Result<Self, String> {
        let watch = Watch {
            fd: bell.as_fd(),
            interest: Interest::Readable,
            repeat: Repeat::EveryChange,
            token: BELL,
        };
        ring.watch(watch).map_err(|error| error.to_string())?;
        Ok(Self {
            ring,
            received,
            bell,
            memory: None,
            copies: Arc::new(PagePool::default()),
            batches: HashMap::new(),
            waiting: VecDeque::new(),
            in_flight: HashMap::new(),
            next_batch: 0,
            next_token: 0,
        })
    }

    /// Reads until no caller can send batches any more.
    pub(super) fn run(&mut self) {
        while self.receive() {
            self.submit();
            if !self.reap() {
                return;
            }
        }
    }

    /// Takes new batches. Returns false when no caller can send any more.
    fn receive(&mut self) -> bool {
        loop {
            match self.received.try_recv() {
                Ok(batch) => {
                    self.batches.insert(self.next_batch, batch);
                    self.waiting.push_back(self.next_batch);
                    self.next_batch += 1;
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Submits reads, oldest batch first, as far as depth and memory allow.
    fn submit(&mut self) {
        while let Some(&id) = self.waiting.front() {
            let Some(batch) = self.batches.get(&id) else {
                self.waiting.pop_front();
                continue;
            };
            if batch.is_submitted() {
                self.waiting.pop_front();
                self.finish_if_done(id);
                continue;
            }
            if self.ring.in_flight() >= self.ring.depth() || !self.submit_next(id) {
                return;
            }
        }
    }

    /// Submits the batch's next read. Returns false if there is no memory for it now.
    fn submit_next(&mut self, id: u64) -> bool {
        let Some(batch) = self.batches.get_mut(&id) else { return true };
        let page = batch.next;
        let ExtentRead { device, extent } = batch.wanted[page];
        let memory = match self.memory.take().map_or_else(Memory::allocate, Ok) {
            Ok(memory) => self.memory.insert(memory),
            Err(error) => {
                batch.failed =
                    Some(LocalError::Memory { bytes: LOCAL_RESERVE_BYTES, reason: error.to_string() });
                return true;
            }
        };
        let taken = match memory.take(extent.length_bytes as usize) {
            Ok(Some(taken)) => taken,
            Ok(None) => return false,
            Err(error) => {
                batch.failed = Some(bad_extent(batch.node, &extent, error.to_string()));
                return true;
            }
        };
        let (buffer, source) = taken;
        let token = self.next_token;
        let read = Read {
            device,
            offset_bytes: extent.offset_bytes,
            length_bytes: extent.length_bytes,
            into: IoMemory::Buffer(buffer),
            token: Token(token),
        };
        match self.ring.submit_read(read) {
            Ok(()) => {
                self.next_token += 1;
                self.in_flight.insert(token, InFlight { batch: id, page, source });
                batch.next += 1;
                batch.in_flight += 1;
                true
            }
            Err(refused) if matches!(refused.reason, SubmitError::QueueFull { .. }) => false,
            Err(refused) => {
                batch.failed = Some(bad_extent(batch.node, &extent, refused.reason.to_string()));
                true
            }
        }
    }

    /// Waits for reads or callers. Returns false if waiting itself fails.
    fn reap(&mut self) -> bool {
        self.bell.fall_asleep();
        // Batches that were sent before, and the last caller's end, did not ring the bell: see the
        // doorbell's invariants.
        let may_sleep = self.received.is_empty() && !self.received.is_closed();
        let wait = if may_sleep { Wait::ForOne } else { Wait::Now };
        let mut completions = Vec::new();
        let reaped = self.ring.reap(wait, &mut |completion| completions.push(completion));
        self.bell.wake_up();
        if let Err(error) = reaped {
            tracing::error!(%error, "reading local devices ends");
            return false;
        }
        for completion in completions {
            if let Completion::Read { token, memory, outcome } = completion {
                self.completed(token, memory, outcome);
            }
        }
        true
    }

    fn completed(&mut self, token: Token, memory: IoMemory, outcome: Result<(), Box<IoFault>>) {
        let Some(InFlight { batch: id, page, source }) = self.in_flight.remove(&token.0) else { return };
        let Some(batch) = self.batches.get_mut(&id) else { return };
        batch.in_flight -= 1;
        let length = batch.wanted[page].extent.length_bytes as usize;
        match (outcome, memory.into_buffer()) {
            (Ok(()), Ok(buffer)) => batch.pages[page] = Some(own(&self.copies, buffer, length, source)),
            (Err(fault), _) => {
                batch.failed = Some(LocalError::Io { node: batch.node, reason: fault.to_string() });
            }
            (Ok(()), Err(other)) => {
                batch.failed = Some(LocalError::Io { node: batch.node, reason: other.to_string() });
            }
        }
        self.finish_if_done(id);
    }

    fn finish_if_done(&mut self, id: u64) {
        let is_done = |batch: &Batch| batch.is_submitted() && batch.in_flight == 0;
        if self.batches.get(&id).is_some_and(is_done)
            && let Some(batch) = self.batches.remove(&id)
        {
            batch.finish();
        }
    }
}

/// The page for its caller: the buffer itself, or a copy if the buffer is of the reserve.
fn own(copies: &Arc<PagePool>, buffer: Buffer, length: usize, source: Source) -> PageBuffer {
    if source == Source::Pool {
        return PageBuffer::of_device(buffer, length);
    }
    let copy = |bytes: &mut [u8]| {
        bytes.copy_from_slice(&buffer[..length]);
        Ok::<(), std::convert::Infallible>(())
    };
    match copies.filled(length, copy) {
        Ok(page) => page,
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_device::RingConfig;

    #[test]
    fn a_pool_grows_by_pieces_to_its_limit_and_then_the_reserve_is_taken() {
        let mut memory = Memory::allocate().expect("a reserve");
        assert_eq!(memory.pool.len(), 0, "nothing is allocated before the first read");
        let page = PAGE_BYTES_MAX as usize;
        let small = memory.take(1).unwrap().expect("the first piece");
        assert_eq!((small.1, memory.pool.len()), (Source::Pool, 1));
        drop(small);
        let held: Vec<_> = (0..LOCAL_POOL_BYTES / page).map(|_| memory.take(page).unwrap()).collect();
        assert!(held.iter().flatten().all(|(_, source)| *source == Source::Pool));
        assert_eq!(held.iter().flatten().count() * page, LOCAL_POOL_BYTES, "all of the pool is granted");
        let (_, source) = memory.take(page).unwrap().expect("the reserve");
        assert_eq!((source, memory.pool.len()), (Source::Reserve, LOCAL_POOL_BYTES / LOCAL_PIECE_BYTES));
    }

    #[test]
    fn a_reader_ends_although_its_last_caller_left_just_before_it_fell_asleep() {
        let (ended, waited) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let ring = Ring::new(RingConfig { depth: 4, ..RingConfig::default() }).expect("a ring");
            let bell = Arc::new(Doorbell::new().expect("a bell"));
            let (batches, received) = mpsc::channel(1);
            let mut reader = Reader::new(ring, received, Arc::clone(&bell)).expect("a reader");
            assert!(reader.receive(), "a caller is there");
            drop(batches);
            bell.ring();
            assert!(reader.reap(), "nothing failed");
            assert!(!reader.receive(), "nobody can ask any more");
            ended.send(()).expect("the test waits");
        });
        let ended = waited.recv_timeout(std::time::Duration::from_secs(20));
        assert!(ended.is_ok(), "the reader sleeps although nobody can ask it any more");
    }
}
