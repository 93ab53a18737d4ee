//! Evaluates a condition on a text column (a comparison, a set or a LIKE pattern) on the rows of a
//! block.
//!
//! On a page with a sorted dictionary, the condition is evaluated once per dictionary entry, or,
//! for ranges, on no entry at all; the codes of the rows then decide. Other pages are decoded block
//! by block. The longest piece of a LIKE pattern is searched in the bytes of all texts of the block
//! at once, because texts are short and one call per text would cost more.

use crate::{
    error::Fault,
    evaluate::Expressions,
    narrow::{self, Buffers, compare},
    pages::PageBlock,
    pattern::Pattern,
    predicate::TextTest,
    selection::Selection,
};
use arrow::{
    array::{ArrayRef, StringArray, StringViewArray},
    buffer::{NullBuffer, OffsetBuffer},
    error::ArrowError,
};
use az::SaturatingAs;
use rackscan_format::{
    encoding::{Encoding, dictionary::DictionaryPage, text::TextBuffer},
    limits::BLOCK_ROWS,
    program::NodeIndex,
};
use std::{ops::Range, sync::Arc};

impl TextTest {
    /// Whether the test holds of a text. [`TextTest::Node`] is not evaluated here.
    fn holds(&self, text: &[u8]) -> bool {
        match self {
            Self::Interval { low, high } => {
                let above = low.as_ref().is_none_or(|(low, included)| {
                    if *included { text >= low.as_slice() } else { text > low.as_slice() }
                });
                let below = high.as_ref().is_none_or(|(high, included)| {
                    if *included { text <= high.as_slice() } else { text < high.as_slice() }
                });
                above && below
            }
            Self::Set { values, negated } => {
                values.binary_search_by(|value| value.as_slice().cmp(text)).is_ok() != *negated
            }
            Self::Like { pattern, negated } => pattern.matches(text) != *negated,
            Self::Node { .. } => false,
        }
    }
}

/// Which codes of a dictionary a leaf accepts.
enum Codes {
    Range(Range<usize>),
    Table(Vec<u8>),
}

/// A leaf's answers for one dictionary page, kept while the scan is in that page.
pub(crate) struct LeafMemo {
    page: usize,
    codes: Codes,
    null: bool,
}

/// A text leaf with what its evaluation needs.
pub(crate) struct TextLeaf<'a> {
    pub(crate) input: usize,
    pub(crate) test: &'a TextTest,
    pub(crate) expressions: &'a Expressions,
}

