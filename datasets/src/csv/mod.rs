//! How does a CSV file become a table?
//!
//! The first rows say which type each column has: boolean, bigint, double, date, timestamp or, where nothing else fits, text.
//! Every later row must hold to it. An empty field is NULL, whatever the type, quoted or not; lines without any character are
//! skipped.
//!
//! Invariants
//! - A row that does not parse ends the load, and the message leads to it: file, line, column, what is there, what was expected.

mod lines;

use std::{
    fs::File,
    io::{BufReader, Seek},
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use arrow::{
    csv::{
        ReaderBuilder,
        reader::{Format, Reader},
    },
    datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit},
    error::ArrowError,
};
use rackscan_client::Cluster;

use crate::{
    LoadError, LoadOptions, LoadSummary, OnProgress, TableSpec,
    cut::Piece,
    limits::PIECE_ROWS,
    load::{NewTable, store},
    stored::{Conversion, ConversionFault},
};

use lines::Records;

/// How the file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    /// The character between fields.
    pub delimiter: u8,
    /// How many rows are looked at to find the columns' types.
    pub inferred_rows: usize,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self { delimiter: b',', inferred_rows: 10_000 }
    }
}

/// Loads a CSV file with a header line.
///
/// # Errors
/// See [`LoadError`]; nothing is published then.
pub async fn load(
    cluster: &Cluster,
    file: &Path,
    csv: &CsvOptions,
    table: &TableSpec,
    options: &LoadOptions,
    progress: OnProgress<'_>,
) -> Result<LoadSummary, LoadError> {
    let started = Instant::now();
    let (path, csv, name) = (file.to_owned(), *csv, table.name.clone());
    let opened = tokio::task::spawn_blocking(move || CsvFile::open(&path, &csv, &name)).await;
    let csv = opened
        .map_err(|error| LoadError::Defect { table: table.name.clone(), problem: error.to_string() })??;
    let raw_bytes = csv.bytes;
    let table = NewTable {
        name: &table.name,
        columns: csv.conversion.definitions(),
        partition_by: &table.partition_by,
        sort_by: table.sort_by.as_deref(),
        source: file.display().to_string(),
        rows_total: None,
        pieces: Box::new(CsvPieces::new(csv)?),
    };
    let loaded = store(cluster, table, options, progress).await?.publish().await?;
    Ok(LoadSummary::new(vec![loaded], raw_bytes, started))
}

/// A file whose columns are known.
struct CsvFile {
    place: Arc<Place>,
    file: File,
    bytes: u64,
    /// All columns as text: they are parsed by several threads, and with our own messages.
    texts: SchemaRef,
    conversion: Conversion,
}

/// What leads to a row.
struct Place {
    table: String,
    path: PathBuf,
    delimiter: u8,
    columns: usize,
}

impl CsvFile {
    fn open(path: &Path, csv: &CsvOptions, table: &str) -> Result<Self, LoadError> {
        let refused =
            |action: &'static str| move |source| LoadError::File { action, path: path.to_owned(), source };
        let file = File::open(path).map_err(refused("open"))?;
        let bytes = file.metadata().map_err(refused("read"))?.len();
        let mut place =
            Place { table: table.to_owned(), path: path.to_owned(), delimiter: csv.delimiter, columns: 0 };
        let format = Format::default().with_header(true).with_delimiter(csv.delimiter);
        let mut reader = BufReader::new(file);
        let (inferred, _) = format
            .infer_schema(&mut reader, Some(csv.inferred_rows))
            .map_err(|source| place.malformed(source, csv.inferred_rows as u64))?;
        if inferred.fields().is_empty() {
            let (file, problem) = (path.to_owned(), "is empty".to_owned());
            return Err(LoadError::Malformed { file, problem, expected: "a header line and rows" });
        }
        place.columns = inferred.fields().len();
        let typed: Vec<Field> = inferred.fields().iter().map(|field| typed(field)).collect();
        let text = |field: &Field| Field::new(field.name(), DataType::Utf8, true);
        let texts = Arc::new(Schema::new(typed.iter().map(text).collect::<Vec<_>>()));
        let conversion = Conversion::of_texts(table, &typed)?;
        let mut file = reader.into_inner();
        file.rewind().map_err(refused("read"))?;
        Ok(Self { place: Arc::new(place), file, bytes, texts, conversion })
    }
}

