//! Loads a Parquet file as a table.
//!
//! Invariants
//! - Columns, their order and their nullability are those of the file. A type without a stored form
//!   is refused before any row is read.
//! - A malformed file is an error, even if its decoder panics. Page checksums are verified if the
//!   file has them.
//! - INT96 timestamps are read as microseconds: as nanoseconds, arrow's default, they would be
//!   correct only for the years 1677 to 2262. Timestamps beyond 64-bit microseconds are refused.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use arrow::{
    array::AsArray,
    datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, TimestampSecondType},
};
use az::SaturatingAs;
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{
            ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
            ParquetRecordBatchReaderBuilder,
        },
    },
    basic::Type as PhysicalType,
    errors::ParquetError,
    file::metadata::ParquetMetaData,
};
use rackscan_client::Cluster;

use crate::{
    LoadError, LoadOptions, LoadSummary, OnProgress, TableSpec,
    cut::Piece,
    limits::{PIECE_BYTES, PIECE_ROWS},
    load::{NewTable, store},
    panics::catch_panics,
    stored::Conversion,
};

/// Loads a Parquet file.
///
/// # Errors
/// See [`LoadError`]; nothing is published then.
pub async fn load(
    cluster: &Cluster,
    file: &Path,
    table: &TableSpec,
    options: &LoadOptions,
    progress: OnProgress<'_>,
) -> Result<LoadSummary, LoadError> {
    let started = Instant::now();
    let (path, name) = (file.to_owned(), table.name.clone());
    let opened = tokio::task::spawn_blocking(move || ParquetFile::open(&path, &name)).await;
    let parquet = opened
        .map_err(|error| LoadError::Defect { table: table.name.clone(), problem: error.to_string() })??;
    let ParquetFile { bytes, rows, pieces } = parquet;
    let table = NewTable {
        name: &table.name,
        columns: pieces.conversion.definitions(),
        partition_by: &table.partition_by,
        sort_by: table.sort_by.as_deref(),
        source: file.display().to_string(),
        rows_total: Some(rows),
        pieces: Box::new(pieces),
    };
    let loaded = store(cluster, table, options, progress).await?.publish().await?;
    Ok(LoadSummary::new(vec![loaded], bytes, started))
}

/// An open file.
struct ParquetFile {
    bytes: u64,
    rows: u64,
    pieces: ParquetPieces,
}

/// The table that is loaded, and the file it comes from.
struct Source {
    table: String,
    path: PathBuf,
}

/// The pieces of a file. One thread at a time decodes a batch; other threads convert theirs
/// meanwhile.
struct ParquetPieces {
    source: Arc<Source>,
    conversion: Conversion,
    reader: ParquetRecordBatchReader,
    /// Rows before the next piece.
    rows: u64,
    /// The number of rows in the file's footer.
    rows_total: u64,
    /// Nothing is read after an error: the reader may have panicked.
    has_failed: bool,
}

impl ParquetFile {
    fn open(path: &Path, table: &str) -> Result<Self, LoadError> {
        let file_error =
            |action: &'static str| move |source| LoadError::File { action, path: path.to_owned(), source };
        let file = File::open(path).map_err(file_error("open"))?;
        let bytes = file.metadata().map_err(file_error("read"))?.len();
        let beyond = file.try_clone().map_err(file_error("read"))?;
        if let Some(problem) = read(path, || timestamp_beyond_micros(beyond))? {
            return Err(malformed(path, &problem));
        }
        let builder = read(path, || reader(file))?;
        let fields: Vec<_> = builder.schema().fields().iter().map(Arc::clone).collect();
        let conversion = Conversion::of(table, fields.iter().map(AsRef::as_ref))?;
        let rows = builder.metadata().file_metadata().num_rows();
        let rows = u64::try_from(rows).map_err(|_| malformed(path, &format!("it has {rows} rows")))?;
        let batch_rows = batch_rows(builder.metadata());
        let reader = read(path, || builder.with_batch_size(batch_rows).build())?;
        let source = Arc::new(Source { table: table.to_owned(), path: path.to_owned() });
        let pieces =
            ParquetPieces { source, conversion, reader, rows: 0, rows_total: rows, has_failed: false };
        Ok(Self { bytes, rows, pieces })
    }
}

impl Iterator for ParquetPieces {
    type Item = Result<Piece, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let first_row = self.rows;
        let read = read(&self.source.path, || self.reader.next().transpose()).and_then(|batch| {
            let problem =
                format!("its pages contain {} rows, but its footer states {}", self.rows, self.rows_total);
            let is_whole = batch.is_some() || self.rows == self.rows_total;
            if is_whole { Ok(batch) } else { Err(malformed(&self.source.path, &problem)) }
        });
        self.has_failed = read.is_err();
        let batch = match read {
            Ok(batch) => batch?,
            Err(error) => return Some(Err(error)),
        };
        self.rows += batch.num_rows() as u64;
        let (source, conversion) = (Arc::clone(&self.source), self.conversion.clone());
        let piece: Piece = Box::new(move || {
            let stored = conversion.stored(batch.columns());
            stored.map_err(|fault| fault.in_table(&source.table, "convert its rows", first_row))
        });
        Some(Ok(piece))
    }
}

