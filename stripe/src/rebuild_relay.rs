//! Schedules the transfers that bring the cells of a lost node to the node that replaces it (the
//! *replacement node*).
//!
//! Each lost cell is the XOR of other cells ([`Geometry::rebuild`] says which). The nodes that have
//! these cells form a chain: the first node sends its cell to the next, which XORs its own cell to
//! what arrives and sends the result on, and the last node sends the lost cell to the replacement
//! node. So the replacement node receives only the cells that it will store, and not all cells that
//! are read. All chains run at once, slice by slice (a slice is a part of a cell).
//!
//! A cell that two chains need is read once, and kept in memory until both chains have used it
//! ([`Rebuild::slices_held`]). With two lost nodes, a rebuilt cell of one replacement node may be
//! needed for a cell of the other. Then it is sent to a surviving node of that chain, which XORs it
//! in as well. That node stands as late in the chain as the arrival of the rebuilt cell requires,
//! so that the nodes before it need not wait for that cell. A replacement node never receives more
//! than its own cells.
//!
//! Invariants
//! - A replacement node receives each of its cells once, and nothing else.
//! - No node sends or receives more than [`Rebuild::bound`]: one cell per lost cell. Each node
//!   sends at most once in a chain. With two lost nodes, a node may receive twice in one chain: a
//!   rebuilt cell, and what the node before it in the chain sends. Such a node is the first of
//!   other chains, for which it receives nothing (checked for every pair of up to 17 nodes).
//! - What arrives is sent on at the next tick, unless it is a lost cell: it is never kept longer. A
//!   tick is the time in which each step sends one slice.
//! - Steps are listed after their inputs.

use crate::cell::{Cell, Column, Lost};
use crate::error::StripeError;
use crate::geometry::{Geometry, byte};
use crate::recovery::Repair;
use crate::schedule::Load;
use crate::step::{StepId, at_tick};
use serde::Serialize;

/// One transfer of a rebuild, as long as a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RebuildStep {
    /// The column whose node sends; for a lost column, the replacement node.
    pub from: Column,
    /// The column whose node receives; for a lost column, the replacement node.
    pub to: Column,
    /// The lost cell that the chain ends with.
    pub toward: Cell,
    /// The cells whose XOR is sent. Lost ones among them were rebuilt by earlier steps.
    pub carries: Vec<Cell>,
    /// Stored cells that the sender XORs into what it sends.
    pub reads: Vec<Cell>,
    /// Steps to the sender whose payloads are XORed into what it sends: what passes along the
    /// chain, or a cell that it has just rebuilt.
    pub inputs: Vec<StepId>,
    /// The tick, counted from the very first step, at which it sends its first slice: just after
    /// the slice of its inputs has arrived.
    pub depth: u16,
}

/// A rebuilt cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Rebuilt {
    /// The cell.
    pub cell: Cell,
    /// The step whose payload it is.
    pub by: StepId,
}

/// The transfers that rebuild the lost cells of a stripe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rebuild {
    nodes: usize,
    reads: Vec<Cell>,
    steps: Vec<RebuildStep>,
    rebuilt: Vec<Rebuilt>,
}

impl Rebuild {
    /// The rebuild of these columns, for stripes of this geometry.
    ///
    /// # Errors
    /// [`StripeError::TooManyLost`] if more are lost than the parity can recover.
    pub fn new(geometry: &Geometry, lost: Lost) -> Result<Self, StripeError> {
        let (parity, nodes) = (geometry.parity(), geometry.nodes());
        if lost.count() > parity.lost_max() {
            return Err(StripeError::TooManyLost { found: lost.count(), parity, nodes });
        }
        let recovery = geometry.rebuild(lost);
        let mut chains: Vec<Chain> =
            recovery.repairs.into_iter().map(|repair| Chain::of(repair, lost)).collect();
        share_ends(&mut chains, nodes);
        let mut rebuild = Self { nodes, reads: recovery.reads, steps: Vec::new(), rebuilt: Vec::new() };
        for chain in chains {
            rebuild.append(chain);
        }
        Ok(rebuild)
    }

    /// The transfers, each after its inputs.
    #[must_use]
    pub fn steps(&self) -> &[RebuildStep] {
        &self.steps
    }

    /// The lost cells, each with the step that brings it.
    #[must_use]
    pub fn rebuilt(&self) -> &[Rebuilt] {
        &self.rebuilt
    }

    /// The cells that survivors read from their storage, each once: as many as
    /// [`Geometry::rebuild`] says.
    #[must_use]
    pub fn reads(&self) -> &[Cell] {
        &self.reads
    }

    /// The number of bytes read per rebuilt byte; 0 if nothing is lost.
    #[must_use]
    pub fn reads_per_cell(&self) -> f64 {
        if self.rebuilt.is_empty() { 0.0 } else { self.reads.len() as f64 / self.rebuilt.len() as f64 }
    }

