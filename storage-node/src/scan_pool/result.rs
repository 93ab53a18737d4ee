//! Defines what a scan worker reports about a scan that has ended.

use rackscan_format::message::{Cost, PageRead, Refusal};

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