impl TextLeaf<'_> {
    /// The rows of `wanted` that the leaf keeps.
    pub(crate) fn select(
        &self,
        located: &PageBlock<'_, '_>,
        wanted: &Selection,
        memo: &mut Option<LeafMemo>,
        buffers: &mut Buffers,
    ) -> Result<Selection, Fault> {
        let valid = valid_rows(located);
        if !located.has_dictionary() {
            return self.select_decoded(located, wanted, valid.as_ref(), buffers);
        }
        let page = located.dictionary()?;
        let memo = match memo {
            Some(known) if known.page == located.place.page => known,
            _ => memo.insert(self.evaluate_entries(&page, located.place.page)?),
        };
        let block = page.block(located.block).map_err(located.fault())?;
        let kept = match &memo.codes {
            Codes::Range(codes) if codes.is_empty() => Selection::NONE,
            Codes::Range(codes) => {
                let stored = |code: usize| i64::try_from(code).expect("a page has fewer than 2^63 entries");
                narrow::interval(&block, stored(codes.start), stored(codes.end - 1), buffers)
            }
            Codes::Table(table) => {
                // Only a forged page has a negative reference. No entry follows it, so none
                // matches.
                let first = usize::try_from(block.reference()).ok();
                let answers = first.and_then(|first| table.get(first..)).unwrap_or_default();
                // The span is the writer's claim, which may be wrong: codes that are looked up are
                // still checked against the table.
                let span = block.descriptor().span.saturating_as::<usize>();
                match answers.get(..=span) {
                    Some(same) if same.iter().all(|answer| *answer == 0) => Selection::NONE,
                    Some(same) if same.iter().all(|answer| *answer == 1) => Selection::first(BLOCK_ROWS),
                    _ => {
                        let level = buffers.scratch.level();
                        compare::look_up(block.unpack(&mut buffers.scratch), answers, &mut buffers.answers);
                        Selection::from_bytes(level, &buffers.answers)
                    }
                }
            }
        };
        Ok(match valid {
            None => kept.and(wanted),
            Some(valid) if memo.null => kept.or(&Selection::first(BLOCK_ROWS).without(&valid)).and(wanted),
            Some(valid) => kept.and(&valid).and(wanted),
        })
    }

    fn evaluate_entries(&self, page: &DictionaryPage<'_>, number: usize) -> Result<LeafMemo, Fault> {
        let entries = page.entries();
        let memo = |codes, null| LeafMemo { page: number, codes, null };
        let mut table = match self.test {
            TextTest::Interval { low, high } => {
                let start = match low {
                    None => 0,
                    Some((low, true)) => page.lower_bound(low),
                    Some((low, false)) => page.upper_bound(low),
                };
                let end = match high {
                    None => entries,
                    Some((high, true)) => page.upper_bound(high),
                    Some((high, false)) => page.lower_bound(high),
                };
                return Ok(memo(Codes::Range(start..end.max(start)), false));
            }
            TextTest::Set { values, negated } => {
                let mut table = vec![u8::from(*negated); entries];
                for code in values.iter().filter_map(|value| page.find(value)) {
                    table[code] = u8::from(!negated);
                }
                table
            }
            TextTest::Like { .. } => {
                (0..entries).map(|code| u8::from(self.test.holds(page.entry(code)))).collect()
            }
            TextTest::Node { node, truth } => {
                let texts = (0..entries).map(|code| Some(page.entry(code))).chain([None]);
                self.evaluate_node(*node, *truth, texts)?
            }
        };
        let null = matches!(self.test, TextTest::Node { .. }) && table.pop() == Some(1);
        let start = table.iter().position(|answer| *answer == 1).unwrap_or(0);
        let length = table[start..].iter().take_while(|answer| **answer == 1).count();
        let contiguous = table[start + length..].iter().all(|answer| *answer == 0);
        let codes = if contiguous { Codes::Range(start..start + length) } else { Codes::Table(table) };
        Ok(memo(codes, null))
    }

    /// Evaluates the node on texts with arrow's kernels.
    fn evaluate_node<'t>(
        &self,
        node: NodeIndex,
        truth: bool,
        texts: impl Iterator<Item = Option<&'t [u8]>>,
    ) -> Result<Vec<u8>, Fault> {
        let mut buffer = TextBuffer::default();
        let mut valid = Vec::new();
        for text in texts {
            valid.push(text.is_some());
            buffer.push(text.unwrap_or_default()).map_err(|fault| Fault::Computation(too_long(&fault)))?;
        }
        let rows = valid.len();
        let array = text_array(buffer, Some(NullBuffer::from(valid)))?;
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.input];
        columns.push(Some(array));
        let answers = self.expressions.over(&columns, rows).rows_where(node, truth)?;
        Ok(answers.iter().map(u8::from).collect())
    }

    fn select_decoded(
        &self,
        located: &PageBlock<'_, '_>,
        wanted: &Selection,
        valid: Option<&Selection>,
        buffers: &mut Buffers,
    ) -> Result<Selection, Fault> {
        let mut texts = TextBuffer::default();
        // A few rows are gathered; decoding the whole block costs about as much as gathering a
        // quarter of its rows.
        let few = wanted.count() < BLOCK_ROWS / 4;
        let mut some: Vec<u32> = Vec::new();
        if few {
            wanted.append_rows(&mut some);
        }
        decode_texts(located, few.then_some(some.as_slice()), buffers, &mut texts)?;
        let rows: Vec<usize> =
            if few { some.iter().map(|row| *row as usize).collect() } else { (0..located.rows()).collect() };
        if texts.len() != rows.len() {
            let reason = format!("{} texts in a block, expected {}", texts.len(), rows.len());
            return Err(located.place.fault(reason));
        }
        let mut kept = Selection::NONE;
        match self.test {
            TextTest::Node { node, truth } => {
                let is_valid = |row: usize| valid.is_none_or(|valid| valid.contains(row));
                let values = rows.iter().enumerate();
                let values = values.map(|(at, row)| is_valid(*row).then(|| texts.get(at)));
                let answers = self.evaluate_node(*node, *truth, values)?;
                rows.iter()
                    .zip(answers)
                    .filter(|(_, answer)| *answer == 1)
                    .for_each(|(row, _)| kept.insert(*row));
                return Ok(kept.and(wanted));
            }
            TextTest::Like { pattern, negated } => {
                search(pattern, &texts, |at| kept.insert(rows[at]));
                if *negated {
                    kept = wanted.without(&kept);
                }
            }
            test => {
                let holding = rows.iter().enumerate().filter(|(at, _)| test.holds(texts.get(*at)));
                holding.for_each(|(_, row)| kept.insert(*row));
            }
        }
        Ok(valid.map_or(kept, |valid| kept.and(valid)).and(wanted))
    }
}

