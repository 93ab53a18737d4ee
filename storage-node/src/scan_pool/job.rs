//! Defines the job of a scan worker: the segment to scan, and the destination of the result.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use rackscan_fabric::{OutOfBounds, RawSlice, RegionSlice};
use rackscan_format::{program::VerifiedProgram, withheld::WithheldRows};

use super::result::ScanResult;
use crate::{message_queue::ReplyTo, store::StoredSegment};

/// The memory for a result: the requester's if it is mapped here, else staging memory from which
/// the wire takes it.
#[derive(Debug)]
pub(crate) enum Sink {
    /// The requester's memory.
    Mapped(RawSlice),
    /// A part of the reactor's staging memory.
    Staged(RegionSlice),
}

impl Sink {
    /// Copies `bytes` in at `offset`.
    pub(super) fn put(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        match self {
            Self::Mapped(memory) => memory.copy_in(offset, bytes),
            Self::Staged(slice) => slice.region().copy_in(slice.offset() + offset, bytes),
        }
    }
}

/// The scan of one segment.
#[derive(Debug)]
pub(crate) struct ScanJob {
    pub(crate) program: Arc<VerifiedProgram>,
    pub(crate) segment: Arc<StoredSegment>,
    /// The rows of the segment that the scan leaves out.
    pub(crate) withheld: Option<Arc<WithheldRows>>,
    pub(crate) first_block: u32,
    pub(crate) sink: Sink,
    /// The maximum bytes of the result.
    pub(crate) sink_bytes: usize,
    pub(crate) queued_at: Instant,
    /// Set when nobody waits for the result any more. A job that has not begun is skipped then.
    pub(crate) requester_gone: Arc<AtomicBool>,
    /// Whether the requester wants to know which pages were read.
    pub(crate) report_reads: bool,
    pub(crate) reply_to: ReplyTo<Box<ScanResult>>,
}
