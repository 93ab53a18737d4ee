//! Defines the errors of this crate. Each message names the thing that failed, what was found and
//! expected, and what to do.
//!
//! There is one type for each of these actions: opening a device, creating a ring, submitting,
//! reaping (collecting completions), batch reads, measuring the page cache, pinning threads. The
//! errors of buffers are in `memory`, the fault of a single operation is in `fault`.

use std::path::PathBuf;

use rustix::io::Errno;

use crate::fault::IoFault;
use crate::limits;
use crate::request::DeviceIndex;

/// Why a device could not be opened or created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The filesystem refuses O_DIRECT for this file, or accepts it and uses the page cache all the
    /// same.
    #[error(
        "{path}: direct IO (O_DIRECT) is not possible on {filesystem}, and there is no fallback to the page cache; \
         put the data folder on ext4, xfs or btrfs, or name a block device (for example `--data DIR`)",
        path = path.display()
    )]
    DirectIoRefused {
        /// The file or device.
        path: PathBuf,
        /// Name of its filesystem.
        filesystem: String,
    },
    /// Another process has the device open for writing, or the device is mounted.
    #[error(
        "{path} is in use: another process has it open for writing, or it is a mounted block device; stop that process or \
         name another file",
        path = path.display()
    )]
    InUse {
        /// The file or device.
        path: PathBuf,
    },
    /// `create` found an existing file at the path.
    #[error("{path} exists already: open it, or remove it first", path = path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The filesystem has not enough space for a new device file.
    #[error(
        "{path}: the filesystem has no space for a device file of {needed_bytes} bytes, it has {free_bytes} bytes free; \
         free some space or choose a smaller size",
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
    /// The size is not valid for a device.
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
    #[error("{path} is a {found}, expected a regular file or a block device", path = path.display())]
    NotADevice {
        /// The path.
        path: PathBuf,
        /// The kind of file found.
        found: &'static str,
    },
    /// The device needs an alignment that this crate does not support.
    #[error(
        "{path}: direct IO must be aligned to {memory_bytes} bytes in memory and {offset_bytes} bytes on this device; \
         expected powers of two up to {max} bytes",
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
        /// The action that failed.
        action: &'static str,
        /// The kernel's answer.
        source: Errno,
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
    /// The system refuses another resource that is needed.
    #[error("could not {action}: {source}")]
    Os {
        /// The action that failed.
        action: &'static str,
        /// The system's answer.
        source: Errno,
    },
    /// The number of threads is outside the limits.
    #[error("{threads} threads to read devices are not possible; expected 1 to {max}", max = limits::IO_THREADS_MAX)]
    BadThreads {
        /// Threads asked for.
        threads: usize,
    },
    /// A thread could not be pinned to its core.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The depth is outside the limits.
    #[error("a ring of depth {depth} is not possible; expected 1 to {max}", max = limits::RING_DEPTH_MAX)]
    BadDepth {
        /// Depth asked for.
        depth: u32,
    },
    /// Too many devices for one ring.
    #[error("a ring cannot serve {devices} devices; at most {max} are possible", max = limits::DEVICES_PER_RING_MAX)]
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
        "the IO queue is full: {in_flight} requests are in flight, at most {depth_max} are possible; reap completions first"
    )]
    QueueFull {
        /// Requests in flight.
        in_flight: u32,
        /// The ring's depth.
        depth_max: u32,
    },
    /// All watches are in use.
    #[error("the ring watches {watches_max} descriptors, which is the maximum; remove a watch first")]
    WatchesFull {
        /// The bound.
        watches_max: u32,
    },
    /// No device has this index.
    #[error("device index {device} does not exist; the ring has {devices} devices")]
    UnknownDevice {
        /// Index asked for.
        device: DeviceIndex,
        /// The number of devices.
        devices: usize,
    },
    /// The request is a write or fsync on a device that was opened for reading.
    #[error("device index {device} was opened read-only; a write or fsync is not possible")]
    ReadOnlyDevice {
        /// Index of the device.
        device: DeviceIndex,
    },
    /// Offset or length is not a multiple of the device's alignment.
    #[error(
        "a request has offset {offset_bytes} and length {length_bytes}; direct IO needs multiples of {align_bytes} bytes"
    )]
    Misaligned {
        /// Offset of the request.
        offset_bytes: u64,
        /// Length of the request.
        length_bytes: u32,
        /// Both must be multiples of this.
        align_bytes: u32,
    },
    /// The memory of the transfer is not aligned as the device needs.
    #[error(
        "memory for direct IO must begin at a multiple of {align_bytes} bytes; this memory begins {excess_bytes} bytes after one"
    )]
    MisalignedMemory {
        /// Address modulo the alignment.
        excess_bytes: usize,
        /// The address must be a multiple of this.
        align_bytes: u32,
    },
    /// The length is zero, or more than one request may move.
    #[error("a transfer of {length_bytes} bytes is not possible; expected 1 to {max} bytes", max = limits::IO_BYTES_MAX)]
    BadLength {
        /// Length of the request.
        length_bytes: u32,
    },
    /// The memory is shorter than the transfer.
    #[error(
        "a transfer of {length_bytes} bytes needs as much memory, but only {memory_bytes} bytes were given"
    )]
    MemoryTooShort {
        /// Length of the request.
        length_bytes: u32,
        /// Length of the memory.
        memory_bytes: usize,
    },
    /// The range exceeds the device's end.
    #[error(
        "bytes {offset_bytes}..+{length_bytes} of a request pass the end of the device, which has {device_bytes} bytes"
    )]
    OutOfRange {
        /// Offset of the request.
        offset_bytes: u64,
        /// Length of the request.
        length_bytes: u32,
        /// Size of the device.
        device_bytes: u64,
    },
    /// The kernel took no more submissions.
    #[error("the kernel accepted no more requests of the io_uring: {source}")]
    Enter {
        /// The kernel's answer.
        source: Errno,
    },
}

/// A request that was not accepted, returned with its memory and the reason.
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

/// Why [`crate::read_all`] did not read everything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadAllError {
    /// The ring has other requests or watches, whose completions would be lost.
    #[error(
        "a batch read needs a ring that nothing else uses; {in_flight} requests and {watches} watches are in flight"
    )]
    RingBusy {
        /// Requests in flight.
        in_flight: u32,
        /// Watches armed.
        watches: u32,
    },
    /// A request was not accepted.
    #[error("read number {index} of the batch was refused: {reason}")]
    Refused {
        /// Index in the batch.
        index: usize,
        /// Why.
        reason: SubmitError,
    },
    /// A read failed; all other reads have ended.
    #[error("read number {index} of the batch: {fault}")]
    Fault {
        /// Index in the batch.
        index: usize,
        /// Why.
        fault: Box<IoFault>,
    },
    /// Waiting failed.
    #[error(transparent)]
    Reap(#[from] ReapError),
}

/// Why residency could not be measured.
#[derive(Debug, thiserror::Error)]
#[error("{path}: cannot measure how much of the file is in the kernel's page cache: {action} failed: {source}", path = path.display())]
pub struct ResidencyError {
    /// The file.
    pub path: PathBuf,
    /// The action that failed.
    pub action: &'static str,
    /// The kernel's answer.
    pub source: Errno,
}

/// Why a thread could not be pinned.
#[derive(Debug, thiserror::Error)]
#[error("cannot pin this thread to core {core}: {source}; this process may use cores {allowed:?}")]
pub struct PinError {
    /// The core asked for.
    pub core: usize,
    /// Cores the process may use.
    pub allowed: Vec<usize>,
    /// The kernel's answer.
    pub source: Errno,
}
