//! Collects the rows of one node until they fill a segment.
//!
//! Invariants
//! - A segment holds at most `rows_max` rows and `bytes_max` bytes, or a single row with more
//!   bytes.
//! - Rows keep the order in which they were appended.

use arrow::{
    array::{Array, ArrayAccessor, ArrayRef, NullBufferBuilder, cast::AsArray},
    datatypes::{DataType, Float64Type, Int64Type},
};
use rackscan_format::{
    chunk::Values,
    encoding::text::TextValues,
    schema::{ColumnDefinition, ColumnType},
};

use crate::stored::{StoredRows, text_lengths};

/// Rows of one node, column by column, in the form that the encoders take.
#[derive(Debug)]
pub(crate) struct SegmentRows {
    columns: Vec<ColumnRows>,
    rows: usize,
    rows_max: usize,
    bytes_max: usize,
    /// Whether the last append left out a row that did not fit.
    is_closed: bool,
}

/// One column of the rows.
#[derive(Debug)]
pub(crate) struct ColumnRows {
    cells: Cells,
    nulls: NullBufferBuilder,
}

#[derive(Debug)]
enum Cells {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Text { bytes: Vec<u8>, offsets: Vec<u32> },
}

impl SegmentRows {
    /// An empty segment for up to `rows_max` rows and `bytes_max` bytes. Memory is allocated as
    /// rows arrive.
    pub(crate) fn new(columns: &[ColumnDefinition], rows_max: usize, bytes_max: usize) -> Self {
        let column = |column: &ColumnDefinition| ColumnRows {
            cells: match column.column_type {
                ColumnType::Float64 => Cells::Floats(Vec::new()),
                ColumnType::Text => Cells::Text { bytes: Vec::new(), offsets: vec![0] },
                _ => Cells::Integers(Vec::new()),
            },
            nulls: NullBufferBuilder::new(rows_max),
        };
        let columns = columns.iter().map(column).collect();
        Self { columns, rows: 0, rows_max, bytes_max, is_closed: false }
    }

    /// The number of rows so far.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Whether the next row needs another segment.
    pub(crate) fn is_full(&self) -> bool {
        self.rows == self.rows_max || self.is_closed
    }

    /// The columns, in the table's order.
    pub(crate) fn columns(&self) -> &[ColumnRows] {
        &self.columns
    }

    /// Appends the first of the `chosen` rows that fit, and returns their number. If not all fit,
    /// the segment is full.
    pub(crate) fn append(&mut self, rows: &StoredRows, chosen: &[u32]) -> usize {
        let mut chosen = &chosen[..chosen.len().min(self.rows_max - self.rows)];
        let (held, of_row) = (self.bytes(), self.row_bytes());
        // Nearly always the whole piece fits, and the texts of the chosen rows need not be counted.
        if held + rows.text_bytes + chosen.len() * of_row > self.bytes_max {
            let has_room = |chosen: &[u32]| {
                held + chosen_text_bytes(rows, chosen) + chosen.len() * of_row <= self.bytes_max
            };
            while chosen.len() > 1 && !has_room(chosen) {
                chosen = &chosen[..chosen.len() / 2];
            }
            self.is_closed = !has_room(chosen);
            if self.is_closed && self.rows > 0 {
                return 0;
            }
        }
        for (column, array) in self.columns.iter_mut().zip(&rows.columns) {
            column.append(array, chosen);
        }
        self.rows += chosen.len();
        chosen.len()
    }

    fn bytes(&self) -> usize {
        let text_bytes = |column: &ColumnRows| match &column.cells {
            Cells::Text { bytes, .. } => bytes.len(),
            _ => 0,
        };
        self.columns.iter().map(text_bytes).sum::<usize>() + self.rows * self.row_bytes()
    }

    /// Bytes of a row without its texts.
    fn row_bytes(&self) -> usize {
        let bytes = |column: &ColumnRows| match &column.cells {
            Cells::Integers(_) => size_of::<i64>(),
            Cells::Floats(_) => size_of::<f64>(),
            Cells::Text { .. } => size_of::<u32>(),
        };
        self.columns.iter().map(bytes).sum()
    }
}

impl ColumnRows {
    /// The values, as an encoder takes them.
    pub(crate) fn values(&self) -> Values<'_> {
        match &self.cells {
            Cells::Integers(values) => Values::Integers(values),
            Cells::Floats(values) => Values::Floats(values),
            Cells::Text { bytes, offsets } => Values::Text(TextValues { bytes, offsets }),
        }
    }

    /// One bit per row, set if the row has a value; `None` if no row is null.
    pub(crate) fn validity(&self) -> Option<&[u8]> {
        self.nulls.as_slice()
    }

    fn append(&mut self, array: &ArrayRef, chosen: &[u32]) {
        match &mut self.cells {
            Cells::Integers(values) => {
                let from = array.as_primitive::<Int64Type>().values();
                values.extend(chosen.iter().map(|row| from[*row as usize]));
            }
            Cells::Floats(values) => {
                let from = array.as_primitive::<Float64Type>().values();
                // Stores every NaN as the same bits, because arrow orders doubles by their bits.
                let one_nan = |value: f64| if value.is_nan() { f64::NAN } else { value };
                values.extend(chosen.iter().map(|row| one_nan(from[*row as usize])));
            }
            Cells::Text { bytes, offsets } => match array.data_type() {
                DataType::Utf8View => append_texts(array.as_string_view(), chosen, bytes, offsets),
                DataType::LargeUtf8 => append_texts(array.as_string::<i64>(), chosen, bytes, offsets),
                _ => append_texts(array.as_string::<i32>(), chosen, bytes, offsets),
            },
        }
        match array.nulls() {
            None => self.nulls.append_n_non_nulls(chosen.len()),
            Some(nulls) => chosen.iter().for_each(|row| self.nulls.append(nulls.is_valid(*row as usize))),
        }
    }
}

