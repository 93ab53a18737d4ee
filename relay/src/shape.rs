//! Derives the layout of a session (rings, slots and memory of each place) from its parameters,
//! which are its *shape*: parity, task, lengths of cells and slices, number of lanes and slots.
//!
//! Invariants
//! - The functions are pure, and give the same result at every place of a session.
//! - The node of a column changes from stripe to stripe (the columns rotate). So rings are counted
//!   for pairs of nodes: each pair has as many as any rotation needs.

use std::sync::Arc;

use rackscan_fabric::Address;
use rackscan_format::ids::NodeId;
use rackscan_stripe::{Cell, Column, Geometry, Parity, Sender};

use crate::{
    checksum::{self, AppendTable},
    limits::{
        CELL_BYTES_MAX, LANES_MAX, LINK_BYTES, LINKS_PER_MEMBER, RINGS_MAX, SECTOR_BYTES, SLICE_BYTES_MAX,
        SLICES_MAX, SLOTS_MAX,
    },
    plan::{Keeping, Plan},
    shape_error::ShapeError,
    task::{Task, Transfers},
};

/// The parameters of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The parity that protects its stripes. Without protection, it only determines where data
    /// cells lie.
    pub parity: Parity,
    /// What its stripes are for.
    pub task: Task,
    /// The maximum length of a cell, in bytes; a multiple of [`SECTOR_BYTES`].
    pub cell_bytes_max: u64,
    /// The length of a slice, in bytes; a multiple of [`SECTOR_BYTES`].
    pub slice_bytes: usize,
    /// The maximum number of stripes in progress.
    pub lanes: usize,
    /// Slices that a ring holds.
    pub slots: usize,
}

impl Shape {
    /// A shape with slices of 64 KiB, eight slots in a ring, and two lanes.
    #[must_use]
    pub fn new(parity: Parity, task: impl Into<Task>, cell_bytes_max: u64) -> Self {
        let task = task.into();
        Self { parity, task, cell_bytes_max, slice_bytes: 64 << 10, lanes: 2, slots: 8 }
    }

    /// The memory that each of `nodes` nodes needs for such a session, in bytes.
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

/// A node that takes part in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub node: NodeId,
    /// Where its relay listens.
    pub address: Address,
}

/// What each column does in stripes of one rotation of the columns over the members.
#[derive(Clone, Debug)]
pub(crate) struct Rotation {
    /// What the node of each column does.
    pub(crate) columns: Vec<Plan>,
    /// The cells that exist at the beginning, ascending: those that the client sends, or those that
    /// nodes read.
    pub(crate) initial: Vec<Cell>,
    /// For each column and each cell that it keeps, the indices in `initial` of the cells whose XOR
    /// it is.
    pub(crate) made_of: Vec<Vec<Vec<usize>>>,
}

impl Rotation {
    fn new(transfers: &Transfers, geometry: &Geometry) -> Self {
        let columns: Vec<Plan> =
            geometry.columns().map(|column| Plan::of_column(transfers, column)).collect();
        let held = columns.iter().flat_map(|plan| plan.held.iter().copied());
        let mut initial: Vec<Cell> = held.collect();
        if initial.is_empty() {
            initial = geometry.data().to_vec();
        }
        initial.sort_unstable();
        let made_of = columns.iter().map(|plan| made_of(transfers, &initial, plan)).collect();
        Self { columns, initial, made_of }
    }
}

/// A shape over a number of nodes, with everything that follows from it.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) shape: Shape,
    pub(crate) geometry: Geometry,
    /// What the client does for a stripe.
    pub(crate) client: Plan,
    /// What nodes do, for each rotation; stripes use the rotations in turn.
    pub(crate) rotations: Vec<Rotation>,
    /// Rings per lane that the client needs at a node.
    from_client: usize,
    /// Rings per lane that a node needs at another one, by the distance between them.
    between: Vec<usize>,
    /// Sources per lane that lie in slots of the node's own: cells that it reads, and sums.
    pub(crate) own: usize,
    /// Appends the checksum of a whole slice.
    pub(crate) slice_append: AppendTable,
}

