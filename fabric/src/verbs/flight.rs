//! What is known of an operation between its posting and its completion?
//!
//! Invariants
//! - The memory that its requests name stays registered until they are complete: it is held here.

use std::sync::Arc;

use super::sys::{MemoryRegion, status_text};
use crate::error::OperationError;

/// How far an operation has come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes that requests were made for.
    pub(super) moved: usize,
    /// Number of its first request, once there is one.
    pub(super) first: Option<u64>,
    /// Registered memory that its requests name.
    pub(super) holds: Option<Arc<MemoryRegion>>,
    /// Where an atomic's answer will be.
    pub(super) result: Option<usize>,
}

/// How an operation ends if its requests succeed.
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
    /// Scratch memory up to here is free when it is complete.
    pub(super) scratch_tail: u64,
    /// Messages have been sent up to here when it is complete.
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

    /// Whether it befell one of the requests of an operation that is not posted completely.
    pub(super) fn befell(&self, progress: &Progress) -> bool {
        progress.first.is_some_and(|first| first <= self.number)
    }
}
