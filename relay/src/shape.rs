//! How is a session made: which stripes, how many at once, and how much memory do they need where?
//!
//! Invariants
//! - Pure, and the same to everybody who takes part.
//! - Columns move on from stripe to stripe, so rings are counted between nodes: as many as any rotation needs.

use std::sync::Arc;

use rackscan_fabric::Address;
use rackscan_format::ids::NodeId;
use rackscan_stripe::{Cell, Column, Geometry, Parity, Schedule, Sender, Way};

use crate::{
    error::ShapeError,
    limits::{
        CELL_BYTES_MAX, LANES_MAX, LINK_BYTES, LINKS_PER_MEMBER, RINGS_MAX, SECTOR_BYTES, SLICE_BYTES_MAX,
        SLICES_MAX, SLOTS_MAX,
    },
    plan::{Keeping, Plan, rings},
};

/// How a session is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What protects its stripes; with [`Way::Bare`] it only says where data cells lie.
    pub parity: Parity,
    /// By which transfers.
    pub way: Way,
    /// The longest cell, in bytes; a multiple of [`SECTOR_BYTES`].
    pub cell_bytes_max: u64,
    /// Into what cells are cut, in bytes; a multiple of [`SECTOR_BYTES`].
    pub slice_bytes: usize,
    /// Stripes that are under way at once.
    pub lanes: usize,
    /// Slices that a ring holds.
    pub slots: usize,
}

impl Shape {
    /// Slices of 64 KiB, eight to a ring, two stripes at once.
    #[must_use]
    pub fn new(parity: Parity, way: Way, cell_bytes_max: u64) -> Self {
        Self { parity, way, cell_bytes_max, slice_bytes: 64 << 10, lanes: 2, slots: 8 }
    }

    /// Memory that the relay of each of so many nodes needs for a session like this, in bytes.
    ///
    /// # Errors
    /// [`ShapeError`] if there is no such session.
    pub fn node_bytes(&self, nodes: usize) -> Result<u64, ShapeError> {
        Layout::new(*self, nodes).map(|layout| layout.node_bytes())
    }

    fn check(&self) -> Result<(), ShapeError> {
        let (slice, cell) = (self.slice_bytes, self.cell_bytes_max);
        if slice == 0 || !slice.is_multiple_of(SECTOR_BYTES) || slice > SLICE_BYTES_MAX {
            return Err(ShapeError::Slice { found: slice });
        }
        let slices = cell.div_ceil(slice as u64);
        let whole = cell.is_multiple_of(SECTOR_BYTES as u64);
        if cell == 0 || !whole || cell > CELL_BYTES_MAX || slices > u64::from(SLICES_MAX) {
            return Err(ShapeError::Cell { found: cell });
        }
        if !(1..=LANES_MAX).contains(&self.lanes) {
            return Err(ShapeError::Lanes { found: self.lanes });
        }
        if !(1..=SLOTS_MAX).contains(&self.slots) {
            return Err(ShapeError::Slots { found: self.slots });
        }
        Ok(())
    }
}

/// A node that takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub node: NodeId,
    /// Where its relay listens.
    pub address: Address,
}

/// A shape over so many nodes, with everything that follows from it.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) shape: Shape,
    pub(crate) geometry: Geometry,
    /// What the client does for a stripe.
    pub(crate) client: Plan,
    /// What the node of each column does.
    pub(crate) columns: Vec<Plan>,
    /// Rings of a lane that the client needs at a node.
    from_client: usize,
    /// Rings of a lane that a node needs at one that stands so many places behind it.
    between: Vec<usize>,
    /// Sums of a lane at a node.
    pub(crate) sums: usize,
    /// Of each column and each cell that it keeps, the data cells whose XOR that is, by index.
    pub(crate) made_of: Vec<Vec<Vec<usize>>>,
}