/// The column that a table gets for an inferred one.
fn typed(field: &Field) -> Field {
    let data_type = match field.data_type() {
        // Later rows may be finer than those that were looked at.
        DataType::Timestamp(..) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Null => DataType::Utf8,
        other => other.clone(),
    };
    Field::new(field.name(), data_type, true)
}

/// Rows of the file, as text; parsed by whoever takes them.
struct CsvPieces {
    place: Arc<Place>,
    conversion: Conversion,
    reader: Reader<File>,
    /// Rows before the next piece, the header not counted.
    rows: u64,
}

impl CsvPieces {
    fn new(csv: CsvFile) -> Result<Self, LoadError> {
        let CsvFile { place, file, texts, conversion, .. } = csv;
        let builder = ReaderBuilder::new(texts).with_header(true).with_delimiter(place.delimiter);
        let reader = builder.with_batch_size(PIECE_ROWS).build(file);
        let reader = reader.map_err(|source| place.malformed(source, 0))?;
        Ok(Self { place, conversion, reader, rows: 0 })
    }
}

impl Iterator for CsvPieces {
    type Item = Result<Piece, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let first_row = self.rows;
        let batch = match self.reader.next()? {
            Ok(batch) => batch,
            Err(source) => {
                let error = self.place.malformed(source, first_row + PIECE_ROWS as u64);
                return Some(Err(error));
            }
        };
        self.rows += batch.num_rows() as u64;
        let (place, conversion) = (Arc::clone(&self.place), self.conversion.clone());
        let piece: Piece = Box::new(move || {
            let stored = conversion.stored(&batch);
            stored.map_err(|fault| place.does_not_parse(fault, first_row))
        });
        Some(Ok(piece))
    }
}

impl Place {
    /// The error for what the reader says, among the first `rows` rows: a row with another number of fields, if there is one.
    fn malformed(&self, source: ArrowError, rows: u64) -> LoadError {
        if let ArrowError::IoError(_, source) = source {
            return LoadError::File { action: "read", path: self.path.clone(), source };
        }
        let problem = match source {
            ArrowError::CsvError(problem) | ArrowError::ParseError(problem) => problem,
            other => other.to_string(),
        };
        let expected = "UTF-8 text in rows of as many fields as the header";
        let malformed = LoadError::Malformed { file: self.path.clone(), problem, expected };
        let Ok(mut records) = Records::open(&self.path, self.delimiter) else { return malformed };
        let header = records.next().and_then(Result::ok).map_or(self.columns, |header| header.fields);
        let count = usize::try_from(rows).unwrap_or(usize::MAX).saturating_add(1);
        let odd = records.take(count).map_while(Result::ok).find(|record| record.fields != header);
        odd.map_or(malformed, |record| LoadError::CsvRow {
            file: self.path.clone(),
            line: record.line,
            found: record.fields,
            expected: header,
        })
    }

    fn does_not_parse(&self, fault: ConversionFault, first_row: u64) -> LoadError {
        match fault {
            ConversionFault::Arrow(_) => fault.in_table(&self.table, "parse its rows", first_row),
            ConversionFault::Value(fault) => LoadError::CsvField {
                file: self.path.clone(),
                line: self.line_of(first_row + fault.row as u64),
                column: fault.column,
                found: fault.found,
                expected: fault.expected,
            },
        }
    }

    /// The line on which a row begins. Texts in quotes may go over several lines, so the file is read again; should that fail,
    /// the row's number is near.
    fn line_of(&self, row: u64) -> u64 {
        let record = row + 1;
        let record = Records::open(&self.path, self.delimiter).ok().and_then(|mut records| {
            records.nth(usize::try_from(record).unwrap_or(usize::MAX)).and_then(Result::ok)
        });
        record.map_or(row + 2, |record| record.line)
    }
}
