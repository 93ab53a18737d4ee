//! In which order do the rows of a node lie, if the load was told to sort them?
//!
//! ```text
//! push --> rows in memory -- too many --> a sorted run in a file -- too many --> merged into one
//! finish --> the runs, those in memory being the last one, merged
//! ```
//!
//! Invariants
//! - Ascending, nulls last; doubles in IEEE 754's total order, so NaNs come after all numbers;
//!   texts by their bytes.
//! - Rows in memory are bounded by the load's `sort_memory_bytes`, and by one batch per run while
//!   runs are merged.
//! - Runs, and so open files, are bounded by `runs_max`.

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

use run::{Columns, Run};

/// How a node's rows are to be sorted.
#[derive(Clone, Debug)]
pub(crate) struct SortPlan {
    /// For messages.
    pub(crate) table: String,
    /// The position of the column to sort by.
    pub(crate) key: usize,
    /// Rows held in memory, in bytes.
    pub(crate) memory_bytes: usize,
    /// Runs in files, at least 2.
    pub(crate) runs_max: usize,
    /// Where those files are.
    pub(crate) folder: PathBuf,
}

/// The rows of one node, being collected.
pub(crate) struct Sorter {
    plan: SortPlan,
    held: Vec<Columns>,
    held_bytes: usize,
    runs: Vec<Run>,
}

impl Sorter {
    /// A sorter without rows.
    pub(crate) fn new(plan: SortPlan) -> Self {
        Self { plan, held: Vec::new(), held_bytes: 0, runs: Vec::new() }
    }

    /// Takes the chosen rows.
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

    /// All rows, in order.
    pub(crate) fn finish(mut self) -> Result<Merge, LoadError> {
        if !self.held.is_empty() {
            let run = self.sorted()?;
            self.runs.push(run);
        }
        Merge::new(&self.plan, self.runs)
    }

    /// Moves the rows held into a run in a file; when there are too many runs, they become one
    /// first.
    fn spill(&mut self) -> Result<(), LoadError> {
        if self.runs.len() >= self.plan.runs_max {
            let merged = Merge::new(&self.plan, std::mem::take(&mut self.runs))?;
            let batches = merged.map(|rows| rows.map(|rows| rows.columns));
            self.runs.push(spill::spill(&self.plan.table, &self.plan.folder, batches)?);
        }
        let mut run = self.sorted()?;
        let plan = &self.plan;
        let batches = std::iter::from_fn(|| run.next_batch().transpose());
        let fault = |source| LoadError::Rows { table: plan.table.clone(), action: "sort its rows", source };
        let spilled = spill::spill(&plan.table, &plan.folder, batches.map(|columns| columns.map_err(fault)))?;
        self.runs.push(spilled);
        Ok(())
    }

    /// The rows held, sorted.
    fn sorted(&mut self) -> Result<Run, LoadError> {
        self.held_bytes = 0;
        let held = std::mem::take(&mut self.held);
        Run::sort(held, self.plan.key).map_err(|source| self.fault("sort its rows", source))
    }

    fn fault(&self, action: &'static str, source: ArrowError) -> LoadError {
        LoadError::Rows { table: self.plan.table.clone(), action, source }
    }
}

/// Copies a text column that may share its bytes with other rows; with offsets that do not overflow
/// when much is put together.
fn compact(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if array.data_type().is_string() { cast(array, &DataType::LargeUtf8) } else { Ok(ArrayRef::clone(array)) }
}
