//! Finds the bytes that are lost for good: no node has them, and parity cannot reconstruct them.
//!
//! Invariant: every lost byte is named, and neighbouring bytes of a device are named together. The
//! end of streams, behind which cells are zeros, is not taken into account; with it a few of the
//! named bytes could be reconstructed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rackscan_format::ids::DeviceId;
use rackscan_stripe::{Cell, Node};

use super::stripes::{CellRange, Stripes};

/// Lost bytes of a node's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LostBytes {
    /// The node, by its position in the set.
    pub(super) node: usize,
    pub(super) device: DeviceId,
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
}

/// The pages of lost nodes that cannot be reconstructed from the others.
pub(super) fn lost_bytes(stripes: &Stripes, missing: &BTreeSet<usize>) -> Vec<LostBytes> {
    if missing.len() <= stripes.set.protection.lost_max() {
        return Vec::new();
    }
    let geometry = stripes.layout.geometry();
    let nodes: Vec<Node> = missing.iter().filter_map(|node| u8::try_from(*node).ok()).map(Node).collect();
    // Columns rotate from stripe to stripe, so the same columns are lost again and again.
    let mut known: HashMap<Vec<u8>, Vec<Cell>> = HashMap::new();
    let mut runs: BTreeMap<(usize, DeviceId, u64), u64> = BTreeMap::new();
    for stripe in 0..stripes.set.stripes {
        let Ok(lost) = geometry.lost_with(stripe, &nodes) else { continue };
        let columns = lost.columns().map(|column| column.0).collect();
        let cells = known.entry(columns).or_insert_with(|| geometry.recovery(lost).beyond);
        for cell in cells.iter() {
            let range = CellRange { stripe, cell: *cell, from: 0, length: stripes.cell_bytes() };
            let is_data = stripes.layout.held(stripe, *cell).is_some_and(|held| !held.is_parity);
            let Some((node, pieces)) = stripes.pieces(&range).filter(|_| is_data) else { continue };
            for extent in pieces.iter().map(|piece| piece.extent) {
                runs.insert((node, extent.device, extent.offset_bytes), extent.length_bytes.into());
            }
        }
    }
    let mut found: Vec<LostBytes> = Vec::new();
    for ((node, device, offset_bytes), length_bytes) in runs {
        match found.last_mut() {
            Some(last)
                if (last.node, last.device) == (node, device)
                    && last.offset_bytes + last.length_bytes == offset_bytes =>
            {
                last.length_bytes += length_bytes;
            }
            _ => found.push(LostBytes { node, device, offset_bytes, length_bytes }),
        }
    }
    found
}
