//! Groups and aggregates the rows of packed blocks without building arrow arrays, where a program
//! allows it. TPC-H's Q1 and Q6 are such scans.
//!
//! If the keys are dictionary codes or integers of a small range, their combination is an index
//! into a small table ([`super::domain`]); an entry of that table is a *slot*. A single integer key
//! of a large range is hashed instead ([`hashed`]). If the arguments of the aggregates are integer
//! expressions ([`crate::narrow::expression`]), they are computed on unpacked blocks and added in
//! the table. The first and last text of a group are those of the smallest and largest code,
//! because dictionaries are sorted.
//!
//! Invariants
//! - The blocks that are processed together (a *run*) lie in one page of each key and of each text
//!   of which the minimum or maximum is wanted. A run is so short that no 64-bit sum can overflow.
//!   If a single block could overflow it, that sum has 128 bits. All other cases are computed over
//!   arrow arrays ([`crate::evaluate`]).
//! - Row `i` of a block belongs to slot `slots[i]`. Rows that are not selected belong to one extra
//!   slot, which is discarded. A column with NULLs uses a copy of `slots`, in which its NULL rows
//!   belong to the extra slot, too.

use super::{
    domain::{KeyDomain, domains},
    groups::{Grouping, Groups},
    masked::Slots,
    partial::{PartialGroups, PartialValues},
    table::{SlottedRows, Table, Values},
};
use crate::{
    error::Fault,
    limits::SPARSE_SHARE,
    narrow::{
        self, Buffers,
        expression::{self, NarrowProgram, Operand, StepBounds},
        int::Lanes,
    },
    pages::{InputView, PageBlock},
    predicate::inputs_of,
    select::integers,
    selection::Selection,
    text::{text_array, valid_rows},
};
use arrow::{array::ArrayRef, buffer::NullBuffer};
use az::SaturatingAs;
use rackscan_format::{
    encoding::{integer::IntegerBlock, text::TextBuffer},
    limits::BLOCK_ROWS,
    program::{Aggregate, AggregateFunction, Node, ValueType, VerifiedProgram},
    schema::ColumnType,
    simd::Level,
};
use std::ops::Range;

mod hashed;

/// What an aggregate folds. `class` is a position in `Direct::classes`: the set of rows.
#[derive(Clone, Copy, Debug)]
enum Fold {
    Count {
        class: usize,
    },
    /// `sum` is a position in `Direct::sums`.
    Sum {
        sum: usize,
        class: usize,
    },
    /// `extreme` is a position in `Direct::extremes`.
    Extreme {
        extreme: usize,
        class: usize,
    },
    /// As `Extreme`, over the codes of a text column.
    Text {
        extreme: usize,
        class: usize,
        input: usize,
    },
}

/// A step whose values are folded over the rows of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Measure {
    step: usize,
    class: usize,
    least: bool,
}

/// The direct path of one grouping.
pub(crate) struct Direct {
    narrow: NarrowProgram,
    keys: Vec<(usize, ValueType)>,
    folds: Vec<Fold>,
    sums: Vec<Measure>,
    extremes: Vec<Measure>,
    /// Sets of inputs: an argument over a set has a value in the rows where all of its inputs have
    /// one. The first set is empty and stands for all rows.
    classes: Vec<Vec<usize>>,
    lanes: expression::StepBuffers,
    slots: Box<Slots>,
    /// The slots of the rows of a class; also a buffer for the codes of a key.
    class_slots: Box<Slots>,
    /// The selected rows of a block of which few rows are selected.
    few_rows: Vec<usize>,
    /// Buffers for arguments that are added row by row; empty until one is.
    widened: Vec<Lanes>,
    /// The keys of a block's selected rows, if they are hashed.
    hashed: Vec<i64>,
    /// Blocks before this one have keys whose range is too large to be addressed directly.
    hashed_until: usize,
    groups_bytes: usize,
}

/// What is known of a run of blocks before its first row is read.
struct BlockRun<'a> {
    domains: Vec<KeyDomain>,
    /// The columns of the expressions: all of the first block, then all of the second, and so on.
    columns: Vec<IntegerBlock<'a>>,
    step_bounds: StepBounds,
    /// For each class: the class itself if a row of its inputs' pages may be null, else class 0,
    /// which has all rows.
    class_of: Vec<usize>,
    table: Table,
}

