//! Prints rows as aligned columns: numbers to the right, everything else to the left, as psql does.
//!
//! The widths must be known before the first line is printed, and terminals are not suitable for
//! large answers. So a table shows at most [`TABLE_ROWS_MAX`] rows, [`TABLE_BYTES_MAX`] bytes and
//! [`CELL_CHARACTERS_MAX`] characters of a cell.

use crate::args::Format;
use arrow::{
    array::RecordBatch,
    datatypes::SchemaRef,
    error::ArrowError,
    util::display::{ArrayFormatter, DurationFormat, FormatOptions},
};
use serde_json::Value;
use std::{borrow::Cow, fmt};

/// Maximum number of printed rows; after them the table says how many there were.
const TABLE_ROWS_MAX: usize = 10_000;
/// Maximum bytes of all cells, likewise.
const TABLE_BYTES_MAX: usize = 64 << 20;
/// Maximum characters of a value; after them the cell says how many there were.
const CELL_CHARACTERS_MAX: usize = 4096;

/// One cell. Tables format it for people; scripts get plain numbers.
pub(crate) enum Cell {
    /// Left-aligned.
    Text(String),
    /// Right-aligned, unchanged.
    Number(String),
    /// Right-aligned, with grouped thousands.
    Count(u64),
    /// Right-aligned, with a binary unit.
    Bytes(u64),
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
        Self::Count(number)
    }
}

impl From<usize> for Cell {
    fn from(number: usize) -> Self {
        Self::Count(number as u64)
    }
}

impl Cell {
    fn is_number(&self) -> bool {
        !matches!(self, Self::Text(_))
    }

    fn shown(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) | Self::Number(text) => Cow::Borrowed(text),
            Self::Count(count) => Cow::Owned(super::grouped(*count)),
            Self::Bytes(bytes) => Cow::Owned(super::bytes(*bytes)),
        }
    }

    fn plain(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) | Self::Number(text) => Cow::Borrowed(text),
            Self::Count(number) | Self::Bytes(number) => Cow::Owned(number.to_string()),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => Value::from(text.as_str()),
            Self::Number(text) => text.parse().map_or_else(|_| Value::from(text.as_str()), Value::Number),
            Self::Count(number) | Self::Bytes(number) => Value::from(*number),
        }
    }
}

/// A table that is printed once all its rows are known.
pub(crate) struct TextTable {
    headers: Vec<String>,
    rows: Vec<Vec<Cell>>,
    /// Bytes of the answer's values.
    bytes: usize,
    rows_left_out: usize,
    counts_rows: bool,
}

impl TextTable {
    /// A table of the program's own texts; it prints no row count.
    pub(crate) fn new(headers: &[&str]) -> Self {
        let headers = headers.iter().map(|&header| header.to_owned()).collect();
        Self { headers, rows: Vec::new(), bytes: 0, rows_left_out: 0, counts_rows: false }
    }

    /// A table of a query's rows.
    pub(crate) fn of_schema(schema: &SchemaRef) -> Self {
        let headers = schema.fields().iter().map(|field| visible(field.name())).collect();
        Self { headers, rows: Vec::new(), bytes: 0, rows_left_out: 0, counts_rows: true }
    }

    pub(crate) fn columns(&self) -> usize {
        self.headers.len()
    }

    pub(crate) fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// The whole table, for people or for scripts.
    pub(crate) fn render(&self, format: Format) -> String {
        match format {
            Format::Table => self.to_string(),
            Format::Csv => {
                let header =
                    self.headers.iter().map(|header| csv_field(header)).collect::<Vec<_>>().join(",");
                let rows = self
                    .rows
                    .iter()
                    .map(|row| row.iter().map(|cell| csv_field(&cell.plain())).collect::<Vec<_>>().join(","));
                std::iter::once(header).chain(rows).fold(String::new(), |text, line| text + &line + "\n")
            }
            Format::Json => format!("{:#}\n", Value::from(self.objects().collect::<Vec<_>>())),
            Format::Ndjson => {
                self.objects().fold(String::new(), |text, object| text + &object.to_string() + "\n")
            }
        }
    }

    fn objects(&self) -> impl Iterator<Item = Value> {
        self.rows.iter().map(|row| {
            let fields = self.headers.iter().zip(row);
            Value::Object(fields.map(|(header, cell)| (header.clone(), cell.json())).collect())
        })
    }

