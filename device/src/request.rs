//! What does one IO request say, and what comes back?
//!
//! Invariants
//! - The memory of a request moves into the ring with it and comes back in its [`Completion`]:
//!   while the kernel may touch the bytes nobody else owns them, so using a buffer in flight does
//!   not compile:
//!
//! ```compile_fail,E0382
//! # fn f(io: &mut dyn rackscan_device::DeviceIo, buffer: rackscan_device::Buffer) {
//! use rackscan_device::{DeviceIndex, IoMemory, Read, Token};
//! let read = Read {
//!     device: DeviceIndex(0), offset_bytes: 0, length_bytes: 4096,
//!     into: IoMemory::Buffer(buffer), token: Token(1),
//! };
//! let _ = io.submit_read(read);
//! println!("{}", buffer[0]); // moved away: the kernel may be writing it
//! # }
//! ```
//! - Every accepted request has exactly one completion; a refused one has none.

use std::fmt;
use std::time::Instant;

use crate::error::{IoFault, NotABuffer};
use crate::memory::{Buffer, ExternalMemory};

/// Place of a device in the list of its ring (or simulator).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIndex(pub u16);

impl fmt::Display for DeviceIndex {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The submitter's name for a request; comes back unchanged in the completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Memory that takes part in a transfer.
#[derive(Debug)]
pub enum IoMemory {
    /// A buffer of a [`crate::BufferPool`].
    Buffer(Buffer),
    /// Memory that somebody else keeps mapped, for example a fabric region.
    External(ExternalMemory),
}

impl IoMemory {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Buffer(buffer) => buffer.len(),
            Self::External(memory) => memory.len(),
        }
    }

    /// True if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the first byte, for the kernel.
    pub(crate) fn address(&self) -> *mut u8 {
        match self {
            Self::Buffer(buffer) => buffer.address(),
            Self::External(memory) => memory.address(),
        }
    }

    /// The pool buffer in here.
    ///
    /// # Errors
    /// [`NotABuffer`] gives external memory back.
    pub fn into_buffer(self) -> Result<Buffer, NotABuffer> {
        match self {
            Self::Buffer(buffer) => Ok(buffer),
            Self::External(_) => Err(NotABuffer(self)),
        }
    }
}

impl From<Buffer> for IoMemory {
    fn from(buffer: Buffer) -> Self {
        Self::Buffer(buffer)
    }
}

impl From<ExternalMemory> for IoMemory {
    fn from(memory: ExternalMemory) -> Self {
        Self::External(memory)
    }
}

/// Read `length_bytes` at `offset_bytes` into the first bytes of `into`.
#[derive(Debug)]
pub struct Read {
    /// Which device.
    pub device: DeviceIndex,
    /// Where on the device; a multiple of its alignment.
    pub offset_bytes: u64,
    /// How much; a multiple of the device's alignment, at most the length of `into`.
    pub length_bytes: u32,
    /// Where to.
    pub into: IoMemory,
    /// Comes back in the completion.
    pub token: Token,
}

/// Write the first `length_bytes` of `from` at `offset_bytes`. Durable only after a later
/// [`Fsync`].
#[derive(Debug)]
pub struct Write {
    /// Which device.
    pub device: DeviceIndex,
    /// Where on the device; a multiple of its alignment.
    pub offset_bytes: u64,
    /// How much; a multiple of the device's alignment, at most the length of `from`.
    pub length_bytes: u32,
    /// Where from.
    pub from: IoMemory,
    /// Comes back in the completion.
    pub token: Token,
}

/// Make durable every write of the device that had completed when this was submitted.
#[derive(Debug, Clone, Copy)]
pub struct Fsync {
    /// Which device.
    pub device: DeviceIndex,
    /// Comes back in the completion.
    pub token: Token,
}

/// How long [`crate::DeviceIo::reap`] may block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: hand new requests to the kernel and take what is there.
    Now,
    /// Until there is at least one completion; returns at once if nothing is outstanding.
    ForOne,
    /// Until there is at least one completion or the instant has passed.
    Until(Instant),
}

/// What a watch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Bytes (or a connection, or an event count) can be read.
    Readable,
    /// Bytes can be written.
    Writable,
}

/// How often a watch reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// One report, at once if the descriptor is ready already; then the watch is gone.
    Once,
    /// A report for each change until unwatched. Edge-triggered: after a report, read until it
    /// would block.
    EveryChange,
}

/// A request to be told when a descriptor becomes ready.
#[derive(Debug, Clone, Copy)]
pub struct Watch<'fd> {
    /// The descriptor; the watch keeps the open file alive, the number may be closed.
    pub fd: std::os::fd::BorrowedFd<'fd>,
    /// What to wait for.
    pub interest: Interest,
    /// How often to report.
    pub repeat: Repeat,
    /// Comes back in each [`Completion::Ready`].
    pub token: Token,
}

/// Names an armed watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WatchId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// What a watched descriptor reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// It can be read.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
    /// The other side is gone.
    pub hung_up: bool,
    /// The descriptor is in an error state, or could not be watched.
    pub failed: bool,
}

/// The end of one request.
#[derive(Debug)]
pub enum Completion {
    /// A read ended; on success the first `length_bytes` of `memory` hold the bytes.
    Read {
        /// From the request.
        token: Token,
        /// The memory of the request.
        memory: IoMemory,
        /// All bytes, or why not.
        outcome: Result<(), Box<IoFault>>,
    },
    /// A write ended.
    Write {
        /// From the request.
        token: Token,
        /// The memory of the request.
        memory: IoMemory,
        /// All bytes, or why not.
        outcome: Result<(), Box<IoFault>>,
    },
    /// An fsync ended.
    Fsync {
        /// From the request.
        token: Token,
        /// Durable, or not.
        outcome: Result<(), Box<IoFault>>,
    },
    /// A watched descriptor is ready.
    Ready {
        /// From the watch.
        token: Token,
        /// What is ready.
        readiness: Readiness,
    },
}

impl Completion {
    /// The token of the request or watch.
    #[must_use]
    pub fn token(&self) -> Token {
        match self {
            Self::Read { token, .. }
            | Self::Write { token, .. }
            | Self::Fsync { token, .. }
            | Self::Ready { token, .. } => *token,
        }
    }
}
