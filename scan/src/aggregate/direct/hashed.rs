//! How are rows grouped by a key of many values without making an array?
//!
//! One integer key is unpacked and hashed row by row, straight into the table of groups; arguments
//! are computed on unpacked blocks as in the parent, and each row's is folded into its group.
//!
//! Invariants
//! - Sums are the accumulators' own, so none needs a bound beyond that of its argument.
//! - A run ends with the block behind which the table of groups is larger than it may be; then it
//!   is put out.

use super::{Direct, Fold, Groups, Measure};
use crate::{
    error::Fault,
    limits::SPARSE_SHARE,
    narrow::{
        self, Room,
        expression::{NarrowProgram, Reaches},
        int::{Lanes, at_width},
        kernels::decode,
    },
    pages::InputView,
    select::integers,
    selection::Selection,
    text::valid_rows,
};
use rackscan_format::{encoding::integer::IntegerBlock, limits::BLOCK_ROWS, program::ValueType};

/// Whether keys of a type are hashed as the integers they are stored as.
pub(super) fn hashes(keys: &[(usize, ValueType)]) -> Option<usize> {
    match keys {
        [(input, ValueType::Int32 | ValueType::Int64 | ValueType::Date32 | ValueType::TimestampMicros)] => {
            Some(*input)
        }
        _ => None,
    }
}

impl Direct {
    /// Adds the first of these blocks, each with selected rows; says how many, which may be none.
    pub(super) fn add_hashed(
        &mut self,
        views: &[InputView<'_>],
        blocks: &[usize],
        selection_of: impl Fn(usize) -> Selection,
        groups: &mut Groups,
        room: &mut Room,
    ) -> Result<usize, Fault> {
        let folds_texts = self.folds.iter().any(|fold| matches!(fold, Fold::Text { .. }));
        let Some(key) = hashes(&self.keys).filter(|_| !folds_texts) else { return Ok(0) };
        for (added, block) in blocks.iter().enumerate() {
            let mut columns = Vec::new();
            for (_, input) in self.narrow.columns() {
                columns.push((input, integers(&views[input].locate(*block)?)?));
            }
            let reach = |input: usize| {
                let column = columns.iter().find(|(other, _)| *other == input);
                column.map_or((i128::MIN, i128::MAX), |(_, column)| narrow::reach_of(column))
            };
            let Some(reaches) = self.narrow.reaches(reach) else { return Ok(added) };
            let selection = selection_of(*block);
            let mut rows = std::mem::take(&mut self.few);
            rows.clear();
            selection.rows().for_each(|row| rows.push(row));
            let assigned = self.assign(views, (key, *block), &rows, groups, room)?;
            if assigned {
                self.fill(&reaches, &columns, &rows, room);
                self.fold_rows(views, (*block, &selection), &rows, &reaches, groups)?;
            }
            self.few = rows;
            if !assigned {
                return Ok(added);
            }
            if groups.memory_bytes() > self.groups_bytes {
                return Ok(added + 1);
            }
        }
        Ok(blocks.len())
    }

    /// Finds the groups of a block's rows.
    fn assign(
        &mut self,
        views: &[InputView<'_>],
        (key, block): (usize, usize),
        rows: &[usize],
        groups: &mut Groups,
        room: &mut Room,
    ) -> Result<bool, Fault> {
        if self.spread.is_empty() {
            self.spread.push(Lanes::NONE);
        }
        let located = views[key].locate(block)?;
        let (column, level) = (integers(&located)?, room.scratch.level());
        let values = self.spread[0].get_mut::<i64>();
        decode(level, &column, column.unpack(&mut room.scratch), values);
        self.hashed.clear();
        self.hashed.extend(rows.iter().map(|row| values[*row]));
        Ok(match valid_rows(&located) {
            None => groups.assign_integers(&self.hashed, |_| false),
            Some(valid) => groups.assign_integers(&self.hashed, |index| !valid.contains(rows[index])),
        })
    }

    /// Computes the arguments: of these rows alone, one behind the other, if they are few.
    fn fill(
        &mut self,
        reaches: &Reaches,
        columns: &[(usize, IntegerBlock<'_>)],
        rows: &[usize],
        room: &mut Room,
    ) {
        let some = is_sparse(rows).then_some(rows);
        self.lanes.make(self.narrow.steps());
        for ((step, _), (_, column)) in self.narrow.columns().zip(columns) {
            NarrowProgram::fill(reaches, step, column, some, &mut room.scratch, &mut self.lanes);
        }
        let level = room.scratch.level();
        self.narrow.compute(level, reaches, &mut self.lanes, some.map_or(BLOCK_ROWS, <[usize]>::len));
    }

    /// Folds each row's arguments into its group.
    fn fold_rows(
        &self,
        views: &[InputView<'_>],
        (block, selection): (usize, &Selection),
        rows: &[usize],
        reaches: &Reaches,
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
            at_width!(reaches.width(step), T => {
                let lanes = self.lanes.step(step).get::<T>();
                let value = |index: usize, row: usize| if compact { lanes[index] } else { lanes[row] };
                groups.add_values(aggregate, with_value.map(|(index, row)| (index, value(index, *row))))?;
            });
        }
        Ok(())
    }
}

/// Whether rows of a block are so few that only they are computed.
fn is_sparse(rows: &[usize]) -> bool {
    rows.len() < BLOCK_ROWS / SPARSE_SHARE
}
