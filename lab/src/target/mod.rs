//! Defines targets: a target carries out the IOs of a driver, and reports when each has ended.
//!
//! [`Target`] is the interface between loads (closed loop, open loop, replay) and the ways to do
//! IO. A target has as many slots as its depth; a slot is the memory and the number of one IO in
//! flight.
//!
//! Invariants
//! - One thread owns a target, and shares no part of it.
//! - An accepted IO ends exactly once, in [`Target::reap`]. A refused IO has not begun.
//! - A slot has memory of its own from submission to the end of its IO. Two IOs in flight never use
//!   the same slot.
//! - After [`TargetError::Lost`] the target reports no further IO.

mod error;
mod local;
mod remote;

use std::fmt;
use std::time::Instant;

pub use error::TargetError;
#[cfg(test)]
pub(crate) use local::pool;
pub use local::{Local, LocalOptions, UringShape};
pub use remote::{LineOptions, Remote};

/// Operations of an IO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IoOperation {
    /// From the device into the slot's memory.
    Read,
    /// From the slot's memory, which holds random bytes, to the device.
    Write,
    /// Frees the blocks of the range, which reads as zeroes afterwards.
    Trim,
    /// Makes all writes of the device durable that have ended; offset and length do not matter.
    Fsync,
}

impl fmt::Display for IoOperation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
            Self::Fsync => "fsync",
        })
    }
}

/// One IO request of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    /// The slot: an index below [`Target::depth`], with memory of its own.
    pub slot: u32,
    /// What it does.
    pub operation: IoOperation,
    /// Index of the target's device.
    pub device: u16,
    /// Offset on the device.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub length_bytes: u32,
}

/// The end of one IO.
#[derive(Debug)]
pub struct IoDone {
    /// The slot of the request, which is free again.
    pub slot: u32,
    /// Success with all bytes, or the failure.
    pub outcome: Result<(), TargetError>,
    /// Set if the bytes came from a node's page cache and not from its device.
    pub cached: Option<Cached>,
}

/// How bytes came from a node's page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cached {
    /// The node answered from its page cache.
    ByRequest,
    /// They were read one-sidedly.
    OneSidedly,
}

/// IOs served from page caches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheHits {
    /// By a request to the node.
    pub by_request: u64,
    /// One-sidedly.
    pub one_sided: u64,
}

impl CacheHits {
    /// Counts the end of an IO.
    pub(crate) fn count(&mut self, cached: Option<Cached>) {
        match cached {
            None => {}
            Some(Cached::ByRequest) => self.by_request += 1,
            Some(Cached::OneSidedly) => self.one_sided += 1,
        }
    }

    /// Adds the counts of another connection or turn.
    pub(crate) fn add(&mut self, other: Self) {
        self.by_request += other.by_request;
        self.one_sided += other.one_sided;
    }
}

/// How long [`Target::reap`] may block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Now,
    /// Until one IO has ended; at once if none is in flight.
    ForOne,
    /// Until one IO has ended, or this point in time has passed.
    Until(Instant),
}

/// Carries out IOs; owned by one thread.
pub trait Target {
    /// Maximum IOs in flight, and the number of slots.
    fn depth(&self) -> u32;

    /// The memory of a slot that has nothing in flight; `None` if the target does not give it out.
    fn memory(&mut self, _slot: u32) -> Option<&mut [u8]> {
        None
    }

    /// Accepts an IO. The target may hold it back until [`Target::flush`] or [`Target::reap`], to
    /// send several together.
    ///
    /// # Errors
    /// [`TargetError`] if this IO is not possible ([`TargetError::ends_the_target`] tells whether
    /// others are).
    fn submit(&mut self, io: Io) -> Result<(), TargetError>;

    /// Sends accepted IOs on, without waiting.
    ///
    /// # Errors
    /// [`TargetError`] if the target can no longer be used.
    fn flush(&mut self) -> Result<(), TargetError>;

    /// Sends accepted IOs on, waits as told, and appends the IOs that have ended to `done`.
    ///
    /// # Errors
    /// [`TargetError`] if the target can no longer be used; IOs in flight will not be reported.
    fn reap(&mut self, wait: Wait, done: &mut Vec<IoDone>) -> Result<(), TargetError>;
}
