//! How are rows grouped without making a single array?
//!
//! Where keys are dictionary codes or integers of a small range, their combination is an index into a small table; where
//! arguments are narrow ([`super::narrow_expression`]), they are computed on unpacked blocks and added there in 64
//! bits. TPC-H's Q1 and Q6 are such scans.
//!
//! Invariants
//! - A run of blocks lies in one page of each key, holds no null of a column in use, and is so short that no 64-bit
//!   sum can overflow; everything else is left to the general path.
//! - Row `i` of a block belongs to slot `slots[i]`; rows not selected belong to one slot more, which is thrown away.

use super::{
    Grouping, Groups, Partial, integers_to,
    narrow_expression::{Lanes, NarrowProgram, Reaches},
};
use crate::{
    error::Fault,
    limits::{DIRECT_SLOTS_MAX, SPARSE_SHARE},
    narrow::{self, Room},
    pages::{InputView, Located},
    select::integers,
    selection::Selection,
    text::text_array,
};
use arrow::array::ArrayRef;
use rackscan_format::{
    encoding::{Encoding, bitpack::Narrow, text::TextBuffer},
    limits::BLOCK_ROWS,
    program::{AggregateFunction, Node, ValueType, VerifiedProgram},
};
use std::ops::Range;

/// Sums of one slot, and in the last place its rows; a cache line.
type Slot = [i64; 8];
const SUMS_PER_SLOT: usize = 7;
const ROWS_AT: usize = 7;

/// What an aggregate folds.
#[derive(Clone, Copy, Debug)]
enum Fold {
    Count,
    /// A position in `Direct::sums`.
    Sum(usize),
    /// A position in `Direct::extremes`.
    Extreme(usize),
}

/// The narrow path of one grouping.
pub(crate) struct Direct {
    narrow: NarrowProgram,
    keys: Vec<(usize, ValueType)>,
    folds: Vec<Fold>,
    /// Steps to be summed, each once.
    sums: Vec<usize>,
    /// Steps whose smallest (or largest) value is wanted.
    extremes: Vec<(usize, AggregateFunction)>,
    lanes: Vec<Lanes>,
    slots: Box<[u16; BLOCK_ROWS]>,
}

/// How a key's codes become part of a slot's number.
struct KeyDomain {
    input: usize,
    value_type: ValueType,
    /// The value of code 0 (0 for dictionaries).
    base: i64,
    size: usize,
    stride: usize,
}

impl Direct {
    /// The narrow path, if the grouping's shape allows it.
    pub(crate) fn new(program: &VerifiedProgram, grouping: &Grouping) -> Option<Self> {
        let narrow = NarrowProgram::compile(program, grouping)?;
        let mut keys = Vec::new();
        for key in &grouping.keys {
            let Node::Column(input) = program.program().nodes[usize::from(*key)] else { return None };
            let value_type = program.node_types()[usize::from(*key)];
            if matches!(value_type, ValueType::Float64 | ValueType::Decimal { .. }) {
                return None;
            }
            keys.push((usize::from(input), value_type));
        }
        let (mut folds, mut sums, mut extremes) = (Vec::new(), Vec::new(), Vec::new());
        for aggregate in &grouping.aggregates {
            let step = || narrow.step_of(aggregate.argument?);
            folds.push(match aggregate.function {
                AggregateFunction::CountRows | AggregateFunction::Count => Fold::Count,
                AggregateFunction::Sum => {
                    let step = step()?;
                    let known = sums.iter().position(|sum| *sum == step);
                    Fold::Sum(known.unwrap_or_else(|| {
                        sums.push(step);
                        sums.len() - 1
                    }))
                }
                AggregateFunction::Min | AggregateFunction::Max => {
                    extremes.push((step()?, aggregate.function));
                    Fold::Extreme(extremes.len() - 1)
                }
            });
        }
        let lanes = vec![[0; BLOCK_ROWS]; narrow.steps()];
        Some(Self { narrow, keys, folds, sums, extremes, lanes, slots: Box::new([0; BLOCK_ROWS]) })
    }

