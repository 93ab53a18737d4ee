//! A sorted run of rows, in memory or in a file.

use std::{fs::File, io::BufReader};

use arrow::{
    array::{Array, ArrayRef, UInt32Array},
    compute::{SortOptions, concat, interleave, sort_to_indices},
    error::ArrowError,
    ipc::reader::FileReader,
};

use crate::limits::MERGE_ROWS;

/// The sort order: ascending, nulls last.
pub(super) const ORDER: SortOptions = SortOptions { descending: false, nulls_first: false };

/// The columns of some rows.
pub(super) type Columns = Vec<ArrayRef>;

/// Rows in sorted order, read batch by batch.
pub(super) enum SortedRun {
    /// Rows in their original batches, and the order to read them in.
    Memory { held: Vec<Columns>, order: UInt32Array, next: usize, starts: Vec<usize> },
    /// Rows that have been spilled.
    File(Box<FileReader<BufReader<File>>>),
}

impl SortedRun {
    /// Sorts rows by column `key`. The order of equal keys is unspecified.
    pub(super) fn sort(held: Vec<Columns>, key: usize) -> Result<Self, ArrowError> {
        let keys: Vec<&dyn Array> = held.iter().map(|columns| columns[key].as_ref()).collect();
        let order = sort_to_indices(&concat(&keys)?, Some(ORDER), None)?;
        let mut starts = Vec::with_capacity(held.len());
        let mut rows = 0;
        for keys in keys {
            starts.push(rows);
            rows += keys.len();
        }
        Ok(Self::Memory { held, order, next: 0, starts })
    }

    /// The next rows; `None` at the end.
    pub(super) fn next_batch(&mut self) -> Result<Option<Columns>, ArrowError> {
        match self {
            Self::File(reader) => Ok(reader.next().transpose()?.map(|batch| batch.columns().to_vec())),
            Self::Memory { held, order, next, starts } => {
                let end = order.len().min(*next + MERGE_ROWS);
                let numbers = &order.values()[*next..end];
                *next = end;
                if numbers.is_empty() {
                    return Ok(None);
                }
                let place = |number: &u32| {
                    let number = *number as usize;
                    let batch = starts.partition_point(|start| *start <= number) - 1;
                    (batch, number - starts[batch])
                };
                let places: Vec<(usize, usize)> = numbers.iter().map(place).collect();
                gather(held, &places).map(Some)
            }
        }
    }
}

/// Gathers rows of several batches, given by batch and row.
pub(super) fn gather(batches: &[Columns], places: &[(usize, usize)]) -> Result<Columns, ArrowError> {
    let columns = batches.first().map_or(0, Vec::len);
    let column = |column: usize| {
        let arrays: Vec<&dyn Array> = batches.iter().map(|columns| columns[column].as_ref()).collect();
        interleave(&arrays, places)
    };
    (0..columns).map(column).collect()
}
