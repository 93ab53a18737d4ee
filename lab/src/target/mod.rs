//! Who carries out an IO, and how does its driver hear of the end?
//!
//! [`Target`] is the seam between load (closed loop, open loop, replay) and the ways to do IO.
//!
//! Invariants
//! - One thread owns a target; nothing of it is shared.
//! - An accepted IO ends exactly once, in [`Target::reap`]; a refused one has not begun.
//! - A slot names memory of its own from submission to the end; two IOs in flight never have one
//!   slot.
//! - After [`TargetError::Lost`] nothing more comes from the target.

mod error;
mod local;
mod remote;

use std::fmt;
use std::time::Instant;

pub use error::TargetError;
#[cfg(test)]
pub(crate) use local::pool;
pub use local::{Local, LocalOptions};
pub use remote::{LineOptions, Remote};

/// What an IO does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IoOperation {
    /// From the device into the slot's memory.
    Read,
    /// From the slot's memory, which holds random bytes, onto the device.
    Write,
}

impl fmt::Display for IoOperation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// One IO that a driver wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    /// The driver's place in flight, below [`Target::depth`], and its memory.
    pub slot: u32,
    /// Read or write.
    pub operation: IoOperation,
    /// Which of the target's devices.
    pub device: u16,
    /// Where on the device.
    pub offset_bytes: u64,
    /// How much.
    pub length_bytes: u32,
}

/// The end of one IO.
#[derive(Debug)]
pub struct IoDone {
    /// The slot of the request; free again.
    pub slot: u32,
    /// All bytes, or why not.
    pub outcome: Result<(), TargetError>,
    /// The bytes came from a node's page cache and not from its device.
    pub cached: Option<Cached>,
}

/// How bytes came out of a node's page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cached {
    /// The node was asked, and had them in memory.
    ByRequest,
    /// They were taken without asking it.
    OneSidedly,
}

/// IOs that came out of page caches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheHits {
    /// Where the node was asked.
    pub by_request: u64,
    /// Where it was not.
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

    /// Adds those of another connection or turn.
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
    /// Until one IO has ended or the moment has passed.
    Until(Instant),
}

/// A place that carries out IOs, owned by one thread.
pub trait Target {
    /// Most IOs in flight, and the number of slots.
    fn depth(&self) -> u32;

    /// Accepts an IO. It may be held back until [`Target::flush`] or [`Target::reap`], so that
    /// several go together.
    ///
    /// # Errors
    /// [`TargetError`] if this IO is not possible ([`TargetError::ends_the_target`] tells whether
    /// any other is).
    fn submit(&mut self, io: Io) -> Result<(), TargetError>;

    /// Sends on what was accepted, without waiting.
    ///
    /// # Errors
    /// [`TargetError`] if the target is of no more use.
    fn flush(&mut self) -> Result<(), TargetError>;

    /// Sends on what was accepted, waits as told, and appends what has ended to `done`.
    ///
    /// # Errors
    /// [`TargetError`] if the target is of no more use; what was in flight will not be reported.
    fn reap(&mut self, wait: Wait, done: &mut Vec<IoDone>) -> Result<(), TargetError>;
}
