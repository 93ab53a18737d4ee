//! Runs a scan worker: the loop of a thread that scans one segment after the other.
//!
//! ```text
//! job -> verified program -> SegmentScan
//!          Step::Read  : pages of the cache, or direct reads, into pool buffers; each checked as it arrives  (read)
//!          Step::Batch : encoded into the worker's memory, copied into the sink                              (fill)
//!          sink full   : the answer ends before that batch and says where to continue
//! ```
//!
//! The sink is the memory for the result: the requester's memory if it is mapped here, else staging
//! memory.
//!
//! Invariants
//! - Pages in memory never exceed the worker's pool. A scan that needs more is bounced for memory,
//!   and the engine fetches the segment.
//! - A scan that exceeds its quota ([`ScanQuota`]) is bounced like one that is refused for lack of
//!   memory: none of its output is sent.
//! - Everything else that a scan holds (decoded blocks, groups, a batch and its encoded form) is
//!   bounded by its limits, and counts as the worker's whole share of working memory.

use std::{
    sync::{Arc, atomic::Ordering},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use az::SaturatingAs;
use rackscan_cache::{Fill, Look, PageCache};
use rackscan_device::{
    Buffer, BufferPool, Completion, Device, DeviceIndex, DeviceIo, IoFault, IoMemory, Read, Ring, RingConfig,
    RingReport, Token, Wait, pin_current_thread,
};
use rackscan_fabric::OutOfBounds;
use rackscan_format::{
    ids::{ColumnId, PageNumber},
    message::{BounceReason, Cost, Refusal, RefusalCode},
    program::{Output, VerifiedProgram},
};
use rackscan_scan::{
    BATCH_ROWS_DEFAULT, BATCH_ROWS_MIN, CpuQuota, PageWanted, Quota, QuotaKind, ScanError, ScanLimits,
    SegmentScan, Step, wire,
};

use super::{
    ScanQueue,
    job::ScanJob,
    reads::{self, Reads},
    result::{ScanOutput, ScanResult},
};
use crate::{
    config::Config,
    error::StartError,
    lifecycle::Lifecycle,
    limits::{BUFFER_BYTES_MAX, SCAN_MEMORY_SHARE},
    metrics::{Metrics, add},
};

/// What a worker needs.
pub(crate) struct WorkerParts {
    pub(crate) queue: Arc<ScanQueue>,
    pub(crate) devices: Vec<Arc<Device>>,
    pub(crate) cache: Option<Arc<PageCache>>,
    pub(crate) depth: u32,
    pub(crate) page_bytes: usize,
    pub(crate) work_bytes: usize,
    pub(crate) quota: ScanQuota,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) core: Option<usize>,
}

/// What one scan of a segment may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanQuota {
    /// Processor time.
    pub(crate) cpu: Duration,
    /// Stored pages and groups.
    pub(crate) memory_bytes: usize,
}

impl ScanQuota {
    /// The quota that the configuration gives each scan.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            cpu: Duration::from_millis(config.scan_cpu_ms.into()),
            memory_bytes: config.scan_memory.0.saturating_as::<usize>(),
        }
    }
}

/// Page bytes of a worker's pool that a scan may ask for at a time; the rest is lost between
/// buffers of different sizes.
fn scan_window_bytes(pool_bytes: usize) -> usize {
    pool_bytes / 8 * 5
}

