//! Computes which surviving cells must be XORed to recover the lost cells of a stripe, and
//! remembers these plans.
//!
//! A plan depends only on which columns of the stripe are lost and which cells are wanted, not on
//! nodes or stripes, so a stripe set needs few plans.
//!
//! Invariant: the remembered plans have at most [`PLANS_CELLS_MAX`] cells.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use rackscan_stripe::{Cell, Geometry, Node, Recovery};

use crate::limits::PLANS_CELLS_MAX;

/// The key of a plan: the lost columns and the wanted cells.
type PlanOf = (Vec<u8>, Vec<Cell>);

/// The remembered plans of a set.
#[derive(Debug, Default)]
pub(super) struct Plans {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    plans: HashMap<PlanOf, Arc<Recovery>>,
    /// Number of cells in all of them.
    cells: usize,
}

impl Plans {
    /// The plan that recovers all of these cells without the nodes at these positions; `None` if
    /// the parity does not allow it, or the stripe has no such node.
    pub(super) fn of(
        &self,
        geometry: &Geometry,
        stripe: u64,
        cells: &[Cell],
        lost: &BTreeSet<usize>,
    ) -> Option<Arc<Recovery>> {
        let nodes: Vec<Node> = lost.iter().filter_map(|node| u8::try_from(*node).ok()).map(Node).collect();
        let columns = geometry.lost_with(stripe, &nodes).ok()?;
        let of = (columns.columns().map(|column| column.0).collect(), cells.to_vec());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = match known.plans.get(&of) {
            Some(plan) => Arc::clone(plan),
            None => {
                let only = columns.columns().next().filter(|_| columns.count() == 1);
                let is_all = only.is_some_and(|column| cells.len() == geometry.slots(column));
                let plan = if is_all {
                    geometry.rebuild(columns)
                } else {
                    geometry.recovery_of(columns, cells).ok()?
                };
                known.remember(of, Arc::new(plan))
            }
        };
        plan.beyond.is_empty().then_some(plan)
    }
}

impl Known {
    fn remember(&mut self, of: PlanOf, plan: Arc<Recovery>) -> Arc<Recovery> {
        let cells =
            of.1.len() + plan.reads.len() + plan.repairs.iter().map(|r| 1 + r.from.len()).sum::<usize>();
        if self.cells + cells > PLANS_CELLS_MAX {
            self.plans.clear();
            self.cells = 0;
        }
        self.cells += cells;
        self.plans.insert(of, Arc::clone(&plan));
        plan
    }
}