impl Layout {
    /// Derives the layout of a shape.
    pub(crate) fn new(shape: Shape, nodes: usize) -> Result<Self, ShapeError> {
        shape.check()?;
        let geometry = Geometry::with_parity(nodes, shape.parity)?;
        let rotations = 0..Transfers::rotations(shape.task, nodes);
        let all = rotations.map(|stripe| Transfers::of(shape.task, &geometry, stripe));
        let all: Vec<Transfers> = all.collect::<Result<_, _>>()?;
        let columns: Vec<Column> = geometry.columns().collect();
        let most = |from: &dyn Fn(usize) -> Sender| {
            let to = |transfers: &Transfers| {
                let rings = columns.iter().enumerate().map(|(at, to)| transfers.rings(from(at), *to));
                rings.max().unwrap_or(0)
            };
            all.iter().map(to).max().unwrap_or(0)
        };
        let from_client = most(&|_| Sender::Client);
        let before = |at: usize, distance: usize| columns[(at + nodes - distance) % nodes];
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
        let client = all.first().map(|transfers| Plan::of_client(transfers, geometry.data()));
        let rotations: Vec<Rotation> =
            all.iter().map(|transfers| Rotation::new(transfers, &geometry)).collect();
        let own = rotations.iter().flat_map(|rotation| &rotation.columns).map(Plan::own).max().unwrap_or(0);
        Ok(Self {
            client: client.unwrap_or_default(),
            slice_append: AppendTable::new(shape.slice_bytes),
            shape,
            geometry,
            rotations,
            from_client,
            between,
            own,
        })
    }

    /// The rotation of this stripe.
    pub(crate) fn rotation(&self, stripe: u64) -> &Rotation {
        let rotation = stripe % self.rotations.len() as u64;
        &self.rotations[usize::try_from(rotation).expect("below the number of rotations")]
    }

    /// The CRC-32C of a cell of zeros.
    pub(crate) fn zeros_of_cell(&self, cell_bytes: u64) -> u32 {
        let slices = self.slices(cell_bytes);
        let last = self.slice_length(cell_bytes, slices.saturating_sub(1));
        let whole = checksum::of_zeros(self.shape.slice_bytes);
        let before = (1..slices).fold(0, |before, _| self.slice_append.append(before, whole));
        self.append(before, checksum::of_zeros(last), last)
    }

    /// The CRC-32C of the first slices of a cell: `before` is that of all but the last of them,
    /// `slice` and `length` describe the last.
    pub(crate) fn append(&self, before: u32, slice: u32, length: usize) -> u32 {
        match length == self.shape.slice_bytes {
            true => self.slice_append.append(before, slice),
            false => checksum::append(before, slice, length),
        }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.geometry.nodes()
    }

    /// Rings per lane that a member, or the client (`None`), needs at a member.
    pub(crate) fn rings(&self, from: Option<usize>, to: usize) -> usize {
        match from {
            None => self.from_client,
            Some(from) => {
                let nodes = self.nodes();
                self.between[(to % nodes + nodes - from % nodes) % nodes]
            }
        }
    }

    /// Slots of all rings of a link with `rings` rings per lane.
    pub(crate) fn slots_of_link(&self, rings: usize) -> usize {
        self.shape.lanes * rings * self.shape.slots
    }

    /// Memory that a node needs for a session, in bytes: rings, slots of its own, and links.
    pub(crate) fn node_bytes(&self) -> u64 {
        let rings = self.from_client + self.between.iter().sum::<usize>() + self.own;
        let nodes = self.nodes() as u64;
        // Names of slices and credits take at most a sixty-fourth of a slot.
        let slots =
            self.slots_of_link(rings) as u64 * (self.shape.slice_bytes as u64 + 64) + nodes * 4 * 4096;
        slots + nodes * LINKS_PER_MEMBER * LINK_BYTES
    }

    /// The offset of a slice in a place's own slots, where each lane has `own` sources.
    pub(crate) fn own_offset(&self, own: usize, (lane, number): (usize, usize), slice: u32) -> usize {
        let slot = slice as usize % self.shape.slots;
        ((lane * own + number) * self.shape.slots + slot) * self.shape.slice_bytes
    }

    /// The number of slices of a cell, whose length [`Self::fits`].
    pub(crate) fn slices(&self, cell_bytes: u64) -> u32 {
        let slices = cell_bytes.div_ceil(self.shape.slice_bytes as u64);
        u32::try_from(slices).expect("a cell that fits has at most SLICES_MAX slices")
    }

    /// The length of this slice of a cell.
    pub(crate) fn slice_length(&self, cell_bytes: u64, slice: u32) -> usize {
        let from = u64::from(slice) * self.shape.slice_bytes as u64;
        let length = cell_bytes.saturating_sub(from).min(self.shape.slice_bytes as u64);
        usize::try_from(length).expect("at most the length of a slice")
    }

