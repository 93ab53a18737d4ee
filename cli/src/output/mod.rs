//! Prints rows: as an aligned table for people, or as CSV or JSON for scripts.
//!
//! Invariants
//! - Rows go to standard output, everything else to standard error, so that output can be piped.
//! - A closed pipe (`| head`) ends the command quietly.

mod csv;
mod error;
mod table;
mod values;

use crate::args::Format;
use arrow::{array::RecordBatch, datatypes::SchemaRef};
use std::{
    io::{self, Write},
    sync::Arc,
};

pub(crate) use error::PrintError;
pub(crate) use table::{Cell, TextTable};

/// Prints the rows of one answer to a writer.
pub(crate) enum RowPrinter<W: Write> {
    /// Aligned columns, printed at the end, when the widths are known.
    Table(TextTable, W),
    /// A line per row.
    Csv(csv::CsvWriter<W>),
    /// One array of objects.
    Json(Box<arrow::json::ArrayWriter<W>>),
    /// An object per line.
    Ndjson(Box<arrow::json::LineDelimitedWriter<W>>),
}

impl<W: Write> RowPrinter<W> {
    pub(crate) fn new(format: Format, schema: &SchemaRef, writer: W) -> Self {
        match format {
            Format::Table => Self::Table(TextTable::of_schema(schema), writer),
            Format::Csv => Self::Csv(csv::CsvWriter::new(schema, writer)),
            Format::Json => {
                let writer = json_writer().build(writer);
                Self::Json(Box::new(writer))
            }
            Format::Ndjson => {
                let writer = json_writer().build(writer);
                Self::Ndjson(Box::new(writer))
            }
        }
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), PrintError> {
        values::check(batch)?;
        let with_texts = values::with_bytes_as_texts(batch)?;
        let batch = with_texts.as_ref().unwrap_or(batch);
        match self {
            Self::Table(table, _) => table.push_batch(batch)?,
            Self::Csv(writer) => writer.write(batch)?,
            Self::Json(writer) => writer.write(batch)?,
            Self::Ndjson(writer) => writer.write(batch)?,
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<(), PrintError> {
        match self {
            Self::Table(table, mut writer) => {
                write!(writer, "{table}")?;
                writer.flush()?;
            }
            Self::Csv(writer) => writer.finish()?,
            Self::Json(mut writer) => {
                writer.finish()?;
                let mut writer = writer.into_inner();
                writer.write_all(b"\n")?;
                writer.flush()?;
            }
            Self::Ndjson(mut writer) => {
                writer.finish()?;
                writer.into_inner().flush()?;
            }
        }
        Ok(())
    }
}

fn json_writer() -> arrow::json::WriterBuilder {
    arrow::json::WriterBuilder::new()
        .with_explicit_nulls(true)
        .with_encoder_factory(Arc::new(values::Doubles))
}

/// `1 node`, `2 nodes`.
pub(crate) fn count_of(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Prints text to standard output, followed by a newline.
pub(crate) fn print_text(text: &str) -> Result<(), crate::failure::Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.trim_end_matches('\n').as_bytes()).map_err(PrintError::from)?;
    out.write_all(b"\n").and_then(|()| out.flush()).map_err(PrintError::from)?;
    Ok(())
}

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes with a binary unit and three digits.
pub(crate) fn bytes(count: u64) -> String {
    indicatif::HumanBytes(count).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Decimal128Array, StringViewArray};
    use std::sync::Arc;

    fn batch() -> RecordBatch {
        let price = Decimal128Array::from(vec![Some(12_345), None]).with_precision_and_scale(15, 2).unwrap();
        let name = StringViewArray::from(vec![Some("a,\"b"), Some("c")]);
        RecordBatch::try_from_iter_with_nullable([
            ("price", Arc::new(price) as arrow::array::ArrayRef, true),
            ("name", Arc::new(name) as arrow::array::ArrayRef, true),
        ])
        .unwrap()
    }

