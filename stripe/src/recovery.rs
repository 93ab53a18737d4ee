//! Finds the surviving cells from which lost cells are recovered.
//!
//! An equation (a row or a diagonal, whose cells XOR to zero) with one unknown cell gives this
//! cell. That may leave one unknown cell in another equation, and so on: such a sequence is a
//! chain. It ends when nothing is unknown, or when every equation has no unknown cell or more than
//! one. One or two lost columns can always be recovered by chains (one with a single parity). If
//! more columns are lost, some cells may be recoverable. Cells that follow only from sums of
//! several equations are found by Gaussian elimination.
//!
//! Invariants
//! - A cell is in [`Recovery::beyond`] if and only if no XOR of surviving cells equals it.
//! - A [`Repair`] uses surviving cells and cells of earlier repairs; [`Degraded::sources`] are
//!   surviving cells only.

use crate::cell::{Cell, CellSet, Lost};
use crate::error::StripeError;
use crate::geometry::Geometry;
use crate::limits::IDLE_MAX;
use serde::Serialize;

/// The recovery of one lost cell, as the XOR of others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// The cell.
    pub cell: Cell,
    /// The cells whose XOR it is.
    pub from: Vec<Cell>,
}

/// The recovery of lost cells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recovery {
    /// The repairs, in order.
    pub repairs: Vec<Repair>,
    /// The surviving cells that the repairs read, each once.
    pub reads: Vec<Cell>,
    /// The lost cells that cannot be recovered.
    pub beyond: Vec<Cell>,
}

impl Recovery {
    /// The number of cells that are read per recovered cell; 0 if there is none.
    #[must_use]
    pub fn reads_per_cell(&self) -> f64 {
        if self.repairs.is_empty() { 0.0 } else { self.reads.len() as f64 / self.repairs.len() as f64 }
    }

    /// The number of XORs of a cell into another.
    #[must_use]
    pub fn xors(&self) -> usize {
        self.repairs.iter().map(|repair| repair.from.len().saturating_sub(1)).sum()
    }
}

impl Geometry {
    /// The recovery of all cells of the lost columns, as far as possible, by the shortest chains.
    #[must_use]
    pub fn recovery(&self, lost: Lost) -> Recovery {
        let mut unknown = self.cells_of_lost(lost);
        let mut repairs = self.chains(&mut unknown);
        if unknown.len() > 0 {
            let solved = self.eliminate(&unknown).solved;
            repairs.extend(solved.iter().map(|(place, sum)| self.repair(*place, sum)));
            solved.iter().for_each(|(place, _)| unknown.toggle(*place));
        }
        self.recovery_by(lost, repairs, &unknown)
    }

    /// The recovery of several wanted cells of a stripe, as far as possible: by shared chains, or
    /// each by itself ([`Geometry::degraded`]), whichever reads less, then whichever XORs less.
    /// Cells that are not lost need no repair.
    ///
    /// # Errors
    /// [`StripeError::NoSuchCell`].
    pub fn recovery_of(&self, lost: Lost, wanted: &[Cell]) -> Result<Recovery, StripeError> {
        let mut needed = self.set([]);
        for cell in wanted {
            self.role(*cell)?;
            needed.insert_all(&self.set([*cell]));
        }
        let degraded = self.degraded(lost);
        let is_wanted = |repair: &&Repair| wanted.contains(&repair.cell);
        let whole = self.recovery(lost);
        let single =
            |repair: &Repair| Some(Repair { cell: repair.cell, from: degraded.sources(repair.cell).ok()?? });
        let alone: Vec<Repair> = whole.repairs.iter().filter(is_wanted).filter_map(single).collect();
        let mut chained = Vec::new();
        for repair in whole.repairs.into_iter().rev() {
            if needed.has(self.place(repair.cell)) {
                needed.insert_all(&self.set(repair.from.iter().copied()));
                chained.push(repair);
            }
        }
        chained.reverse();
        let beyond = self.set(whole.beyond.into_iter().filter(|cell| wanted.contains(cell)));
        let plans = [alone, chained].map(|repairs| self.recovery_by(lost, repairs, &beyond));
        let least = plans.into_iter().min_by_key(|plan| (plan.reads.len(), plan.xors()));
        Ok(least.unwrap_or_else(|| self.recovery_by(lost, Vec::new(), &beyond)))
    }

    /// The plan that consists of these repairs.
    pub(crate) fn recovery_by(&self, lost: Lost, repairs: Vec<Repair>, beyond: &CellSet) -> Recovery {
        let mut reads = self.set([]);
        for repair in &repairs {
            let survivors = repair.from.iter().copied().filter(|cell| !lost.has(cell.column));
            reads.insert_all(&self.set(survivors));
        }
        Recovery { repairs, reads: self.cells_in(&reads), beyond: self.cells_in(beyond) }
    }

