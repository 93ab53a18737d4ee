//! Computes the layout of a stripe set: which cell of which stripe contains which part of which
//! node's stream (the pages that a load wrote on the node, one after the other).
//!
//! ```text
//! stream of a node     cell 0 | cell 1 | cell 2 | ...     each goes into the node's next data slot:
//! slots of a node      stripe 0: the data slots of its column there; stripe 1: those of its column there; ...
//! parity of a node     goes into its parity slots, in the same order
//! ```
//!
//! A slot is a position for a cell in a column of a stripe. The columns rotate: over n stripes a
//! node has each column once, so both lists repeat after n stripes, a *rotation*.
//!
//! Invariants
//! - A data slot contains exactly one cell of a stream; a cell behind the stream's end counts as
//!   zeros.
//! - The lookups in both directions agree (`tests`).

use rackscan_format::{
    limits::{CELL_BYTES_MAX, CELL_BYTES_MIN},
    schema::Protection,
};
use rackscan_stripe::{Cell, Column, Geometry, Node, Parity, Role, StripeError};

use crate::limits::PARITY_BYTES_PER_STRIPE_MAX;

/// The content of a cell of a stripe: the `index`-th cell of a node's stream, or of its parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    /// The node, by its position in the set.
    pub(crate) node: usize,
    pub(crate) index: u64,
    pub(crate) is_parity: bool,
}

/// The cells of a column: data and parity, each in the order of slots.
#[derive(Debug, Default)]
struct Slots {
    data: Vec<Cell>,
    parity: Vec<Cell>,
}

/// Number of cells before each stripe of a rotation, and, as the last entry, of the whole rotation.
#[derive(Debug)]
struct Counts {
    data: Vec<u64>,
    parity: Vec<u64>,
}

/// The positions of the cells of a stripe set.
#[derive(Debug)]
pub(crate) struct Layout {
    geometry: Geometry,
    columns: Vec<Slots>,
    nodes: Vec<Counts>,
}

/// The parity of the `stripe` crate for a protection.
pub(crate) fn parity_of(protection: Protection) -> Parity {
    match protection {
        Protection::Xor => Parity::Xor,
        Protection::TwoD => Parity::TwoD,
    }
}

