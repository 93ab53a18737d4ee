//! Evaluates predicates on the rows of a block.
//!
//! The conjuncts of a filter (the conditions connected by AND) are evaluated in order, each only on
//! blocks that still have selected rows. Predicates that need arrow's kernels are evaluated only on
//! the rows that are still selected.

use crate::{
    error::Fault,
    evaluate::Expressions,
    narrow::{self, Buffers, expression::NarrowProgram},
    pages::{InputView, PageBlock},
    predicate::{NarrowComparison, Predicate},
    project::{BlockPick, PickedRows, gather},
    prune::{self, Verdict},
    selection::Selection,
    text::{LeafMemo, TextLeaf, valid_rows},
};
use arrow::array::ArrayRef;
use rackscan_format::{
    encoding::integer::IntegerBlock, key_filter::KeyFilter, limits::BLOCK_ROWS, program::NodeIndex,
};

/// What the evaluation of a filter needs.
pub(crate) struct Selector<'a> {
    pub(crate) expressions: &'a Expressions,
    pub(crate) views: &'a [InputView<'a>],
    pub(crate) memos: &'a mut [Option<LeafMemo>],
    pub(crate) buffers: &'a mut Buffers,
}

impl Selector<'_> {
    /// The rows of `wanted`, a set of rows of `block`, that the predicate keeps.
    pub(crate) fn select(
        &mut self,
        predicate: &Predicate,
        block: usize,
        wanted: &Selection,
    ) -> Result<Selection, Fault> {
        let views = self.views;
        match predicate {
            Predicate::Constant(true) => Ok(*wanted),
            Predicate::Constant(false) => Ok(Selection::NONE),
            Predicate::Interval { input, low, high } => {
                let located = views[*input].locate(block)?;
                let kept = narrow::interval(&integers(&located)?, *low, *high, self.buffers);
                Ok(with_value(&located, &kept.and(wanted)))
            }
            Predicate::Set { input, values, negated } => {
                let located = views[*input].locate(block)?;
                let kept = narrow::set(&integers(&located)?, values, *negated, self.buffers);
                Ok(with_value(&located, &kept.and(wanted)))
            }
            Predicate::Columns { op, left, right } => {
                let (left, right) = (views[*left].locate(block)?, views[*right].locate(block)?);
                let kept = narrow::columns(*op, &integers(&left)?, &integers(&right)?, self.buffers);
                Ok(with_value(&left, &with_value(&right, &kept.and(wanted))))
            }
            Predicate::Null { input, is_null } => {
                let located = views[*input].locate(block)?;
                let valid = valid_rows(&located).unwrap_or(Selection::first(BLOCK_ROWS));
                Ok(if *is_null { wanted.without(&valid) } else { wanted.and(&valid) })
            }
            Predicate::Text { input, leaf, test } => {
                let located = views[*input].locate(block)?;
                let leaf_of = TextLeaf { input: *input, test, expressions: self.expressions };
                leaf_of.select(&located, wanted, &mut self.memos[*leaf], self.buffers)
            }
            Predicate::Keys { input, position, filter } => {
                self.keys((*input, *position), filter, block, wanted)
            }
            Predicate::All(items) => {
                let mut kept = *wanted;
                for item in items {
                    if kept.is_empty() {
                        break;
                    }
                    kept = self.select(item, block, &kept)?;
                }
                Ok(kept)
            }
            Predicate::Any(items) => {
                let mut kept = Selection::NONE;
                for item in items {
                    let undecided = wanted.without(&kept);
                    if undecided.is_empty() {
                        break;
                    }
                    kept = kept.or(&self.select(item, block, &undecided)?);
                }
                Ok(kept)
            }
            Predicate::Expression { comparison, node, truth, inputs } => {
                match self.expression(comparison, block)? {
                    Some(mut kept) => {
                        kept = kept.and(wanted);
                        for input in inputs {
                            kept = with_value(&views[*input].locate(block)?, &kept);
                        }
                        Ok(kept)
                    }
                    None => self.general((*node, *truth), inputs, block, wanted),
                }
            }
            Predicate::General { node, truth, inputs } => {
                self.general((*node, *truth), inputs, block, wanted)
            }
        }
    }

    /// The rows of `wanted` whose value may be in a key filter. Keeps all of them once the filter
    /// does not pay.
    fn keys(
        &mut self,
        (input, position): (usize, usize),
        filter: &KeyFilter,
        block: usize,
        wanted: &Selection,
    ) -> Result<Selection, Fault> {
        if self.buffers.key_filter_uses[position].is_given_up() {
            return Ok(*wanted);
        }
        let located = self.views[input].locate(block)?;
        let kept = with_value(&located, &narrow::keys(&integers(&located)?, filter, wanted, self.buffers));
        let key_filter_uses = &mut self.buffers.key_filter_uses[position];
        key_filter_uses.tested += wanted.count() as u64;
        key_filter_uses.kept += kept.count() as u64;
        Ok(kept)
    }

    /// The rows of a block for which the comparison holds, regardless of NULLs. `None` if an
    /// expression might overflow.
    fn expression(
        &mut self,
        comparison: &NarrowComparison,
        block: usize,
    ) -> Result<Option<Selection>, Fault> {
        let NarrowComparison { op, steps, left, right } = comparison;
        let mut blocks: Vec<Option<IntegerBlock<'_>>> = vec![None; self.views.len()];
        for (_, input) in steps.columns() {
            blocks[input] = Some(integers(&self.views[input].locate(block)?)?);
        }
        match prune::expression(comparison, |input| Some(blocks[input]?.bounds())) {
            Verdict::Never => return Ok(Some(Selection::NONE)),
            Verdict::Always => return Ok(Some(Selection::first(BLOCK_ROWS))),
            Verdict::Maybe => {}
        }
        let reach = |input: usize| {
            let block: Option<&IntegerBlock<'_>> = blocks[input].as_ref();
            block.map_or((i128::MIN, i128::MAX), narrow::bounds_of)
        };
        let Some(step_bounds) = steps.step_bounds(reach) else { return Ok(None) };
        let Buffers { scratch, steps: lanes, answers, .. } = &mut *self.buffers;
        lanes.make(steps.steps());
        for (step, input) in steps.columns() {
            if let Some(block) = &blocks[input] {
                NarrowProgram::fill(&step_bounds, step, block, None, scratch, lanes);
            }
        }
        let level = scratch.level();
        steps.compute(level, &step_bounds, lanes, BLOCK_ROWS);
        NarrowProgram::compare(level, *op, (*left, *right), &step_bounds, lanes, answers);
        Ok(Some(Selection::from_bytes(level, answers)))
    }

    /// The rows of `wanted` for which arrow's kernels evaluate the node to `truth`.
    fn general(
        &mut self,
        (node, truth): (NodeIndex, bool),
        inputs: &[usize],
        block: usize,
        wanted: &Selection,
    ) -> Result<Selection, Fault> {
        let picks = [BlockPick { block, selection: *wanted, rows: wanted.count() }];
        let picked = PickedRows::of(&picks);
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.views.len()];
        for &input in inputs {
            columns[input] = Some(gather(&self.views[input], &picked, self.buffers)?);
        }
        let answers = self.expressions.over(&columns, picks[0].rows).rows_where(node, truth)?;
        let mut kept = Selection::NONE;
        let rows = wanted.rows().zip(answers.iter());
        rows.filter(|(_, answer)| *answer).for_each(|(row, _)| kept.insert(row));
        Ok(kept)
    }
}

/// The block as integers.
pub(crate) fn integers<'a>(located: &PageBlock<'_, 'a>) -> Result<IntegerBlock<'a>, Fault> {
    located.integer_block()
}

fn with_value(located: &PageBlock<'_, '_>, selection: &Selection) -> Selection {
    match valid_rows(located) {
        Some(valid) if !selection.is_empty() => selection.and(&valid),
        _ => *selection,
    }
}
