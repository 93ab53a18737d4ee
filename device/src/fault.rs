//! Describes why an IO operation failed, and decides what follows from its errno: retry it, fail
//! the request, or stop the node.
//!
//! Only [`verdict`] decides. Invariant: a flush that failed is never retried, because after a
//! failed flush it is unknown which of the earlier writes are on the medium.

use std::fmt;

use rustix::io::Errno;

/// The three kinds of transfer, used in errors and in [`verdict`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads bytes from the device into memory.
    Read,
    /// Writes bytes from memory to the device.
    Write,
    /// Makes completed writes durable.
    Fsync,
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Fsync => "fsync",
        })
    }
}

/// What to do about a failed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Submit the same request to the kernel again, at most [`crate::limits::RETRIES_MAX`] times.
    Retry,
    /// Fail the request; the device and other requests are not affected.
    FailRequest,
    /// Stop the process that owns the device: the state of the device is unknown, or the program
    /// has a bug.
    StopNode,
}

/// A disposition and why it was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// What to do.
    pub disposition: Disposition,
    /// Why, as a clause for error messages and logs.
    pub reason: &'static str,
}

/// Decides what a failed `operation` means.
#[must_use]
pub fn verdict(operation: Operation, errno: Errno) -> Verdict {
    use Disposition::{FailRequest, Retry, StopNode};
    let decided = |disposition, reason| Verdict { disposition, reason };
    match (operation, errno) {
        (_, Errno::INTR) => decided(Retry, "a signal interrupted the operation before it began"),
        (_, Errno::AGAIN) => decided(Retry, "the kernel was out of request slots for a moment"),
        (Operation::Fsync, _) => {
            decided(StopNode, "after a failed flush it is unknown which earlier writes are on the medium")
        }
        (_, Errno::NOMEM) => decided(FailRequest, "the kernel had no memory for the request"),
        (_, Errno::NOBUFS) => decided(FailRequest, "the kernel had no buffers for the request"),
        (Operation::Read, Errno::IO) => decided(FailRequest, "the medium could not deliver these blocks"),
        (Operation::Read, Errno::ILSEQ) => {
            decided(FailRequest, "the device's own check of these blocks failed")
        }
        (Operation::Read, Errno::NODATA) => decided(FailRequest, "the medium has an unreadable block here"),
        (Operation::Read, Errno::TIMEDOUT) => decided(FailRequest, "the device did not answer in time"),
        (Operation::Write, Errno::NOSPC) => decided(FailRequest, "the filesystem or thin device is full"),
        (Operation::Write, Errno::DQUOT) => decided(FailRequest, "the disk quota is used up"),
        (Operation::Write, Errno::FBIG) => decided(FailRequest, "the write exceeds the maximum file size"),
        // The blocks are not published before a later flush succeeds, so a failed write fails only
        // its request.
        (Operation::Write, Errno::IO | Errno::TIMEDOUT) => {
            decided(FailRequest, "the medium did not store these blocks")
        }
        (_, Errno::NODEV | Errno::NXIO) => decided(StopNode, "the device is gone"),
        (_, Errno::ROFS) => decided(StopNode, "the filesystem became read-only after an error"),
        (_, Errno::PERM | Errno::ACCESS) => decided(StopNode, "access to the device was withdrawn"),
        (_, Errno::BADF) => decided(
            StopNode,
            "the descriptor is not open for this operation; this is a bug, please report it",
        ),
        (_, Errno::FAULT) => {
            decided(StopNode, "the memory of the request is not mapped; this is a bug, please report it")
        }
        (_, Errno::INVAL) => {
            decided(StopNode, "the device refused a request whose alignment was checked and is correct")
        }
        _ => decided(FailRequest, "there is no rule for this error, so only the request fails"),
    }
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
        /// The operation.
        operation: Operation,
        /// Name of the device.
        device: String,
        /// The offset on the device.
        offset_bytes: u64,
        /// The number of bytes.
        length_bytes: u32,
        /// The errno.
        source: Errno,
        /// Its meaning: see [`verdict`].
        verdict: Verdict,
    },
    /// The device ended early, for example because its file was truncated.
    #[error(
        "{operation} of {length_bytes} bytes at byte {offset_bytes} of {device} moved only {moved_bytes} bytes: \
         the device became shorter than it was when it was opened"
    )]
    Short {
        /// The operation.
        operation: Operation,
        /// Name of the device.
        device: String,
        /// The offset on the device.
        offset_bytes: u64,
        /// The number of bytes of the request.
        length_bytes: u32,
        /// The number of bytes moved.
        moved_bytes: u32,
    },
}

impl IoFault {
    /// True if the process that owns the device must stop (see [`verdict`]).
    #[must_use]
    pub fn must_stop(&self) -> bool {
        match self {
            Self::Os { verdict, .. } => verdict.disposition == Disposition::StopNode,
            Self::Short { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(operation: Operation, errno: Errno, expected: Disposition) {
        assert_eq!(verdict(operation, errno).disposition, expected, "{operation} {errno:?}");
    }

    #[test]
    fn a_failed_flush_stops_the_node_whatever_the_errno() {
        check(Operation::Fsync, Errno::IO, Disposition::StopNode);
        check(Operation::Fsync, Errno::NOSPC, Disposition::StopNode);
        check(Operation::Fsync, Errno::DQUOT, Disposition::StopNode);
    }

    #[test]
    fn a_bad_block_fails_only_its_request() {
        check(Operation::Read, Errno::IO, Disposition::FailRequest);
        check(Operation::Write, Errno::NOSPC, Disposition::FailRequest);
    }

    #[test]
    fn transient_refusals_are_retried_and_lost_devices_stop_the_node() {
        check(Operation::Read, Errno::INTR, Disposition::Retry);
        check(Operation::Fsync, Errno::AGAIN, Disposition::Retry);
        check(Operation::Write, Errno::NODEV, Disposition::StopNode);
    }
}
