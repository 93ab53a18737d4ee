//! Rows of a CSV file as texts, column by column, and what they are stored as.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BooleanArray, StringArray, StringBuilder, cast::AsArray},
    compute::filter,
    error::ArrowError,
};
use rackscan_format::schema::ColumnType;

use super::{records::Records, types::Kind};
use crate::{
    CsvFault,
    stored::{Conversion, ConversionFault, StoredRows, ValueFault, shown},
};

/// Rows that are being read.
pub(super) struct TextsBuilder {
    columns: Vec<StringBuilder>,
    pub(super) lines: Vec<u64>,
    written: Vec<String>,
    keeps_written: bool,
    has_quoted_nulls: Vec<bool>,
    /// Bytes of all texts.
    pub(super) bytes: usize,
}

/// Rows whose fields are texts.
pub(super) struct Texts {
    pub(super) columns: Vec<StringArray>,
    /// The lines on which they begin.
    pub(super) lines: Vec<u64>,
    /// The rows as they were written, if they may have to be told.
    pub(super) written: Vec<String>,
    /// Which columns have texts in quotes that would stand for NULL without them.
    has_quoted_nulls: Vec<bool>,
}

impl TextsBuilder {
    pub(super) fn new(columns: usize, keeps_written: bool) -> Self {
        Self {
            columns: (0..columns).map(|_| StringBuilder::new()).collect(),
            lines: Vec::new(),
            written: Vec::new(),
            keeps_written,
            has_quoted_nulls: vec![false; columns],
            bytes: 0,
        }
    }

    pub(super) fn push(&mut self, records: &Records, nulls: &[String]) {
        for (field, column) in self.columns.iter_mut().enumerate() {
            let text = records.field(field);
            let (is_null, is_quoted) = (nulls.iter().any(|null| *null == text), records.is_quoted(field));
            self.has_quoted_nulls[field] |= is_null && is_quoted;
            if is_null && !is_quoted {
                column.append_null();
            } else {
                column.append_value(&text);
                self.bytes += text.len();
            }
        }
        self.lines.push(records.line());
        if self.keeps_written {
            self.written.push(records.written().to_owned());
        }
    }

    /// A row of one empty field.
    pub(super) fn push_empty(&mut self, line: u64, nulls: &[String]) {
        let is_null = nulls.iter().any(String::is_empty);
        self.columns[0].append_option((!is_null).then_some(""));
        self.lines.push(line);
        if self.keeps_written {
            self.written.push(String::new());
        }
    }

    pub(super) fn finish(mut self) -> Texts {
        let columns = self.columns.iter_mut().map(StringBuilder::finish).collect();
        let Self { lines, written, has_quoted_nulls, .. } = self;
        Texts { columns, lines, written, has_quoted_nulls }
    }
}

impl Texts {
    /// With NULL for what stands for it, also in quotes, but in columns that are text.
    pub(super) fn without_quoted_nulls(mut self, conversion: &Conversion, nulls: &[String]) -> Self {
        for (column, definition) in conversion.definitions().iter().enumerate() {
            if self.has_quoted_nulls[column] && definition.column_type != ColumnType::Text {
                let texts = self.columns[column].iter();
                self.columns[column] =
                    texts.map(|text| text.filter(|text| !nulls.iter().any(|null| null == text))).collect();
            }
        }
        self
    }

    pub(super) fn stored(
        &self,
        conversion: &Conversion,
        kinds: &[Kind],
    ) -> Result<StoredRows, ConversionFault> {
        let definitions = conversion.definitions();
        let columns = self.columns.iter().zip(kinds).zip(&definitions);
        let faults = columns.flat_map(|((column, kind), definition)| {
            let odd = column.iter().enumerate().filter(|(_, text)| text.is_some_and(|text| !kind.has(text)));
            odd.map(|(row, text)| ValueFault {
                column: definition.name.clone(),
                row,
                found: shown(text.unwrap_or_default()),
                expected: format!("a value of type {}", definition.column_type),
            })
        });
        let faults: Vec<ValueFault> = faults.collect();
        if !faults.is_empty() {
            return Err(ConversionFault::Values(faults));
        }
        let columns = self.columns.iter().map(|column| Arc::new(column.clone()) as ArrayRef);
        conversion.stored(&columns.collect::<Vec<_>>())
    }

    pub(super) fn fault(&self, fault: &ValueFault) -> CsvFault {
        let reason = format!("found {}, expected {}", fault.found, fault.expected);
        CsvFault { line: self.lines[fault.row], column: Some(fault.column.clone()), reason }
    }

    /// Without the rows of these faults.
    pub(super) fn without(self, faults: &[ValueFault]) -> Result<Self, ArrowError> {
        let mut is_kept = vec![true; self.lines.len()];
        faults.iter().for_each(|fault| is_kept[fault.row] = false);
        let (lines, written) = (kept(self.lines, &is_kept), kept(self.written, &is_kept));
        let is_kept = BooleanArray::from(is_kept);
        let columns = self.columns.iter().map(|column| Ok(filter(column, &is_kept)?.as_string().clone()));
        Ok(Self {
            columns: columns.collect::<Result<_, ArrowError>>()?,
            lines,
            written,
            has_quoted_nulls: self.has_quoted_nulls,
        })
    }
}

fn kept<T>(all: Vec<T>, is_kept: &[bool]) -> Vec<T> {
    all.into_iter().zip(is_kept).filter_map(|(one, is_kept)| is_kept.then_some(one)).collect()
}
