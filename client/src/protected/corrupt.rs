//! Records which bytes of a stripe set are corrupt, so that they are not used to reconstruct
//! others.
//!
//! Invariant: a node counts as lost for a range of a stripe if any of its cells there is corrupt
//! within that range. So more bytes than the corrupt ones may count as lost, but never fewer.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use rackscan_stripe::Cell;

use super::stripes::{Spot, Stripes};

/// The corrupt bytes of one node.
#[derive(Debug, Default)]
struct AtNode {
    /// Corrupt bytes of its stream: end by beginning. They do not overlap.
    stream: BTreeMap<u64, u64>,
    /// Its corrupt parity cells, by number.
    parity: BTreeSet<u64>,
}

/// The bytes of a set that are known to be corrupt, and the nodes that are lost entirely.
#[derive(Debug, Default)]
pub(super) struct Corrupt {
    nodes: BTreeMap<usize, AtNode>,
    lost_nodes: BTreeSet<usize>,
}

impl Corrupt {
    /// A record without corrupt bytes, with these lost nodes.
    pub(super) fn without(lost_nodes: BTreeSet<usize>) -> Self {
        Self { nodes: BTreeMap::new(), lost_nodes }
    }

    /// Records that a place of a node is corrupt.
    pub(super) fn add(&mut self, stripes: &Stripes, node: usize, place: u64) {
        let at = self.nodes.entry(node).or_default();
        match stripes.spot(node, place) {
            Some(Spot::Page { start, length }) => {
                at.stream.insert(start, start + length);
            }
            Some(Spot::Parity { index }) => {
                at.parity.insert(index);
            }
            None => {}
        }
    }

    /// Records that a place of a node was repaired.
    pub(super) fn remove(&mut self, stripes: &Stripes, node: usize, place: u64) {
        let Some(at) = self.nodes.get_mut(&node) else { return };
        match stripes.spot(node, place) {
            Some(Spot::Page { start, .. }) => {
                at.stream.remove(&start);
            }
            Some(Spot::Parity { index }) => {
                at.parity.remove(&index);
            }
            None => {}
        }
    }

    /// The nodes that are lost for a range of the cells of a stripe.
    pub(super) fn lost(&self, stripes: &Stripes, stripe: u64, range: &Range<u64>) -> BTreeSet<usize> {
        let is_hit = |node: usize, at: &AtNode| {
            let Some(column) = stripes.layout.column(stripe, node) else { return false };
            let mut cells = stripes.layout.geometry().cells_of(column);
            cells.any(|cell| at.has(stripes, stripe, cell, range))
        };
        let hit = self.nodes.iter().filter(|(node, at)| is_hit(**node, at)).map(|(node, _)| *node);
        hit.chain(self.lost_nodes.iter().copied()).collect()
    }

    /// Whether anything of a stripe is corrupt or lost.
    pub(super) fn touches(&self, stripes: &Stripes, stripe: u64) -> bool {
        !self.lost(stripes, stripe, &(0..stripes.cell_bytes())).is_empty()
    }
}

impl AtNode {
    fn has(&self, stripes: &Stripes, stripe: u64, cell: Cell, range: &Range<u64>) -> bool {
        let Some(held) = stripes.layout.held(stripe, cell) else { return false };
        if held.is_parity {
            return self.parity.contains(&held.index);
        }
        let from = held.index.saturating_mul(stripes.cell_bytes());
        let (begin, end) = (from.saturating_add(range.start), from.saturating_add(range.end));
        // Ranges do not overlap, so the last one that begins before `end` reaches furthest.
        self.stream.range(..end).next_back().is_some_and(|(_, last)| *last > begin)
    }
}
