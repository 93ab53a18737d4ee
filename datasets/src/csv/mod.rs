//! Loads a CSV file as a table.
//!
//! ```text
//! options    the dialect, and what to do with rows that do not parse
//! input      the bytes of the file, decompressed and decoded
//! records    the fields of each row, or the error in it
//! types      the type of each column, by the first piece of rows: boolean, bigint, double, date,
//!            timestamp or text
//! texts      rows, column by column
//! rejects    rows that are left out, if requested
//! ```
//!
//! Invariants
//! - The file is read once, from its beginning to its end.
//! - A row that does not parse ends the load, unless the caller has requested that such rows are
//!   left out and reported. The message names the file, line and column, the text that was found,
//!   and what was expected.
//! - An unquoted text that stands for NULL is NULL in every column; a quoted one only in columns
//!   that are not text.

mod input;
mod options;
mod records;
mod rejects;
mod texts;
mod types;

use std::{
    collections::BTreeSet,
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use arrow::{array::StringArray, datatypes::Field, error::ArrowError};
use rackscan_client::Cluster;

use crate::{
    CsvFault, LoadError, LoadOptions, LoadSummary, OnProgress, TableSpec,
    cut::Piece,
    limits::{PIECE_BYTES, PIECE_ROWS},
    load::{NewTable, store},
    stored::{Conversion, ConversionFault},
};

pub use input::{Encoding, encoding_named};
use input::{Input, is_same_file};
pub use options::CsvOptions;
use records::{RecordFault, Records};
use rejects::Rejects;
use texts::{Texts, TextsBuilder};
use types::Kind;

/// Loads a CSV file.
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
    let (started, rejected) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let (path, csv, name, count) = (file.to_owned(), csv.clone(), table.name.clone(), Arc::clone(&rejected));
    let opened = tokio::task::spawn_blocking(move || CsvPieces::open(&path, &csv, &name, count)).await;
    let (raw_bytes, pieces) = opened
        .map_err(|error| LoadError::Defect { table: table.name.clone(), problem: error.to_string() })??;
    let table = NewTable {
        name: &table.name,
        columns: pieces.conversion.definitions(),
        partition_by: &table.partition_by,
        sort_by: table.sort_by.as_deref(),
        source: file.display().to_string(),
        rows_total: None,
        pieces: Box::new(pieces),
    };
    let loaded = store(cluster, table, options, progress).await?.publish().await?;
    let summary = LoadSummary::new(vec![loaded], raw_bytes, started);
    Ok(LoadSummary { rows_rejected: rejected.load(Ordering::Relaxed), ..summary })
}

/// The rows of a file, read piece by piece.
struct Rows {
    path: PathBuf,
    records: Records,
    /// The names of the columns.
    names: Vec<String>,
    nulls: Vec<String>,
    rejects: Option<Rejects>,
}

/// The pieces of a file, read as text; the thread that takes a piece parses it.
struct CsvPieces {
    table: Arc<str>,
    rows: Rows,
    kinds: Vec<Kind>,
    conversion: Conversion,
    /// The rows that decided the types.
    first: Option<Texts>,
    /// Nothing is read after an error.
    has_failed: bool,
}

impl CsvPieces {
    /// Opens a file and reads its first piece. Also returns the size of the file.
    fn open(
        path: &Path,
        csv: &CsvOptions,
        table: &str,
        rejected: Arc<AtomicU64>,
    ) -> Result<(u64, Self), LoadError> {
        let file_error =
            |action: &'static str| move |source| LoadError::File { action, path: path.to_owned(), source };
        let dialect = csv.dialect()?;
        let file = File::open(path).map_err(file_error("open"))?;
        let bytes = file.metadata().map_err(file_error("read"))?.len();
        if let Some(reject) = csv.reject.as_deref().filter(|reject| is_same_file(reject, path)) {
            let (what, found) = ("the file for rejected rows", reject.display().to_string());
            return Err(LoadError::Option {
                what,
                found,
                expected: "another file than the one to load".into(),
            });
        }
        let reject = csv.reject.as_deref().map(|path| Rejects::create(path, rejected)).transpose()?;
        let input = Input::new(file, csv.encoding).map_err(file_error("read"))?;
        let mut rows = Rows {
            path: path.to_owned(),
            records: Records::new(input, dialect),
            names: Vec::new(),
            nulls: csv.nulls.clone(),
            rejects: reject,
        };
        let texts = rows.begin(csv.has_header)?;
        let texts = rows.read(texts)?;
        let kind = |column: &StringArray| {
            let texts = column.iter().flatten().filter(|text| !rows.is_null(text));
            texts.fold(Kind::default(), Kind::with)
        };
        let kinds: Vec<Kind> = texts.columns.iter().map(kind).collect();
        let field = |(name, kind): (&String, &Kind)| Field::new(name, kind.data_type(), true);
        let fields: Vec<Field> = rows.names.iter().zip(&kinds).map(field).collect();
        let conversion = Conversion::of_texts(table, &fields)?;
        let (table, first) = (table.into(), Some(texts));
        Ok((bytes, Self { table, rows, kinds, conversion, first, has_failed: false }))
    }

