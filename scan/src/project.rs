//! Copies the selected rows of a scan into arrow arrays.
//!
//! Integers are decoded directly into the array's type. A dictionary page yields views into one
//! array of its entries. Texts of other pages are decompressed into one buffer and viewed there.

use crate::{
    error::{Fault, PagePosition},
    narrow::Buffers,
    pages::InputView,
    selection::Selection,
    text::{decode_texts, text_array, valid_rows},
    types::arrow_scale,
};
use arrow::{
    array::BooleanBufferBuilder,
    array::{
        Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array,
        TimestampMicrosecondArray, UInt32Array,
    },
    buffer::{BooleanBuffer, NullBuffer},
    compute::{concat, take},
};
use rackscan_format::{
    encoding::{integer::Stored, text::TextBuffer},
    ids::SegmentId,
    limits::BLOCK_ROWS,
    row_place::RowPlace,
    schema::ColumnType,
};
use std::{ops::Range, sync::Arc};

/// The selected rows of one block, at least one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockPick {
    pub(crate) block: usize,
    pub(crate) selection: Selection,
    /// The number of selected rows.
    pub(crate) rows: usize,
}

/// Picks with the positions of their rows, which are computed once for all columns.
pub(crate) struct PickedRows<'p> {
    blocks: Vec<(&'p BlockPick, Range<usize>)>,
    places: Vec<u32>,
}

impl<'p> PickedRows<'p> {
    pub(crate) fn of(picks: &'p [BlockPick]) -> Self {
        let mut places = Vec::new();
        let blocks = picks.iter().map(|pick| {
            let start = places.len();
            if pick.rows < BLOCK_ROWS {
                pick.selection.append_rows(&mut places);
            }
            (pick, start..places.len())
        });
        Self { blocks: blocks.collect(), places }
    }

    pub(crate) fn rows(&self) -> usize {
        rows_of(&self.blocks)
    }

    /// The row number of each row: its segment and its row in the segment.
    pub(crate) fn row_numbers(&self, segment: SegmentId) -> ArrayRef {
        let first = RowPlace { segment, row: 0 }.number();
        let mut numbers = Vec::with_capacity(self.rows());
        for (pick, rows) in (PickSlice { blocks: &self.blocks, places: &self.places }).iter() {
            // A segment has at most 2^22 rows, so the sum stays below the next segment's numbers.
            let first = first + (pick.block * BLOCK_ROWS) as i64;
            match rows {
                None => numbers.extend(first..first + pick.rows as i64),
                Some(rows) => numbers.extend(rows.iter().map(|row| first + i64::from(*row))),
            }
        }
        Arc::new(Int64Array::from(numbers))
    }
}

/// Some of the picks of a batch: each with the positions of its rows within the block, or `None`
/// for all 1,024.
#[derive(Clone, Copy)]
struct PickSlice<'a> {
    blocks: &'a [(&'a BlockPick, Range<usize>)],
    places: &'a [u32],
}

impl<'a> PickSlice<'a> {
    fn iter(&self) -> impl Iterator<Item = (&'a BlockPick, Option<&'a [u32]>)> + use<'a> {
        let places = self.places;
        self.blocks
            .iter()
            .map(move |(pick, range)| (*pick, (pick.rows < BLOCK_ROWS).then(|| &places[range.clone()])))
    }

    fn rows(&self) -> usize {
        rows_of(self.blocks)
    }
}

fn rows_of(blocks: &[(&BlockPick, Range<usize>)]) -> usize {
    blocks.iter().map(|(pick, _)| pick.rows).sum()
}

/// The picked rows of one input, in order.
pub(crate) fn gather(
    view: &InputView<'_>,
    picked: &PickedRows<'_>,
    buffers: &mut Buffers,
) -> Result<ArrayRef, Fault> {
    let picks = PickSlice { blocks: &picked.blocks, places: &picked.places };
    if view.column_type == ColumnType::Text {
        return gather_texts(view, picks, buffers);
    }
    let nulls = gather_nulls(view, picks)?;
    Ok(match view.column_type {
        ColumnType::Boolean => {
            let values: Vec<i32> = gather_integers(view, picks, buffers)?;
            let bits = BooleanBuffer::collect_bool(values.len(), |row| values[row] != 0);
            Arc::new(BooleanArray::new(bits, nulls))
        }
        ColumnType::Int32 => {
            Arc::new(Int32Array::try_new(gather_integers(view, picks, buffers)?.into(), nulls)?)
        }
        ColumnType::Int64 => {
            Arc::new(Int64Array::try_new(gather_integers(view, picks, buffers)?.into(), nulls)?)
        }
        ColumnType::Date32 => {
            Arc::new(Date32Array::try_new(gather_integers(view, picks, buffers)?.into(), nulls)?)
        }
        ColumnType::TimestampMicros => {
            let values = gather_integers(view, picks, buffers)?.into();
            Arc::new(TimestampMicrosecondArray::try_new(values, nulls)?)
        }
        ColumnType::Decimal { precision, scale } => {
            let values = gather_integers::<i128>(view, picks, buffers)?.into();
            let array = Decimal128Array::try_new(values, nulls)?;
            Arc::new(array.with_precision_and_scale(precision, arrow_scale(scale))?)
        }
        ColumnType::Float64 => {
            let mut values = Vec::with_capacity(picks.rows());
            for (pick, rows) in picks.iter() {
                let located = view.locate(pick.block)?;
                let page = located.view.floats().map_err(located.fault())?;
                let first = located.first_row();
                let gathered = match rows {
                    None => page.decode_into(first..first + pick.rows, &mut values),
                    Some(rows) => page.gather(&located.in_page(rows), &mut values),
                };
                gathered.map_err(located.fault())?;
            }
            Arc::new(Float64Array::try_new(values.into(), nulls)?)
        }
        ColumnType::Text => gather_texts(view, picks, buffers)?,
    })
}

