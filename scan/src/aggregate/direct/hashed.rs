//! Groups packed blocks by one integer key of a large range, without building arrow arrays.
//!
//! The key is unpacked and hashed row by row, directly into the table of groups. The arguments of
//! the aggregates are computed on unpacked blocks as in the parent module, and each row's argument
//! is combined with the value of its group.
//!
//! Invariants
//! - Sums are those of the accumulators, so they need no bound beyond that of their argument.
//! - A run of blocks ends after the block with which the table of groups exceeds its limit; the
//!   scan then emits the groups.

use super::{Direct, Fold, Groups, Measure};
use crate::{
    error::Fault,
    limits::SPARSE_SHARE,
    narrow::{
        self, Buffers,
        expression::{NarrowProgram, StepBounds},
        int::{Lanes, at_width},
        kernels::decode,
    },
    pages::InputView,
    select::integers,
    selection::Selection,
    text::valid_rows,
};
use rackscan_format::{encoding::integer::IntegerBlock, limits::BLOCK_ROWS, program::ValueType};

/// The input of the only key, if it is of a type that is hashed as its stored integer.
pub(super) fn hashes(keys: &[(usize, ValueType)]) -> Option<usize> {
    match keys {
        [(input, ValueType::Int32 | ValueType::Int64 | ValueType::Date32 | ValueType::TimestampMicros)] => {
            Some(*input)
        }
        _ => None,
    }
}

impl Direct {
    /// Adds blocks, each of which has selected rows, as long as they can be hashed and the groups
    /// fit. Returns the number of blocks added, which may be 0.
    pub(super) fn add_hashed(
        &mut self,
        views: &[InputView<'_>],
        blocks: &[usize],
        selection_of: impl Fn(usize) -> Selection,
        groups: &mut Groups,
        buffers: &mut Buffers,
    ) -> Result<usize, Fault> {
        let folds_texts = self.folds.iter().any(|fold| matches!(fold, Fold::Text { .. }));
        let Some(key) = hashes(&self.keys).filter(|_| !folds_texts) else { return Ok(0) };
        for (added, block) in blocks.iter().enumerate() {
            let mut columns = Vec::new();
            for (_, input) in self.narrow.columns() {
                columns.push((input, integers(&views[input].locate(*block)?)?));
            }
            let column_bounds = |input: usize| {
                let column = columns.iter().find(|(other, _)| *other == input);
                column.map_or((i128::MIN, i128::MAX), |(_, column)| narrow::bounds_of(column))
            };
            let Some(step_bounds) = self.narrow.step_bounds(column_bounds) else { return Ok(added) };
            let selection = selection_of(*block);
            let mut rows = std::mem::take(&mut self.few_rows);
            rows.clear();
            selection.rows().for_each(|row| rows.push(row));
            let assigned = self.assign(views, (key, *block), &rows, groups, buffers)?;
            if assigned {
                self.fill(&step_bounds, &columns, &rows, buffers);
                self.fold_rows(views, (*block, &selection), &rows, &step_bounds, groups)?;
            }
            self.few_rows = rows;
            if !assigned {
                return Ok(added);
            }
            if groups.memory_bytes() > self.groups_bytes {
                return Ok(added + 1);
            }
        }
        Ok(blocks.len())
    }

    /// Finds the groups of a block's rows. Returns false if the groups have keys of another kind.
    fn assign(
        &mut self,
        views: &[InputView<'_>],
        (key, block): (usize, usize),
        rows: &[usize],
        groups: &mut Groups,
        buffers: &mut Buffers,
    ) -> Result<bool, Fault> {
        if self.widened.is_empty() {
            self.widened.push(Lanes::NONE);
        }
        let located = views[key].locate(block)?;
        let (column, level) = (integers(&located)?, buffers.scratch.level());
        let values = self.widened[0].get_mut::<i64>();
        decode(level, &column, column.unpack(&mut buffers.scratch), values);
        self.hashed.clear();
        self.hashed.extend(rows.iter().map(|row| values[*row]));
        Ok(match valid_rows(&located) {
            None => groups.assign_integers(&self.hashed, |_| false),
            Some(valid) => groups.assign_integers(&self.hashed, |index| !valid.contains(rows[index])),
        })
    }

    /// Computes the arguments: only of these rows, packed densely, if there are few of them.
    fn fill(
        &mut self,
        step_bounds: &StepBounds,
        columns: &[(usize, IntegerBlock<'_>)],
        rows: &[usize],
        buffers: &mut Buffers,
    ) {
        let some = is_sparse(rows).then_some(rows);
        self.lanes.make(self.narrow.steps());
        for ((step, _), (_, column)) in self.narrow.columns().zip(columns) {
            NarrowProgram::fill(step_bounds, step, column, some, &mut buffers.scratch, &mut self.lanes);
        }
        let level = buffers.scratch.level();
        self.narrow.compute(level, step_bounds, &mut self.lanes, some.map_or(BLOCK_ROWS, <[usize]>::len));
    }

    /// Folds each row's arguments into its group.
    fn fold_rows(
        &self,
        views: &[InputView<'_>],
        (block, selection): (usize, &Selection),
        rows: &[usize],
        step_bounds: &StepBounds,
        groups: &mut Groups,
    ) -> Result<(), Fault> {
        let compact = is_sparse(rows);
        for (aggregate, fold) in self.folds.iter().enumerate() {
            let (class, step) = match *fold {
                Fold::Count { class } => (class, None),
                Fold::Sum { sum, class } => (class, Some(self.sums[sum])),
                Fold::Extreme { extreme, class } | Fold::Text { extreme, class, .. } => {
                    (class, Some(self.extremes[extreme]))
                }
            };
            let mut kept = *selection;
            for input in &self.classes[class] {
                kept = valid_rows(&views[*input].locate(block)?).map_or(kept, |valid| kept.and(&valid));
            }
            let whole = kept == *selection;
            let with_value = rows.iter().enumerate().filter(|(_, row)| whole || kept.contains(**row));
            let Some(Measure { step, .. }) = step else {
                groups.add_values(aggregate, with_value.map(|(index, _)| (index, 1_i8)))?;
                continue;
            };
            at_width!(step_bounds.width(step), T => {
                let lanes = self.lanes.step(step).get::<T>();
                let value = |index: usize, row: usize| if compact { lanes[index] } else { lanes[row] };
                groups.add_values(aggregate, with_value.map(|(index, row)| (index, value(index, *row))))?;
            });
        }
        Ok(())
    }
}

/// Whether a block has so few selected rows that only they are computed.
fn is_sparse(rows: &[usize]) -> bool {
    rows.len() < BLOCK_ROWS / SPARSE_SHARE
}
