//! How do columns line up?
//!
//! Numbers to the right, everything else to the left, as psql does; at most [`TABLE_ROWS_MAX`] rows, because a
//! terminal is no place for more and the widths must be known before the first line.

use arrow::{
    array::RecordBatch,
    datatypes::SchemaRef,
    error::ArrowError,
    util::display::{ArrayFormatter, FormatOptions},
};
use std::fmt;

/// Rows a table prints before it says how many there were.
const TABLE_ROWS_MAX: usize = 10_000;

/// One cell's text, and the side it leans to.
pub(crate) enum Cell {
    /// To the left.
    Text(String),
    /// To the right.
    Number(String),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Number(super::grouped(number))
    }
}

impl Cell {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Number(text) => text,
        }
    }
}

/// A table that is printed when all its rows are known.
pub(crate) struct TextTable {
    headers: Vec<String>,
    rows: Vec<Vec<Cell>>,
    rows_left_out: usize,
    counts_rows: bool,
}

impl TextTable {
    /// A table of the project's own words; it prints no row count.
    pub(crate) fn new(headers: &[&str]) -> Self {
        let headers = headers.iter().map(|&header| header.to_owned()).collect();
        Self { headers, rows: Vec::new(), rows_left_out: 0, counts_rows: false }
    }

    /// A table of a query's rows.
    pub(crate) fn of_schema(schema: &SchemaRef) -> Self {
        let headers = schema.fields().iter().map(|field| field.name().clone()).collect();
        Self { headers, rows: Vec::new(), rows_left_out: 0, counts_rows: true }
    }

    pub(crate) fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    pub(crate) fn push_batch(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        let options = FormatOptions::default().with_null("NULL");
        let formatters = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let formatters = formatters.collect::<Result<Vec<_>, _>>()?;
        let room = TABLE_ROWS_MAX.saturating_sub(self.rows.len()).min(batch.num_rows());
        for row in 0..room {
            let cells = formatters.iter().zip(batch.columns()).map(|(formatter, column)| {
                let text = formatter.value(row).try_to_string()?.replace('\n', "\\n");
                Ok(if column.data_type().is_numeric() { Cell::Number(text) } else { Cell::Text(text) })
            });
            self.rows.push(cells.collect::<Result<_, ArrowError>>()?);
        }
        self.rows_left_out += batch.num_rows() - room;
        Ok(())
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths: Vec<usize> = self.headers.iter().map(|header| width(header)).collect();
        for row in &self.rows {
            for (widest, cell) in widths.iter_mut().zip(row) {
                *widest = (*widest).max(width(cell.text()));
            }
        }
        let numeric = |column: usize| self.rows.iter().any(|row| matches!(row.get(column), Some(Cell::Number(_))));
        let headers = self.headers.iter().enumerate().map(|(column, header)| {
            if numeric(column) { Cell::Number(header.clone()) } else { Cell::Text(header.clone()) }
        });
        let headers: Vec<Cell> = headers.collect();
        write_row(f, &headers, &widths)?;
        let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        writeln!(f, "{}", rules.join("-+-"))?;
        for row in &self.rows {
            write_row(f, row, &widths)?;
        }
        if self.rows_left_out > 0 {
            writeln!(f, "... {} more rows; --format csv prints all", super::grouped(self.rows_left_out as u64))?;
        }
        if self.counts_rows {
            let rows = (self.rows.len() + self.rows_left_out) as u64;
            writeln!(f, "({} {})", super::grouped(rows), if rows == 1 { "row" } else { "rows" })?;
        }
        Ok(())
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, row: &[Cell], widths: &[usize]) -> fmt::Result {
    let mut line = String::new();
    for (column, (cell, &width)) in row.iter().zip(widths).enumerate() {
        if column > 0 {
            line.push_str(" | ");
        }
        match cell {
            Cell::Text(text) => line.push_str(&format!("{text:<width$}")),
            Cell::Number(text) => line.push_str(&format!("{text:>width$}")),
        }
    }
    writeln!(f, "{}", line.trim_end())
}
