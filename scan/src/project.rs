//! How do selected rows become arrow arrays?
//!
//! Integers are decoded straight to the array's type. A dictionary page gives views into one array
//! of its entries; other texts of a page are decompressed one behind the other, and viewed there.

use crate::{
    error::{Fault, PageWhere},
    narrow::Room,
    pages::InputView,
    selection::Selection,
    text::{decode_texts, text_array, valid_rows},
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

/// The rows wanted of one block, at least one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    pub(crate) block: usize,
    pub(crate) selection: Selection,
    /// How many rows that is.
    pub(crate) rows: usize,
}

/// Picks with the places of their rows, which are found once for all columns.
pub(crate) struct Picked<'p> {
    blocks: Vec<(&'p Pick, Range<usize>)>,
    places: Vec<u32>,
}

impl<'p> Picked<'p> {
    pub(crate) fn of(picks: &'p [Pick]) -> Self {
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

    /// Where each row lies.
    pub(crate) fn row_numbers(&self, segment: SegmentId) -> ArrayRef {
        let first = RowPlace { segment, row: 0 }.number();
        let mut numbers = Vec::with_capacity(self.rows());
        for (pick, rows) in (Part { blocks: &self.blocks, places: &self.places }).iter() {
            // Rows of a segment are counted in 22 bits.
            let first = first + (pick.block * BLOCK_ROWS) as i64;
            match rows {
                None => numbers.extend(first..first + pick.rows as i64),
                Some(rows) => numbers.extend(rows.iter().map(|row| first + i64::from(*row))),
            }
        }
        Arc::new(Int64Array::from(numbers))
    }
}

/// Some of the picks of a batch: each with its rows, counted in its block, or `None` for all 1,024.
#[derive(Clone, Copy)]
struct Part<'a> {
    blocks: &'a [(&'a Pick, Range<usize>)],
    places: &'a [u32],
}

impl<'a> Part<'a> {
    fn iter(&self) -> impl Iterator<Item = (&'a Pick, Option<&'a [u32]>)> + use<'a> {
        let places = self.places;
        self.blocks
            .iter()
            .map(move |(pick, range)| (*pick, (pick.rows < BLOCK_ROWS).then(|| &places[range.clone()])))
    }

    fn rows(&self) -> usize {
        rows_of(self.blocks)
    }
}

fn rows_of(blocks: &[(&Pick, Range<usize>)]) -> usize {
    blocks.iter().map(|(pick, _)| pick.rows).sum()
}

/// The picked rows of one input, in order.
pub(crate) fn gather(view: &InputView<'_>, picked: &Picked<'_>, room: &mut Room) -> Result<ArrayRef, Fault> {
    let picks = Part { blocks: &picked.blocks, places: &picked.places };
    if view.column_type == ColumnType::Text {
        return gather_texts(view, picks, room);
    }
    let nulls = gather_nulls(view, picks)?;
    Ok(match view.column_type {
        ColumnType::Boolean => {
            let values: Vec<i32> = gather_integers(view, picks, room)?;
            let bits = BooleanBuffer::collect_bool(values.len(), |row| values[row] != 0);
            Arc::new(BooleanArray::new(bits, nulls))
        }
        ColumnType::Int32 => {
            Arc::new(Int32Array::try_new(gather_integers(view, picks, room)?.into(), nulls)?)
        }
        ColumnType::Int64 => {
            Arc::new(Int64Array::try_new(gather_integers(view, picks, room)?.into(), nulls)?)
        }
        ColumnType::Date32 => {
            Arc::new(Date32Array::try_new(gather_integers(view, picks, room)?.into(), nulls)?)
        }
        ColumnType::TimestampMicros => {
            let values = gather_integers(view, picks, room)?.into();
            Arc::new(TimestampMicrosecondArray::try_new(values, nulls)?)
        }
        ColumnType::Decimal { precision, scale } => {
            let values = gather_integers::<i128>(view, picks, room)?.into();
            let scale = i8::try_from(scale).unwrap_or(i8::MAX);
            let array = Decimal128Array::try_new(values, nulls)?;
            Arc::new(array.with_precision_and_scale(precision, scale)?)
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
        ColumnType::Text => gather_texts(view, picks, room)?,
    })
}

fn gather_integers<T: Stored>(
    view: &InputView<'_>,
    picks: Part<'_>,
    room: &mut Room,
) -> Result<Vec<T>, Fault> {
    let mut values = Vec::with_capacity(picks.rows());
    for (pick, rows) in picks.iter() {
        let block = view.locate(pick.block)?.integer_block()?;
        match rows {
            None => block.decode_into(0..pick.rows, &mut room.scratch, &mut values),
            Some(rows) => block.gather(rows, &mut room.scratch, &mut values),
        }
    }
    Ok(values)
}

fn gather_nulls(view: &InputView<'_>, picks: Part<'_>) -> Result<Option<NullBuffer>, Fault> {
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

fn gather_texts(view: &InputView<'_>, picks: Part<'_>, room: &mut Room) -> Result<ArrayRef, Fault> {
    let Part { blocks, places } = picks;
    let runs = blocks.chunk_by(|(one, _), (next, _)| view.page_of(one.block) == view.page_of(next.block));
    let parts: Result<Vec<ArrayRef>, Fault> =
        runs.map(|blocks| gather_text_page(view, Part { blocks, places }, room)).collect();
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

/// Texts of picks that lie in one page.
fn gather_text_page(view: &InputView<'_>, picks: Part<'_>, room: &mut Room) -> Result<ArrayRef, Fault> {
    let nulls = gather_nulls(view, picks)?;
    let Some((first, _)) = picks.blocks.first() else { return Ok(text_array(TextBuffer::default(), None)?) };
    let located = view.locate(first.block)?;
    let mut texts = TextBuffer::default();
    if !located.has_dictionary() {
        for (pick, rows) in picks.iter() {
            let located = view.locate(pick.block)?;
            let some = rows.filter(|rows| rows.len() < located.rows());
            decode_texts(&located, some, room, &mut texts)?;
        }
        return Ok(text_array(texts, nulls)?);
    }
    let page = located.dictionary()?;
    let mut codes: Vec<u32> = Vec::with_capacity(picks.rows());
    for (pick, rows) in picks.iter() {
        let located = view.locate(pick.block)?;
        let gathered = match rows {
            None => page.decode_block(located.block, &mut room.scratch, &mut codes),
            Some(rows) => page.gather_block(located.block, rows, &mut room.scratch, &mut codes),
        };
        gathered.map_err(located.fault())?;
    }
    let PageWhere { input, page: number } = located.place;
    let known =
        room.entries.get(&input).filter(|(page, _)| *page == number).map(|(_, array)| Arc::clone(array));
    if known.is_none() && codes.len() < page.entries() / 2 {
        // Fewer rows than entries: their texts are copied, not the dictionary.
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
            room.entries.insert(input, (number, Arc::clone(&entries)));
            entries
        }
    };
    Ok(take(&entries, &UInt32Array::try_new(codes.into(), nulls)?, None)?)
}
