//! Records an operation between its posting and its completion.
//!
//! Invariants
//! - The record holds the registrations of the memory that the operation's requests name, so that
//!   the memory stays registered until they are complete.

use std::sync::Arc;

use super::sys::{MemoryRegion, status_text};
use crate::error::OperationError;

/// The progress of an operation.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes for which requests were made.
    pub(super) moved: usize,
    /// Number of its first request; `None` before that was made.
    pub(super) first: Option<u64>,
    /// Registered memory that its requests name.
    pub(super) holds: Option<Arc<MemoryRegion>>,
    /// The scratch word for the answer of an atomic.
    pub(super) result: Option<usize>,
}

/// The outcome of an operation if its requests succeed.
#[derive(Debug)]
pub(super) enum Outcome {
    Moved(u64),
    Found(usize),
    Refused(OperationError),
}

/// An operation all of whose requests were posted.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) id: u64,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) outcome: Outcome,
    /// Scratch memory up to this position is free when the operation is complete.
    pub(super) scratch_tail: u64,
    /// Messages were sent up to this position when the operation is complete.
    pub(super) channel_tail: u64,
    #[expect(dead_code, reason = "held, not used: the adapter may reach the memory until the completion")]
    pub(super) holds: Option<Arc<MemoryRegion>>,
}

/// A request that the adapter failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failure {
    pub(super) number: u64,
    pub(super) status: u32,
    pub(super) vendor: u32,
}

impl Failure {
    pub(super) fn error(self) -> OperationError {
        OperationError::Status { code: self.status, text: status_text(self.status), vendor: self.vendor }
    }

    /// Whether it concerns a request of an operation that is not posted completely.
    pub(super) fn concerns(&self, progress: &Progress) -> bool {
        progress.first.is_some_and(|first| first <= self.number)
    }
}