    fn printed(format: Format) -> String {
        let mut bytes = Vec::new();
        let mut printer = RowPrinter::new(format, &batch().schema(), &mut bytes);
        printer.write(&batch()).unwrap();
        printer.finish().unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn bytes_are_printed_as_postgresql_writes_them() {
        let bytes = arrow::array::BinaryArray::from_opt_vec(vec![Some(b"a\xff"), None]);
        let batch = RecordBatch::try_from_iter([("b", Arc::new(bytes) as arrow::array::ArrayRef)]).unwrap();
        for (format, expected) in
            [(Format::Csv, "b\n\\x61ff\n\n"), (Format::Ndjson, "{\"b\":\"\\\\x61ff\"}\n{\"b\":null}\n")]
        {
            let mut out = Vec::new();
            let mut printer = RowPrinter::new(format, &batch.schema(), &mut out);
            printer.write(&batch).unwrap();
            printer.finish().unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn json_has_what_is_no_number_as_text_and_times_that_cannot_be_printed_are_refused() {
        use arrow::array::{ArrayRef, Float64Array, TimestampMicrosecondArray};
        let print = |column: ArrayRef| {
            let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
            let mut out = Vec::new();
            let mut printer = RowPrinter::new(Format::Ndjson, batch.schema_ref(), &mut out);
            let written = printer.write(&batch).map_err(|error| error.to_string());
            written.and_then(|()| printer.finish().map_err(|error| error.to_string()))?;
            String::from_utf8(out).map_err(|error| error.to_string())
        };
        let doubles = vec![Some(1.5), Some(f64::NAN), None, Some(f64::INFINITY), Some(f64::NEG_INFINITY)];
        assert_eq!(
            print(std::sync::Arc::new(Float64Array::from(doubles))).unwrap(),
            "{\"x\":1.5}\n{\"x\":\"NaN\"}\n{\"x\":null}\n{\"x\":\"Infinity\"}\n{\"x\":\"-Infinity\"}\n"
        );
        let late = TimestampMicrosecondArray::from(vec![Some(0), Some(i64::MAX)]);
        assert!(print(std::sync::Arc::new(late)).unwrap_err().contains("expected a time of the years"));
        let last =
            TimestampMicrosecondArray::from(vec![8_210_266_876_799_999_999, -8_334_601_228_800_000_000]);
        assert!(!print(std::sync::Arc::new(last)).unwrap().contains("ERROR"));
    }

    #[test]
    fn csv_quotes_as_rfc_4180_says_and_tells_an_empty_text_from_null() {
        assert_eq!(printed(Format::Csv), "price,name\n123.45,\"a,\"\"b\"\n,c\n");
        let names = StringViewArray::from(vec![Some(""), None, Some("\\."), Some("a\nb")]);
        let doubles = arrow::array::Float64Array::from(vec![f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.5]);
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("name", Arc::new(names) as arrow::array::ArrayRef, true),
            ("x", Arc::new(doubles) as arrow::array::ArrayRef, true),
        ])
        .unwrap();
        let mut bytes = Vec::new();
        let mut printer = RowPrinter::new(Format::Csv, batch.schema_ref(), &mut bytes);
        printer.write(&batch).unwrap();
        printer.finish().unwrap();
        let expected = "name,x\n\"\",Infinity\n,-Infinity\n\"\\.\",NaN\n\"a\nb\",1.5\n";
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }

    #[test]
    fn an_answer_without_rows_has_its_names_in_csv() {
        let mut bytes = Vec::new();
        RowPrinter::new(Format::Csv, &batch().schema(), &mut bytes).finish().unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), "price,name\n");
    }

    #[test]
    fn json_keeps_nulls_and_exact_decimals() {
        let lines = printed(Format::Ndjson);
        let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!(first["name"], "a,\"b");
        assert!(first["price"].to_string().contains("123.45"), "{lines}");
        assert!(lines.lines().nth(1).unwrap().contains("\"price\":null"));
        let array: serde_json::Value = serde_json::from_str(&printed(Format::Json)).unwrap();
        assert_eq!(array.as_array().unwrap().len(), 2);
    }

    #[test]
    fn tables_align_numbers_to_the_right() {
        assert_eq!(
            printed(Format::Table),
            " price | name\n-------+-----\n123.45 | a,\"b\n  NULL | c\n(2 rows)\n"
        );
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(6_001_215), "6,001,215");
    }
}