impl Layout {
    /// Follows a shape through.
    pub(crate) fn new(shape: Shape, nodes: usize) -> Result<Self, ShapeError> {
        shape.check()?;
        let geometry = Geometry::with_parity(nodes, shape.parity)?;
        let schedule = Schedule::new(&geometry, shape.way);
        let all: Vec<Column> = geometry.columns().collect();
        let most = |from: &dyn Fn(usize) -> Sender| {
            let to = all.iter().enumerate().map(|(at, to)| rings(&schedule, from(at), *to));
            to.max().unwrap_or(0)
        };
        let from_client = most(&|_| Sender::Client);
        let before = |at: usize, distance: usize| all[(at + nodes - distance) % nodes];
        let between: Vec<usize> = (0..nodes)
            .map(|distance| match distance {
                0 => 0,
                _ => most(&|at| Sender::Column(before(at, distance))),
            })
            .collect();
        let rings = between.iter().copied().max().unwrap_or(0).max(from_client) * shape.lanes;
        if rings > RINGS_MAX {
            return Err(ShapeError::Rings { found: rings });
        }
        let columns: Vec<Plan> = all.iter().map(|column| Plan::of_column(&schedule, *column)).collect();
        let client = Plan::of_client(&schedule, geometry.data());
        let sums = columns.iter().map(|plan| plan.sums.len()).max().unwrap_or(0);
        let made_of = columns.iter().map(|plan| made_of(&geometry, plan)).collect();
        Ok(Self { shape, geometry, client, columns, from_client, between, sums, made_of })
    }

    pub(crate) fn nodes(&self) -> usize {
        self.geometry.nodes()
    }

    /// Rings of a lane that somebody (a member, or the client) needs at a member.
    pub(crate) fn rings(&self, from: Option<usize>, to: usize) -> usize {
        match from {
            None => self.from_client,
            Some(from) => {
                let nodes = self.nodes();
                self.between[(to % nodes + nodes - from % nodes) % nodes]
            }
        }
    }

    /// Slots of all rings of a link with so many rings a lane.
    pub(crate) fn slots_of_link(&self, rings: usize) -> usize {
        self.shape.lanes * rings * self.shape.slots
    }

    /// Memory that a node needs for a session, in bytes: rings and sums, checksums of the cells that it keeps, and links.
    pub(crate) fn node_bytes(&self) -> u64 {
        let rings = self.from_client + self.between.iter().sum::<usize>() + self.sums;
        let nodes = self.nodes() as u64;
        // Names of slices and credits are a sixty-fourth of a slot at most.
        let slots =
            self.slots_of_link(rings) as u64 * (self.shape.slice_bytes as u64 + 64) + nodes * 4 * 4096;
        let kept = self.columns.iter().map(|plan| plan.keeps.len()).max().unwrap_or(0) as u64;
        let checksums = kept * u64::from(self.slices(self.shape.cell_bytes_max)) * size_of::<u32>() as u64;
        slots + self.shape.lanes as u64 * checksums + nodes * LINKS_PER_MEMBER * LINK_BYTES
    }

    /// Where a slice of a lane's sum lies among those of the place.
    pub(crate) fn sum_offset(&self, sums: usize, (lane, sum): (usize, usize), slice: u32) -> usize {
        let slot = slice as usize % self.shape.slots;
        ((lane * sums + sum) * self.shape.slots + slot) * self.shape.slice_bytes
    }

    /// How many slices a cell of so many bytes has.
    pub(crate) fn slices(&self, cell_bytes: u64) -> u32 {
        u32::try_from(cell_bytes.div_ceil(self.shape.slice_bytes as u64)).unwrap_or(u32::MAX)
    }

    /// Bytes of this slice of a cell.
    pub(crate) fn slice_length(&self, cell_bytes: u64, slice: u32) -> usize {
        let from = u64::from(slice) * self.shape.slice_bytes as u64;
        usize::try_from(cell_bytes.saturating_sub(from)).unwrap_or(usize::MAX).min(self.shape.slice_bytes)
    }

    /// Whether a cell may have so many bytes.
    pub(crate) fn fits(&self, cell_bytes: u64) -> bool {
        cell_bytes > 0
            && cell_bytes <= self.shape.cell_bytes_max
            && cell_bytes.is_multiple_of(SECTOR_BYTES as u64)
    }

    /// The slots of a ring, as its ends count them.
    pub(crate) fn slots(&self) -> u32 {
        u32::try_from(self.shape.slots).unwrap_or(1)
    }
}

/// Of each kept cell, the data cells whose XOR it is.
fn made_of(geometry: &Geometry, plan: &Plan) -> Vec<Vec<usize>> {
    let data = |cells: &[Cell]| {
        cells.iter().filter_map(|cell| geometry.data().iter().position(|data| data == cell)).collect()
    };
    let of = |keeping: &Keeping| {
        let parity = geometry.equations().iter().find(|equation| equation.parity == keeping.cell);
        parity.map_or_else(|| data(&[keeping.cell]), |equation| data(&equation.data))
    };
    plan.keeps.iter().map(of).collect()
}

