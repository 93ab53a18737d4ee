//! How do selected rows become arrow arrays?
//!
//! Integers are decoded straight to the array's type. A dictionary page gives views into one array of its entries;
//! other texts of a page are decompressed one behind the other, and viewed there.

use crate::{
    error::{Fault, PageWhere},
    narrow::Room,
    pages::{InputView, Located},
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
    encoding::{Encoding, integer::Stored, text::TextBuffer},
    schema::ColumnType,
};
use std::sync::Arc;

/// The rows wanted of one block, at least one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    pub(crate) block: usize,
    pub(crate) selection: Selection,
    /// How many rows that is.
    pub(crate) rows: usize,
}

/// The picked rows of one input, in order.
pub(crate) fn gather(view: &InputView<'_>, picks: &[Pick], room: &mut Room) -> Result<ArrayRef, Fault> {
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
            let mut values = Vec::with_capacity(rows_of(picks));
            for pick in picks {
                let located = view.locate(pick.block)?;
                let page = located.view.floats().map_err(located.fault())?;
                page.gather(&rows_in_page(&located, pick), &mut values).map_err(located.fault())?;
            }
            Arc::new(Float64Array::try_new(values.into(), nulls)?)
        }
        ColumnType::Text => gather_texts(view, picks, room)?,
    })
}

pub(crate) fn rows_of(picks: &[Pick]) -> usize {
    picks.iter().map(|pick| pick.rows).sum()
}

fn rows_in_page(located: &Located<'_, '_>, pick: &Pick) -> Vec<u32> {
    let first = located.first_row();
    pick.selection.rows().map(|row| u32::try_from(first + row).unwrap_or(u32::MAX)).collect()
}

fn gather_integers<T: Stored>(
    view: &InputView<'_>,
    picks: &[Pick],
    room: &mut Room,
) -> Result<Vec<T>, Fault> {
    let mut values = Vec::with_capacity(rows_of(picks));
    for pick in picks {
        let located = view.locate(pick.block)?;
        let page = located.view.integers().map_err(located.fault())?;
        let first = located.first_row();
        let gathered = if pick.rows == located.rows() {
            page.decode_into(first..first + pick.rows, &mut room.scratch, &mut values)
        } else {
            page.gather(&rows_in_page(&located, pick), &mut room.scratch, &mut values)
        };
        gathered.map_err(located.fault())?;
    }
    Ok(values)
}

fn gather_nulls(view: &InputView<'_>, picks: &[Pick]) -> Result<Option<NullBuffer>, Fault> {
    let mut builder: Option<BooleanBufferBuilder> = None;
    let mut before = 0;
    for pick in picks {
        let located = view.locate(pick.block)?;
        match valid_rows(&located) {
            None => {
                if let Some(builder) = &mut builder {
                    builder.append_n(pick.rows, true);
                }
            }
            Some(valid) => {
                let builder = builder.get_or_insert_with(|| {
                    let mut builder = BooleanBufferBuilder::new(rows_of(picks));
                    builder.append_n(before, true);
                    builder
                });
                pick.selection.rows().for_each(|row| builder.append(valid.contains(row)));
            }
        }
        before += pick.rows;
    }
    let nulls = builder.map(|mut builder| NullBuffer::new(builder.finish()));
    Ok(nulls.filter(|nulls| nulls.null_count() > 0))
}

fn gather_texts(view: &InputView<'_>, picks: &[Pick], room: &mut Room) -> Result<ArrayRef, Fault> {
    let runs = picks.chunk_by(|one, next| view.page_of(one.block) == view.page_of(next.block));
    let parts: Result<Vec<ArrayRef>, Fault> = runs.map(|picks| gather_text_page(view, picks, room)).collect();
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
fn gather_text_page(view: &InputView<'_>, picks: &[Pick], room: &mut Room) -> Result<ArrayRef, Fault> {
    let nulls = gather_nulls(view, picks)?;
    let Some(first) = picks.first() else { return Ok(text_array(TextBuffer::default(), None)?) };
    let located = view.locate(first.block)?;
    let mut texts = TextBuffer::default();
    if located.view.encoding() != Encoding::Dictionary {
        for pick in picks {
            let located = view.locate(pick.block)?;
            let rows: Vec<usize> = pick.selection.rows().collect();
            let some = (pick.rows < located.rows()).then_some(rows.as_slice());
            decode_texts(&located, some, room, &mut texts)?;
        }
        return Ok(text_array(texts, nulls)?);
    }
    let page = located.view.dictionary().map_err(located.fault())?;
    let mut codes: Vec<u32> = Vec::with_capacity(rows_of(picks));
    for pick in picks {
        let located = view.locate(pick.block)?;
        let gathered = if pick.rows == located.rows() {
            page.decode_block(located.block, &mut room.scratch, &mut codes)
        } else {
            page.gather(&rows_in_page(&located, pick), &mut room.scratch, &mut codes)
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
