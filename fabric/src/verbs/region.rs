//! Registers our regions with the adapter, and opens them to the peer by memory windows.
//!
//! Invariants
//! - A region is opened to the peer by a window that is bound to the connection's queue pair. Its
//!   key opens nothing on another connection, and closing the window ends the access at once.
//! - A window is closed only after its binding is done. Otherwise the adapter would fail the whole
//!   queue pair.
//! - The registration of a region of ours is kept for later operations until nothing else holds the
//!   region or too many registrations are kept.

use std::{collections::HashMap, io, sync::Arc};

use super::{
    device::{Device, identity},
    ring::Span,
    sys::{Local, MemoryRegion, MemoryWindow, STATUS_LOCAL_PROTECTION},
};
use crate::{
    error::{OperationError, RegionError},
    limits::{QUEUE_DEPTH_MAX, REGION_ALIGNMENT_BYTES, VERBS_BOUNCE_BYTES, VERBS_REGISTRATIONS_KEPT},
    region::Region,
};

/// Registrations of our regions that operations use as source or target.
#[derive(Debug)]
pub(super) struct Locals {
    device: Arc<Device>,
    kept: HashMap<usize, Arc<MemoryRegion>>,
}

impl Locals {
    pub(super) fn new(device: Arc<Device>) -> Self {
        Self { device, kept: HashMap::new() }
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// The registration of a region. The poster of a request with it must hold it until the request
    /// is complete.
    pub(super) fn find(&mut self, region: &Region) -> Result<Arc<MemoryRegion>, OperationError> {
        let identity = identity(region);
        if let Some(memory) = self.kept.get(&identity) {
            return Ok(Arc::clone(memory));
        }
        // A region that only its registration holds will not be used again.
        self.kept.retain(|_, memory| memory.region().holders() > 1);
        if self.kept.len() >= VERBS_REGISTRATIONS_KEPT {
            self.kept.clear();
        }
        let memory = self.device.register(region).map_err(unregistered)?;
        self.kept.insert(identity, Arc::clone(&memory));
        Ok(memory)
    }

    /// Registered memory that holds a copy of `bytes` at its start.
    pub(super) fn copy(&self, bytes: &[u8]) -> Result<Arc<MemoryRegion>, OperationError> {
        let region = Region::allocate(bytes.len().next_multiple_of(REGION_ALIGNMENT_BYTES));
        let region = region.map_err(io::Error::other).map_err(unregistered)?;
        region.copy_in(0, bytes).map_err(OperationError::OutOfBounds)?;
        self.device.register(&region).map_err(unregistered)
    }
}

/// The error that an adapter would report for memory that it does not know, with the reason.
fn unregistered(error: io::Error) -> OperationError {
    let text = format!("could not register our own memory: {error}");
    OperationError::Status { code: STATUS_LOCAL_PROTECTION, text, vendor: 0 }
}

/// A region that is open to the peer, or will be once its binding is done.
#[derive(Debug)]
struct Grant {
    #[expect(dead_code, reason = "held, not used: it is closed when the last holder drops it")]
    window: Arc<MemoryWindow>,
    /// Number of the request that binds it; `None` while the request waits to be posted.
    binding: Option<u64>,
}

/// Regions that are open to the peer.
#[derive(Debug, Default)]
pub(super) struct Grants {
    open: HashMap<u64, Grant>,
    /// Regions that were revoked before their binding was done.
    revoked: Vec<Grant>,
}

impl Grants {
    /// Adds a window, which its key names from now on.
    pub(super) fn add(&mut self, window: Arc<MemoryWindow>) {
        self.open.insert(u64::from(window.key()), Grant { window, binding: None });
    }

    /// Notes that the window's binding was posted.
    pub(super) fn bound(&mut self, window: &MemoryWindow, binding: u64) {
        if let Some(grant) = self.open.get_mut(&u64::from(window.key())) {
            grant.binding = Some(binding);
        }
    }

    /// Closes a window: now, or if its binding is not complete, when `done` reports that.
    pub(super) fn revoke(&mut self, key: u64, completed: u64) {
        if let Some(grant) = self.open.remove(&key)
            && grant.binding.is_some_and(|binding| binding > completed)
        {
            self.revoked.push(grant);
        }
    }

    /// Notes that requests up to `completed` are done.
    pub(super) fn done(&mut self, completed: u64) {
        self.revoked.retain(|grant| grant.binding.is_some_and(|binding| binding > completed));
    }

    /// Closes all windows.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.revoked.clear();
    }
}

const RESULT_BYTES: usize = 8;
const RESULTS_BYTES: usize = QUEUE_DEPTH_MAX * RESULT_BYTES;
const BOUNCE: u64 = VERBS_BOUNCE_BYTES as u64;
const BOUNCE_UNIT: u64 = 64;

const _: () = assert!(RESULTS_BYTES <= REGION_ALIGNMENT_BYTES);

/// Registered memory of the connection itself: results of atomics, and bytes that wait to be sent.
#[derive(Debug)]
pub(super) struct Scratch {
    memory: Arc<MemoryRegion>,
    results: usize,
    tail: u64,
    head: u64,
}

impl Scratch {
    pub(super) fn new(device: &Device) -> Result<Self, RegionError> {
        let bytes = REGION_ALIGNMENT_BYTES + VERBS_BOUNCE_BYTES;
        let region = Region::allocate(bytes)?;
        let memory = device.register(&region).map_err(|source| RegionError::Os {
            action: "register",
            bytes,
            source,
        })?;
        Ok(Self { memory, results: 0, tail: 0, head: 0 })
    }

    /// A word for the result of an atomic, and its number. There are at least as many words as
    /// atomics in flight.
    pub(super) fn next_result(&mut self) -> (Local, usize) {
        let result = self.results % QUEUE_DEPTH_MAX;
        self.results += 1;
        (self.memory.local(result * RESULT_BYTES, 8), result)
    }

    /// The result of an atomic. Adapters answer in the byte order of this machine.
    pub(super) fn result(&self, result: usize) -> u64 {
        let found = self.memory.region().load_u64(result * RESULT_BYTES);
        found.expect("the words of results lie inside the scratch memory")
    }

    /// Copies bytes to where the adapter can fetch them; `None` while there is no room. The memory
    /// is in use until `release` is called with the value that [`Self::tail`] then returns.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Option<Local> {
        let span = Span::next(self.tail, bytes.len(), BOUNCE, BOUNCE_UNIT);
        if span.end - self.head > BOUNCE {
            return None;
        }
        let offset = REGION_ALIGNMENT_BYTES + usize::try_from(span.offset(BOUNCE)).ok()?;
        self.memory.region().copy_in(offset, bytes).ok()?;
        self.tail = span.end;
        Some(self.memory.local(offset, u32::try_from(bytes.len()).ok()?))
    }

    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    pub(super) fn release(&mut self, tail: u64) {
        self.head = self.head.max(tail);
    }
}
