//! How are rows grouped without making a single array?
//!
//! Where keys are dictionary codes or integers of a small range, their combination is an index into
//! a small table ([`super::domain`]); where arguments are narrow ([`crate::narrow::expression`]),
//! they are computed on unpacked blocks and added there. TPC-H's Q1 and Q6 are such scans. One
//! integer key of a large range is hashed ([`hashed`]). The first and the last of texts are those
//! of their codes in a sorted dictionary.
//!
//! Invariants
//! - A run of blocks lies in one page of each key and of each text that is folded, and is so short
//!   that no 64-bit sum can overflow, unless a single block could; such sums are made in 128 bits.
//!   Everything else is left to the general path.
//! - Row `i` of a block belongs to slot `slots[i]`; rows not selected belong to one slot more,
//!   which is thrown away, and so do rows without a value, in the copy of the slots that the
//!   arguments of their columns use.

use super::{
    Grouping, Groups, Partial, PartialValues,
    domain::{KeyDomain, domains},
    masked::Slots,
    table::{Slotted, Table, Values},
};
use crate::{
    error::Fault,
    limits::SPARSE_SHARE,
    narrow::{
        self, Room,
        expression::{self, NarrowProgram, Operand, Reaches},
        int::Lanes,
    },
    pages::{InputView, Located},
    predicate::inputs_of,
    select::integers,
    selection::Selection,
    text::{text_array, valid_rows},
};
use arrow::{array::ArrayRef, buffer::NullBuffer};
use rackscan_format::{
    encoding::{integer::IntegerBlock, text::TextBuffer},
    limits::BLOCK_ROWS,
    program::{Aggregate, AggregateFunction, Node, ValueType, VerifiedProgram},
    schema::ColumnType,
    simd::Level,
};
use std::ops::Range;

mod hashed;

/// What an aggregate folds, and over which rows: a position in `Direct::classes`.
#[derive(Clone, Copy, Debug)]
enum Fold {
    Count {
        class: usize,
    },
    /// A position in `Direct::sums`.
    Sum {
        sum: usize,
        class: usize,
    },
    /// A position in `Direct::extremes`.
    Extreme {
        extreme: usize,
        class: usize,
    },
    /// Likewise, of the codes of a text column.
    Text {
        extreme: usize,
        class: usize,
        input: usize,
    },
}

/// A step to be folded over the rows of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Measure {
    step: usize,
    class: usize,
    least: bool,
}

/// The narrow path of one grouping.
pub(crate) struct Direct {
    narrow: NarrowProgram,
    keys: Vec<(usize, ValueType)>,
    folds: Vec<Fold>,
    sums: Vec<Measure>,
    extremes: Vec<Measure>,
    /// Sets of inputs: an argument over them has a value where all of them have. The first is
    /// empty: all rows.
    classes: Vec<Vec<usize>>,
    lanes: expression::Room,
    slots: Box<Slots>,
    /// The slots of the rows of a class; room for a key's codes.
    class_slots: Box<Slots>,
    /// The selected rows of a block that has few.
    few: Vec<usize>,
    /// Room for arguments that are added row by row, once there are such.
    spread: Vec<Lanes>,
    /// The keys of a block's selected rows, where they are hashed.
    hashed: Vec<i64>,
    /// Blocks before this one have keys of a range that is too large to be addressed directly.
    hashed_until: usize,
    groups_bytes: usize,
}

/// What is known of a run before its first row.
struct Run<'a> {
    domains: Vec<KeyDomain>,
    /// The columns of the expressions, all of the first block, then all of the second.
    columns: Vec<IntegerBlock<'a>>,
    reaches: Reaches,
    /// For each class, itself if a row of its inputs' pages may be null, else the class of all
    /// rows.
    class_of: Vec<usize>,
    table: Table,
}

impl Direct {
    /// The narrow path, if the grouping's shape allows it; its runs end when the groups take more
    /// than so many bytes.
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
            lanes: expression::Room::default(),
            slots: Box::new([0; BLOCK_ROWS]),
            class_slots: Box::new([0; BLOCK_ROWS]),
            few: Vec::with_capacity(BLOCK_ROWS / SPARSE_SHARE),
            spread: Vec::new(),
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

    /// Adds the selected rows of the first run of `blocks` to the groups, and says where the run
    /// ended; `None` when the first block is not for this path.
    pub(crate) fn add_run(
        &mut self,
        views: &[InputView<'_>],
        blocks: Range<usize>,
        selection_of: impl Fn(usize) -> Selection,
        groups: &mut Groups,
        room: &mut Room,
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
            let added = self.add_hashed(views, &wanted, selection_of, groups, room)?;
            return Ok((added > 0).then(|| wanted.get(added).copied().unwrap_or(end)));
        };
        let Some((mut run, blocks_most)) = self.plan(views, &wanted, domains)? else { return Ok(None) };
        if wanted.len() > blocks_most {
            end = wanted[blocks_most];
        }
        for (index, block) in wanted.into_iter().enumerate().filter(|(_, block)| *block < end) {
            self.add_block(views, (index, block), &selection_of(block), &mut run, room)?;
        }
        let partial = self.partial(views, &run, blocks.start)?;
        groups.add_partial(&partial)?;
        Ok(Some(end))
    }

