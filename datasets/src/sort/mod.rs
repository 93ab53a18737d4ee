//! Sorts the rows of a node, if the load requests it.
//!
//! ```text
//! push   --> rows in memory -- too many --> a sorted run in a file -- too many --> merged into one
//! finish --> all runs merged, the rows in memory being the last run
//!
//! run      a sorted run: rows in order, in memory or in a file
//! spill    writes a run to a file
//! merge    merges runs
//! ```
//!
//! Invariants
//! - The order is ascending, nulls last. Doubles are in IEEE 754's total order, so NaN comes after
//!   all numbers; texts compare by their bytes.
//! - Rows in memory are bounded by the load's `sort_memory_bytes`, and by one batch per run while
//!   runs are merged.
//! - `runs_max` bounds the number of runs in files, and so of open files.

mod merge;
mod run;
mod spill;

use std::path::PathBuf;

use arrow::{
    array::{Array, ArrayRef, UInt32Array},
    compute::{cast, take},
    datatypes::DataType,
    error::ArrowError,
};

use crate::{LoadError, stored::StoredRows};

pub(crate) use merge::Merge;

use run::{Columns, SortedRun};

/// How the rows of a node are sorted.
#[derive(Clone, Debug)]
pub(crate) struct SortPlan {
    /// For messages.
    pub(crate) table: String,
    /// The position of the column to sort by.
    pub(crate) key: usize,
    /// The maximum bytes of rows held in memory.
    pub(crate) memory_bytes: usize,
    /// The maximum number of runs in files, at least 2.
    pub(crate) runs_max: usize,
    /// The folder of those files.
    pub(crate) folder: PathBuf,
}

/// Collects and sorts the rows of one node.
pub(crate) struct Sorter {
    plan: SortPlan,
    held: Vec<Columns>,
    held_bytes: usize,
    runs: Vec<SortedRun>,
}

impl Sorter {
    /// A sorter without rows.
    pub(crate) fn new(plan: SortPlan) -> Self {
        Self { plan, held: Vec::new(), held_bytes: 0, runs: Vec::new() }
    }

    /// Adds the chosen rows.
    pub(crate) fn push(&mut self, rows: &StoredRows, chosen: &[u32]) -> Result<(), LoadError> {
        let chosen = UInt32Array::from(chosen.to_vec());
        let own = |array: &ArrayRef| compact(&take(array, &chosen, None)?);
        let columns = rows.columns.iter().map(own).collect::<Result<Columns, _>>();
        let columns = columns.map_err(|source| self.fault("take its rows apart", source))?;
        self.held_bytes += columns.iter().map(|array| array.get_array_memory_size()).sum::<usize>();
        self.held.push(columns);
        if self.held_bytes > self.plan.memory_bytes {
            self.spill()?;
        }
        Ok(())
    }

    /// Returns all rows, in order.
    pub(crate) fn finish(mut self) -> Result<Merge, LoadError> {
        if !self.held.is_empty() {
            let run = self.sort_held()?;
            self.runs.push(run);
        }
        Merge::new(&self.plan, self.runs)
    }

    /// Writes the rows in memory to a file as a run. If there are too many runs, they are merged
    /// into one first.
    fn spill(&mut self) -> Result<(), LoadError> {
        if self.runs.len() >= self.plan.runs_max {
            let merged = Merge::new(&self.plan, std::mem::take(&mut self.runs))?;
            let batches = merged.map(|rows| rows.map(|rows| rows.columns));
            self.runs.push(spill::spill(&self.plan.table, &self.plan.folder, batches)?);
        }
        let mut run = self.sort_held()?;
        let plan = &self.plan;
        let batches = std::iter::from_fn(|| run.next_batch().transpose());
        let fault = |source| LoadError::Rows { table: plan.table.clone(), action: "sort its rows", source };
        let spilled = spill::spill(&plan.table, &plan.folder, batches.map(|columns| columns.map_err(fault)))?;
        self.runs.push(spilled);
        Ok(())
    }

    /// Sorts the rows in memory.
    fn sort_held(&mut self) -> Result<SortedRun, LoadError> {
        self.held_bytes = 0;
        let held = std::mem::take(&mut self.held);
        SortedRun::sort(held, self.plan.key).map_err(|source| self.fault("sort its rows", source))
    }

    fn fault(&self, action: &'static str, source: ArrowError) -> LoadError {
        LoadError::Rows { table: self.plan.table.clone(), action, source }
    }
}

/// Copies a text column that may share its bytes with other rows, with 64-bit offsets, which do not
/// overflow when many arrays are concatenated.
fn compact(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if array.data_type().is_string() { cast(array, &DataType::LargeUtf8) } else { Ok(ArrayRef::clone(array)) }
}
