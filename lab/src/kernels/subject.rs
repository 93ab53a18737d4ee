//! Runs one kernel once and measures its time. A subject is a kernel together with the bytes that
//! it runs on.
//!
//! Invariants
//! - A subject's bytes are those that one run reads, each counted as often as it is read. The copy
//!   reads the same bytes from the same memory.
//! - One run returns the same number of rows with every level of vector instructions.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rackscan_format::chunk::{ChunkInput, ChunkWriter, Values};
use rackscan_format::encoding::bitpack::Scratch;
use rackscan_format::ids::{ColumnId, PageNumber, SegmentId};
use rackscan_format::limits::BLOCK_ROWS;
use rackscan_format::page::{CheckedPage, PageIdentity};
use rackscan_format::program::VerifiedProgram;
use rackscan_format::schema::ColumnType;
use rackscan_format::simd::Level;
use rackscan_scan::{ScanBatch, ScanLimits, SegmentScan, Step, wire};

use super::error::KernelError;
use super::lineitem::{PAGE_BYTES, Segment, TABLE};

/// Time and result of one run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ran {
    pub(super) time: Duration,
    /// The part of it that opens pages: checks their checksums and headers.
    pub(super) checksum: Duration,
    /// Rows that the run returned.
    pub(super) rows_out: u64,
}

/// The work of one kernel.
pub(super) trait Subject {
    /// The bytes that one run reads.
    fn bytes(&self) -> Vec<&[u8]>;

    /// Rows that one run reads.
    fn rows(&self) -> u64;

    /// Whether the vector level makes a difference.
    fn has_levels(&self) -> bool {
        true
    }

    fn run(&mut self, level: Level) -> Result<Ran, KernelError>;
}

/// A scan of all segments.
pub(super) struct Scan<'s> {
    segments: &'s [Segment],
    program: Arc<VerifiedProgram>,
    pages: Vec<&'s [u8]>,
    rows: u64,
}

impl<'s> Scan<'s> {
    /// Runs the scan once, to record which pages it reads.
    pub(super) fn new(segments: &'s [Segment], program: Arc<VerifiedProgram>) -> Result<Self, KernelError> {
        let rows = segments.iter().map(|segment| u64::from(segment.directory.rows)).sum();
        let mut scan = Self { segments, program, pages: Vec::new(), rows };
        let mut pages = Vec::new();
        scan.pass(Level::chosen(), &mut |page| pages.push(page), &mut |_| ())?;
        scan.pages = pages;
        Ok(scan)
    }