    /// How a run over these blocks is made, and how many of them it may have.
    fn plan<'a>(
        &self,
        views: &[InputView<'a>],
        blocks: &[usize],
        domains: Vec<KeyDomain>,
    ) -> Result<Option<(Run<'a>, usize)>, Fault> {
        let mut bounds = vec![(i128::MAX, i128::MIN); views.len()];
        let mut columns = Vec::with_capacity(blocks.len() * self.narrow.columns().count());
        for block in blocks {
            for (_, input) in self.narrow.columns() {
                let Some(column) = column(&views[input], *block)? else { return Ok(None) };
                let ((low, high), (least, most)) = (bounds[input], narrow::reach_of(&column));
                bounds[input] = (least.min(low), most.max(high));
                columns.push(column);
            }
        }
        let Some(reaches) = self.narrow.reaches(|input| bounds[input]) else { return Ok(None) };
        let mut blocks_most = usize::MAX;
        let mut wide = Vec::with_capacity(self.sums.len());
        for Measure { step, .. } in &self.sums {
            let Some(magnitude) = reaches.magnitude(*step) else { return Ok(None) };
            let blocks_within = |most: i128| {
                let block = magnitude.max(1).checked_mul(BLOCK_ROWS as i128);
                block.map_or(0, |block| usize::try_from(most / block).unwrap_or(usize::MAX))
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
        Ok(Some((Run { domains, columns, reaches, class_of, table }, blocks_most)))
    }

    fn add_block(
        &mut self,
        views: &[InputView<'_>],
        (index, block): (usize, usize),
        selection: &Selection,
        run: &mut Run<'_>,
        room: &mut Room,
    ) -> Result<(), Fault> {
        let selected = selection.count();
        let sparse = selected < BLOCK_ROWS / SPARSE_SHARE;
        let mut few = std::mem::take(&mut self.few);
        few.clear();
        if sparse {
            selection.rows().for_each(|row| few.push(row));
        }
        let some = sparse.then_some(few.as_slice());
        let rows = some.map_or(BLOCK_ROWS, <[usize]>::len);
        self.lanes.make(self.narrow.steps());
        let columns = &run.columns[index * self.narrow.columns().count()..];
        for ((step, _), column) in self.narrow.columns().zip(columns) {
            NarrowProgram::fill(&run.reaches, step, column, some, &mut room.scratch, &mut self.lanes);
        }
        let level = room.scratch.level();
        self.narrow.compute(level, &run.reaches, &mut self.lanes, rows);
        self.slots.fill(0);
        for domain in &run.domains {
            domain.add_codes(views, block, (&mut self.slots, &mut self.class_slots), room)?;
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
        self.few = few;
        Ok(())
    }

    /// Folds the measures of a class of rows.
    fn add_class(&mut self, class: usize, (level, rows): (Level, usize), run: &mut Run<'_>) {
        let rows = &Slotted { level, slots: &self.class_slots, rows };
        let Run { reaches, class_of, table, .. } = run;
        let present = table.count(class, rows);
        let values = |step: usize| Values {
            lanes: self.lanes.step(step),
            width: reaches.width(step),
            magnitude: reaches.magnitude(step).unwrap_or(i128::MAX),
        };
        let sums = self.sums.iter().enumerate().filter(|(_, measure)| class_of[measure.class] == class);
        let sums: Vec<(usize, Values<'_>)> = sums.map(|(sum, measure)| (sum, values(measure.step))).collect();
        table.add(&sums, rows, &present, &mut self.spread);
        for (extreme, measure) in self.extremes.iter().enumerate() {
            if class_of[measure.class] == class {
                table.extreme((extreme, measure.least), values(measure.step), rows, &present);
            }
        }
    }

    /// A run's slots as one partial group each.
    fn partial(&self, views: &[InputView<'_>], run: &Run<'_>, block: usize) -> Result<Partial, Fault> {
        let Run { domains, class_of, table, .. } = run;
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
        Ok(Partial { keys: keys?, rows: used.len(), values: values? })
    }
}

/// A block's values, or its codes if it holds texts; `None` without a dictionary.
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

/// The entries of a page's dictionary that have these codes.
fn texts(located: &Located<'_, '_>, codes: impl Iterator<Item = Option<i128>>) -> Result<ArrayRef, Fault> {
    let page = located.dictionary()?;
    let (mut texts, mut valid) = (TextBuffer::default(), Vec::new());
    for code in codes {
        let entry =
            code.map_or(Some(0), |code| usize::try_from(code).ok().filter(|code| *code < page.entries()));
        // Codes were folded as they lay there, whatever a page says that somebody forged.
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

/// Where something is in a list, to which it is appended if it is not there.
fn position<T: PartialEq>(list: &mut Vec<T>, wanted: T) -> usize {
    let known = list.iter().position(|one| *one == wanted);
    known.unwrap_or_else(|| {
        list.push(wanted);
        list.len() - 1
    })
}