    fn next_piece(&mut self) -> Result<Option<Piece>, LoadError> {
        let texts = match self.first.take() {
            Some(texts) => texts,
            None => self.rows.read(self.rows.no_texts())?,
        };
        if texts.lines.is_empty() {
            self.rows.rejects.as_mut().map_or(Ok(()), Rejects::finish)?;
            return Ok(None);
        }
        let mut texts = texts.without_quoted_nulls(&self.conversion, &self.rows.nulls);
        let error = {
            let (table, path) = (Arc::clone(&self.table), self.rows.path.clone());
            move |fault, texts: &Texts| match fault {
                ConversionFault::Values(faults) => {
                    LoadError::Csv { file: path.clone(), fault: Box::new(texts.fault(&faults[0])) }
                }
                ConversionFault::Arrow(source) => rows_error(&table, source),
            }
        };
        let (conversion, kinds) = (self.conversion.clone(), self.kinds.clone());
        let Some(rejects) = &mut self.rows.rejects else {
            let stored = move || texts.stored(&conversion, &kinds).map_err(|fault| error(fault, &texts));
            return Ok(Some(Box::new(stored)));
        };
        // Parsed here rather than by another thread, so that rejected rows are reported in line
        // order.
        loop {
            match texts.stored(&conversion, &kinds) {
                Ok(stored) => {
                    rejects.write()?;
                    return Ok(Some(Box::new(move || Ok(stored))));
                }
                Err(ConversionFault::Values(faults)) => {
                    let mut reported_rows = BTreeSet::new();
                    for fault in faults.iter().filter(|fault| reported_rows.insert(fault.row)) {
                        rejects.add(texts.fault(fault), texts.raw_rows[fault.row].clone());
                    }
                    let without = texts.without(&faults);
                    texts = without.map_err(|source| rows_error(&self.table, source))?;
                }
                Err(fault) => return Err(error(fault, &texts)),
            }
        }
    }
}

impl Iterator for CsvPieces {
    type Item = Result<Piece, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let next = self.next_piece();
        self.has_failed = next.is_err();
        next.transpose()
    }
}

fn rows_error(table: &str, source: ArrowError) -> LoadError {
    LoadError::Rows { table: table.to_owned(), action: "parse its rows", source }
}

impl Rows {
    /// Reads the names of the columns; without a header, the first row.
    fn begin(&mut self, has_header: bool) -> Result<TextsBuilder, LoadError> {
        loop {
            let first = self.next_record()?.ok_or_else(|| {
                let (file, problem) = (self.path.clone(), "is empty".to_owned());
                LoadError::Malformed { file, problem, expected: "a header line and rows" }
            })?;
            let Err(fault) = first else { break };
            match &mut self.rejects {
                Some(rejects) if !has_header => {
                    let RecordFault { line, reason, .. } = fault;
                    rejects.add(CsvFault { line, column: None, reason }, self.records.raw_text().to_owned());
                }
                _ => {
                    return Err(LoadError::Csv {
                        file: self.path.clone(),
                        fault: Box::new(self.fault(fault)),
                    });
                }
            }
        }
        let columns = self.records.len();
        for column in 0..columns {
            let name = if has_header { self.records.field(column).into_owned() } else { String::new() };
            self.names.push(name);
        }
        name_unnamed_columns(&mut self.names);
        if columns == 1 {
            self.records.count_empty_lines_as_records();
        }
        let mut texts = self.no_texts();
        if !has_header {
            if columns == 1 {
                let line = self.records.line();
                (line - self.records.empty_lines()..line)
                    .for_each(|line| texts.push_empty(line, &self.nulls));
            }
            texts.push(&self.records, &self.nulls);
        }
        Ok(texts)
    }

    fn no_texts(&self) -> TextsBuilder {
        TextsBuilder::new(self.names.len(), self.rejects.is_some())
    }

    /// Adds the next rows of the file, up to the size of a piece.
    fn read(&mut self, mut texts: TextsBuilder) -> Result<Texts, LoadError> {
        while texts.lines.len() < PIECE_ROWS && texts.bytes < PIECE_BYTES {
            let Some(record) = self.next_record()? else { break };
            let (found, expected) = (self.records.len(), self.names.len());
            let record = record.and_then(|()| {
                let reason = format!("found {found} fields, expected the header's {expected}");
                let fault = RecordFault { line: self.records.line(), field: None, reason };
                if found == expected { Ok(()) } else { Err(fault) }
            });
            match record.map_err(|fault| self.fault(fault)) {
                Ok(()) => texts.push(&self.records, &self.nulls),
                Err(fault) => {
                    let Some(rejects) = &mut self.rejects else {
                        return Err(LoadError::Csv { file: self.path.clone(), fault: Box::new(fault) });
                    };
                    rejects.add(fault, self.records.raw_text().to_owned());
                    // Rejected rows are bounded like rows, and are written after the rows of their
                    // piece.
                    if rejects.is_full() {
                        if !texts.lines.is_empty() {
                            break;
                        }
                        rejects.write()?;
                    }
                }
            }
        }
        Ok(texts.finish())
    }

    fn next_record(&mut self) -> Result<Option<Result<(), RecordFault>>, LoadError> {
        let read = self.records.next();
        read.map_err(|source| LoadError::File { action: "read", path: self.path.clone(), source })
    }

    fn fault(&self, fault: RecordFault) -> CsvFault {
        let RecordFault { line, field, reason } = fault;
        CsvFault { line, column: field.and_then(|field| self.names.get(field)).cloned(), reason }
    }

    fn is_null(&self, text: &str) -> bool {
        self.nulls.iter().any(|null| null == text)
    }
}

/// Gives each unnamed column a name that no other column has: pandas writes its index as such a
/// column.
fn name_unnamed_columns(names: &mut [String]) {
    for column in 0..names.len() {
        if names[column].is_empty() {
            let mut name = format!("column{}", column + 1);
            while names.contains(&name) {
                name.push('_');
            }
            names[column] = name;
        }
    }
}