    /// Whether a cell may have this length.
    pub(crate) fn fits(&self, cell_bytes: u64) -> bool {
        cell_bytes > 0
            && cell_bytes <= self.shape.cell_bytes_max
            && cell_bytes.is_multiple_of(SECTOR_BYTES as u64)
    }

    /// The number of slots in a ring.
    pub(crate) fn slots(&self) -> u32 {
        u32::try_from(self.shape.slots).expect("a ring has at most SLOTS_MAX slots")
    }
}

/// For each kept cell, the indices in `initial` of the cells whose XOR it is.
fn made_of(transfers: &Transfers, initial: &[Cell], plan: &Plan) -> Vec<Vec<usize>> {
    let of = |keeping: &Keeping| {
        let kept = transfers.kept.iter().find(|kept| kept.cell == keeping.cell);
        let cells = kept.map_or(&[][..], |kept| &kept.made_of);
        cells.iter().filter_map(|cell| initial.binary_search(cell).ok()).collect()
    };
    plan.keeps.iter().map(of).collect()
}

/// Caches layouts, because deriving one takes a while with many nodes.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    pub(crate) made: Vec<Arc<Layout>>,
}

impl Layouts {
    /// The number of layouts that are cached.
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
    use rackscan_stripe::Way;

    use super::*;
    use crate::task::LostMembers;

    fn shape(parity: Parity, task: impl Into<Task>) -> Shape {
        Shape::new(parity, task, 1 << 20)
    }

    #[test]
    fn rings_suffice_for_every_rotation() {
        for parity in [Parity::Xor, Parity::TwoD] {
            for nodes in parity.nodes_min()..=11 {
                let ways = [Way::Bare, Way::Naive, Way::Relay].map(Task::Write);
                let lost = (0..nodes).map(|lost| Task::Rebuild(LostMembers::of(&[lost])));
                for task in ways.into_iter().chain([Task::Protect]).chain(lost) {
                    let layout = Layout::new(shape(parity, task), nodes).unwrap();
                    for stripe in 0..nodes as u64 {
                        let transfers = Transfers::of(task, &layout.geometry, stripe).unwrap();
                        let node = |column| usize::from(layout.geometry.node_of(stripe, column).unwrap().0);
                        for to in layout.geometry.columns() {
                            assert!(transfers.rings(Sender::Client, to) <= layout.rings(None, node(to)));
                            for from in layout.geometry.columns() {
                                let needed = transfers.rings(Sender::Column(from), to);
                                assert!(needed <= layout.rings(Some(node(from)), node(to)));
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_session_takes_memory_for_links_beside_its_rings_and_what_it_reads() {
        let small =
            Shape { slice_bytes: SECTOR_BYTES, slots: 2, ..Shape::new(Parity::TwoD, Way::Relay, 4096) };
        let long = Shape { cell_bytes_max: 1 << 32, ..small };
        let (small_bytes, long_bytes) = (small.node_bytes(5).unwrap(), long.node_bytes(5).unwrap());
        assert!(small_bytes > 5 * LINK_BYTES);
        assert_eq!(small_bytes, long_bytes, "memory does not grow with cells");
        // What the client would send is read instead: as many slots, but not in rings.
        let here = Layout::new(Shape { task: Task::Protect, ..small }, 5).unwrap();
        assert!(here.own >= 3, "{}", here.own);
        assert!(Shape { slots: 0, ..small }.node_bytes(5).is_err());
    }

    #[test]
    fn the_checksum_of_a_cell_is_that_of_its_slices_one_behind_the_other() {
        let layout = Layout::new(shape(Parity::Xor, Way::Relay), 3).unwrap();
        for length in [4096, 64 << 10, 100 << 10, 192 << 10] {
            let bytes: Vec<u8> = (0..length).map(|at: u32| u8::try_from(at % 251).unwrap()).collect();
            let slices = bytes.chunks(layout.shape.slice_bytes);
            let found =
                slices.fold(0, |before, slice| layout.append(before, crc32c::crc32c(slice), slice.len()));
            assert_eq!(found, crc32c::crc32c(&bytes));
            let zeros = vec![0; bytes.len()];
            assert_eq!(layout.zeros_of_cell(length.into()), crc32c::crc32c(&zeros));
        }
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
        let nothing = Shape { task: Task::Rebuild(LostMembers::of(&[])), ..good };
        assert!(matches!(refused(nothing), ShapeError::NothingLost));
    }
}
