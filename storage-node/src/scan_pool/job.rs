//! What does a scan worker get, and what does it give back?

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use rackscan_fabric::{OutOfBounds, RawSlice, RegionSlice};
use rackscan_format::{
    message::{Cost, PageRead, Refusal},
    program::VerifiedProgram,
    withheld::WithheldRows,
};

use crate::{message_queue::ReplyTo, store::StoredSegment};

/// Where a result goes: the requester's memory where that is mapped here, else our own, from where
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

/// One scan of one segment.
#[derive(Debug)]
pub(crate) struct ScanJob {
    pub(crate) program: Arc<VerifiedProgram>,
    pub(crate) segment: Arc<StoredSegment>,
    /// The rows of it that are not there for this scan.
    pub(crate) withheld: Option<Arc<WithheldRows>>,
    pub(crate) first_block: u32,
    pub(crate) sink: Sink,
    /// Bytes that the result may take.
    pub(crate) sink_bytes: usize,
    pub(crate) queued_at: Instant,
    /// Set when nobody waits for the result any more; a job that has not begun is then left undone.
    pub(crate) requester_gone: Arc<AtomicBool>,
    /// Whether the requester wants to know which pages were read.
    pub(crate) report_reads: bool,
    pub(crate) reply_to: ReplyTo<Box<ScanResult>>,
}

/// How a scan went.
#[derive(Debug)]
pub(crate) struct ScanResult {
    pub(crate) outcome: Result<ScanOutput, Refusal>,
    pub(crate) cost: Cost,
    /// The pages that were read, if the job says so.
    pub(crate) reads: Vec<PageRead>,
}

/// What a scan left in its sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanOutput {
    pub(crate) written_bytes: usize,
    pub(crate) batches: u32,
    pub(crate) rows: u64,
    pub(crate) next_block: Option<u32>,
}