    /// Repairs cells by equations with one unknown, as long as there are any, and removes them from
    /// `unknown`.
    fn chains(&self, unknown: &mut CellSet) -> Vec<Repair> {
        let mut repairs = Vec::new();
        loop {
            let known_before = repairs.len();
            for sum in self.sums() {
                if sum.common(unknown) != 1 {
                    continue;
                }
                let Some(place) = sum.both(unknown).next() else { continue };
                unknown.toggle(place);
                repairs.push(self.repair(place, sum));
            }
            if repairs.len() == known_before {
                return repairs;
            }
        }
    }

    /// The repair of the cell at `place` by a sum that has it.
    pub(crate) fn repair(&self, place: usize, sum: &CellSet) -> Repair {
        let others = sum.indices().filter(|other| *other != place);
        Repair { cell: self.cell(place), from: others.map(|other| self.cell(other)).collect() }
    }

    /// All that the equations say about the unknown cells, by elimination.
    fn eliminate(&self, unknown: &CellSet) -> Eliminated {
        let mut sums = self.sums().to_vec();
        let mut solved = 0;
        for place in unknown.indices() {
            let Some(found) = (solved..sums.len()).find(|at| sums[*at].has(place)) else { continue };
            sums.swap(solved, found);
            let pivot = sums[solved].clone();
            for (at, sum) in sums.iter_mut().enumerate() {
                if at != solved && sum.has(place) {
                    sum.toggle_all(&pivot);
                }
            }
            solved += 1;
        }
        let single = sums[..solved].iter().filter(|sum| sum.common(unknown) == 1);
        let singles = single.filter_map(|sum| Some((sum.both(unknown).next()?, sum.clone())));
        Eliminated { solved: singles.collect(), idle: sums.split_off(solved) }
    }

    /// For each lost cell that can be recovered, a smallest set of surviving cells whose XOR it is.
    /// Queries read these in its place.
    ///
    /// With two or more lost columns, all sets are compared. With one, the set is the remainder of
    /// the shortest equation with the cell (tests compare it with all sums of equations).
    #[must_use]
    pub fn degraded(&self, lost: Lost) -> Degraded<'_> {
        let unknown = self.cells_of_lost(lost);
        let mut sums: Vec<Option<CellSet>> = vec![None; self.cells().count()];
        if lost.count() > 1 {
            let Eliminated { solved, idle } = self.eliminate(&unknown);
            for (place, sum) in solved {
                sums[place] = Some(shortest(sum, &idle));
            }
        } else {
            for place in unknown.indices() {
                let having = self.sums().iter().filter(|sum| sum.has(place));
                sums[place] = having.min_by_key(|sum| sum.len()).cloned();
            }
        }
        for place in unknown.indices() {
            if let Some(sum) = &mut sums[place] {
                sum.toggle(place);
            }
        }
        Degraded { geometry: self, lost, sums }
    }
}

/// The result of elimination.
struct Eliminated {
    /// Sums of equations with one unknown cell, and its index.
    solved: Vec<(usize, CellSet)>,
    /// Sums of equations without unknown cells, which can be added to any other sum. They are few
    /// if two columns are lost: n-1 rows and p-1 diagonals determine 2(n-1) cells, if the last
    /// column is not among the lost ones, so p-n are idle.
    idle: Vec<CellSet>,
}

/// The sum with the fewest cells among those that differ from this one by idle sums.
fn shortest(sum: CellSet, idle: &[CellSet]) -> CellSet {
    let idle = &idle[..idle.len().min(IDLE_MAX)];
    let (mut current, mut fewest) = (sum.clone(), sum);
    // In the order of a Gray code each choice differs from the one before by one sum.
    for choice in 1..1_u32 << idle.len() {
        current.toggle_all(&idle[choice.trailing_zeros() as usize]);
        if current.len() < fewest.len() {
            fewest.clone_from(&current);
        }
    }
    fewest
}

/// What to read in place of each lost cell.
#[derive(Debug, Clone)]
pub struct Degraded<'a> {
    geometry: &'a Geometry,
    lost: Lost,
    /// By index of the cell; `None` for cells that survive or cannot be recovered.
    sums: Vec<Option<CellSet>>,
}

impl Degraded<'_> {
    /// The surviving cells whose XOR is the wanted cell; the cell itself if it is not lost. `None`
    /// if it cannot be recovered.
    ///
    /// # Errors
    /// [`StripeError::NoSuchCell`].
    pub fn sources(&self, wanted: Cell) -> Result<Option<Vec<Cell>>, StripeError> {
        self.geometry.role(wanted)?;
        if !self.lost.has(wanted.column) {
            return Ok(Some(vec![wanted]));
        }
        let sum = self.sums.get(self.geometry.place(wanted)).and_then(Option::as_ref);
        Ok(sum.map(|sum| self.geometry.cells_in(sum)))
    }
}