fn reader(file: File) -> Result<ParquetRecordBatchReaderBuilder<File>, ParquetError> {
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())?;
    let schema = reading_schema(metadata.schema(), metadata.metadata(), TimeUnit::Microsecond);
    reader_as(file, &metadata, schema)
}

fn reader_as(
    file: File,
    metadata: &ArrowReaderMetadata,
    schema: SchemaRef,
) -> Result<ParquetRecordBatchReaderBuilder<File>, ParquetError> {
    let metadata = ArrowReaderMetadata::try_new(
        Arc::clone(metadata.metadata()),
        ArrowReaderOptions::new().with_schema(schema),
    )?;
    Ok(ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata))
}

/// Finds the first INT96 timestamp that does not fit 64-bit microseconds, which arrow's reader
/// would change silently. Timestamps are read as seconds, which always fit.
fn timestamp_beyond_micros(file: File) -> Result<Option<String>, ParquetError> {
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())?;
    let parquet = metadata.metadata();
    let roots: Vec<usize> = (0..metadata.schema().fields().len())
        .filter(|at| is_int96(parquet, metadata.schema().field(*at).name()))
        .collect();
    if roots.is_empty() {
        return Ok(None);
    }
    let schema = reading_schema(metadata.schema(), parquet, TimeUnit::Second);
    let mask = ProjectionMask::roots(parquet.file_metadata().schema_descr(), roots);
    let mut row = 0;
    for batch in reader_as(file, &metadata, schema)?.with_projection(mask).build()? {
        let batch = batch?;
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            let Some(seconds) = column.as_primitive_opt::<TimestampSecondType>() else { continue };
            let is_beyond = |second: Option<i64>| second.is_some_and(|second| second.abs() > SECONDS_MAX);
            if let Some(at) = seconds.iter().position(is_beyond) {
                let (name, row) = (field.name(), row + at + 1);
                return Ok(Some(format!(
                    "row {row}, column {name:?}: a time beyond the years -290308 to 294247"
                )));
            }
        }
        row += batch.num_rows();
    }
    Ok(None)
}

/// The maximum absolute seconds whose microseconds fit 64 bits.
const SECONDS_MAX: i64 = i64::MAX / 1_000_000 - 1;

/// The rows of a piece; fewer if rows are wide.
fn batch_rows(metadata: &ParquetMetaData) -> usize {
    let row_bytes = metadata.row_groups().iter().map(|group| {
        // Only a malformed file has a negative size: its rows are read one by one.
        let bytes = group.total_byte_size() / group.num_rows().max(1);
        if bytes < 0 { PIECE_BYTES } else { bytes.saturating_as::<usize>() }
    });
    (PIECE_BYTES / row_bytes.max().unwrap_or(0).max(1)).clamp(1, PIECE_ROWS)
}

/// Whether the column has INT96 timestamps.
fn is_int96(metadata: &ParquetMetaData, name: &str) -> bool {
    let leaves = metadata.file_metadata().schema_descr().columns();
    let mut of_name = leaves.iter().filter(|leaf| leaf.path().parts() == [name]);
    of_name.any(|leaf| leaf.physical_type() == PhysicalType::INT96)
}

/// The schema to read with: INT96 timestamps in this unit, and texts as views, so that rows that
/// share a text do not copy it.
fn reading_schema(schema: &SchemaRef, metadata: &ParquetMetaData, int96_unit: TimeUnit) -> SchemaRef {
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Timestamp(_, zone) if is_int96(metadata, field.name()) => {
            let timestamp = DataType::Timestamp(int96_unit, zone.clone());
            Arc::new(field.as_ref().clone().with_data_type(timestamp))
        }
        DataType::Utf8 | DataType::LargeUtf8 => {
            Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View))
        }
        _ => Arc::clone(field),
    };
    let fields = schema.fields().iter().map(field);
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}

/// Runs a reader of the file, and turns its error or panic into a [`LoadError`].
fn read<T, E: ToString>(path: &Path, work: impl FnOnce() -> Result<T, E>) -> Result<T, LoadError> {
    match catch_panics(work) {
        Ok(read) => read.map_err(|error| malformed(path, &error)),
        Err(problem) => Err(malformed(path, &problem)),
    }
}

fn malformed(path: &Path, error: &impl ToString) -> LoadError {
    let problem = error.to_string().replace('\n', " ");
    LoadError::Malformed { file: path.to_owned(), problem, expected: "a Parquet file" }
}