/// Calls `visit` with the position of each text that matches.
fn search(pattern: &Pattern, texts: &TextBuffer, mut visit: impl FnMut(usize)) {
    let Some(needle) = pattern.needle() else {
        (0..texts.len()).filter(|at| pattern.matches(texts.get(*at))).for_each(visit);
        return;
    };
    // A hit may span two texts. The text that it begins in is checked as a whole, and the search
    // continues after it.
    let (mut from, mut at) = (0, 0);
    while let Some(hit) = needle.find(&texts.bytes[from..]) {
        let hit = from + hit;
        at += texts.ends[at..].partition_point(|end| *end as usize <= hit);
        let Some(end) = texts.ends.get(at) else { return };
        if pattern.matches(texts.get(at)) {
            visit(at);
        }
        from = *end as usize;
    }
}

/// The rows of a block that are not NULL. `None` if no row of the page is NULL.
pub(crate) fn valid_rows(located: &PageBlock<'_, '_>) -> Option<Selection> {
    let validity = located.view.validity()?;
    Some(Selection::from_bits(validity.slice(located.first_row(), located.rows()).bytes()))
}

/// Decodes the texts of a page without a dictionary: of some rows of a block, ascending, or of the
/// whole block.
pub(crate) fn decode_texts(
    located: &PageBlock<'_, '_>,
    rows: Option<&[u32]>,
    buffers: &mut Buffers,
    texts: &mut TextBuffer,
) -> Result<(), Fault> {
    let rows = rows.map(|rows| located.in_page(rows));
    let scratch = &mut buffers.scratch;
    let decoded = match located.compressed() {
        Some(page) => match &rows {
            Some(rows) => page.gather(rows, scratch, texts),
            None => page.decode_block(located.block, scratch, texts),
        },
        // Opening the page again yields the reason why it could not be opened.
        None if located.view.encoding() == Encoding::Fsst => located.view.fsst().map(|_| ()),
        None => located.view.plain().and_then(|mut page| match &rows {
            Some(rows) => page.gather(rows, scratch, texts),
            None => page.decode_block(located.block, scratch, texts),
        }),
    };
    decoded.map_err(located.fault())
}

/// Texts as views of their own buffer, without a copy. Validates UTF-8.
pub(crate) fn text_array(texts: TextBuffer, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
    let mut offsets: Vec<i32> = Vec::with_capacity(texts.ends.len() + 1);
    offsets.push(0);
    for end in &texts.ends {
        offsets.push(i32::try_from(*end).map_err(|error| too_long(&error))?);
    }
    let array = StringArray::try_new(OffsetBuffer::new(offsets.into()), texts.bytes.into(), nulls)?;
    Ok(Arc::new(StringViewArray::from(&array)))
}

fn too_long(error: &impl std::fmt::Display) -> ArrowError {
    ArrowError::ComputeError(format!("the texts of a batch take more than 2 GiB: {error}"))
}