    /// Adds the selected rows of the first run of `blocks` to the groups, and says where the run ended; `None` when the
    /// first block is not for this path.
    pub(crate) fn add_run(
        &mut self,
        views: &[InputView<'_>],
        blocks: Range<usize>,
        selection_of: impl Fn(usize) -> Selection,
        groups: &mut Groups,
        room: &mut Room,
    ) -> Result<Option<usize>, Fault> {
        let mut end = blocks.end;
        for (input, _) in &self.keys {
            let page = views[*input].page_of(blocks.start);
            end = (blocks.start..end).find(|block| views[*input].page_of(*block) != page).unwrap_or(end);
        }
        let wanted: Vec<usize> =
            (blocks.start..end).filter(|block| !selection_of(*block).is_empty()).collect();
        if wanted.is_empty() {
            return Ok(Some(end));
        }
        let Some(domains) = self.domains(views, &wanted)? else { return Ok(None) };
        let Some((reaches, blocks_most)) = self.reaches(views, &wanted)? else { return Ok(None) };
        if wanted.len() > blocks_most {
            end = wanted[blocks_most];
        }
        let slots = domains.iter().map(|domain| domain.size).product::<usize>();
        let mut table = Table::new(slots, &self.sums, &self.extremes);
        for block in wanted.into_iter().filter(|block| *block < end) {
            self.add_block(views, block, &selection_of(block), &domains, &reaches, &mut table, room)?;
        }
        self.flush(views, &domains, table, blocks.start, groups)?;
        Ok(Some(end))
    }

    /// The small ranges of the keys over these blocks; `None` when they are not small.
    fn domains(&self, views: &[InputView<'_>], blocks: &[usize]) -> Result<Option<Vec<KeyDomain>>, Fault> {
        let mut domains = Vec::with_capacity(self.keys.len());
        let mut stride = 1_usize;
        for (input, value_type) in &self.keys {
            let (mut low, mut high) = (i128::MAX, i128::MIN);
            for block in blocks {
                let located = views[*input].locate(*block)?;
                if located.view.header().nulls > 0 {
                    return Ok(None);
                }
                if *value_type == ValueType::Text {
                    if located.view.encoding() != Encoding::Dictionary {
                        return Ok(None);
                    }
                    let entries = located.view.dictionary().map_err(located.fault())?.entries();
                    (low, high) = (0, entries as i128 - 1);
                    break;
                }
                let block = integers(&located)?;
                low = low.min(block.reference().into());
                high = high.max(narrow::largest_value(&block));
            }
            let size = usize::try_from(high - low + 1).unwrap_or(usize::MAX);
            let (Ok(base), true) = (i64::try_from(low), size.saturating_mul(stride) <= DIRECT_SLOTS_MAX)
            else {
                return Ok(None);
            };
            domains.push(KeyDomain { input: *input, value_type: *value_type, base, size, stride });
            stride *= size;
        }
        Ok(Some(domains))
    }

    /// How far values reach over these blocks, and how many of them may be summed in 64 bits.
    fn reaches(&self, views: &[InputView<'_>], blocks: &[usize]) -> Result<Option<(Reaches, usize)>, Fault> {
        let mut bounds: Vec<Option<(i128, i128)>> = vec![None; views.len()];
        for (_, input) in self.narrow.columns() {
            let (mut low, mut high) = (i128::MAX, i128::MIN);
            for block in blocks {
                let located = views[input].locate(*block)?;
                if located.view.header().nulls > 0 {
                    return Ok(None);
                }
                let block = integers(&located)?;
                low = low.min(block.reference().into());
                high = high.max(narrow::largest_value(&block));
            }
            bounds[input] = Some((low, high));
        }
        let beyond = (i128::MIN, i128::MAX);
        let Some(reaches) = self.narrow.reaches(|input| bounds[input].unwrap_or(beyond)) else {
            return Ok(None);
        };
        let largest = self.sums.iter().map(|step| reaches.magnitude(*step)).max().unwrap_or(0).max(1);
        let blocks_most = i128::from(i64::MAX) / (largest * BLOCK_ROWS as i128);
        Ok(match usize::try_from(blocks_most).unwrap_or(usize::MAX) {
            0 => None,
            most => Some((reaches, most)),
        })
    }

    #[expect(clippy::too_many_arguments, reason = "the state of a run, which lives in its caller's frame")]
    fn add_block(
        &mut self,
        views: &[InputView<'_>],
        block: usize,
        selection: &Selection,
        domains: &[KeyDomain],
        reaches: &Reaches,
        table: &mut Table,
        room: &mut Room,
    ) -> Result<(), Fault> {
        let selected = selection.count();
        let sparse = selected < BLOCK_ROWS / SPARSE_SHARE;
        let rows_selected: Vec<usize> = if sparse { selection.rows().collect() } else { Vec::new() };
        let rows = if sparse { selected } else { BLOCK_ROWS };
        for (step, input) in self.narrow.columns() {
            let located = views[input].locate(block)?;
            let block = integers(&located)?;
            let numbers = block.unpack(&mut room.scratch);
            let lanes = &mut self.lanes[step];
            if sparse {
                for (lane, row) in lanes.iter_mut().zip(&rows_selected) {
                    *lane = block.value_of(numbers.get(*row));
                }
            } else {
                narrow::values(&block, numbers, lanes);
            }
        }
        self.narrow.compute(reaches, &mut self.lanes, rows);
        self.slots.fill(0);
        for domain in domains {
            let located = views[domain.input].locate(block)?;
            add_codes(domain, &located, &mut self.slots, room)?;
        }
        if sparse {
            for (index, row) in rows_selected.iter().enumerate() {
                self.slots[index] = self.slots[*row];
            }
        } else if selected < BLOCK_ROWS {
            selection.replace_others(&mut self.slots, table.discarded());
        }
        table.add(&self.slots[..rows], &self.lanes, &self.sums, &self.extremes);
        Ok(())
    }

    /// Puts a run's slots into the groups, as one partial row each.
    fn flush(
        &self,
        views: &[InputView<'_>],
        domains: &[KeyDomain],
        table: Table,
        block: usize,
        groups: &mut Groups,
    ) -> Result<(), Fault> {
        let used: Vec<usize> = (0..table.slots).filter(|slot| table.rows(*slot) > 0).collect();
        let mut keys: Vec<ArrayRef> = Vec::with_capacity(domains.len());
        for domain in domains {
            let codes = used.iter().map(|slot| slot / domain.stride % domain.size);
            if domain.value_type == ValueType::Text {
                let located = views[domain.input].locate(block)?;
                let page = located.view.dictionary().map_err(located.fault())?;
                let mut texts = TextBuffer::default();
                for code in codes {
                    texts.push(page.entry(code)).map_err(located.fault())?;
                }
                keys.push(text_array(texts, None)?);
            } else {
                // Codes are below DIRECT_SLOTS_MAX.
                let values = codes.map(|code| domain.base.wrapping_add(code as i64)).collect();
                keys.push(integers_to(domain.value_type, values, None)?);
            }
        }
        let rows: Vec<i64> = used.iter().map(|slot| table.rows(*slot)).collect();
        let values = self.folds.iter().map(|fold| match fold {
            Fold::Count => rows.clone(),
            Fold::Sum(sum) => used.iter().map(|slot| table.sum(*slot, *sum)).collect(),
            Fold::Extreme(extreme) => used.iter().map(|slot| table.extremes[*extreme][*slot]).collect(),
        });
        let partial = Partial { keys, rows: used.len(), values: values.collect() };
        Ok(groups.add_partial(&partial)?)
    }
}

/// Adds `code * stride` of each row of a block to its slot.
fn add_codes(
    domain: &KeyDomain,
    located: &Located<'_, '_>,
    slots: &mut [u16; BLOCK_ROWS],
    room: &mut Room,
) -> Result<(), Fault> {
    // All of these are below DIRECT_SLOTS_MAX for rows of the block; what wraps belongs to rows behind its end.
    let cut = |number: u64| u16::try_from(number & u64::from(u16::MAX)).unwrap_or_default();
    let (first, factor, numbers) = if domain.value_type == ValueType::Text {
        let page = located.view.dictionary().map_err(located.fault())?;
        let block = page.block(located.block).map_err(located.fault())?;
        let numbers = page.unpack(&block, &mut room.scratch).map_err(located.fault())?;
        (block.reference(), 1, numbers)
    } else {
        let block = integers(located)?;
        (block.reference().wrapping_sub(domain.base), block.divisor(), block.unpack(&mut room.scratch))
    };
    let stride = cut(domain.stride as u64);
    let first = cut(first.cast_unsigned()).wrapping_mul(stride);
    let factor = cut(factor).wrapping_mul(stride);
    fn add<L: Copy>(slots: &mut [u16], lanes: &[L], of: impl Fn(L) -> u16) {
        slots.iter_mut().zip(lanes).for_each(|(slot, lane)| *slot = slot.wrapping_add(of(*lane)));
    }
    let of = |number: u16| first.wrapping_add(factor.wrapping_mul(number));
    match numbers {
        Narrow::Constant => add(slots, &[(); BLOCK_ROWS], |()| first),
        Narrow::U8(lanes) => add(slots, lanes, |lane| of(lane.into())),
        Narrow::U16(lanes) => add(slots, lanes, of),
        Narrow::U32(lanes) => add(slots, lanes, |lane| of(cut(lane.into()))),
        Narrow::U64(lanes) => add(slots, lanes, |lane| of(cut(lane))),
    }
    Ok(())
}

/// Sums, rows and extremes of each slot. Two of each, taken in turns: a row's sum need not wait for that of the row
/// before, which is often of the same slot.
struct Table {
    slots: usize,
    /// Groups of up to seven sums; of each, the slots of even rows, then of odd rows.
    sums: Vec<Vec<Slot>>,
    extremes: Vec<Vec<i64>>,
}

impl Table {
    fn new(slots: usize, sums: &[usize], extremes: &[(usize, AggregateFunction)]) -> Self {
        let parts = sums.len().div_ceil(SUMS_PER_SLOT).max(1);
        let extremes = extremes.iter().map(|(_, function)| {
            let none = if *function == AggregateFunction::Min { i64::MAX } else { i64::MIN };
            vec![none; slots + 1]
        });
        Self { slots, sums: vec![vec![[0; 8]; 2 * (slots + 1)]; parts], extremes: extremes.collect() }
    }

    /// The slot of rows that are not selected.
    fn discarded(&self) -> u16 {
        u16::try_from(self.slots).unwrap_or(u16::MAX)
    }

    fn both(&self, slot: usize, part: usize, at: usize) -> i64 {
        self.sums[part][slot][at].wrapping_add(self.sums[part][self.slots + 1 + slot][at])
    }

    fn rows(&self, slot: usize) -> i64 {
        self.both(slot, 0, ROWS_AT)
    }

    fn sum(&self, slot: usize, sum: usize) -> i64 {
        self.both(slot, sum / SUMS_PER_SLOT, sum % SUMS_PER_SLOT)
    }

    fn add(
        &mut self,
        slots: &[u16],
        lanes: &[Lanes],
        sums: &[usize],
        extremes: &[(usize, AggregateFunction)],
    ) {
        let slot_count = self.slots;
        for (part, table) in self.sums.iter_mut().enumerate() {
            let wanted = sums.iter().skip(part * SUMS_PER_SLOT).take(SUMS_PER_SLOT);
            let wanted: Vec<&Lanes> = wanted.map(|step| &lanes[*step]).collect();
            let (even, odd) = table.split_at_mut(slot_count + 1);
            match wanted[..] {
                [] => add_sums([], slots, even, odd),
                [a] => add_sums([a], slots, even, odd),
                [a, b] => add_sums([a, b], slots, even, odd),
                [a, b, c] => add_sums([a, b, c], slots, even, odd),
                [a, b, c, d] => add_sums([a, b, c, d], slots, even, odd),
                [a, b, c, d, e] => add_sums([a, b, c, d, e], slots, even, odd),
                [a, b, c, d, e, f] => add_sums([a, b, c, d, e, f], slots, even, odd),
                [a, b, c, d, e, f, g, ..] => add_sums([a, b, c, d, e, f, g], slots, even, odd),
            }
        }
        for ((step, function), table) in extremes.iter().zip(&mut self.extremes) {
            for (slot, value) in slots.iter().zip(&lanes[*step]) {
                if let Some(known) = table.get_mut(usize::from(*slot)) {
                    let least = *function == AggregateFunction::Min;
                    *known = if least { (*known).min(*value) } else { (*known).max(*value) };
                }
            }
        }
    }
}

/// Adds each row's values to its slot. A slot beyond the table (of rows behind a block's end) is skipped.
fn add_sums<const SUMS: usize>(lanes: [&Lanes; SUMS], slots: &[u16], even: &mut [Slot], odd: &mut [Slot]) {
    let add = |table: &mut [Slot], row: usize, slot: u16| {
        let Some(slot) = table.get_mut(usize::from(slot)) else { return };
        for (sum, lanes) in slot.iter_mut().zip(lanes) {
            *sum = sum.wrapping_add(lanes[row]);
        }
        slot[ROWS_AT] += 1;
    };
    let (pairs, last) = slots.as_chunks::<2>();
    for (pair, [first, second]) in pairs.iter().enumerate() {
        let row = pair * 2 % BLOCK_ROWS;
        add(even, row, *first);
        add(odd, row + 1, *second);
    }
    if let [slot] = last {
        add(even, slots.len() - 1, *slot);
    }
}
