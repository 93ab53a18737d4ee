//! A transfer: a read, write or flush between its submission and its completion.
//!
//! Invariants
//! - A transfer owns its memory, so nothing else can use the memory while the transfer exists.

use rustix::io::Errno;

use crate::check::Extent;
use crate::fault::{IoFault, Operation, verdict};
use crate::request::{Completion, DeviceIndex, IoMemory, Token};

/// A read, write or flush in flight.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) operation: Operation,
    pub(crate) device: DeviceIndex,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u32,
    /// Bytes moved by earlier, short attempts.
    pub(crate) done_bytes: u32,
    pub(crate) retries: u8,
    /// `None` for a flush.
    pub(crate) memory: Option<IoMemory>,
    pub(crate) token: Token,
}

impl Transfer {
    /// A transfer of which nothing has been moved yet.
    pub(crate) fn new(operation: Operation, extent: Extent, memory: Option<IoMemory>, token: Token) -> Self {
        let Extent { device, offset_bytes, length_bytes } = extent;
        Self { operation, device, offset_bytes, length_bytes, done_bytes: 0, retries: 0, memory, token }
    }

    /// The completion to deliver to the submitter.
    pub(crate) fn into_completion(self, outcome: Result<(), Box<IoFault>>) -> Completion {
        let token = self.token;
        match (self.operation, self.memory) {
            (Operation::Read, Some(memory)) => Completion::Read { token, memory, outcome },
            (Operation::Write, Some(memory)) => Completion::Write { token, memory, outcome },
            (_, _) => Completion::Fsync { token, outcome },
        }
    }

    /// The fault of a transfer that failed with an errno.
    pub(crate) fn os_fault(&self, device: String, source: Errno) -> IoFault {
        IoFault::Os {
            operation: self.operation,
            device,
            offset_bytes: self.offset_bytes,
            length_bytes: self.length_bytes,
            source,
            verdict: verdict(self.operation, source),
        }
    }
}