fn gather_integers<T: Stored>(
    view: &InputView<'_>,
    picks: PickSlice<'_>,
    buffers: &mut Buffers,
) -> Result<Vec<T>, Fault> {
    let mut values = Vec::with_capacity(picks.rows());
    for (pick, rows) in picks.iter() {
        let block = view.locate(pick.block)?.integer_block()?;
        match rows {
            None => block.decode_into(0..pick.rows, &mut buffers.scratch, &mut values),
            Some(rows) => block.gather(rows, &mut buffers.scratch, &mut values),
        }
    }
    Ok(values)
}

fn gather_nulls(view: &InputView<'_>, picks: PickSlice<'_>) -> Result<Option<NullBuffer>, Fault> {
    let mut builder: Option<BooleanBufferBuilder> = None;
    let mut before = 0;
    for (pick, rows) in picks.iter() {
        let located = view.locate(pick.block)?;
        match valid_rows(&located) {
            None => {
                if let Some(builder) = &mut builder {
                    builder.append_n(pick.rows, true);
                }
            }
            Some(valid) => {
                let builder = builder.get_or_insert_with(|| {
                    let mut builder = BooleanBufferBuilder::new(picks.rows());
                    builder.append_n(before, true);
                    builder
                });
                match rows {
                    None => (0..pick.rows).for_each(|row| builder.append(valid.contains(row))),
                    Some(rows) => rows.iter().for_each(|row| builder.append(valid.contains(*row as usize))),
                }
            }
        }
        before += pick.rows;
    }
    let nulls = builder.map(|mut builder| NullBuffer::new(builder.finish()));
    Ok(nulls.filter(|nulls| nulls.null_count() > 0))
}

fn gather_texts(
    view: &InputView<'_>,
    picks: PickSlice<'_>,
    buffers: &mut Buffers,
) -> Result<ArrayRef, Fault> {
    let PickSlice { blocks, places } = picks;
    let runs = blocks.chunk_by(|(one, _), (next, _)| view.page_of(one.block) == view.page_of(next.block));
    let parts: Result<Vec<ArrayRef>, Fault> =
        runs.map(|blocks| gather_text_page(view, PickSlice { blocks, places }, buffers)).collect();
    let mut parts = parts?;
    if parts.len() == 1 {
        return Ok(parts.swap_remove(0));
    }
    if parts.is_empty() {
        return Ok(text_array(TextBuffer::default(), None)?);
    }
    let parts: Vec<&dyn Array> = parts.iter().map(|part| part.as_ref()).collect();
    Ok(concat(&parts)?)
}

/// Texts of picks that all lie in one page.
fn gather_text_page(
    view: &InputView<'_>,
    picks: PickSlice<'_>,
    buffers: &mut Buffers,
) -> Result<ArrayRef, Fault> {
    let nulls = gather_nulls(view, picks)?;
    let Some((first, _)) = picks.blocks.first() else { return Ok(text_array(TextBuffer::default(), None)?) };
    let located = view.locate(first.block)?;
    let mut texts = TextBuffer::default();
    if !located.has_dictionary() {
        for (pick, rows) in picks.iter() {
            let located = view.locate(pick.block)?;
            let some = rows.filter(|rows| rows.len() < located.rows());
            decode_texts(&located, some, buffers, &mut texts)?;
        }
        return Ok(text_array(texts, nulls)?);
    }
    let page = located.dictionary()?;
    let mut codes: Vec<u32> = Vec::with_capacity(picks.rows());
    for (pick, rows) in picks.iter() {
        let located = view.locate(pick.block)?;
        let gathered = match rows {
            None => page.decode_block(located.block, &mut buffers.scratch, &mut codes),
            Some(rows) => page.gather_block(located.block, rows, &mut buffers.scratch, &mut codes),
        };
        gathered.map_err(located.fault())?;
    }
    let PagePosition { input, page: number } = located.place;
    let known =
        buffers.entries.get(&input).filter(|(page, _)| *page == number).map(|(_, array)| Arc::clone(array));
    if known.is_none() && codes.len() < page.entries() / 2 {
        // Fewer rows than entries: copy the rows' texts instead of the whole dictionary.
        for code in &codes {
            texts.push(page.entry(*code as usize)).map_err(located.fault())?;
        }
        return Ok(text_array(texts, nulls)?);
    }
    let entries = match known {
        Some(entries) => entries,
        None => {
            for code in 0..page.entries() {
                texts.push(page.entry(code)).map_err(located.fault())?;
            }
            let entries = text_array(texts, None)?;
            buffers.entries.insert(input, (number, Arc::clone(&entries)));
            entries
        }
    };
    Ok(take(&entries, &UInt32Array::try_new(codes.into(), nulls)?, None)?)
}
