//! Counts what a scan has done so far.
//!
//! Each scan of a plan has one set of counters, to which every segment adds. So the counts are also
//! known if the query fails or is dropped.

use crate::report::{
    BOUNCES_KEPT_MAX, Bounce, ChangedRows, Figures, NodeLoss, ReasonCount, ScanFigures, ScanReason,
};
use rackscan_format::{
    ids::{NodeId, SegmentId},
    message::BounceReason,
};
use rackscan_planner::Placement;
use rackscan_scan::ScanStats;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The figures of a scan while it runs.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    begun: bool,
    nodes: BTreeSet<NodeId>,
    reasons: BTreeMap<Placed, u64>,
    losses: BTreeMap<NodeId, String>,
    figures: ScanFigures,
}

/// The placement of a segment, and its reason.
pub(super) type Placed = (Placement, ScanReason);

impl Counters {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the scan has begun: from now on there are figures.
    pub(super) fn begin(&self) {
        self.state().begun = true;
    }

    /// The figures so far; `None` before the scan began.
    pub(super) fn figures(&self) -> Option<ScanFigures> {
        let state = self.state();
        let count =
            |(&(placement, reason), &segments): (&Placed, &u64)| ReasonCount { placement, reason, segments };
        let loss = |(node, text): (&NodeId, &String)| NodeLoss { node: node.0, text: text.clone() };
        state.begun.then(|| ScanFigures {
            nodes: state.nodes.len() as u64,
            reasons: state.reasons.iter().map(count).collect(),
            losses: state.losses.iter().map(loss).collect(),
            ..state.figures.clone()
        })
    }

    /// Counts a segment under placement `now`, and no longer under `before`.
    pub(super) fn place(&self, node: NodeId, before: Option<Placed>, now: Placed) {
        let state = &mut *self.state();
        state.nodes.insert(node);
        if let Some(before) = before {
            let segments = state.figures.segments.of_mut(before.0);
            *segments = segments.checked_sub(1).expect("a segment that moves was counted before");
            let placed = state.reasons.entry(before).or_default();
            *placed = placed.checked_sub(1).expect("a segment that moves had a reason before");
            state.reasons.retain(|_, segments| *segments > 0);
        }
        *state.figures.segments.of_mut(now.0) += 1;
        *state.reasons.entry(now).or_default() += 1;
    }

    /// Counts a bounce of a segment by a node.
    pub(super) fn bounced(&self, bounce: Bounce) {
        let figures = &mut self.state().figures;
        figures.bounced += 1;
        if figures.bounces.len() < BOUNCES_KEPT_MAX {
            figures.bounces.push(bounce);
        }
    }

    /// Notes that a node was lost and is bypassed.
    pub(super) fn lost(&self, node: NodeId, text: String) {
        self.state().losses.entry(node).or_insert(text);
    }

    /// Counts a segment that was not scanned, because an index says that it has no wanted row.
    pub(super) fn passed_over(&self) {
        self.state().figures.passed_over += 1;
    }

    /// Adds the scan of a run of changed rows.
    pub(super) fn changed_rows(&self, stats: &ScanStats) {
        let figures = &mut self.state().figures;
        figures.changed.add(&ChangedRows {
            runs: 1,
            rows_scanned: stats.rows_scanned,
            rows_selected: stats.rows_selected,
        });
    }

    /// Adds what was done under a placement.
    pub(super) fn add(&self, placement: Placement, done: &Figures) {
        let figures = &mut self.state().figures;
        figures.work.add(done);
        figures.by_placement.entry(placement).or_default().add(done);
    }
}

impl Bounce {
    pub(super) fn new(node: NodeId, segment: SegmentId, reason: BounceReason, text: String) -> Self {
        Self { node: node.0, segment: segment.0, reason, text }
    }
}