impl Direct {
    /// The direct path, if the grouping's shape allows it. A hashed run ends once the groups take
    /// more than `groups_bytes`.
    pub(crate) fn new(program: &VerifiedProgram, grouping: &Grouping, groups_bytes: usize) -> Option<Self> {
        let mut keys = Vec::new();
        for key in &grouping.keys {
            let Node::Column(input) = program.program().nodes[usize::from(*key)] else { return None };
            let value_type = program.node_types()[usize::from(*key)];
            if value_type == ValueType::Float64 {
                return None;
            }
            keys.push((usize::from(input), value_type));
        }
        let mut direct = Self {
            narrow: NarrowProgram::new(program),
            keys,
            folds: Vec::new(),
            sums: Vec::new(),
            extremes: Vec::new(),
            classes: vec![Vec::new()],
            lanes: expression::StepBuffers::default(),
            slots: Box::new([0; BLOCK_ROWS]),
            class_slots: Box::new([0; BLOCK_ROWS]),
            few_rows: Vec::with_capacity(BLOCK_ROWS / SPARSE_SHARE),
            widened: Vec::new(),
            hashed: Vec::new(),
            hashed_until: 0,
            groups_bytes,
        };
        for aggregate in &grouping.aggregates {
            let fold = direct.fold(program, aggregate)?;
            direct.folds.push(fold);
        }
        Some(direct)
    }

    fn fold(&mut self, program: &VerifiedProgram, aggregate: &Aggregate) -> Option<Fold> {
        let Some(argument) = aggregate.argument else { return Some(Fold::Count { class: 0 }) };
        let class = position(&mut self.classes, inputs_of(program, &[argument]));
        if aggregate.function == AggregateFunction::Count
            && matches!(program.program().nodes[usize::from(argument)], Node::Column(_))
        {
            return Some(Fold::Count { class });
        }
        let least = aggregate.function == AggregateFunction::Min;
        if let (Node::Column(input), ValueType::Text) =
            (&program.program().nodes[usize::from(argument)], program.node_types()[usize::from(argument)])
        {
            let input = usize::from(*input);
            let measure = Measure { step: self.narrow.codes(input), class, least };
            return Some(Fold::Text { extreme: position(&mut self.extremes, measure), class, input });
        }
        let Operand::Step(step) = self.narrow.operand(program, argument)? else { return None };
        let measure = Measure { step, class, least };
        Some(match aggregate.function {
            AggregateFunction::CountRows | AggregateFunction::Count => Fold::Count { class },
            AggregateFunction::Sum => Fold::Sum { sum: position(&mut self.sums, measure), class },
            AggregateFunction::Min | AggregateFunction::Max => {
                Fold::Extreme { extreme: position(&mut self.extremes, measure), class }
            }
        })
    }

