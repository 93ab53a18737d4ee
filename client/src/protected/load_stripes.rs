//! Keeps the stripe sets of a load in progress.

use std::collections::BTreeSet;

use rackscan_format::{
    ids::{SegmentId, TableId},
    stripe_set::StripeSet,
};

/// The stripe sets of a load so far.
#[derive(Debug, Default)]
pub(crate) struct LoadStripes {
    /// The sets of the version that it succeeds, once they were read.
    pub(super) before: Option<Vec<StripeSet>>,
    /// Its own sets, and the number of the next one.
    pub(super) own: Vec<StripeSet>,
    pub(super) next: u32,
}

impl LoadStripes {
    pub(super) fn all(&self) -> impl Iterator<Item = &StripeSet> {
        self.before.iter().flatten().chain(&self.own)
    }

    pub(super) fn names(&self) -> BTreeSet<(TableId, SegmentId)> {
        let segments = self.all().flat_map(|set| &set.streams).flat_map(|stream| &stream.segments);
        segments.map(|segment| (segment.table, segment.segment)).collect()
    }
}