    /// The maximum number of cells that a node sends, and that it receives: the number of rebuilt
    /// cells. So, with equal links, a rebuild takes no longer than one link needs for the lost
    /// cells. The replacement of a single lost node receives exactly so many.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.rebuilt.len()
    }

    /// What the node of each column sends, receives and XORs, in cells; for a lost column, the
    /// replacement node.
    #[must_use]
    pub fn loads(&self) -> Vec<Load> {
        let mut loads = vec![Load::default(); self.nodes];
        for step in &self.steps {
            loads[usize::from(step.to.0)].received += 1;
            let sender = &mut loads[usize::from(step.from.0)];
            sender.sent += 1;
            sender.xors += (step.reads.len() + step.inputs.len()).saturating_sub(1);
        }
        loads
    }

    /// The maximum number of steps that a slice takes, one after the other.
    #[must_use]
    pub fn hops(&self) -> usize {
        self.steps.iter().map(|step| usize::from(step.depth) + 1).max().unwrap_or(0)
    }

    /// The number of slices of a surviving cell for which its node needs room, to read it once:
    /// from the first step that needs a slice to the last. 0 if it is not read.
    #[must_use]
    pub fn slices_held(&self, cell: Cell) -> usize {
        let depths = self.steps.iter().filter(|step| step.reads.contains(&cell)).map(|step| step.depth);
        match (depths.clone().min(), depths.max()) {
            (Some(first), Some(last)) => usize::from(last - first) + 1,
            _ => 0,
        }
    }

    /// The steps that send at this tick, each with its slice, if each step sends one slice per
    /// tick. A stripe is complete after `slices + hops() - 1` ticks.
    pub fn at(&self, tick: usize, slices: usize) -> impl Iterator<Item = (StepId, usize)> {
        at_tick(self.steps.iter().map(|step| step.depth), tick, slices)
    }

    /// Adds the steps of a chain.
    fn append(&mut self, mut chain: Chain) {
        let toward = chain.toward;
        let back =
            chain.back.and_then(|cell| self.rebuilt.iter().find(|rebuilt| rebuilt.cell == cell).copied());
        let last = chain.links.len().saturating_sub(1);
        // A slice arrives at the replacement node at one tick, is sent by it at the next, and by a
        // survivor at the one after that.
        let sent_by_survivor =
            back.and_then(|back| Some(self.steps.get(usize::from(back.by.0))?.depth + 2)).unwrap_or(0);
        let joins_at = usize::from(sent_by_survivor).min(last);
        if joins_at > 1 {
            chain.links[1..=joins_at].rotate_left(1);
        }
        let first_depth = sent_by_survivor - u16::from(byte(joins_at));
        let columns: Vec<Column> = chain.links.iter().map(|link| link.column).collect();
        let receiver = |at: usize| columns.get(at).copied().unwrap_or(toward.column);
        let mut passing: Option<StepId> = None;
        let mut joining = back.map(|back| {
            let (from, inputs) = (back.cell.column, vec![back.by]);
            let (carries, reads, depth) = (vec![back.cell], Vec::new(), sent_by_survivor - 1);
            self.push(RebuildStep { from, to: receiver(joins_at), toward, carries, reads, inputs, depth })
        });
        let mut carries = Vec::new();
        for ((at, link), depth) in chain.links.into_iter().enumerate().zip(first_depth..) {
            let joined = if at == joins_at { joining.take() } else { None };
            carries.extend(link.cells.iter().copied());
            carries.extend(joined.and(back).map(|back| back.cell));
            let step = RebuildStep {
                from: link.column,
                to: receiver(at + 1),
                toward,
                carries: carries.clone(),
                reads: link.cells,
                inputs: passing.into_iter().chain(joined).collect(),
                depth,
            };
            passing = Some(self.push(step));
        }
        self.rebuilt.extend(passing.or(joining).map(|by| Rebuilt { cell: toward, by }));
    }

    fn push(&mut self, step: RebuildStep) -> StepId {
        let id =
            StepId(u16::try_from(self.steps.len()).expect("a rebuild has fewer than 4 * CELLS_MAX steps"));
        self.steps.push(step);
        id
    }
}

/// The survivors that contribute to a lost cell, in the order of the chain.
struct Chain {
    toward: Cell,
    /// First the node that begins, then the node that receives a rebuilt cell as well, if there is
    /// one.
    links: Vec<ChainNode>,
    /// A lost cell that it needs as well, and that is rebuilt before.
    back: Option<Cell>,
}

/// The contribution of one node to a chain.
struct ChainNode {
    column: Column,
    cells: Vec<Cell>,
}

impl Chain {
    /// A chain with its columns in order.
    fn of(repair: Repair, lost: Lost) -> Self {
        let (back, mut from): (Vec<Cell>, Vec<Cell>) =
            repair.from.into_iter().partition(|cell| lost.has(cell.column));
        from.sort_unstable();
        let cells = from.chunk_by(|one, other| one.column == other.column);
        let links = cells.map(|cells| ChainNode { column: cells[0].column, cells: cells.to_vec() }).collect();
        // Of two lost columns one has the repaired cell, and an equation has at most one cell of
        // the other.
        Self { toward: repair.cell, links, back: back.first().copied() }
    }
}

/// Chooses the ends of each chain: it begins with the node that receives most, because the first
/// node receives nothing for it; the node that receives least also receives the rebuilt cell.
/// Chains with the fewest nodes choose first.
fn share_ends(chains: &mut [Chain], nodes: usize) {
    let mut received = vec![0_usize; nodes];
    for link in chains.iter().flat_map(|chain| &chain.links) {
        received[usize::from(link.column.0)] += 1;
    }
    let mut order: Vec<&mut Chain> = chains.iter_mut().collect();
    order.sort_by_key(|chain| chain.links.len());
    for Chain { links, back, .. } in order {
        let count = |link: &ChainNode, received: &[usize]| received[usize::from(link.column.0)];
        if let Some(most) = (0..links.len()).max_by_key(|at| count(&links[*at], &received)) {
            received[usize::from(links[most].column.0)] -= 1;
            links[..=most].rotate_right(1);
        }
        if back.is_none() {
            continue;
        }
        // The only node of a chain begins it and receives the rebuilt cell.
        let least = (1..links.len()).min_by_key(|at| count(&links[*at], &received)).unwrap_or(0);
        if let Some(link) = links.get(least) {
            received[usize::from(link.column.0)] += 1;
        }
        if least > 1 {
            links[1..=least].rotate_right(1);
        }
    }
}
