//! Describes a scan as plain data.
//!
//! A [`ScanRequest`] contains everything that is needed to run a part of a scan, and nothing that
//! is bound to this process: it can be stored, compared and sent.

use rackscan_format::{
    ids::{NodeId, SegmentId},
    program::ScanProgram,
};
use rackscan_planner::Policy;
use serde::{Deserialize, Serialize};

/// A segment and the node that stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SegmentPlace {
    /// The node whose devices hold it.
    pub node: NodeId,
    /// The segment's number in its table.
    pub segment: SegmentId,
    /// How many rows it has.
    pub rows: u32,
}

/// A whole scan of one table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScanRequest {
    /// The table's name, for people; the program names the exact load of the table.
    pub table: String,
    /// What each segment's scan computes.
    pub program: ScanProgram,
    /// The segments of each partition, in scan order.
    pub partitions: Vec<Vec<SegmentPlace>>,
    /// The policy of placements.
    pub policy: Policy,
}

/// Deals segments to `partitions` so that each gets about the same number of rows and starts on
/// another node.
///
/// Nodes take turns, so that consecutive segments of one partition keep several nodes busy.
#[must_use]
pub(crate) fn distribute(mut segments: Vec<SegmentPlace>, partitions: usize) -> Vec<Vec<SegmentPlace>> {
    let partitions = partitions.clamp(1, segments.len().max(1));
    segments.sort_by_key(|place| (place.node, place.segment));
    let mut turns: Vec<(usize, SegmentPlace)> = Vec::with_capacity(segments.len());
    let mut turn = 0;
    for (index, place) in segments.iter().enumerate() {
        turn = if index > 0 && segments[index - 1].node == place.node { turn + 1 } else { 0 };
        turns.push((turn, *place));
    }
    turns.sort_by_key(|(turn, place)| (*turn, place.node));
    let mut distributed = vec![Vec::new(); partitions];
    let mut rows = vec![0_u64; partitions];
    for (_, place) in turns {
        let emptiest = (0..partitions).min_by_key(|&partition| rows[partition]).unwrap_or(0);
        rows[emptiest] += u64::from(place.rows);
        distributed[emptiest].push(place);
    }
    distributed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(node: u16, segment: u32, rows: u32) -> SegmentPlace {
        SegmentPlace { node: NodeId(node), segment: SegmentId(segment), rows }
    }

    #[test]
    fn every_segment_is_distributed_once_and_partitions_have_about_the_same_rows() {
        let segments: Vec<_> = (0..23).map(|index| place(index % 4, index.into(), 1000)).collect();
        let distributed = distribute(segments.clone(), 3);
        let rows: Vec<u32> =
            distributed.iter().map(|part| part.iter().map(|place| place.rows).sum()).collect();
        assert!(rows.iter().max().unwrap() - rows.iter().min().unwrap() <= 1000, "{rows:?}");
        let mut all = distributed.concat();
        all.sort_by_key(|place| place.segment);
        assert_eq!(all, segments);
    }

    #[test]
    fn consecutive_segments_of_a_partition_are_on_different_nodes() {
        let segments: Vec<_> = (0..16).map(|index| place(index / 4, index.into(), 1000)).collect();
        for part in distribute(segments, 1) {
            assert!(part.windows(2).all(|pair| pair[0].node != pair[1].node), "{part:?}");
        }
    }

    #[test]
    fn there_are_never_more_partitions_than_segments_and_never_none() {
        assert_eq!(distribute(vec![place(0, 0, 10)], 8).len(), 1);
        assert_eq!(distribute(Vec::new(), 8), vec![Vec::new()]);
    }
}
