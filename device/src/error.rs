//! What can go wrong at each boundary of this crate, and what should the reader of the message do?
//!
//! One type per boundary: opening a device, making or taking buffers, making a ring, submitting,
//! reaping, and the fault of a single operation. Every message names the thing, what was found and
//! what was expected.

use std::path::PathBuf;

use rustix::io::Errno;

use crate::fault::{Operation, Verdict};
use crate::limits;
use crate::request::{DeviceIndex, IoMemory};

/// Why a device could not be opened or created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The filesystem refuses O_DIRECT for this file, or accepts it and passes the page cache all
    /// the same.
    #[error(
        "{path}: {filesystem} does not do direct IO (O_DIRECT) here, and there is no fallback to the page cache; \
         put the data folder on ext4, xfs or btrfs, or name a block device (for example `--data DIR`)",
        path = path.display()
    )]
    DirectIoRefused {
        /// The file or device.
        path: PathBuf,
        /// Name of its filesystem.
        filesystem: String,
    },
    /// Another process holds the device for writing, or it is mounted.
    #[error(
        "{path}: in use: another process has it open for writing, or it is a mounted block device; stop that process or \
         name another file",
        path = path.display()
    )]
    InUse {
        /// The file or device.
        path: PathBuf,
    },
    /// `create` found something at the path.
    #[error("{path}: exists already; open it, or remove it first", path = path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Not enough room for a new device file.
    #[error(
        "{path}: no space for a device file of {needed_bytes} bytes, the filesystem has {free_bytes} bytes free; \
         free some space or ask for a smaller file",
        path = path.display()
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Size asked for.
        needed_bytes: u64,
        /// What the filesystem reports as available to this user.
        free_bytes: u64,
    },
    /// A size that cannot be a device's.
    #[error(
        "{path}: a device of {bytes} bytes is not possible; expected a positive multiple of {align} bytes",
        path = path.display(),
        align = limits::IO_ALIGN_BYTES
    )]
    BadSize {
        /// The file.
        path: PathBuf,
        /// Size found or asked for.
        bytes: u64,
    },
    /// Neither a regular file nor a block device.
    #[error("{path}: is a {found}; expected a regular file or a block device", path = path.display())]
    NotADevice {
        /// The path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// The device wants larger or odder alignment than this crate gives.
    #[error(
        "{path}: wants direct IO aligned to {memory_bytes} bytes in memory and {offset_bytes} bytes on the device; \
         at most {max} bytes and powers of two are supported",
        path = path.display(),
        max = limits::IO_ALIGN_BYTES
    )]
    AlignmentUnsupported {
        /// The file or device.
        path: PathBuf,
        /// Memory alignment reported.
        memory_bytes: u32,
        /// Offset and length alignment reported.
        offset_bytes: u32,
    },
    /// Any other system call that failed.
    #[error("{path}: {action} failed: {source}", path = path.display())]
    Os {
        /// The file or device.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// The kernel's answer.
        source: Errno,
    },
}

/// Why a buffer pool could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// Sizes that do not fit together.
    #[error(
        "a pool of {total_bytes} bytes with buffers of up to {largest_bytes} bytes is not possible; expected a largest \
         buffer that is a power of two from {align} to {max} bytes and a total that is a positive multiple of it",
        align = limits::IO_ALIGN_BYTES,
        max = limits::BUFFER_BYTES_MAX
    )]
    BadSizes {
        /// Bytes of the slab asked for.
        total_bytes: usize,
        /// Bytes of the largest buffer asked for.
        largest_bytes: usize,
    },
    /// The system does not have the memory.
    #[error("taking {total_bytes} bytes of memory for IO buffers failed: {source}; lower the memory budget")]
    NoMemory {
        /// Bytes of the slab.
        total_bytes: usize,
        /// The kernel's answer.
        source: Errno,
    },
}