/// Layouts that were followed through already: with many nodes that takes a while.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    pub(crate) made: Vec<Arc<Layout>>,
}

impl Layouts {
    /// So many are kept.
    const KEPT: usize = 8;

    pub(crate) fn of(&mut self, shape: Shape, nodes: usize) -> Result<Arc<Layout>, ShapeError> {
        let same = |layout: &&Arc<Layout>| layout.shape == shape && layout.nodes() == nodes;
        if let Some(layout) = self.made.iter().find(same) {
            return Ok(Arc::clone(layout));
        }
        let layout = Arc::new(Layout::new(shape, nodes)?);
        if self.made.len() >= Self::KEPT {
            self.made.remove(0);
        }
        self.made.push(Arc::clone(&layout));
        Ok(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(parity: Parity, way: Way) -> Shape {
        Shape::new(parity, way, 1 << 20)
    }

    #[test]
    fn rings_suffice_for_every_rotation() {
        for parity in [Parity::Xor, Parity::TwoD] {
            for nodes in parity.nodes_min()..=11 {
                for way in [Way::Bare, Way::Naive, Way::Relay] {
                    let layout = Layout::new(shape(parity, way), nodes).unwrap();
                    let schedule = Schedule::new(&layout.geometry, way);
                    for stripe in 0..nodes as u64 {
                        let node = |column| usize::from(layout.geometry.node_of(stripe, column).unwrap().0);
                        for to in layout.geometry.columns() {
                            assert!(rings(&schedule, Sender::Client, to) <= layout.rings(None, node(to)));
                            for from in layout.geometry.columns() {
                                let needed = rings(&schedule, Sender::Column(from), to);
                                assert!(needed <= layout.rings(Some(node(from)), node(to)));
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_session_takes_memory_for_checksums_and_links_beside_its_rings() {
        let small =
            Shape { slice_bytes: SECTOR_BYTES, slots: 2, ..Shape::new(Parity::TwoD, Way::Relay, 4096) };
        let long = Shape { cell_bytes_max: 1 << 32, ..small };
        let (small_bytes, long_bytes) = (small.node_bytes(5).unwrap(), long.node_bytes(5).unwrap());
        assert!(small_bytes > 5 * LINK_BYTES);
        // A checksum of four bytes for each slice of each cell that is kept, for each stripe under way.
        let kept = Layout::new(long, 5).unwrap().columns.iter().map(|plan| plan.keeps.len()).max().unwrap();
        let checksums = ((1_u64 << 32) / 4096 - 1) * 4 * kept as u64 * small.lanes as u64;
        assert_eq!(long_bytes - small_bytes, checksums);
        assert!(Shape { slots: 0, ..small }.node_bytes(5).is_err());
    }

    #[test]
    fn shapes_beyond_the_limits_are_refused() {
        let good = shape(Parity::TwoD, Way::Relay);
        let refused = |shape| Layout::new(shape, 5).unwrap_err();
        assert!(matches!(refused(Shape { slice_bytes: 5000, ..good }), ShapeError::Slice { found: 5000 }));
        assert!(matches!(refused(Shape { slice_bytes: 0, ..good }), ShapeError::Slice { .. }));
        assert!(matches!(refused(Shape { slice_bytes: 8 << 20, ..good }), ShapeError::Slice { .. }));
        assert!(matches!(refused(Shape { cell_bytes_max: 0, ..good }), ShapeError::Cell { .. }));
        assert!(matches!(refused(Shape { cell_bytes_max: 1 << 33, ..good }), ShapeError::Cell { .. }));
        let many = Shape { cell_bytes_max: 1 << 32, slice_bytes: 4096, ..good };
        assert!(Layout::new(many, 5).is_ok());
        assert!(matches!(refused(Shape { lanes: 0, ..good }), ShapeError::Lanes { .. }));
        assert!(matches!(refused(Shape { slots: 0, ..good }), ShapeError::Slots { .. }));
        assert!(matches!(Layout::new(good, 2).unwrap_err(), ShapeError::Stripe(_)));
    }
}
