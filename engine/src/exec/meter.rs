//! Measures the work and the time of the scan of one segment.
//!
//! Invariants
//! - The measurements are added to the scan's figures however the scan of the segment ends, also if
//!   it is dropped.

use super::{
    context::WaitGuard,
    counters::{Counters, Placed},
};
use crate::report::{Figures, ScanReason};
use az::SaturatingAs;
use datafusion::arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::DataType,
};
use rackscan_client::{FetchedPages, Processed};
use rackscan_format::ids::NodeId;
use rackscan_planner::{Observed, Placement};
use rackscan_scan::ScanStats;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The figures of one segment while it is scanned.
#[derive(Debug)]
pub(super) struct Meter {
    node: NodeId,
    counters: Arc<Counters>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    placed: Option<Placed>,
    figures: Figures,
    observed: Observed,
}

/// A point in time by the wall clock and by this thread's CPU clock, from which work is measured.
pub(super) struct Busy {
    clock: Instant,
    cpu_us: u64,
}

impl Busy {
    pub(super) fn now() -> Self {
        Self { clock: Instant::now(), cpu_us: thread_cpu_us() }
    }
}

impl Meter {
    pub(super) fn new(node: NodeId, counters: Arc<Counters>) -> Self {
        Self { node, counters, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the placement under which the following work counts. Earlier work counts for the
    /// placement before.
    pub(super) fn place(&self, placement: Placement, reason: ScanReason) {
        let now = (placement, reason);
        let mut state = self.state();
        let State { placed: before, figures, .. } =
            std::mem::replace(&mut *state, State { placed: Some(now), ..State::default() });
        if let Some((placement, _)) = before {
            self.counters.add(placement, &figures);
        }
        self.counters.place(self.node, before, now);
    }

    /// Whether the segment is scanned under `placement` now.
    pub(super) fn is_placed(&self, placement: Placement) -> bool {
        self.state().placed.is_some_and(|(now, _)| now == placement)
    }

    /// The reason of its present placement.
    pub(super) fn reason(&self) -> Option<ScanReason> {
        self.state().placed.map(|(_, reason)| reason)
    }

    /// What was measured since the placement was set.
    pub(super) fn observed(&self) -> Observed {
        self.state().observed
    }

    /// Adds the work of the engine's thread since `began`.
    pub(super) fn engine_scanned(&self, began: &Busy) {
        let mut state = self.state();
        let cpu_us = thread_cpu_us().saturating_sub(began.cpu_us);
        // CPU time, as nodes report theirs: waits for a processor are not a cost of the program.
        state.observed.engine_s += seconds(cpu_us);
        state.figures.engine_scan_us += micros(began.clock.elapsed());
        state.figures.engine_cpu_us += cpu_us;
    }

    /// Adds a wait of the segment for devices or a node, since `began`.
    pub(super) fn waited(&self, began: Instant) {
        self.state().figures.wait_us += micros(began.elapsed());
    }

    /// Adds pages that a node sent.
    pub(super) fn fetched(&self, fetched: &FetchedPages, waiting: &WaitGuard) {
        let mut state = self.state();
        let observed = &mut state.observed;
        observed.wait_s += fetched.waited.as_secs_f64();
        observed.read_s += seconds(fetched.cost.read_us);
        observed.waiting = observed.waiting.max(waiting.together);
        observed.disk_bytes += fetched.cost.disk_bytes;
        observed.wire_bytes += fetched.wire_bytes;
        let figures = &mut state.figures;
        figures.disk_bytes += fetched.cost.disk_bytes;
        figures.wire_bytes += fetched.wire_bytes;
        figures.requests += u64::from(fetched.round_trips);
        figures.round_trips += u64::from(fetched.round_trips) + u64::from(fetched.one_sided_pages > 0);
        figures.pages_reconstructed += u64::from(fetched.reconstructed_pages);
        figures.survivor_bytes += fetched.survivor_bytes;
        figures.node_elapsed_us += fetched.cost.elapsed_us;
        figures.node_cpu_us += fetched.cost.cpu_us;
        figures.node_queued_us += fetched.cost.queued_us;
    }

    /// Adds bytes that the engine read itself, since `began`.
    pub(super) fn read(&self, bytes: u64, began: Instant, waiting: &WaitGuard) {
        let mut state = self.state();
        state.observed.device_s += began.elapsed().as_secs_f64() / f64::from(waiting.together);
        state.observed.disk_bytes += bytes;
        state.figures.disk_bytes += bytes;
    }

    /// Adds what a scan in the engine did, at its end.
    pub(super) fn scanned(&self, stats: &ScanStats) {
        let mut state = self.state();
        state.observed.rows_scanned += stats.rows_scanned;
        state.observed.rows_selected += stats.rows_selected;
        state.observed.pages.pages += stats.pages_read.saturating_as::<u32>();
        state.observed.pages.bytes += stats.bytes_read;
        let figures = &mut state.figures;
        figures.pages_read += stats.pages_read;
        figures.pages_skipped_by_zone += stats.pages_skipped_by_zone;
        figures.pages_skipped_by_selection += stats.pages_skipped_by_selection;
        figures.rows_scanned += stats.rows_scanned;
        figures.rows_selected += stats.rows_selected;
        figures.keys_tested += stats.keys_tested;
        figures.keys_kept += stats.keys_kept;
    }

    /// Adds what a scan in a node did, while `together` scans of the engine ran or waited there.
    pub(super) fn processed(&self, processed: &Processed, together: u32) {
        let cost = &processed.cost;
        let mut state = self.state();
        let observed = &mut state.observed;
        let workers = together.clamp(1, u32::from(processed.load.scan_workers.max(1)));
        observed.rows_scanned += cost.rows_scanned;
        observed.rows_selected += cost.rows_selected;
        let pages = cost.pages_read.saturating_add(cost.pages_cached);
        observed.pages.pages = observed.pages.pages.saturating_add(pages);
        observed.pages.bytes += cost.disk_bytes + cost.cached_bytes;
        observed.disk_bytes += cost.disk_bytes;
        observed.wire_bytes += processed.wire_bytes;
        observed.node_cpu_s += seconds(cost.cpu_us);
        observed.node_s += seconds(cost.worker_us.saturating_sub(cost.read_us));
        observed.device_s += seconds(cost.read_us) / f64::from(workers);
        let in_node = Duration::from_micros(cost.queued_us.saturating_add(cost.worker_us));
        observed.wait_s += processed.waited.saturating_sub(in_node).as_secs_f64();
        observed.waiting = 1;
        observed.engine_s += processed.decoding.as_secs_f64();
        let figures = &mut state.figures;
        figures.wire_bytes += processed.wire_bytes;
        figures.requests += u64::from(processed.round_trips);
        figures.round_trips += u64::from(processed.round_trips);
        figures.pages_read += u64::from(pages);
        figures.pages_skipped_by_zone += u64::from(cost.pages_skipped_by_zone);
        figures.pages_skipped_by_selection += u64::from(cost.pages_skipped_by_selection);
        figures.disk_bytes += cost.disk_bytes;
        figures.rows_scanned += cost.rows_scanned;
        figures.rows_selected += cost.rows_selected;
        figures.keys_tested += cost.keys_tested;
        figures.keys_kept += cost.keys_kept;
        figures.engine_scan_us += micros(processed.decoding);
        figures.engine_cpu_us += micros(processed.decoding);
        figures.node_elapsed_us += cost.elapsed_us;
        figures.node_cpu_us += cost.cpu_us;
        figures.node_queued_us += cost.queued_us;
    }

    /// Adds rows that are returned.
    pub(super) fn put(&self, batch: &RecordBatch) {
        let (rows, bytes) = (batch.num_rows() as u64, useful_bytes(batch));
        let mut state = self.state();
        state.observed.rows_out += rows;
        state.figures.rows_out += rows;
        state.figures.useful_bytes += bytes;
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let state = std::mem::take(&mut *self.state());
        if let Some((placement, _)) = state.placed {
            self.counters.add(placement, &state.figures);
        }
    }
}

/// Bytes of the values in a batch, without arrow's overhead (views, offsets, NULLs, text that is
/// not referred to).
fn useful_bytes(batch: &RecordBatch) -> u64 {
    let bytes = batch.columns().iter().map(|column| match column.data_type() {
        DataType::Utf8View => column.as_string_view().lengths().map(u64::from).sum(),
        DataType::Boolean => column.len().div_ceil(8) as u64,
        other => (other.primitive_width().unwrap_or(0) * column.len()) as u64,
    });
    bytes.sum()
}

fn seconds(us: u64) -> f64 {
    Duration::from_micros(us).as_secs_f64()
}

fn micros(time: Duration) -> u64 {
    time.as_micros().saturating_as::<u64>()
}

/// CPU time of this thread so far, in microseconds.
fn thread_cpu_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let part = |value: i64| value.saturating_as::<u64>();
    part(time.tv_sec) * 1_000_000 + part(time.tv_nsec) / 1000
}