/// Starts a worker. Returns when it is ready.
pub(crate) fn start(name: &str, parts: WorkerParts) -> Result<(JoinHandle<()>, RingReport), StartError> {
    let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
    let run = move || {
        let lifecycle = Arc::clone(&parts.lifecycle);
        match Worker::new(parts) {
            Ok(mut worker) => {
                // The receiver waits for exactly this message.
                let _ = ready.send(Ok(worker.ring.report()));
                let _guard = lifecycle.guard("a scan worker");
                worker.run();
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        }
    };
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    let thread = spawned.map_err(|source| StartError::Os { action: "start a scan worker", source })?;
    let report = is_ready.recv().map_err(|_| StartError::Os {
        action: "start a scan worker",
        source: std::io::Error::other("it ended at once"),
    })??;
    Ok((thread, report))
}

struct Worker {
    parts: WorkerParts,
    ring: Ring,
    pool: BufferPool,
    scratch: Vec<u8>,
    /// The reads of the current job, if its requester wants to know them.
    reads: Option<Reads>,
    /// Microseconds that the current job has waited for devices.
    read_us: u64,
    /// Pages that are being read and that the cache keeps, by their position among the requested
    /// pages.
    fills: Vec<(usize, Fill)>,
    cached: Cached,
}

/// What the current attempt has taken from the cache.
#[derive(Clone, Copy, Debug, Default)]
struct Cached {
    pages: u64,
    bytes: u64,
}

/// Why a scan did not finish.
enum Failure {
    Refused(Refusal),
    /// A batch of this many bytes does not fit an empty sink.
    TooLarge(usize),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Worker {
    fn new(parts: WorkerParts) -> Result<Self, StartError> {
        if let Some(core) = parts.core {
            pin_current_thread(core)?;
        }
        let pool = BufferPool::new(parts.page_bytes, BUFFER_BYTES_MAX)?;
        let (depth, devices) = (parts.depth, parts.devices.clone());
        let ring =
            Ring::new(RingConfig { depth, devices, buffers: Some(pool.clone()), ..RingConfig::default() })?;
        Ok(Self {
            parts,
            ring,
            pool,
            scratch: Vec::new(),
            reads: None,
            read_us: 0,
            fills: Vec::new(),
            cached: Cached::default(),
        })
    }

    fn run(&mut self) {
        let queue = Arc::clone(&self.parts.queue);
        while let Some(job) = queue.pop() {
            let (queued_us, began) = (micros(job.queued_at.elapsed()), Instant::now());
            self.read_us = 0;
            let cpu_before = thread_cpu();
            let mut cost = Cost { queued_us, ..Cost::default() };
            // Decoded blocks, groups and batches belong to the scan, so its whole share counts
            // while it runs.
            let work_bytes = self.parts.work_bytes as u64;
            self.parts.metrics.memory_taken(work_bytes);
            self.reads = job.report_reads.then(|| Reads::since(job.queued_at));
            let outcome = if job.requester_gone.load(Ordering::Relaxed) {
                Err(Refusal::new(RefusalCode::Memory, "the connection is gone"))
            } else {
                self.scan(&job, &mut cost)
            };
            if self.scratch.capacity() > self.parts.work_bytes / 2 {
                self.scratch = Vec::new();
            }
            self.parts.metrics.memory_returned(work_bytes);
            cost.cpu_us = micros(thread_cpu().saturating_sub(cpu_before));
            cost.worker_us = micros(began.elapsed());
            cost.read_us = self.read_us;
            self.count(&cost);
            queue.done();
            let reads = self.reads.take().map(Reads::into_pages).unwrap_or_default();
            job.reply_to.send(Box::new(ScanResult { outcome, cost, reads }));
        }
    }

    fn count(&self, cost: &Cost) {
        let metrics = &self.parts.metrics;
        add(&metrics.pages_read, cost.pages_read.into());
        add(&metrics.disk_read_bytes, cost.disk_bytes);
        add(&metrics.rows_scanned, cost.rows_scanned);
        add(&metrics.rows_selected, cost.rows_selected);
        add(&metrics.scan_cpu_us, cost.cpu_us);
    }

    /// Scans with batches of the usual size, and again with the smallest ones if the first batch
    /// does not fit.
    fn scan(&mut self, job: &ScanJob, cost: &mut Cost) -> Result<ScanOutput, Refusal> {
        let program = Arc::clone(&job.program);
        if self.reads.is_some() {
            reads::check_room(program.program(), job.segment.directory())?;
        }
        let (mut needed_bytes, before) = (0, thread_cpu());
        for batch_rows in [BATCH_ROWS_DEFAULT, BATCH_ROWS_MIN] {
            // The second attempt gets what the first has left of the quota.
            let most = self.parts.quota.cpu.saturating_sub(thread_cpu().saturating_sub(before));
            let memory_bytes = Some(self.parts.quota.memory_bytes);
            let quota = Quota { cpu: Some(CpuQuota { most, clock: thread_cpu }), memory_bytes };
            match self.fill(job, &program, (batch_rows, quota), cost) {
                Ok(output) => return Ok(output),
                Err(Failure::Refused(refusal)) => return Err(refusal),
                Err(Failure::TooLarge(bytes)) => needed_bytes = bytes,
            }
        }
        let text = format!(
            "the result of one block takes {needed_bytes} bytes, the target has {}; ask again with a larger target",
            job.sink_bytes
        );
        let mut refusal = Refusal::new(RefusalCode::TargetTooSmall, text);
        refusal.needed_bytes = needed_bytes as u64;
        Err(refusal)
    }

    fn fill(
        &mut self,
        job: &ScanJob,
        program: &Arc<VerifiedProgram>,
        (batch_rows, quota): (usize, Quota),
        cost: &mut Cost,
    ) -> Result<ScanOutput, Failure> {
        let directory = Arc::clone(job.segment.directory());
        let blocks = directory.blocks().saturating_as::<u32>();
        let pages_most = self.parts.quota.memory_bytes / SCAN_MEMORY_SHARE;
        let memory_bytes = scan_window_bytes(self.pool.total_bytes()).min(pages_most);
        let limits = ScanLimits { memory_bytes, batch_rows };
        let scan = SegmentScan::new(Arc::clone(program), directory, job.first_block, limits);
        let mut scan: SegmentScan<ScanPage> = scan.map_err(refused)?.with_quota(quota);
        if let Some(withheld) = &job.withheld {
            scan = scan.withholding(Arc::clone(withheld));
        }
        let mut output = ScanOutput::default();
        let outcome = loop {
            match scan.step() {
                Ok(Step::Read(pages)) => {
                    if let Err(refusal) = self.read(&pages, &mut scan) {
                        break Err(refusal.into());
                    }
                }
                Ok(Step::Batch(batch)) => {
                    self.scratch.clear();
                    if let Err(error) = wire::encode(&batch.batch, &mut self.scratch) {
                        break Err(computation(&error).into());
                    }
                    let bytes = self.scratch.len();
                    if output.written_bytes + bytes > job.sink_bytes {
                        if output.batches == 0 {
                            break Err(Failure::TooLarge(bytes));
                        }
                        output.next_block = Some(batch.first_block);
                        break Ok(());
                    }
                    if let Err(error) = job.sink.put(output.written_bytes, &self.scratch) {
                        break Err(Refusal::new(RefusalCode::Memory, error.to_string()).into());
                    }
                    output.written_bytes += bytes;
                    output.batches += 1;
                    output.rows += batch.batch.num_rows() as u64;
                    // Groups are unique within an answer only if the answer ends with the batch
                    // that holds them.
                    if is_grouped(program) && batch.end_block < blocks {
                        output.next_block = Some(batch.end_block);
                        break Ok(());
                    }
                }
                Ok(Step::Done) => break Ok(()),
                Err(error) => break Err(refused(error).into()),
            }
        };
        let (stats, cached) = (scan.stats(), std::mem::take(&mut self.cached));
        let small = |pages: u64| pages.saturating_as::<u32>();
        cost.pages_read += small(stats.pages_read.saturating_sub(cached.pages));
        cost.pages_cached += small(cached.pages);
        cost.cached_bytes += cached.bytes;
        cost.pages_skipped_by_zone += stats.pages_skipped_by_zone.saturating_as::<u32>();
        cost.pages_skipped_by_selection += stats.pages_skipped_by_selection.saturating_as::<u32>();
        cost.disk_bytes += stats.bytes_read.saturating_sub(cached.bytes);
        cost.rows_scanned += stats.rows_scanned;
        cost.rows_selected += stats.rows_selected;
        cost.keys_tested += stats.keys_tested;
        cost.keys_kept += stats.keys_kept;
        outcome.map(|()| output)
    }

    /// Reads pages into buffers of the pool, and supplies each to the scan as it arrives.
    fn read(&mut self, pages: &[PageWanted], scan: &mut SegmentScan<ScanPage>) -> Result<(), Refusal> {
        let mut outcome = Ok(());
        let mut wanted = pages.iter().enumerate();
        let mut exhausted = false;
        loop {
            while outcome.is_ok() && !exhausted && self.ring.in_flight() < self.ring.depth() {
                match wanted.next() {
                    Some((index, page)) => outcome = self.take(index, page, scan),
                    None => exhausted = true,
                }
            }
            if self.ring.in_flight() == 0 {
                // Fills of pages that were never read.
                self.fills.clear();
                return outcome;
            }
            let (mut ended, waiting) = (Vec::new(), Instant::now());
            let reaped = self.ring.reap(Wait::ForOne, &mut |completion| ended.push(completion));
            self.read_us += micros(waiting.elapsed());
            if let Err(error) = reaped {
                // This worker cannot wait for what is in flight, so it cannot continue.
                self.parts.lifecycle.fail(&error.to_string());
                return Err(Refusal::new(RefusalCode::Storage, error.to_string()));
            }
            for completion in ended {
                let supplied = self.supply(pages, completion, scan);
                outcome = outcome.and(supplied);
            }
        }
    }

    /// Takes a page from the cache, or begins to read it.
    fn take(
        &mut self,
        index: usize,
        page: &PageWanted,
        scan: &mut SegmentScan<ScanPage>,
    ) -> Result<(), Refusal> {
        let extent = page.extent;
        let mut buffer = self.pool.take(extent.length_bytes as usize).map_err(|error| {
            let text = format!(
                "a scan needs more page memory than its worker has: {error}; fetch the segment instead"
            );
            Refusal::new(RefusalCode::Bounced(BounceReason::Memory), text)
        })?;
        match self.parts.cache.as_ref().map(|cache| cache.look(&extent)) {
            Some(Look::Hit(pin)) => {
                let length = extent.length_bytes as usize;
                let slot = pin.slice().map_err(|error| cache_fault(&error))?;
                let copied = slot.region().copy_out(slot.offset(), &mut buffer[..length]);
                copied.map_err(|error| cache_fault(&error))?;
                self.cached.pages += 1;
                self.cached.bytes += u64::from(extent.length_bytes);
                let bytes = ScanPage::new(buffer, length, &self.parts.metrics);
                if pin.is_right() {
                    return scan.supply_unchanged(page.column, page.page, bytes).map_err(refused);
                }
                scan.supply(page.column, page.page, bytes).map_err(refused)?;
                pin.found_right();
                return Ok(());
            }
            Some(Look::Fill(fill)) => self.fills.push((index, fill)),
            Some(Look::Bypass) | None => {}
        }
        let read = Read {
            device: DeviceIndex(extent.device.0.into()),
            offset_bytes: extent.offset_bytes,
            length_bytes: extent.length_bytes,
            into: IoMemory::Buffer(buffer),
            token: Token(index as u64),
        };
        let submitted = self.ring.submit_read(read);
        submitted.map_err(|refused| Refusal::new(RefusalCode::Storage, refused.reason.to_string()))?;
        if let Some(reads) = &mut self.reads {
            reads.note(page);
        }
        Ok(())
    }

    fn supply(
        &mut self,
        pages: &[PageWanted],
        completion: Completion,
        scan: &mut SegmentScan<ScanPage>,
    ) -> Result<(), Refusal> {
        let Completion::Read { token, memory, outcome } = completion else { return Ok(()) };
        let index = token.0.saturating_as::<usize>();
        let Some(&PageWanted { column, page, extent }) = pages.get(index) else { return Ok(()) };
        let fill = self.fills.iter().position(|(place, _)| *place == index);
        let fill = fill.map(|place| self.fills.swap_remove(place).1);
        outcome.map_err(|fault| self.storage(column, page, &fault))?;
        let Ok(buffer) = memory.into_buffer() else { return Ok(()) };
        let bytes = ScanPage::new(buffer, extent.length_bytes as usize, &self.parts.metrics);
        let filled = fill.zip(self.parts.cache.as_ref()).map(|(fill, cache)| {
            let copied = cache.region().copy_in(fill.place_bytes().0, bytes.as_ref());
            copied.map(|()| fill).map_err(|error| cache_fault(&error))
        });
        let filled = filled.transpose()?;
        scan.supply(column, page, bytes).map_err(refused)?;
        // Others may only use a page that was checked.
        if let Some(fill) = filled {
            fill.publish().found_right();
        }
        Ok(())
    }

    fn storage(&self, column: ColumnId, page: PageNumber, fault: &IoFault) -> Refusal {
        if fault.must_stop() {
            self.parts.lifecycle.fail(&fault.to_string());
        }
        Refusal::new(RefusalCode::Storage, format!("page {page} of column {column}: {fault}"))
    }
}

/// A page in a buffer of the worker's pool, counted as memory in use.
struct ScanPage {
    buffer: Buffer,
    bytes: usize,
    metrics: Arc<Metrics>,
}

impl ScanPage {
    fn new(buffer: Buffer, bytes: usize, metrics: &Arc<Metrics>) -> Self {
        metrics.memory_taken(buffer.len() as u64);
        Self { bytes: bytes.min(buffer.len()), buffer, metrics: Arc::clone(metrics) }
    }
}

impl AsRef<[u8]> for ScanPage {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.bytes]
    }
}

