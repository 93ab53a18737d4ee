//! IO requests and their completions.
//!
//! Invariants
//! - The memory of a request moves into the ring with the request and returns in its
//!   [`Completion`]. While the kernel may access a [`Buffer`], nobody else owns it, so code that
//!   uses a buffer in flight does not compile:
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

use crate::fault::IoFault;
use crate::memory::{Buffer, ExternalMemory};

/// The position of a device in the list of its ring (or simulator).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIndex(pub u16);

impl fmt::Display for DeviceIndex {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The submitter's identifier of a request; it is returned unchanged in the completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// The memory of a transfer.
#[derive(Debug)]
pub enum IoMemory {
    /// A buffer of a [`crate::BufferPool`].
    Buffer(Buffer),
    /// Memory that another owner keeps mapped, for example a fabric region.
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

    /// The pool buffer, if the memory is one.
    ///
    /// # Errors
    /// [`NotABuffer`] returns the external memory.
    pub fn into_buffer(self) -> Result<Buffer, NotABuffer> {
        match self {
            Self::Buffer(buffer) => Ok(buffer),
            Self::External(_) => Err(NotABuffer(self)),
        }
    }
}

/// The error of [`IoMemory::into_buffer`], which returns the memory.
#[derive(Debug, thiserror::Error)]
#[error("this memory is external (mapped by its owner), expected a buffer of a BufferPool")]
pub struct NotABuffer(pub IoMemory);

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

/// Reads `length_bytes` at `offset_bytes` into the first bytes of `into`.
#[derive(Debug)]
pub struct Read {
    /// The device.
    pub device: DeviceIndex,
    /// The offset on the device, a multiple of its alignment.
    pub offset_bytes: u64,
    /// The number of bytes, a multiple of the device's alignment and at most the length of `into`.
    pub length_bytes: u32,
    /// The memory to read into.
    pub into: IoMemory,
    /// Returned in the completion.
    pub token: Token,
}

/// Writes the first `length_bytes` of `from` at `offset_bytes`. The bytes are durable only after a
/// later [`Fsync`].
#[derive(Debug)]
pub struct Write {
    /// The device.
    pub device: DeviceIndex,
    /// The offset on the device, a multiple of its alignment.
    pub offset_bytes: u64,
    /// The number of bytes, a multiple of the device's alignment and at most the length of `from`.
    pub length_bytes: u32,
    /// The memory to write from.
    pub from: IoMemory,
    /// Returned in the completion.
    pub token: Token,
}

/// Makes every write of the device durable that had completed when this request was submitted.
#[derive(Debug, Clone, Copy)]
pub struct Fsync {
    /// The device.
    pub device: DeviceIndex,
    /// Returned in the completion.
    pub token: Token,
}

/// How long [`crate::DeviceIo::reap`] may block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Does not block: submits new requests to the kernel and takes existing completions.
    Now,
    /// Blocks until there is at least one completion; returns at once if nothing is outstanding.
    ForOne,
    /// Blocks until there is at least one completion or the instant has passed.
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
    /// One report, at once if the descriptor is ready already; then the watch ends.
    Once,
    /// A report for each change until the watch is removed. Edge-triggered: after a report, read
    /// until the descriptor would block.
    EveryChange,
}

/// A request for events when a descriptor becomes ready.
#[derive(Debug, Clone, Copy)]
pub struct Watch<'fd> {
    /// The descriptor. The watch keeps the open file alive, so the descriptor may be closed.
    pub fd: std::os::fd::BorrowedFd<'fd>,
    /// The event to wait for.
    pub interest: Interest,
    /// How often to report.
    pub repeat: Repeat,
    /// Returned in each [`Completion::Ready`].
    pub token: Token,
}

/// Identifies an armed watch.
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
    /// The other side has closed the connection.
    pub hung_up: bool,
    /// The descriptor is in an error state, or could not be watched.
    pub failed: bool,
}

/// The completion of one request, or an event of a watch.
#[derive(Debug)]
pub enum Completion {
    /// A read ended; on success the first `length_bytes` of `memory` hold the bytes.
    Read {
        /// From the request.
        token: Token,
        /// The memory of the request.
        memory: IoMemory,
        /// Success if all bytes were transferred, or the fault.
        outcome: Result<(), Box<IoFault>>,
    },
    /// A write ended.
    Write {
        /// From the request.
        token: Token,
        /// The memory of the request.
        memory: IoMemory,
        /// Success if all bytes were transferred, or the fault.
        outcome: Result<(), Box<IoFault>>,
    },
    /// An fsync ended.
    Fsync {
        /// From the request.
        token: Token,
        /// Success if the writes are durable, or the fault.
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
