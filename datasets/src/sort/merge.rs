//! Merges sorted runs into one.
//!
//! Invariants
//! - Every row of every run is returned once, in sorted order.
//! - Memory holds one batch per run, plus the batches that contributed rows to the batch being
//!   built.

use std::{cmp::Reverse, collections::BinaryHeap};

use arrow::{
    array::ArrayRef,
    error::ArrowError,
    row::{OwnedRow, RowConverter, Rows, SortField},
};

use super::{
    SortPlan,
    run::{Columns, ORDER, SortedRun, gather},
};
use crate::{LoadError, limits::MERGE_ROWS, stored::StoredRows};

/// The rows of several runs, in order.
pub(crate) struct Merge {
    table: String,
    key: usize,
    converter: Option<RowConverter>,
    cursors: Vec<Cursor>,
    /// The smallest remaining key of each unfinished run.
    heads: BinaryHeap<Reverse<(OwnedRow, usize)>>,
}

/// The read position of a run.
struct Cursor {
    run: SortedRun,
    columns: Columns,
    keys: Option<Rows>,
    row: usize,
}

impl Merge {
    pub(super) fn new(plan: &SortPlan, runs: Vec<SortedRun>) -> Result<Self, LoadError> {
        let cursor = |run: SortedRun| Cursor { run, columns: Vec::new(), keys: None, row: 0 };
        let cursors = runs.into_iter().map(cursor).collect();
        let heads = BinaryHeap::new();
        let mut merge = Self { table: plan.table.clone(), key: plan.key, converter: None, cursors, heads };
        // A single run needs no merge.
        if merge.cursors.len() > 1 {
            for run in 0..merge.cursors.len() {
                let read = merge.read(run);
                read.map_err(|source| merge.fault(source))?;
            }
        }
        Ok(merge)
    }

    fn fault(&self, source: ArrowError) -> LoadError {
        LoadError::Rows { table: self.table.clone(), action: "merge its sorted rows", source }
    }

    /// Reads the next batch of a run and puts its first row into the heap. Returns false if the run
    /// has ended.
    fn read(&mut self, run: usize) -> Result<bool, ArrowError> {
        let cursor = &mut self.cursors[run];
        let Some(columns) = cursor.run.next_batch()? else { return Ok(false) };
        let keys = ArrayRef::clone(&columns[self.key]);
        let converter = match &mut self.converter {
            Some(converter) => converter,
            none => {
                let field = SortField::new_with_options(keys.data_type().clone(), ORDER);
                none.insert(RowConverter::new(vec![field])?)
            }
        };
        let keys = converter.convert_columns(&[keys])?;
        let cursor = &mut self.cursors[run];
        self.heads.push(Reverse((keys.row(0).owned(), run)));
        (cursor.columns, cursor.keys, cursor.row) = (columns, Some(keys), 0);
        Ok(true)
    }

    fn next_rows(&mut self) -> Result<Option<Columns>, ArrowError> {
        if let [only] = &mut self.cursors[..] {
            return only.run.next_batch();
        }
        // The batches that rows are taken from: first the current batch of each run, then those
        // read during this call.
        let mut batches: Vec<Columns> = self.cursors.iter().map(|cursor| cursor.columns.clone()).collect();
        let mut present: Vec<usize> = (0..batches.len()).collect();
        let mut places = Vec::with_capacity(MERGE_ROWS);
        while places.len() < MERGE_ROWS {
            let Some(Reverse((_, run))) = self.heads.pop() else { break };
            let cursor = &mut self.cursors[run];
            places.push((present[run], cursor.row));
            cursor.row += 1;
            match &cursor.keys {
                Some(keys) if cursor.row < keys.num_rows() => {
                    self.heads.push(Reverse((keys.row(cursor.row).owned(), run)));
                }
                _ => {
                    if self.read(run)? {
                        present[run] = batches.len();
                        batches.push(self.cursors[run].columns.clone());
                    }
                }
            }
        }
        if places.is_empty() {
            return Ok(None);
        }
        gather(&batches, &places).map(Some)
    }
}

impl Iterator for Merge {
    type Item = Result<StoredRows, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_rows() {
            Ok(columns) => columns.map(|columns| Ok(StoredRows::new(columns))),
            Err(source) => {
                // Nothing is returned after an error.
                self.cursors.clear();
                self.heads.clear();
                Some(Err(self.fault(source)))
            }
        }
    }
}