fn append_texts<'a>(
    texts: impl ArrayAccessor<Item = &'a str>,
    chosen: &[u32],
    bytes: &mut Vec<u8>,
    offsets: &mut Vec<u32>,
) {
    for row in chosen {
        bytes.extend_from_slice(texts.value(*row as usize).as_bytes());
        let end = u32::try_from(bytes.len());
        offsets.push(end.expect("the end of a text: `SegmentRows::append` bounds the bytes of a segment"));
    }
}

/// Bytes of the texts of the chosen rows.
fn chosen_text_bytes(rows: &StoredRows, chosen: &[u32]) -> usize {
    let texts = rows.columns.iter().filter(|array| array.data_type().is_string());
    let bytes = |array: &ArrayRef| {
        let lengths: Vec<usize> = text_lengths(array).collect();
        chosen.iter().map(|row| lengths[*row as usize]).sum::<usize>()
    };
    texts.map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int64Array, StringArray, StringViewArray};
    use std::sync::Arc;

    fn columns() -> Vec<ColumnDefinition> {
        let column =
            |name: &str, column_type| ColumnDefinition { name: name.into(), column_type, nullable: true };
        vec![
            column("number", ColumnType::Int64),
            column("share", ColumnType::Float64),
            column("plain", ColumnType::Text),
            column("view", ColumnType::Text),
        ]
    }

    /// Ten rows; texts of nine bytes in all per row but those of row 3, which are null.
    fn rows() -> StoredRows {
        let texts =
            |text: &str| (0..10).map(|row| (row != 3).then(|| format!("{text}{row}"))).collect::<Vec<_>>();
        StoredRows::new(vec![
            Arc::new(Int64Array::from_iter((0..10).map(|row| (row != 3).then_some(row)))),
            Arc::new(Float64Array::from_iter_values((0..10).map(|row| f64::from(row) / 2.0))),
            Arc::new(StringArray::from(texts("abc"))),
            Arc::new(StringViewArray::from(texts("defg"))),
        ])
    }

    fn texts(column: &ColumnRows) -> Vec<String> {
        let Values::Text(texts) = column.values() else { panic!("expected texts") };
        (0..texts.len()).map(|row| String::from_utf8(texts.get(row).to_vec()).unwrap()).collect()
    }

    #[test]
    fn chosen_rows_are_appended_in_order_with_their_nulls() {
        let mut segment = SegmentRows::new(&columns(), 100, 4000);
        assert_eq!(segment.append(&rows(), &[0, 2, 5]), 3);
        assert_eq!(segment.columns()[0].validity(), None);
        assert_eq!(segment.append(&rows(), &[3, 9]), 2);
        let [numbers, shares, plain, view] = segment.columns() else { panic!("expected four columns") };
        let Values::Integers(numbers_found) = numbers.values() else { panic!("expected integers") };
        assert_eq!((numbers_found[..3].to_vec(), numbers_found[4]), (vec![0, 2, 5], 9));
        assert_eq!(numbers.validity().unwrap()[0] & 0b1_1111, 0b1_0111);
        let Values::Floats(shares_found) = shares.values() else { panic!("expected floats") };
        assert_eq!(shares_found, [0.0, 1.0, 2.5, 1.5, 4.5]);
        assert_eq!(shares.validity(), None);
        assert_eq!(texts(plain), ["abc0", "abc2", "abc5", "", "abc9"]);
        assert_eq!(texts(view), ["defg0", "defg2", "defg5", "", "defg9"]);
    }

    #[test]
    fn a_segment_takes_no_more_rows_than_it_has_room_for() {
        let mut segment = SegmentRows::new(&columns(), 4, 4000);
        assert_eq!(segment.append(&rows(), &[0, 1, 2]), 3);
        assert!(!segment.is_full());
        assert_eq!(segment.append(&rows(), &[4, 5, 6]), 1);
        assert!(segment.is_full());
    }

    #[test]
    fn a_segment_is_closed_when_a_row_has_no_room() {
        let mut segment = SegmentRows::new(&columns(), 100, 4 * (9 + 24) + 10);
        let chosen: Vec<u32> = vec![0, 1, 2, 4, 5, 6, 7];
        let mut left = &chosen[..];
        while !segment.is_full() {
            left = &left[segment.append(&rows(), left)..];
        }
        assert_eq!((segment.rows(), left), (4, &chosen[4..]));
    }

    #[test]
    fn a_row_that_alone_is_too_much_has_a_segment_of_its_own() {
        let mut segment = SegmentRows::new(&columns(), 100, 5);
        assert_eq!(segment.append(&rows(), &[0, 1]), 1);
        assert!(segment.is_full());
    }
}