/// Why a pool did not hand out a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TakeError {
    /// More than the pool's largest buffer, or nothing at all.
    #[error(
        "a buffer of {wanted_bytes} bytes was asked for; this pool's buffers have 1 to {largest_bytes} bytes"
    )]
    BadLength {
        /// Bytes asked for.
        wanted_bytes: usize,
        /// Largest buffer of the pool.
        largest_bytes: usize,
    },
    /// All in use at the moment (or too scattered); buffers come back when their owners drop them.
    #[error(
        "no buffer of {wanted_bytes} bytes is free: {free_bytes} of {total_bytes} bytes are free in the pool"
    )]
    Exhausted {
        /// Bytes asked for.
        wanted_bytes: usize,
        /// Bytes free, possibly not in one piece.
        free_bytes: usize,
        /// Bytes of the slab.
        total_bytes: usize,
    },
}

/// Why a ring could not be made, or a device not attached to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The kernel does not give this process an io_uring.
    #[error(
        "the kernel refuses io_uring: {source}; Linux 6.1 or later is needed, with sysctl kernel.io_uring_disabled=0 and, in \
         a container, a seccomp profile that allows io_uring_setup, io_uring_enter and io_uring_register"
    )]
    Refused {
        /// The kernel's answer.
        source: Errno,
    },
    /// The system refuses something else that is needed.
    #[error("could not {action}: {source}")]
    Os {
        /// What was attempted.
        action: &'static str,
        /// The system's answer.
        source: Errno,
    },
    /// A number of threads outside the limits.
    #[error("{threads} threads to read devices are not possible; expected 1 to {max}", max = limits::IO_THREADS_MAX)]
    BadThreads {
        /// Threads asked for.
        threads: usize,
    },
    /// A core that a thread was to be pinned to.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// A depth outside the limits.
    #[error("a ring of depth {depth} is not possible; expected 1 to {max}", max = limits::RING_DEPTH_MAX)]
    BadDepth {
        /// Depth asked for.
        depth: u32,
    },
    /// Too many devices for one ring.
    #[error("{devices} devices on one ring; at most {max} are possible", max = limits::DEVICES_PER_RING_MAX)]
    TooManyDevices {
        /// Devices asked for.
        devices: usize,
    },
}

/// Why a request was not accepted. Nothing has happened; the request comes back in [`Refused`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The ring holds as many requests as its depth allows.
    #[error(
        "the IO queue is full: {in_flight} requests in flight of at most {depth_max}; reap completions first"
    )]
    QueueFull {
        /// Requests in flight.
        in_flight: u32,
        /// The ring's depth.
        depth_max: u32,
    },
    /// All watches are in use.
    #[error("all {watches_max} watches of the ring are in use")]
    WatchesFull {
        /// The bound.
        watches_max: u32,
    },
    /// No device has this index.
    #[error("device index {device} does not exist; the ring has {devices} devices")]
    UnknownDevice {
        /// Index asked for.
        device: DeviceIndex,
        /// How many devices there are.
        devices: usize,
    },
    /// A write or fsync on a device opened for reading.
    #[error("device index {device} was opened read-only; a write or fsync is not possible")]
    ReadOnlyDevice {
        /// Index of the device.
        device: DeviceIndex,
    },
    /// Offset or length is not a multiple of what the device needs.
    #[error(
        "offset {offset_bytes} and length {length_bytes} must be multiples of {align_bytes} bytes for direct IO"
    )]
    Misaligned {
        /// Offset of the request.
        offset_bytes: u64,
        /// Length of the request.
        length_bytes: u32,
        /// What both must be multiples of.
        align_bytes: u32,
    },
    /// External memory does not begin where the device can transfer to.
    #[error(
        "memory for direct IO must begin at a multiple of {align_bytes} bytes; this begins {excess_bytes} bytes after one"
    )]
    MisalignedMemory {
        /// Address modulo the alignment.
        excess_bytes: usize,
        /// What the address must be a multiple of.
        align_bytes: u32,
    },
    /// Zero, or more than one request may move.
    #[error("a transfer of {length_bytes} bytes is not possible; expected 1 to {max} bytes", max = limits::IO_BYTES_MAX)]
    BadLength {
        /// Length of the request.
        length_bytes: u32,
    },
    /// The memory is shorter than the transfer.
    #[error("a transfer of {length_bytes} bytes needs as much memory; {memory_bytes} bytes were given")]
    MemoryTooShort {
        /// Length of the request.
        length_bytes: u32,
        /// Length of the memory.
        memory_bytes: usize,
    },
    /// The range passes the device's end.
    #[error("bytes {offset_bytes}..+{length_bytes} pass the end of a device of {device_bytes} bytes")]
    OutOfRange {
        /// Offset of the request.
        offset_bytes: u64,
        /// Length of the request.
        length_bytes: u32,
        /// Size of the device.
        device_bytes: u64,
    },
    /// The kernel took no more submissions.
    #[error("the kernel took no more submissions: {source}")]
    Enter {
        /// The kernel's answer.
        source: Errno,
    },
}

