//! Which rows of a block does a text leaf keep?
//!
//! In a sorted dictionary the leaf is asked once per entry, or, for ranges, of no entry at all;
//! rows are then decided by their codes. Other pages are decoded block by block; a pattern's
//! longest piece is searched in the whole block's bytes at once, because texts are short and calls
//! are not free.

use crate::{
    error::Fault,
    evaluate::Expressions,
    narrow::{self, Room, compare},
    pages::Located,
    pattern::Pattern,
    predicate::TextTest,
    selection::Selection,
};
use arrow::{
    array::{ArrayRef, StringArray, StringViewArray},
    buffer::{NullBuffer, OffsetBuffer},
    error::ArrowError,
};
use rackscan_format::{
    encoding::{Encoding, dictionary::DictionaryPage, text::TextBuffer},
    limits::BLOCK_ROWS,
    program::NodeIndex,
};
use std::{ops::Range, sync::Arc};

impl TextTest {
    /// Whether it holds of a text; a [`TextTest::Node`] is not asked here.
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

/// What a leaf says of a dictionary's codes.
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

/// One text leaf with what its evaluation needs.
pub(crate) struct TextLeaf<'a> {
    pub(crate) input: usize,
    pub(crate) test: &'a TextTest,
    pub(crate) expressions: &'a Expressions,
}

impl TextLeaf<'_> {
    /// The rows of `wanted` that the leaf keeps.
    pub(crate) fn select(
        &self,
        located: &Located<'_, '_>,
        wanted: &Selection,
        memo: &mut Option<LeafMemo>,
        room: &mut Room,
    ) -> Result<Selection, Fault> {
        let valid = valid_rows(located);
        if !located.has_dictionary() {
            return self.select_decoded(located, wanted, valid.as_ref(), room);
        }
        let page = located.dictionary()?;
        let memo = match memo {
            Some(known) if known.page == located.place.page => known,
            _ => memo.insert(self.ask_entries(&page, located.place.page)?),
        };
        let block = page.block(located.block).map_err(located.fault())?;
        let kept = match &memo.codes {
            Codes::Range(codes) if codes.is_empty() => Selection::NONE,
            Codes::Range(codes) => {
                let stored = |code: usize| i64::try_from(code).unwrap_or(i64::MAX);
                narrow::interval(&block, stored(codes.start), stored(codes.end - 1), room)
            }
            Codes::Table(table) => {
                let first = usize::try_from(block.reference()).unwrap_or(usize::MAX).min(table.len());
                let answers = &table[first..];
                // Bounds are the writer's word; what is looked up is checked against the table all
                // the same.
                let span = usize::try_from(block.descriptor().span).unwrap_or(usize::MAX);
                match answers.get(..=span) {
                    Some(same) if same.iter().all(|answer| *answer == 0) => Selection::NONE,
                    Some(same) if same.iter().all(|answer| *answer == 1) => Selection::first(BLOCK_ROWS),
                    _ => {
                        let level = room.scratch.level();
                        compare::look_up(block.unpack(&mut room.scratch), answers, &mut room.answers);
                        Selection::from_bytes(level, &room.answers)
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

    fn ask_entries(&self, page: &DictionaryPage<'_>, number: usize) -> Result<LeafMemo, Fault> {
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
                self.ask_node(*node, *truth, texts)?
            }
        };
        let null = matches!(self.test, TextTest::Node { .. }) && table.pop() == Some(1);
        let start = table.iter().position(|answer| *answer == 1).unwrap_or(0);
        let length = table[start..].iter().take_while(|answer| **answer == 1).count();
        let contiguous = table[start + length..].iter().all(|answer| *answer == 0);
        let codes = if contiguous { Codes::Range(start..start + length) } else { Codes::Table(table) };
        Ok(memo(codes, null))
    }

    /// The node's answers for texts, by arrow's kernels.
    fn ask_node<'t>(
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
        located: &Located<'_, '_>,
        wanted: &Selection,
        valid: Option<&Selection>,
        room: &mut Room,
    ) -> Result<Selection, Fault> {
        let mut texts = TextBuffer::default();
        // A few rows are gathered; decoding the whole block costs about as much as a quarter of its
        // rows.
        let few = wanted.count() < BLOCK_ROWS / 4;
        let mut some: Vec<u32> = Vec::new();
        if few {
            wanted.append_rows(&mut some);
        }
        decode_texts(located, few.then_some(some.as_slice()), room, &mut texts)?;
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
                let answers = self.ask_node(*node, *truth, values)?;
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
    // A hit may lie across two texts; the text it begins in is asked whole, then the search goes on
    // behind it.
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

/// The rows of a block that have a value; `None` when all have.
pub(crate) fn valid_rows(located: &Located<'_, '_>) -> Option<Selection> {
    let validity = located.view.validity()?;
    Some(Selection::from_bits(validity.slice(located.first_row(), located.rows()).bytes()))
}

/// Decodes the texts of a page that has no dictionary: of some rows of a block, ascending, or of
/// the whole block.
pub(crate) fn decode_texts(
    located: &Located<'_, '_>,
    rows: Option<&[u32]>,
    room: &mut Room,
    texts: &mut TextBuffer,
) -> Result<(), Fault> {
    let rows = rows.map(|rows| located.in_page(rows));
    let scratch = &mut room.scratch;
    let decoded = match located.compressed() {
        Some(page) => match &rows {
            Some(rows) => page.gather(rows, scratch, texts),
            None => page.decode_block(located.block, scratch, texts),
        },
        // For the reason why it could not be opened.
        None if located.view.encoding() == Encoding::Fsst => located.view.fsst().map(|_| ()),
        None => located.view.plain().and_then(|mut page| match &rows {
            Some(rows) => page.gather(rows, scratch, texts),
            None => page.decode_block(located.block, scratch, texts),
        }),
    };
    decoded.map_err(located.fault())
}

/// Texts as views of their own buffer, no copy. Validates UTF-8.
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