impl Layout {
    pub(crate) fn new(protection: Protection, nodes: usize) -> Result<Self, StripeError> {
        let geometry = Geometry::with_parity(nodes, parity_of(protection))?;
        let mut columns = Vec::new();
        for column in geometry.columns() {
            let mut slots = Slots::default();
            for cell in geometry.cells_of(column) {
                match geometry.role(cell)? {
                    Role::Data { .. } => slots.data.push(cell),
                    Role::HorizontalParity { .. } | Role::DiagonalParity { .. } => slots.parity.push(cell),
                }
            }
            columns.push(slots);
        }
        let of_node = |node: u8| {
            let mut counts = Counts { data: vec![0], parity: vec![0] };
            let (mut data, mut parity) = (0, 0);
            for stripe in 0..nodes as u64 {
                let slots = &columns[usize::from(geometry.column_of(stripe, Node(node))?.0)];
                data += slots.data.len() as u64;
                parity += slots.parity.len() as u64;
                counts.data.push(data);
                counts.parity.push(parity);
            }
            Ok(counts)
        };
        let nodes = u8::try_from(nodes).expect("the nodes of a geometry: at most NODES_MAX");
        let nodes = (0..nodes).map(of_node).collect::<Result<_, _>>()?;
        Ok(Self { geometry, columns, nodes })
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn turns(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// The size of a cell for streams of which the longest has `longest_bytes`: so that it fills at
    /// least a rotation, and the parity of a stripe stays within its bound.
    pub(crate) fn cell_bytes(&self, longest_bytes: u64) -> u32 {
        let per_rotation = self.nodes.first().and_then(|counts| counts.data.last()).copied().unwrap_or(1);
        let most = (PARITY_BYTES_PER_STRIPE_MAX / self.geometry.equations().len().max(1)) as u64;
        let wanted = (longest_bytes / per_rotation.max(1)).min(most);
        let wanted = wanted.clamp(CELL_BYTES_MIN.into(), CELL_BYTES_MAX.into());
        1 << wanted.ilog2()
    }

    /// Number of stripes that streams of these lengths fill.
    pub(crate) fn stripes(&self, cell_bytes: u32, stream_bytes: impl Iterator<Item = u64>) -> u64 {
        let filled = stream_bytes.enumerate().filter(|(_, bytes)| *bytes > 0);
        let last =
            filled.filter_map(|(node, bytes)| self.data_cell(node, (bytes - 1) / u64::from(cell_bytes)));
        last.map(|(stripe, _)| stripe + 1).max().unwrap_or(0)
    }

    /// Number of parity cells that a node keeps of so many stripes.
    pub(crate) fn parity_cells(&self, node: usize, stripes: u64) -> u64 {
        let Some(counts) = self.nodes.get(node) else { return 0 };
        Self::before(&counts.parity, stripes, self.turns())
    }

    /// Number of cells before a stripe.
    fn before(counts: &[u64], stripe: u64, turns: u64) -> u64 {
        let whole = counts.last().copied().unwrap_or(0);
        let turn = usize::try_from(stripe % turns);
        let turn = turn.expect("a stripe of a rotation: a remainder of a usize fits one");
        (stripe / turns).saturating_mul(whole).saturating_add(counts.get(turn).copied().unwrap_or(0))
    }

    /// The stripe and the slot of a cell of a node's stream; `None` if there is no such node, or
    /// not so many stripes.
    pub(crate) fn data_cell(&self, node: usize, index: u64) -> Option<(u64, Cell)> {
        self.cell(node, index, &self.nodes.get(node)?.data, |slots| &slots.data)
    }

    /// The stripe and the slot of a parity cell that a node keeps; `None` as in
    /// [`Layout::data_cell`].
    pub(crate) fn parity_cell(&self, node: usize, index: u64) -> Option<(u64, Cell)> {
        self.cell(node, index, &self.nodes.get(node)?.parity, |slots| &slots.parity)
    }

    fn cell(
        &self,
        node: usize,
        index: u64,
        counts: &[u64],
        cells: impl Fn(&Slots) -> &[Cell],
    ) -> Option<(u64, Cell)> {
        let whole = counts.last().copied().filter(|whole| *whole > 0)?;
        let (rotation, within) = (index / whole, index % whole);
        let turn = counts.partition_point(|before| *before <= within).checked_sub(1)?;
        let stripe = rotation.checked_mul(self.turns())?.checked_add(turn as u64)?;
        let column = self.geometry.column_of(stripe, Node(u8::try_from(node).ok()?)).ok()?;
        let rank = usize::try_from(within - counts[turn]).ok()?;
        Some((stripe, *cells(self.columns.get(usize::from(column.0))?).get(rank)?))
    }

    /// The content of a cell; `None` if there is no such cell.
    pub(crate) fn held(&self, stripe: u64, cell: Cell) -> Option<Held> {
        let node = usize::from(self.geometry.node_of(stripe, cell.column).ok()?.0);
        let slots = self.columns.get(usize::from(cell.column.0))?;
        let counts = self.nodes.get(node)?;
        let rank = |cells: &[Cell]| cells.iter().position(|known| *known == cell);
        let (rank, counts, is_parity) = match (rank(&slots.data), rank(&slots.parity)) {
            (Some(rank), _) => (rank, &counts.data, false),
            (None, Some(rank)) => (rank, &counts.parity, true),
            (None, None) => return None,
        };
        let index = Self::before(counts, stripe, self.turns()) + rank as u64;
        Some(Held { node, index, is_parity })
    }

    /// The column that a node has in a stripe.
    pub(crate) fn column(&self, stripe: u64, node: usize) -> Option<Column> {
        self.geometry.column_of(stripe, Node(u8::try_from(node).ok()?)).ok()
    }

    /// The parity cells of a column, in the order in which their node keeps them.
    pub(crate) fn parity(&self, column: Column) -> &[Cell] {
        self.columns.get(usize::from(column.0)).map_or(&[], |slots| &slots.parity)
    }

    /// The equation whose sum a parity cell holds, by its index in [`Geometry::equations`].
    pub(crate) fn equation(&self, parity: Cell) -> Option<usize> {
        match self.geometry.role(parity).ok()? {
            Role::Data { .. } => None,
            Role::HorizontalParity { row } => Some(row.into()),
            Role::DiagonalParity { diagonal } => Some(self.geometry.rows() + usize::from(diagonal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn layouts() -> impl Iterator<Item = Layout> {
        let xor = (2..=9).map(|nodes| Layout::new(Protection::Xor, nodes).unwrap());
        xor.chain((3..=17).map(|nodes| Layout::new(Protection::TwoD, nodes).unwrap()))
    }

    #[test]
    fn each_cell_of_a_stripe_holds_one_cell_of_one_node_and_is_found_from_it() {
        for layout in layouts() {
            let nodes = layout.nodes.len();
            let mut found = BTreeSet::new();
            let stripes = 2 * nodes as u64 + 1;
            for stripe in 0..stripes {
                for cell in layout.geometry.cells() {
                    let held = layout.held(stripe, cell).unwrap();
                    assert!(found.insert((held.node, held.is_parity, held.index)), "{held:?} twice");
                    assert_eq!(layout.column(stripe, held.node), Some(cell.column));
                    if !held.is_parity {
                        assert_eq!(layout.data_cell(held.node, held.index), Some((stripe, cell)));
                    } else {
                        assert_eq!(layout.parity_cell(held.node, held.index), Some((stripe, cell)));
                    }
                }
            }
            for node in 0..nodes {
                let parity = found.range((node, true, 0)..=(node, true, u64::MAX)).count() as u64;
                assert_eq!(parity, layout.parity_cells(node, stripes));
                // Without a gap: what a node has is one list of data cells and one of parity cells.
                for is_parity in [false, true] {
                    let indices = found.range((node, is_parity, 0)..=(node, is_parity, u64::MAX));
                    assert!(indices.map(|(_, _, index)| *index).eq(0..indices_len(&found, node, is_parity)));
                }
            }
        }
    }

    fn indices_len(found: &BTreeSet<(usize, bool, u64)>, node: usize, is_parity: bool) -> u64 {
        found.range((node, is_parity, 0)..=(node, is_parity, u64::MAX)).count() as u64
    }

    #[test]
    fn stripes_are_as_many_as_the_longest_stream_needs() {
        for layout in layouts() {
            let nodes = layout.nodes.len();
            assert_eq!(layout.stripes(4096, std::iter::repeat_n(0, nodes)), 0);
            for node in 0..nodes {
                for cells in 1..100 {
                    let lengths = |bytes| (0..nodes).map(move |n| if n == node { bytes } else { 0 });
                    let (stripe, _) = layout.data_cell(node, cells - 1).unwrap();
                    assert_eq!(layout.stripes(4096, lengths(cells * 4096)), stripe + 1);
                    assert_eq!(layout.stripes(4096, lengths(cells * 4096 - 4095)), stripe + 1);
                }
            }
        }
    }

    #[test]
    fn cells_are_small_where_streams_are_short_and_bounded_where_they_are_long() {
        for layout in layouts().chain([Layout::new(Protection::TwoD, 64).unwrap()]) {
            assert_eq!(layout.cell_bytes(0), CELL_BYTES_MIN);
            let most = layout.cell_bytes(u64::MAX);
            assert!(most <= CELL_BYTES_MAX && most.is_power_of_two());
            assert!(most as usize * layout.geometry.equations().len() <= PARITY_BYTES_PER_STRIPE_MAX);
        }
        assert_eq!(Layout::new(Protection::TwoD, 5).unwrap().cell_bytes(12 * (100 << 10)), 64 << 10);
    }

    #[test]
    fn questions_about_what_is_not_there_have_no_answer() {
        let layout = Layout::new(Protection::TwoD, 5).unwrap();
        assert_eq!(layout.data_cell(5, 0), None);
        assert_eq!(Layout::new(Protection::Xor, 2).unwrap().data_cell(0, u64::MAX), None);
        assert_eq!(layout.held(0, Cell { column: Column(5), slot: 0 }), None);
        assert_eq!(layout.held(0, Cell { column: Column(0), slot: 4 }), None);
        assert!(Layout::new(Protection::TwoD, 2).is_err() && Layout::new(Protection::Xor, 65).is_err());
    }
}