/// A request that was not accepted, given back whole with the reason.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Refused<R: std::fmt::Debug> {
    /// The request, with its memory.
    pub request: R,
    /// Why.
    pub reason: SubmitError,
}

/// Waiting for completions failed; requests stay in flight.
#[derive(Debug, thiserror::Error)]
#[error("waiting for IO completions failed: {source}")]
pub struct ReapError {
    /// The kernel's answer.
    pub source: Errno,
}

/// Why one accepted operation did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IoFault {
    /// The kernel or the device reported an error.
    #[error(
        "{operation} of {length_bytes} bytes at byte {offset_bytes} of {device} failed: {source}: {reason}",
        reason = verdict.reason
    )]
    Os {
        /// What was done.
        operation: Operation,
        /// Name of the device.
        device: String,
        /// Where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u32,
        /// The errno.
        source: Errno,
        /// What it means: see [`crate::fault::verdict`].
        verdict: Verdict,
    },
    /// The device ended early, for example because its file was truncated by somebody.
    #[error(
        "{operation} of {length_bytes} bytes at byte {offset_bytes} of {device} moved only {moved_bytes} bytes: \
         the device became shorter than it was when it was opened"
    )]
    Short {
        /// What was done.
        operation: Operation,
        /// Name of the device.
        device: String,
        /// Where.
        offset_bytes: u64,
        /// How much was asked for.
        length_bytes: u32,
        /// How much was moved.
        moved_bytes: u32,
    },
}

impl IoFault {
    /// True if the process that owns the device must stop (see [`crate::fault::verdict`]).
    #[must_use]
    pub fn must_stop(&self) -> bool {
        match self {
            Self::Os { verdict, .. } => verdict.disposition == crate::fault::Disposition::StopNode,
            Self::Short { .. } => false,
        }
    }
}

/// Why [`crate::read_all`] did not read everything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadAllError {
    /// The ring has requests or watches of somebody else, whose completions would be lost.
    #[error("a batch read needs a ring of its own; {in_flight} requests and {watches} watches are in flight")]
    RingBusy {
        /// Requests in flight.
        in_flight: u32,
        /// Watches armed.
        watches: u32,
    },
    /// A request was not accepted.
    #[error("read number {index} of the batch was refused: {reason}")]
    Refused {
        /// Place in the batch.
        index: usize,
        /// Why.
        reason: SubmitError,
    },
    /// A read failed; the others were waited for.
    #[error("read number {index} of the batch: {fault}")]
    Fault {
        /// Place in the batch.
        index: usize,
        /// Why.
        fault: Box<IoFault>,
    },
    /// Waiting failed.
    #[error(transparent)]
    Reap(#[from] ReapError),
}

/// Memory that a failed conversion gives back.
#[derive(Debug, thiserror::Error)]
#[error("this memory is not a pool buffer")]
pub struct NotABuffer(pub IoMemory);

/// Why residency could not be measured.
#[derive(Debug, thiserror::Error)]
#[error("{path}: measuring how much is in the page cache: {action} failed: {source}", path = path.display())]
pub struct ResidencyError {
    /// The file.
    pub path: PathBuf,
    /// What was being done.
    pub action: &'static str,
    /// The kernel's answer.
    pub source: Errno,
}

/// Why a thread could not be pinned.
#[derive(Debug, thiserror::Error)]
#[error("pinning this thread to core {core} failed: {source}; this process may use cores {allowed:?}")]
pub struct PinError {
    /// The core asked for.
    pub core: usize,
    /// Cores the process may use.
    pub allowed: Vec<usize>,
    /// The kernel's answer.
    pub source: Errno,
}