    /// Adds the selected rows of the first run of `blocks` to the groups, and returns the block
    /// after the run. `None` if the first block cannot take this path.
    pub(crate) fn add_run(
        &mut self,
        views: &[InputView<'_>],
        blocks: Range<usize>,
        selection_of: impl Fn(usize) -> Selection,
        groups: &mut Groups,
        buffers: &mut Buffers,
    ) -> Result<Option<usize>, Fault> {
        let mut end = blocks.end;
        let texts = self.folds.iter().filter_map(|fold| match fold {
            Fold::Text { input, .. } => Some(*input),
            _ => None,
        });
        for input in self.keys.iter().map(|(input, _)| *input).chain(texts) {
            let page = views[input].page_of(blocks.start);
            end = (blocks.start..end).find(|block| views[input].page_of(*block) != page).unwrap_or(end);
        }
        let wanted: Vec<usize> =
            (blocks.start..end).filter(|block| !selection_of(*block).is_empty()).collect();
        if wanted.is_empty() {
            return Ok(Some(end));
        }
        if self.hashed_until < blocks.end {
            self.hashed_until = 0;
        }
        let domains =
            if blocks.start < self.hashed_until { None } else { domains(&self.keys, views, &wanted)? };
        let Some(domains) = domains else {
            self.hashed_until = blocks.end;
            let added = self.add_hashed(views, &wanted, selection_of, groups, buffers)?;
            return Ok((added > 0).then(|| wanted.get(added).copied().unwrap_or(end)));
        };
        let Some((mut run, blocks_most)) = self.plan(views, &wanted, domains)? else { return Ok(None) };
        if wanted.len() > blocks_most {
            end = wanted[blocks_most];
        }
        for (index, block) in wanted.into_iter().enumerate().filter(|(_, block)| *block < end) {
            self.add_block(views, (index, block), &selection_of(block), &mut run, buffers)?;
        }
        let partial = self.partial(views, &run, blocks.start)?;
        groups.add_partial(&partial)?;
        Ok(Some(end))
    }

    /// Prepares a run over these blocks, and computes the maximum number of blocks it may have.
    fn plan<'a>(
        &self,
        views: &[InputView<'a>],
        blocks: &[usize],
        domains: Vec<KeyDomain>,
    ) -> Result<Option<(BlockRun<'a>, usize)>, Fault> {
        let mut bounds = vec![(i128::MAX, i128::MIN); views.len()];
        let mut columns = Vec::with_capacity(blocks.len() * self.narrow.columns().count());
        for block in blocks {
            for (_, input) in self.narrow.columns() {
                let Some(column) = column(&views[input], *block)? else { return Ok(None) };
                let ((low, high), (least, most)) = (bounds[input], narrow::bounds_of(&column));
                bounds[input] = (least.min(low), most.max(high));
                columns.push(column);
            }
        }
        let Some(step_bounds) = self.narrow.step_bounds(|input| bounds[input]) else { return Ok(None) };
        let mut blocks_most = usize::MAX;
        let mut wide = Vec::with_capacity(self.sums.len());
        for Measure { step, .. } in &self.sums {
            let Some(magnitude) = step_bounds.magnitude(*step) else { return Ok(None) };
            // A number of blocks that no usize counts is no bound for a run.
            let blocks_within = |most: i128| {
                let block = magnitude.max(1).checked_mul(BLOCK_ROWS as i128);
                block.map_or(0, |block| (most / block).saturating_as::<usize>())
            };
            let (narrow, widest) = (blocks_within(i64::MAX.into()), blocks_within(i128::MAX));
            if widest == 0 {
                return Ok(None);
            }
            wide.push(narrow == 0);
            blocks_most = blocks_most.min(if narrow == 0 { widest } else { narrow });
        }
        let mut class_of = Vec::with_capacity(self.classes.len());
        for (class, inputs) in self.classes.iter().enumerate() {
            let mut nullable = false;
            for (input, block) in
                inputs.iter().flat_map(|input| blocks.iter().map(move |block| (input, block)))
            {
                nullable |= views[*input].locate(*block)?.view.header().nulls > 0;
            }
            class_of.push(if nullable { class } else { 0 });
        }
        let slots = domains.iter().map(|domain| domain.size).product();
        let least: Vec<bool> = self.extremes.iter().map(|measure| measure.least).collect();
        let table = Table::new(slots, self.classes.len(), &wide, &least);
        Ok(Some((BlockRun { domains, columns, step_bounds, class_of, table }, blocks_most)))
    }

    fn add_block(
        &mut self,
        views: &[InputView<'_>],
        (index, block): (usize, usize),
        selection: &Selection,
        run: &mut BlockRun<'_>,
        buffers: &mut Buffers,
    ) -> Result<(), Fault> {
        let selected = selection.count();
        let sparse = selected < BLOCK_ROWS / SPARSE_SHARE;
        let mut few_rows = std::mem::take(&mut self.few_rows);
        few_rows.clear();
        if sparse {
            selection.rows().for_each(|row| few_rows.push(row));
        }
        let some = sparse.then_some(few_rows.as_slice());
        let rows = some.map_or(BLOCK_ROWS, <[usize]>::len);
        self.lanes.make(self.narrow.steps());
        let columns = &run.columns[index * self.narrow.columns().count()..];
        for ((step, _), column) in self.narrow.columns().zip(columns) {
            NarrowProgram::fill(&run.step_bounds, step, column, some, &mut buffers.scratch, &mut self.lanes);
        }
        let level = buffers.scratch.level();
        self.narrow.compute(level, &run.step_bounds, &mut self.lanes, rows);
        self.slots.fill(0);
        for domain in &run.domains {
            domain.add_codes(views, block, (&mut self.slots, &mut self.class_slots), buffers)?;
        }
        let discarded = run.table.discarded();
        if selected < BLOCK_ROWS && !sparse {
            selection.replace_others(level, &mut self.slots, discarded);
        }
        for class in 0..self.classes.len() {
            if run.class_of[class] != class {
                continue;
            }
            let mut kept = *selection;
            for input in &self.classes[class] {
                kept = valid_rows(&views[*input].locate(block)?).map_or(kept, |valid| kept.and(&valid));
            }
            match some {
                None => {
                    *self.class_slots = *self.slots;
                    if kept != *selection {
                        kept.replace_others(level, &mut self.class_slots, discarded);
                    }
                }
                Some(rows) => {
                    for (slot, row) in self.class_slots.iter_mut().zip(rows) {
                        *slot = if kept.contains(*row) { self.slots[*row] } else { discarded };
                    }
                }
            }
            self.add_class(class, (level, rows), run);
        }
        self.few_rows = few_rows;
        Ok(())
    }

    /// Folds the measures of a class of rows.
    fn add_class(&mut self, class: usize, (level, rows): (Level, usize), run: &mut BlockRun<'_>) {
        let rows = &SlottedRows { level, slots: &self.class_slots, rows };
        let BlockRun { step_bounds, class_of, table, .. } = run;
        let present = table.count(class, rows);
        // Sums have a magnitude, as `plan` has checked; extremes do not use it.
        let values = |step: usize| Values {
            lanes: self.lanes.step(step),
            width: step_bounds.width(step),
            magnitude: step_bounds.magnitude(step).unwrap_or(i128::MAX),
        };
        let sums = self.sums.iter().enumerate().filter(|(_, measure)| class_of[measure.class] == class);
        let sums: Vec<(usize, Values<'_>)> = sums.map(|(sum, measure)| (sum, values(measure.step))).collect();
        table.add(&sums, rows, &present, &mut self.widened);
        for (extreme, measure) in self.extremes.iter().enumerate() {
            if class_of[measure.class] == class {
                table.extreme((extreme, measure.least), values(measure.step), rows, &present);
            }
        }
    }

    /// Converts the slots of a run to one partial group each.
    fn partial(
        &self,
        views: &[InputView<'_>],
        run: &BlockRun<'_>,
        block: usize,
    ) -> Result<PartialGroups, Fault> {
        let BlockRun { domains, class_of, table, .. } = run;
        let used: Vec<usize> = (0..table.slots()).filter(|slot| table.counts[0][*slot] > 0).collect();
        let keys: Result<Vec<_>, Fault> =
            domains.iter().map(|domain| domain.keys(views, block, &used)).collect();
        let counts = |class: usize| -> Vec<i64> {
            let counts = &table.counts[class_of[class]];
            used.iter().map(|slot| counts[*slot]).collect()
        };
        let extremes = |extreme: usize| used.iter().map(move |slot| table.extremes[extreme][*slot]);
        let values = self.folds.iter().map(|fold| match *fold {
            Fold::Count { class } => Ok(PartialValues::Numbers { counts: counts(class), values: Vec::new() }),
            Fold::Sum { sum, class } => {
                let values = used.iter().map(|slot| table.sum(sum, *slot)).collect();
                Ok(PartialValues::Numbers { counts: counts(class), values })
            }
            Fold::Extreme { extreme, class } => {
                let values = extremes(extreme).collect();
                Ok(PartialValues::Numbers { counts: counts(class), values })
            }
            Fold::Text { extreme, class, input } => {
                let codes =
                    extremes(extreme).zip(counts(class)).map(|(code, rows)| (rows > 0).then_some(code));
                Ok(PartialValues::Texts(texts(&views[input].locate(block)?, codes)?))
            }
        });
        let values: Result<Vec<_>, Fault> = values.collect();
        Ok(PartialGroups { keys: keys?, rows: used.len(), values: values? })
    }
}

/// A block's values, or its codes if it holds texts. `None` for texts without a dictionary.
fn column<'a>(view: &InputView<'a>, block: usize) -> Result<Option<IntegerBlock<'a>>, Fault> {
    let located = view.locate(block)?;
    if view.column_type != ColumnType::Text {
        return integers(&located).map(Some);
    }
    if !located.has_dictionary() {
        return Ok(None);
    }
    located.dictionary()?.block(located.block).map(Some).map_err(located.fault())
}

/// The entries of a page's dictionary with these codes.
fn texts(located: &PageBlock<'_, '_>, codes: impl Iterator<Item = Option<i128>>) -> Result<ArrayRef, Fault> {
    let page = located.dictionary()?;
    let (mut texts, mut valid) = (TextBuffer::default(), Vec::new());
    for code in codes {
        let entry =
            code.map_or(Some(0), |code| usize::try_from(code).ok().filter(|code| *code < page.entries()));
        // Codes were folded without a check, so a forged page can have codes beyond its dictionary.
        let Some(entry) = entry else {
            let reason = format!("a code is {code:?}, expected below {}", page.entries());
            return Err(located.place.fault(reason));
        };
        let text = if code.is_some() { page.entry(entry) } else { &[] };
        texts.push(text).map_err(located.fault())?;
        valid.push(code.is_some());
    }
    Ok(text_array(texts, Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0))?)
}

/// The position of `wanted` in `list`; appends it if it is missing.
fn position<T: PartialEq>(list: &mut Vec<T>, wanted: T) -> usize {
    let known = list.iter().position(|one| *one == wanted);
    known.unwrap_or_else(|| {
        list.push(wanted);
        list.len() - 1
    })
}
