//! Asks the planner for the placement of each segment of a scan.
//!
//! The planner decides by the measurements of earlier segments. This module holds these
//! measurements and the number of segments that are left at each node.

use super::{ScanError, meter::Meter, profile, work::SegmentWork};
use rackscan_format::{
    ids::{NodeId, PageNumber},
    segment::SegmentDirectory,
};
use rackscan_planner::{Decision, Feedback, Placement, Policy, Reason, ScanProfile};
use std::{
    collections::BTreeMap,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The feedback of one scan, and how many segments of each node are left.
#[derive(Debug, Default)]
pub(super) struct Steering {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    feedback: Feedback,
    left: BTreeMap<NodeId, usize>,
}

/// A segment that was placed, and its expected profile.
pub(super) struct Placed {
    pub(super) decision: Decision,
    expected: ScanProfile,
}

impl Steering {
    /// The state of a scan of segments of these nodes, one entry per segment.
    pub(super) fn new(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let mut left = BTreeMap::new();
        nodes.into_iter().for_each(|node| *left.entry(node).or_default() += 1);
        Self { state: Mutex::new(State { feedback: Feedback::default(), left }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides where a segment is scanned.
    pub(super) fn decide(&self, work: &SegmentWork) -> Result<Placed, ScanError> {
        let definition = &work.snapshot.definition;
        let rebuilt_from = work.query.rebuilt_from(definition, work.node, &work.directory);
        // A forced placement does not depend on the prices, so no profile is estimated for it.
        let expected = match work.policy {
            Policy::Auto => ScanProfile {
                cached: cached(work),
                repeated: work.query.loads.is_repeated(work.node, pages_name(work)),
                rebuilt_from,
                ..profile::profile(
                    &work.narrowed.program,
                    work.node,
                    &work.narrowed.estimate(&work.directory),
                    &work.snapshot,
                )
            },
            _ => ScanProfile { rebuilt_from, ..ScanProfile::of_nothing(work.node) },
        };
        let cluster = work.query.cluster_profile();
        let state = &mut *self.state();
        let left = state.left.entry(work.node).or_default();
        *left = left.saturating_sub(1);
        let decision =
            state.feedback.decide(&expected, &cluster, &work.query.calibration, work.policy, *left)?;
        if work.policy == Policy::Auto {
            let is_kept = decision.reason == Reason::Kept;
            if is_kept || decision.placement == Placement::Local {
                work.query.loads.read_past(pages_name(work), !is_kept);
            }
        }
        Ok(Placed { decision, expected })
    }

    /// Notes that a segment of a node needs no scan.
    pub(super) fn passed_over(&self, node: NodeId) {
        let state = &mut *self.state();
        let left = state.left.entry(node).or_default();
        *left = left.saturating_sub(1);
    }

    /// Learns from a segment that was scanned to its end under its first placement.
    pub(super) fn observe(&self, work: &SegmentWork, placed: &Placed, meter: &Meter) {
        let (observed, calibration) = (meter.observed(), &work.query.calibration);
        let placement = placed.decision.placement;
        if work.policy == Policy::Auto {
            self.state().feedback.observe(&placed.expected, placement, &observed, calibration);
        }
        let wire = work.query.wire(work.node);
        work.query.loads.observe((work.node, placement), &observed, wire, calibration);
    }

    /// What the scan has learned so far.
    pub(super) fn feedback(&self) -> Feedback {
        self.state().feedback.clone()
    }
}

/// A name for the pages that the scan of the segment may read: a hash of the segment and the
/// columns.
fn pages_name(work: &SegmentWork) -> u64 {
    let SegmentDirectory { table, segment, .. } = *work.directory;
    let columns: Vec<_> = work.narrowed.program.program().inputs.iter().map(|input| input.column).collect();
    BuildHasherDefault::<DefaultHasher>::default().hash_one((table, segment, columns))
}

/// The share of the segment's page bytes that is known to be in a cache.
#[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
fn cached(work: &SegmentWork) -> f64 {
    let columns = work.narrowed.program.program().inputs.iter().map(|input| input.column);
    let pages = columns.flat_map(|column| {
        let entries = work.directory.chunk(column).map_or(&[][..], |chunk| &chunk.pages);
        (0..).zip(entries).map(move |(page, entry)| (column, PageNumber(page), entry.extent.length_bytes))
    });
    let identities =
        pages.map(|(column, page, bytes)| (work.directory.identity(column, page), u64::from(bytes)));
    let (cached_bytes, bytes) = work.query.cluster.cached_bytes(work.node, identities);
    cached_bytes as f64 / bytes.max(1) as f64
}
