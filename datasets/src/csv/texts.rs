//! Collects the rows of a CSV file as texts, column by column, and converts them to the stored
//! form.

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
    stored::{Conversion, ConversionFault, StoredRows, ValueFault, excerpt},
};

/// Collects rows as they are read.
pub(super) struct TextsBuilder {
    columns: Vec<StringBuilder>,
    pub(super) lines: Vec<u64>,
    raw_rows: Vec<String>,
    keeps_raw_rows: bool,
    has_quoted_nulls: Vec<bool>,
    /// Bytes of all texts.
    pub(super) bytes: usize,
}

/// Rows whose fields are texts.
pub(super) struct Texts {
    pub(super) columns: Vec<StringArray>,
    /// The line on which each row begins.
    pub(super) lines: Vec<u64>,
    /// The rows as they are in the file, if rejected rows must be reported.
    pub(super) raw_rows: Vec<String>,
    /// Which columns have quoted texts that would stand for NULL without quotes.
    has_quoted_nulls: Vec<bool>,
}

impl TextsBuilder {
    pub(super) fn new(columns: usize, keeps_raw_rows: bool) -> Self {
        Self {
            columns: (0..columns).map(|_| StringBuilder::new()).collect(),
            lines: Vec::new(),
            raw_rows: Vec::new(),
            keeps_raw_rows,
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
        if self.keeps_raw_rows {
            self.raw_rows.push(records.raw_text().to_owned());
        }
    }

    /// Adds a row of one empty field.
    pub(super) fn push_empty(&mut self, line: u64, nulls: &[String]) {
        let is_null = nulls.iter().any(String::is_empty);
        self.columns[0].append_option((!is_null).then_some(""));
        self.lines.push(line);
        if self.keeps_raw_rows {
            self.raw_rows.push(String::new());
        }
    }

    pub(super) fn finish(mut self) -> Texts {
        let columns = self.columns.iter_mut().map(StringBuilder::finish).collect();
        let Self { lines, raw_rows, has_quoted_nulls, .. } = self;
        Texts { columns, lines, raw_rows, has_quoted_nulls }
    }
}

impl Texts {
    /// Replaces quoted texts that stand for NULL by NULL, except in columns of type text.
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
                found: excerpt(text.unwrap_or_default()),
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

    /// Removes the rows of these faults.
    pub(super) fn without(self, faults: &[ValueFault]) -> Result<Self, ArrowError> {
        let mut is_kept = vec![true; self.lines.len()];
        faults.iter().for_each(|fault| is_kept[fault.row] = false);
        let (lines, raw_rows) = (keep_marked(self.lines, &is_kept), keep_marked(self.raw_rows, &is_kept));
        let is_kept = BooleanArray::from(is_kept);
        let columns = self.columns.iter().map(|column| Ok(filter(column, &is_kept)?.as_string().clone()));
        Ok(Self {
            columns: columns.collect::<Result<_, ArrowError>>()?,
            lines,
            raw_rows,
            has_quoted_nulls: self.has_quoted_nulls,
        })
    }
}

fn keep_marked<T>(all: Vec<T>, is_kept: &[bool]) -> Vec<T> {
    all.into_iter().zip(is_kept).filter_map(|(one, is_kept)| is_kept.then_some(one)).collect()
}
