//! What has a scan done so far?
//!
//! One tally per scan of a plan; every segment adds to it as it goes, so that a query that fails or is dropped has
//! counted what it did.

use crate::report::{BOUNCES_KEPT_MAX, Bounce, ScanFigures};
use rackscan_client::{FetchedPages, Processed};
use rackscan_format::ids::{NodeId, SegmentId};
use rackscan_planner::Placement;
use rackscan_scan::ScanStats;
use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The figures of one scan while it runs.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    begun: bool,
    nodes: BTreeSet<NodeId>,
    figures: ScanFigures,
}

impl Tally {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The scan runs: from now on there are figures.
    pub(super) fn begin(&self) {
        self.state().begun = true;
    }

    /// The figures so far; `None` before the scan ran.
    pub(super) fn figures(&self) -> Option<ScanFigures> {
        let state = self.state();
        let nodes = state.nodes.len() as u64;
        state.begun.then(|| ScanFigures { nodes, ..state.figures.clone() })
    }

    /// A segment is scanned here from now on.
    pub(super) fn segment(&self, node: NodeId, placement: Placement) {
        let mut state = self.state();
        state.nodes.insert(node);
        *state.figures.segments.of_mut(placement) += 1;
    }

    /// A node was too busy for a segment, which is fetched instead.
    pub(super) fn bounced(&self, node: NodeId, segment: SegmentId, reason: String) {
        let mut state = self.state();
        let segments = &mut state.figures.segments;
        segments.remote_process = segments.remote_process.saturating_sub(1);
        segments.remote_fetch += 1;
        state.figures.bounced += 1;
        if state.figures.bounces.len() < BOUNCES_KEPT_MAX {
            state.figures.bounces.push(Bounce { node: node.0, segment: segment.0, reason });
        }
    }

    pub(super) fn rows_out(&self, rows: usize) {
        self.state().figures.rows_out += rows as u64;
    }

    /// Time the engine's thread scanned or decoded.
    pub(super) fn engine_scanned(&self, time: Duration) {
        self.state().figures.engine_scan_us += micros(time);
    }

    /// Time a segment waited for devices or nodes.
    pub(super) fn waited(&self, time: Duration) {
        self.state().figures.wait_us += micros(time);
    }

    /// Pages that a node sent.
    pub(super) fn fetched(&self, fetched: &FetchedPages) {
        let figures = &mut self.state().figures;
        figures.disk_bytes += fetched.cost.disk_bytes;
        figures.wire_bytes += fetched.wire_bytes;
        figures.round_trips += u64::from(fetched.round_trips);
        figures.node_elapsed_us += fetched.cost.elapsed_us;
        figures.node_cpu_us += fetched.cost.cpu_us;
        figures.node_queued_us += fetched.cost.queued_us;
    }

    /// Bytes the engine read itself.
    pub(super) fn read(&self, bytes: u64) {
        self.state().figures.disk_bytes += bytes;
    }

    /// What a scan in the engine did, at its end.
    pub(super) fn scanned(&self, stats: &ScanStats) {
        let figures = &mut self.state().figures;
        figures.pages_read += stats.pages_read;
        figures.pages_skipped_by_zone += stats.pages_skipped_by_zone;
        figures.pages_skipped_by_selection += stats.pages_skipped_by_selection;
        figures.rows_scanned += stats.rows_scanned;
        figures.rows_selected += stats.rows_selected;
    }

    /// What a scan in a node did.
    pub(super) fn processed(&self, processed: &Processed) {
        let figures = &mut self.state().figures;
        figures.wire_bytes += processed.wire_bytes;
        figures.round_trips += u64::from(processed.round_trips);
        figures.pages_read += u64::from(processed.cost.pages_read);
        figures.pages_skipped_in_nodes += u64::from(processed.cost.pages_skipped);
        figures.disk_bytes += processed.cost.disk_bytes;
        figures.rows_scanned += processed.cost.rows_scanned;
        figures.rows_selected += processed.cost.rows_selected;
        figures.node_elapsed_us += processed.cost.elapsed_us;
        figures.node_cpu_us += processed.cost.cpu_us;
        figures.node_queued_us += processed.cost.queued_us;
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
