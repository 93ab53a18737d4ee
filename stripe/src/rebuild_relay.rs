//! By which transfers do the cells of a lost node come to the node that takes its place?
//!
//! Each lost cell is the XOR of others ([`Geometry::rebuild`] says of which). The nodes that have them are a chain: the first sends its cell to the
//! next, which XORs its own to what arrives and sends that on, and the last one sends the lost cell to the node that takes the lost one's place. That node so receives
//! what it is to hold and nothing else, where it would otherwise receive everything that is read. All chains run at once, slice by slice.
//!
//! A cell that two chains need is read once and held until both have passed it ([`Rebuild::slices_held`]). With two lost nodes, a cell
//! that one of the new nodes has just received may be needed for a cell of the other: then that node begins the chain, so that it never receives more than its own cells.
//!
//! Invariants
//! - Who takes the place of a lost node receives each of its cells once, and nothing else.
//! - No node sends or receives more than [`Rebuild::bound`]: one cell per lost cell, because each node is in each chain at most once.
//! - What arrives is sent on at the next tick, or it is a lost cell: it is never held for longer.
//! - Steps stand behind their inputs.

use crate::cell::{Cell, Column, Lost};
use crate::error::StripeError;
use crate::geometry::Geometry;
use crate::recovery::Repair;
use crate::schedule::{Load, StepId, at_tick, step_ids};
use serde::Serialize;

/// One transfer of a rebuild, as long as a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RebuildStep {
    /// Which column's node sends; of a lost column, the node that takes its place.
    pub from: Column,
    /// Which column's node receives; of a lost column, the node that takes its place.
    pub to: Column,
    /// The lost cell that the chain ends with.
    pub toward: Cell,
    /// The cells whose XOR is sent; of those that are lost, all have come back by steps before.
    pub carries: Vec<Cell>,
    /// Cells that the sender has stored, and XORs into what it sends.
    pub reads: Vec<Cell>,
    /// Steps to the sender whose payloads are XORed into what it sends: what passes along the chain, or a cell that it has just got back.
    pub inputs: Vec<StepId>,
    /// How many steps must have brought a slice before this one can send it, one after the other.
    pub depth: u16,
}

