//! Which bytes does nobody have any more, neither as they are nor as parity?
//!
//! Invariant: what cannot be had is named, neighbouring bytes of a device together. That streams
//! end, and are zeros from there on, is not reckoned with: with it a few of the bytes named could
//! be had.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rackscan_format::ids::DeviceId;
use rackscan_stripe::{Cell, Node};

use super::stripes::{CellRange, Stripes};

/// Bytes of a node's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Beyond {
    /// The node, by its place in the set.
    pub(super) node: usize,
    pub(super) device: DeviceId,
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
}

/// The pages of nodes that are gone which do not come back from the others.
pub(super) fn beyond(stripes: &Stripes, gone: &BTreeSet<usize>) -> Vec<Beyond> {
    if gone.len() <= stripes.set.protection.lost_max() {
        return Vec::new();
    }
    let geometry = stripes.layout.geometry();
    let nodes: Vec<Node> = gone.iter().filter_map(|node| u8::try_from(*node).ok()).map(Node).collect();
    // As columns move on from stripe to stripe, the same are lost again and again.
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
    let mut found: Vec<Beyond> = Vec::new();
    for ((node, device, offset_bytes), length_bytes) in runs {
        match found.last_mut() {
            Some(last)
                if (last.node, last.device) == (node, device)
                    && last.offset_bytes + last.length_bytes == offset_bytes =>
            {
                last.length_bytes += length_bytes;
            }
            _ => found.push(Beyond { node, device, offset_bytes, length_bytes }),
        }
    }
    found
}
