//! Finds which cells a replacement node must read to rebuild a lost column with few reads.
//!
//! A data cell can be recovered from the other cells of its row or of its diagonal. If all cells
//! are recovered by rows, each cell costs n-2 reads. If a row and a diagonal meet in a surviving
//! cell, one read of that cell serves both. So a plan that uses rows for about half of the cells
//! and diagonals for the other half needs only about three quarters of these reads.
//!
//! Invariants
//! - The plan needs no more reads than the plan that uses only rows.
//! - For up to 11 nodes, no choice of rows and diagonals needs fewer reads (tests compare the plan
//!   with all choices).

use crate::cell::{CellSet, Lost};
use crate::geometry::Geometry;
use crate::parity::Parity;
use crate::recovery::Recovery;

/// The equation by which a lost cell is recovered, and the other one, as indices into those of the
/// geometry.
struct Choice {
    place: usize,
    by: usize,
    /// The other equation; `None` if there is only one.
    or_by: Option<usize>,
}

impl Geometry {
    /// The recovery of all cells of the lost columns with few reads. If more than one column is
    /// lost, nearly every survivor is read, and the plan is that of [`Geometry::recovery`].
    #[must_use]
    pub fn rebuild(&self, lost: Lost) -> Recovery {
        if self.parity() == Parity::Xor || lost.count() != 1 || lost.has(self.last_column()) {
            return self.recovery(lost);
        }
        let unknown = self.cells_of_lost(lost);
        let starts = [|_: usize| false, |at| at % 2 == 1, |at| at % 4 > 1];
        let halves = [self.rows() / 2, self.rows().div_ceil(2)];
        let mut plans: Vec<Vec<Choice>> = Vec::new();
        for start in starts {
            plans.push(self.choices(&unknown, start));
        }
        for half in halves {
            plans.push(self.choices(&unknown, |at| at < half));
            plans.push(self.choices(&unknown, |at| at >= half));
        }
        for plan in &mut plans {
            self.settle(plan);
        }
        let fewest = plans.into_iter().min_by_key(|plan| self.reads_of(plan)).unwrap_or_default();
        let repairs =
            fewest.iter().map(|choice| self.repair(choice.place, &self.sums()[choice.by])).collect();
        self.recovery_by(lost, repairs, &self.set([]))
    }

    /// A choice for each lost cell: its diagonal if it has one and `diagonal` says so for its slot,
    /// else its row.
    fn choices(&self, unknown: &CellSet, diagonal: impl Fn(usize) -> bool) -> Vec<Choice> {
        let choice = |(at, place): (usize, usize)| {
            let mut having = (0..self.sums().len()).filter(|sum| self.sums()[*sum].has(place));
            let (by, or_by) = (having.next()?, having.next());
            Some(match or_by {
                Some(other) if diagonal(at) => Choice { place, by: other, or_by: Some(by) },
                _ => Choice { place, by, or_by },
            })
        };
        unknown.indices().enumerate().filter_map(choice).collect()
    }

    /// Changes single choices and pairs of them, as long as that saves reads.
    fn settle(&self, plan: &mut [Choice]) {
        let mut fewest = self.reads_of(plan);
        let mut improved = true;
        while improved {
            improved = false;
            for first in 0..plan.len() {
                for second in first..plan.len() {
                    flip(plan, first, second);
                    let reads = self.reads_of(plan);
                    if reads < fewest {
                        (fewest, improved) = (reads, true);
                    } else {
                        flip(plan, first, second);
                    }
                }
            }
        }
    }

    /// The number of surviving cells that the plan reads, shared ones once.
    fn reads_of(&self, plan: &[Choice]) -> usize {
        let mut reads = self.set([]);
        for choice in plan {
            reads.insert_all(&self.sums()[choice.by]);
        }
        // Each equation has one lost cell, and no two have the same.
        reads.len() - plan.len()
    }
}

/// Switches one choice, or two, to the other equation.
fn flip(plan: &mut [Choice], first: usize, second: usize) {
    for at in if first == second { first..=first } else { first..=second }.step_by((second - first).max(1)) {
        if let Some(choice) = plan.get_mut(at)
            && let Some(other) = choice.or_by
        {
            choice.or_by = Some(choice.by);
            choice.by = other;
        }
    }
}
