//! Computes the expected content of the cells of a stripe set in the simplest way: stripe by
//! stripe, cell by cell.
//!
//! It deliberately does not use the arithmetic of `client/protected/streams`, so that it can check
//! the results of that code too.
//!
//! Invariants
//! - The cells of a node's stream fill the node's data cells in order, stripe by stripe, and its
//!   parity fills its parity cells.

use std::collections::BTreeMap;

use rackscan_format::schema::Protection;
use rackscan_stripe::{Cell, Geometry, Lost, Node, Parity, Recovery, Role, xor};

use super::power::Party;

/// Bytes of a cell, as for short streams.
pub(super) const CELL_BYTES: usize = 4096;

/// What a cell holds: the `index`-th cell of a node's stream, or of its parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) node: Party,
    pub(super) index: usize,
    pub(super) is_parity: bool,
}

/// The cells of all stripes.
pub(super) struct Stripes {
    pub(super) geometry: Geometry,
    pub(super) cells: Vec<BTreeMap<Cell, Held>>,
}

pub(super) fn parity_of(protection: Protection) -> Parity {
    match protection {
        Protection::Xor => Parity::Xor,
        Protection::TwoD => Parity::TwoD,
    }
}

impl Stripes {
    /// The stripes over streams of these lengths.
    pub(super) fn over(protection: Protection, stream_bytes: &[usize]) -> Self {
        let nodes = stream_bytes.len();
        let geometry = Geometry::with_parity(nodes, parity_of(protection)).unwrap();
        let (mut data, mut parity) = (vec![0; nodes], vec![0; nodes]);
        let mut cells = Vec::new();
        while (0..nodes).any(|node| data[node] * CELL_BYTES < stream_bytes[node]) {
            let mut stripe = BTreeMap::new();
            for node in 0..nodes {
                let place = Node(u8::try_from(node).unwrap());
                let column = geometry.column_of(cells.len() as u64, place).unwrap();
                for cell in geometry.cells_of(column) {
                    let is_parity = !matches!(geometry.role(cell).unwrap(), Role::Data { .. });
                    let next = if is_parity { &mut parity[node] } else { &mut data[node] };
                    stripe.insert(cell, Held { node, index: *next, is_parity });
                    *next += 1;
                }
            }
            cells.push(stripe);
        }
        Self { geometry, cells }
    }

    /// The parity cells of a stripe that a node keeps, in order.
    pub(super) fn parity(&self, stripe: usize, node: Party) -> Vec<(Cell, Held)> {
        let here = self.cells[stripe].iter().filter(|(_, held)| held.node == node && held.is_parity);
        here.map(|(cell, held)| (*cell, *held)).collect()
    }

    /// The sum of the data of a parity cell's equation.
    pub(super) fn sum<'d>(&self, parity: Cell, data: impl Fn(Cell) -> &'d [u8]) -> Vec<u8> {
        let equation = self.geometry.equations().iter().find(|equation| equation.parity == parity).unwrap();
        let mut sum = vec![0; CELL_BYTES];
        for cell in &equation.data {
            let bytes = data(*cell);
            xor::xor_into(&mut sum[..bytes.len()], bytes).unwrap();
        }
        sum
    }
}

/// A cell of a stream, without what lies behind the stream's end: zeros.
pub(super) fn cell_of(stream: &[u8], index: usize) -> &[u8] {
    let rest = stream.get(index * CELL_BYTES..).unwrap_or_default();
    &rest[..rest.len().min(CELL_BYTES)]
}

/// Plans by which lost cells come back: they are the same again and again.
#[derive(Default)]
pub(super) struct Plans {
    known: BTreeMap<(bool, usize, Vec<u8>), (Lost, Recovery)>,
}

impl Plans {
    /// How the data cells that these nodes have of a stripe come back without them.
    pub(super) fn of(&mut self, geometry: &Geometry, stripe: usize, lost: &[Party]) -> &(Lost, Recovery) {
        let nodes: Vec<Node> = lost.iter().map(|node| Node(u8::try_from(*node).unwrap())).collect();
        let lost = geometry.lost_with(stripe as u64, &nodes).unwrap();
        let columns = lost.columns().map(|column| column.0).collect();
        let name = (geometry.parity() == Parity::Xor, geometry.nodes(), columns);
        self.known.entry(name).or_insert_with(|| {
            let wanted: Vec<Cell> =
                geometry.data().iter().copied().filter(|cell| lost.has(cell.column)).collect();
            (lost, geometry.recovery_of(lost, &wanted).unwrap())
        })
    }
}
