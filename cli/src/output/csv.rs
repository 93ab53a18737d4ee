//! Prints rows as CSV like PostgreSQL's `COPY ... CSV HEADER`: NULL is an empty field, an empty
//! text is `""`.

use std::io::{BufWriter, Write};

use arrow::{
    array::{Array, RecordBatch, cast::AsArray},
    datatypes::{DataType, Float64Type, SchemaRef},
    util::display::{ArrayFormatter, DurationFormat, FormatOptions},
};

use super::PrintError;

/// Writes rows after a header line.
pub(crate) struct CsvWriter<W: Write> {
    writer: BufWriter<W>,
    /// The column names, until they are written.
    names: Option<SchemaRef>,
}

impl<W: Write> CsvWriter<W> {
    pub(super) fn new(schema: &SchemaRef, writer: W) -> Self {
        Self { writer: BufWriter::new(writer), names: Some(SchemaRef::clone(schema)) }
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), PrintError> {
        self.write_names()?;
        let options = FormatOptions::default().with_duration_format(DurationFormat::Pretty);
        let formatters = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
        let formatters = formatters.collect::<Result<Vec<_>, _>>()?;
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            for (index, (column, formatter)) in batch.columns().iter().zip(&formatters).enumerate() {
                if index > 0 {
                    self.writer.write_all(b",")?;
                }
                // Arrays of the type NULL have no null mask.
                if column.is_null(row) || column.data_type() == &DataType::Null {
                    continue;
                }
                text.clear();
                match infinite(column.as_ref(), row) {
                    Some(word) => text.push_str(word),
                    None => formatter.value(row).write(&mut text)?,
                }
                self.field(&text)?;
            }
            self.writer.write_all(b"\n")?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<(), PrintError> {
        self.write_names()?;
        Ok(self.writer.flush()?)
    }

    fn write_names(&mut self) -> Result<(), PrintError> {
        let Some(schema) = self.names.take() else { return Ok(()) };
        for (index, field) in schema.fields().iter().enumerate() {
            if index > 0 {
                self.writer.write_all(b",")?;
            }
            self.field(field.name())?;
        }
        Ok(self.writer.write_all(b"\n")?)
    }

    fn field(&mut self, text: &str) -> Result<(), PrintError> {
        // A line of only `\.` ends the data of PostgreSQL's COPY.
        if !text.is_empty() && text != "\\." && !text.contains(['"', ',', '\n', '\r']) {
            return Ok(self.writer.write_all(text.as_bytes())?);
        }
        Ok(write!(self.writer, "\"{}\"", text.replace('"', "\"\""))?)
    }
}

/// The name of an infinite value, as JSON and PostgreSQL spell it, too.
fn infinite(column: &dyn Array, row: usize) -> Option<&'static str> {
    if column.data_type() != &DataType::Float64 {
        return None;
    }
    match column.as_primitive::<Float64Type>().value(row) {
        f64::INFINITY => Some("Infinity"),
        f64::NEG_INFINITY => Some("-Infinity"),
        _ => None,
    }
}