    fn pass(
        &self,
        level: Level,
        on_page: &mut dyn FnMut(&'s [u8]),
        on_batch: &mut dyn FnMut(ScanBatch),
    ) -> Result<Ran, KernelError> {
        let (start, mut ran) = (Instant::now(), Ran::default());
        for segment in self.segments {
            let (program, directory) = (Arc::clone(&self.program), Arc::clone(&segment.directory));
            let mut scan = SegmentScan::new(program, directory, 0, ScanLimits::default())?.at_level(level);
            loop {
                match scan.step()? {
                    Step::Read(wanted) => {
                        let before = Instant::now();
                        for wanted in wanted {
                            let page = &segment.pages[wanted.column.index()][usize::from(wanted.page.0)];
                            on_page(page);
                            scan.supply(wanted.column, wanted.page, page.as_slice())?;
                        }
                        ran.checksum += before.elapsed();
                    }
                    Step::Batch(batch) => {
                        ran.rows_out += batch.batch.num_rows() as u64;
                        on_batch(batch);
                    }
                    Step::Done => break,
                }
            }
        }
        ran.time = start.elapsed();
        Ok(ran)
    }

    /// The scan's batches of the first segments, limited so that they fit into memory.
    pub(super) fn batches(&self) -> Result<Vec<ScanBatch>, KernelError> {
        let segments = &self.segments[..self.segments.len().min(BATCH_SEGMENTS)];
        let few = Scan { segments, program: Arc::clone(&self.program), pages: Vec::new(), rows: 0 };
        let mut batches = Vec::new();
        few.pass(Level::chosen(), &mut |_| (), &mut |batch| batches.push(batch))?;
        Ok(batches)
    }
}

/// Number of segments whose rows are kept as batches.
const BATCH_SEGMENTS: usize = 4;

impl Subject for Scan<'_> {
    fn bytes(&self) -> Vec<&[u8]> {
        self.pages.clone()
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn run(&mut self, level: Level) -> Result<Ran, KernelError> {
        self.pass(level, &mut |_| (), &mut |batch| {
            black_box(batch);
        })
    }
}

/// Opens pages: checks checksum, header and identity.
pub(super) struct Verify<'s> {
    pages: Vec<(PageIdentity, &'s [u8])>,
    rows: u64,
}

impl<'s> Verify<'s> {
    /// Opens all pages of a column.
    pub(super) fn new(segments: &'s [Segment], column: ColumnId) -> Self {
        let mut pages = Vec::new();
        for segment in segments {
            for (page, bytes) in (0..).map(PageNumber).zip(&segment.pages[column.index()]) {
                pages.push((segment.directory.identity(column, page), bytes.as_slice()));
            }
        }
        Self { pages, rows: segments.iter().map(|segment| u64::from(segment.directory.rows)).sum() }
    }
}

impl Subject for Verify<'_> {
    fn bytes(&self) -> Vec<&[u8]> {
        self.pages.iter().map(|(_, bytes)| *bytes).collect()
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn has_levels(&self) -> bool {
        false
    }

    fn run(&mut self, _: Level) -> Result<Ran, KernelError> {
        let (start, mut rows_out) = (Instant::now(), 0);
        for (identity, bytes) in &self.pages {
            let page = CheckedPage::open(*bytes, identity)?;
            rows_out += page.view().rows() as u64;
        }
        let time = start.elapsed();
        Ok(Ran { time, checksum: time, rows_out })
    }
}

/// Unpacks integers of one bit width.
pub(super) struct Unpack {
    pages: Vec<CheckedPage<Vec<u8>>>,
    packed: Vec<Vec<u8>>,
    rows: u64,
}

/// Blocks to unpack in one run.
const BLOCKS: usize = 1024;

impl Unpack {
    /// Creates random numbers of `width` bits; each block has the smallest and the largest.
    pub(super) fn new(width: u8) -> Result<Self, KernelError> {
        let largest = u64::MAX >> (u64::BITS - u32::from(width.clamp(1, 64)));
        let mut random = fastrand::Rng::with_seed(u64::from(width));
        let number = |row: usize| match row % BLOCK_ROWS {
            0 => 0,
            1 => largest,
            _ => random.u64(0..=largest),
        };
        let values: Vec<i64> = (0..BLOCKS * BLOCK_ROWS).map(number).map(u64::cast_signed).collect();
        let (segment, column, column_type) = (SegmentId(0), ColumnId(0), ColumnType::Int64);
        let (mut pages, mut packed) = (Vec::new(), Vec::new());
        for part in values.chunks(BLOCKS / 8 * BLOCK_ROWS) {
            let values = Values::Integers(part);
            let page_bytes = PAGE_BYTES;
            let (table, validity) = (TABLE, None);
            let chunk = ChunkInput { table, segment, column, column_type, values, validity, page_bytes };
            let mut stored = Vec::new();
            ChunkWriter::new().encode(&chunk, &mut |page| stored.push(page.bytes))?;
            for (page, bytes) in (0..).map(PageNumber).zip(stored) {
                packed.push(bytes.clone());
                pages.push(CheckedPage::open(bytes, &PageIdentity { table, segment, column, page })?);
            }
        }
        Ok(Self { pages, packed, rows: (BLOCKS * BLOCK_ROWS) as u64 })
    }
}

impl Subject for Unpack {
    fn bytes(&self) -> Vec<&[u8]> {
        self.packed.iter().map(Vec::as_slice).collect()
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn run(&mut self, level: Level) -> Result<Ran, KernelError> {
        let (mut scratch, start, mut rows_out) = (Scratch::at(level), Instant::now(), 0);
        for page in &self.pages {
            let integers = page.view().integers()?;
            for block in 0..integers.blocks() {
                black_box(integers.block(block)?.unpack(&mut scratch));
                rows_out += BLOCK_ROWS as u64;
            }
        }
        Ok(Ran { time: start.elapsed(), checksum: Duration::ZERO, rows_out })
    }
}

/// Encodes rows for the wire as a node does, or decodes them as an engine does.
pub(super) struct Travel {
    batches: Vec<ScanBatch>,
    encoded: Vec<Vec<u8>>,
    room: Vec<u8>,
    way: Way,
}

/// Which end of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Encode,
    Decode,
}

impl Travel {
    pub(super) fn new(batches: Vec<ScanBatch>, way: Way) -> Result<Self, KernelError> {
        let mut encoded = Vec::new();
        for batch in &batches {
            let mut bytes = Vec::new();
            wire::encode(&batch.batch, &mut bytes)?;
            encoded.push(bytes);
        }
        Ok(Self { batches, encoded, room: Vec::new(), way })
    }
}

impl Subject for Travel {
    fn bytes(&self) -> Vec<&[u8]> {
        self.encoded.iter().map(Vec::as_slice).collect()
    }

    fn rows(&self) -> u64 {
        self.batches.iter().map(|batch| batch.batch.num_rows() as u64).sum()
    }

    fn has_levels(&self) -> bool {
        false
    }

    fn run(&mut self, _: Level) -> Result<Ran, KernelError> {
        let (start, mut rows_out) = (Instant::now(), 0);
        for (batch, encoded) in self.batches.iter().zip(&self.encoded) {
            if self.way == Way::Encode {
                self.room.clear();
                wire::encode(&batch.batch, &mut self.room)?;
                rows_out += batch.batch.num_rows() as u64;
            } else {
                let (batch, _) = wire::decode(encoded, &batch.batch.schema())?;
                rows_out += batch.num_rows() as u64;
            }
        }
        Ok(Ran { time: start.elapsed(), checksum: Duration::ZERO, rows_out })
    }
}