/// A lost cell that has come back.
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
    /// How stripes of this geometry come to be whole again without these columns.
    ///
    /// # Errors
    /// [`StripeError::TooManyLost`] if more are lost than the parities make up for.
    pub fn new(geometry: &Geometry, lost: Lost) -> Result<Self, StripeError> {
        let (parity, nodes) = (geometry.parity(), geometry.nodes());
        if lost.count() > parity.lost_max() {
            return Err(StripeError::TooManyLost { found: lost.count(), parity, nodes });
        }
        let recovery = geometry.rebuild(lost);
        let mut chains: Vec<Chain> =
            recovery.repairs.into_iter().map(|repair| Chain::of(repair, lost)).collect();
        begin_evenly(&mut chains, nodes);
        let mut rebuild = Self { nodes, reads: recovery.reads, steps: Vec::new(), rebuilt: Vec::new() };
        for chain in chains {
            rebuild.append(chain, lost);
        }
        Ok(rebuild)
    }

    /// The transfers, each behind its inputs.
    #[must_use]
    pub fn steps(&self) -> &[RebuildStep] {
        &self.steps
    }

    /// The lost cells, each with the step that brings it.
    #[must_use]
    pub fn rebuilt(&self) -> &[Rebuilt] {
        &self.rebuilt
    }

    /// The cells that survivors read from their storage, each once: as many as [`Geometry::rebuild`] says.
    #[must_use]
    pub fn reads(&self) -> &[Cell] {
        &self.reads
    }

    /// How many bytes are read per rebuilt byte; 0 if nothing is lost.
    #[must_use]
    pub fn reads_per_cell(&self) -> f64 {
        if self.rebuilt.is_empty() { 0.0 } else { self.reads.len() as f64 / self.rebuilt.len() as f64 }
    }

    /// The most cells that a node sends, and the most that it receives: as many as are rebuilt. So where links are alike, a rebuild takes no longer than
    /// one link needs for the lost cells; the node that takes the place of a single lost one receives exactly so many.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.rebuilt.len()
    }

    /// What the node of each column sends, receives and XORs, in cells; of a lost column, the node that takes its place.
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

    /// How many steps a slice takes at most, one after the other.
    #[must_use]
    pub fn hops(&self) -> usize {
        self.steps.iter().map(|step| usize::from(step.depth) + 1).max().unwrap_or(0)
    }

    /// For how many slices of a surviving cell its node needs room, so as to read it once: from the first step that needs a slice to the last. 0 if it is not read.
    #[must_use]
    pub fn slices_held(&self, cell: Cell) -> usize {
        let depths = self.steps.iter().filter(|step| step.reads.contains(&cell)).map(|step| step.depth);
        match (depths.clone().min(), depths.max()) {
            (Some(first), Some(last)) => usize::from(last - first) + 1,
            _ => 0,
        }
    }

    /// Which steps send which slice at this tick, where each step sends one slice per tick: a stripe of so many slices is
    /// whole after `slices + hops() - 1` ticks.
    pub fn at(&self, tick: usize, slices: usize) -> impl Iterator<Item = (StepId, usize)> {
        at_tick(self.steps.iter().map(|step| step.depth), tick, slices)
    }

    /// Adds the steps of a chain.
    fn append(&mut self, chain: Chain, lost: Lost) {
        let mut passing: Option<StepId> = None;
        let mut carries = Vec::new();
        let columns: Vec<Column> = chain.links.iter().map(|link| link.column).collect();
        for (at, link) in chain.links.into_iter().enumerate() {
            let to = columns.get(at + 1).copied().unwrap_or(chain.toward.column);
            carries.extend(link.cells.iter().copied());
            let (back, reads): (Vec<Cell>, Vec<Cell>) =
                link.cells.into_iter().partition(|cell| lost.has(cell.column));
            let brought = self.rebuilt.iter().filter(|rebuilt| back.contains(&rebuilt.cell));
            let inputs: Vec<StepId> = passing.into_iter().chain(brought.map(|rebuilt| rebuilt.by)).collect();
            let arrived = inputs.iter().filter_map(|input| self.steps.get(usize::from(input.0)));
            let depth = arrived.map(|step| step.depth + 1).max().unwrap_or(0);
            passing = step_ids(self.steps.len() + 1).last();
            let carries = carries.clone();
            self.steps.push(RebuildStep {
                from: link.column,
                to,
                toward: chain.toward,
                carries,
                reads,
                inputs,
                depth,
            });
        }
        self.rebuilt.extend(passing.map(|by| Rebuilt { cell: chain.toward, by }));
    }
}

/// The nodes that have a part in a lost cell, in the order in which it passes them.
struct Chain {
    toward: Cell,
    links: Vec<Link>,
    /// A node that takes a lost one's place begins.
    is_begun: bool,
}

/// A node's part in a chain.
struct Link {
    column: Column,
    cells: Vec<Cell>,
}

impl Chain {
    /// The columns in order, but lost ones first.
    fn of(repair: Repair, lost: Lost) -> Self {
        let mut from = repair.from;
        from.sort_unstable_by_key(|cell| (!lost.has(cell.column), *cell));
        let cells = from.chunk_by(|one, other| one.column == other.column);
        let links: Vec<Link> =
            cells.map(|cells| Link { column: cells[0].column, cells: cells.to_vec() }).collect();
        let is_begun = links.first().is_some_and(|link| lost.has(link.column));
        Self { toward: repair.cell, links, is_begun }
    }
}

/// Lets each chain begin with the node that receives most, because who begins receives nothing for it. Chains with the least choice choose first.
fn begin_evenly(chains: &mut [Chain], nodes: usize) {
    let mut received = vec![0_usize; nodes];
    for chain in chains.iter() {
        for link in chain.links.iter().skip(usize::from(chain.is_begun)) {
            received[usize::from(link.column.0)] += 1;
        }
    }
    let mut free: Vec<&mut Chain> = chains.iter_mut().filter(|chain| !chain.is_begun).collect();
    free.sort_by_key(|chain| chain.links.len());
    for chain in free {
        let most = (0..chain.links.len()).max_by_key(|at| received[usize::from(chain.links[*at].column.0)]);
        if let Some(at) = most {
            received[usize::from(chain.links[at].column.0)] -= 1;
            chain.links[..=at].rotate_right(1);
        }
    }
}