impl Drop for ScanPage {
    fn drop(&mut self) {
        self.metrics.memory_returned(self.buffer.len() as u64);
    }
}

fn is_grouped(program: &VerifiedProgram) -> bool {
    matches!(program.program().output, Output::Groups { .. })
}

/// The refusal that the client gets for a failed scan.
fn refused(error: ScanError) -> Refusal {
    let code = match &error {
        ScanError::Mismatch { .. } => RefusalCode::Malformed,
        ScanError::Page { .. } | ScanError::NotWanted { .. } => RefusalCode::Storage,
        error if error.is_overflow() => RefusalCode::Overflow,
        ScanError::Computation { .. } => RefusalCode::Computation,
        ScanError::Bounced { bounced, .. } => RefusalCode::Bounced(match bounced.quota {
            QuotaKind::Cpu => BounceReason::CpuQuota,
            QuotaKind::Memory => BounceReason::MemoryQuota,
        }),
    };
    Refusal::new(code, error.to_string())
}

/// A slot outside of its region is a bug, but no reason to crash the node.
fn cache_fault(error: &OutOfBounds) -> Refusal {
    Refusal::new(RefusalCode::Storage, format!("a page of the cache: {error}"))
}

fn computation(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(RefusalCode::Computation, error.to_string())
}

fn micros(time: Duration) -> u64 {
    time.as_micros().saturating_as::<u64>()
}

/// The processor time of this thread so far.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a thread's processor time is not negative")
}
