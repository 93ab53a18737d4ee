//! What has a scan done so far?
//!
//! One tally per scan of a plan; every segment adds to it, so that a query that fails or is dropped has counted what it did.

use crate::report::{BOUNCES_KEPT_MAX, Bounce, Figures, ReasonCount, ScanFigures, ScanReason};
use rackscan_format::{
    ids::{NodeId, SegmentId},
    message::BounceReason,
};
use rackscan_planner::{Decision, Placement};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
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
    reasons: BTreeMap<(Placement, ScanReason), u64>,
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
        let count = |(&(placement, reason), &segments): (&(Placement, ScanReason), &u64)| ReasonCount {
            placement,
            reason,
            segments,
        };
        state.begun.then(|| ScanFigures {
            nodes: state.nodes.len() as u64,
            reasons: state.reasons.iter().map(count).collect(),
            ..state.figures.clone()
        })
    }

    /// A segment is scanned there from now on.
    pub(super) fn segment(&self, node: NodeId, decision: &Decision) {
        let mut state = self.state();
        state.nodes.insert(node);
        *state.figures.segments.of_mut(decision.placement) += 1;
        *state.reasons.entry((decision.placement, decision.reason.into())).or_default() += 1;
    }

    /// A node gave a segment back, which is fetched instead.
    pub(super) fn bounced(&self, bounce: Bounce, decision: &Decision) {
        let mut state = self.state();
        let segments = &mut state.figures.segments;
        segments.remote_process = segments.remote_process.saturating_sub(1);
        segments.remote_fetch += 1;
        if let Some(placed) = state.reasons.get_mut(&(decision.placement, decision.reason.into())) {
            *placed = placed.saturating_sub(1);
        }
        state.reasons.retain(|_, segments| *segments > 0);
        let reason = ScanReason::from(bounce.reason);
        *state.reasons.entry((Placement::RemoteFetch, reason)).or_default() += 1;
        state.figures.bounced += 1;
        if state.figures.bounces.len() < BOUNCES_KEPT_MAX {
            state.figures.bounces.push(bounce);
        }
    }

    /// What was done under a placement.
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