    pub(crate) fn push_batch(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        let options = FormatOptions::default().with_null("NULL").with_duration_format(DurationFormat::Pretty);
        let formatters =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let formatters = formatters.collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            if self.rows.len() == TABLE_ROWS_MAX || self.bytes > TABLE_BYTES_MAX {
                self.rows_left_out += batch.num_rows() - row;
                break;
            }
            let cells = formatters.iter().zip(batch.columns()).map(|(formatter, column)| {
                let text = shortened(visible(&formatter.value(row).try_to_string()?));
                self.bytes += text.len();
                Ok(if column.data_type().is_numeric() { Cell::Number(text) } else { Cell::Text(text) })
            });
            let cells = cells.collect::<Result<_, ArrowError>>()?;
            self.rows.push(cells);
        }
        Ok(())
    }
}

/// Replaces characters that would change the terminal or the lines of the table.
fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => visible.push_str("\\n"),
            '\r' => visible.push_str("\\r"),
            '\t' => visible.push_str("\\t"),
            control if control.is_control() => {
                visible.push_str(&format!("\\x{:02x}", u32::from(control)));
            }
            other => visible.push(other),
        }
    }
    visible
}

/// A value as a cell shows it: shortened if it is long.
fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(CELL_CHARACTERS_MAX) {
        let characters = super::grouped(width(&text) as u64);
        text.truncate(end);
        text.push_str(&format!("... ({characters} characters; --format csv prints all)"));
        // Otherwise the cell would keep the memory of the whole value.
        text.shrink_to_fit();
    }
    text
}

fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
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
                *widest = (*widest).max(width(&cell.shown()));
            }
        }
        let numeric =
            |column: usize| self.rows.iter().any(|row| row.get(column).is_some_and(Cell::is_number));
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
            writeln!(
                f,
                "... {} more rows; --format csv prints all",
                super::grouped(self.rows_left_out as u64)
            )?;
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
    for (column, (cell, &widest)) in row.iter().zip(widths).enumerate() {
        if column > 0 {
            line.push_str(" | ");
        }
        let text = cell.shown();
        // Formatting arguments have 16-bit widths.
        let spaces = std::iter::repeat_n(' ', widest - width(&text));
        if cell.is_number() {
            line.extend(spaces);
            line.push_str(&text);
        } else {
            line.push_str(&text);
            line.extend(spaces);
        }
    }
    writeln!(f, "{}", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_get_units_and_scripts_get_numbers() {
        let mut table = TextTable::new(&["name", "stored"]);
        table.push(vec![Cell::from("a,b"), Cell::Bytes(2048)]);
        assert!(table.render(Format::Table).contains("2.00 KiB"));
        assert_eq!(table.render(Format::Csv), "name,stored\n\"a,b\",2048\n");
        assert_eq!(table.render(Format::Ndjson), "{\"name\":\"a,b\",\"stored\":2048}\n");
    }

    #[test]
    fn long_values_and_names_are_shown_in_part() {
        use arrow::array::{ArrayRef, StringArray};
        let long = "\u{e9}".repeat(100_000);
        let texts: ArrayRef = std::sync::Arc::new(StringArray::from(vec![long.as_str(), "b"]));
        let batch =
            RecordBatch::try_from_iter([("n".repeat(70_000), ArrayRef::clone(&texts)), ("s".into(), texts)])
                .unwrap();
        let mut table = TextTable::of_schema(&batch.schema());
        table.push_batch(&batch).unwrap();
        let text = table.render(Format::Table);
        let shown = format!("{}... (100,000 characters; --format csv prints all)", "\u{e9}".repeat(4096));
        assert!(text.lines().nth(2).is_some_and(|row| row.starts_with(&shown) && row.ends_with(&shown)));
        assert!(text.ends_with("(2 rows)\n"));
    }

    #[test]
    fn texts_do_not_change_the_terminal_or_the_lines_of_a_table() {
        assert_eq!(visible("a\tb\r\n\u{1b}[2J\u{7}\u{9b}"), "a\\tb\\r\\n\\x1b[2J\\x07\\x9b");
    }

    #[test]
    fn a_difference_of_times_has_days_and_hours() {
        use arrow::array::{ArrayRef, DurationMicrosecondArray};
        let days_28: ArrayRef =
            std::sync::Arc::new(DurationMicrosecondArray::from(vec![2_462_400_000_000, -250_000]));
        let batch = RecordBatch::try_from_iter([("d", days_28)]).unwrap();
        let mut table = TextTable::of_schema(&batch.schema());
        table.push_batch(&batch).unwrap();
        let text = table.render(Format::Csv);
        assert!(text.contains("28 days 12 hours 0 mins 0.000000 secs"), "{text}");
        assert!(text.contains("-0.250000 secs"), "{text}");
    }
}
