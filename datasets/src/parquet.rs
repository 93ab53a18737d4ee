//! How does a Parquet file become a table?
//!
//! Invariants
//! - Columns, their order and whether they may be null are the file's. A type without a stored form
//!   is refused before a row is read.
//! - A file that is malformed is an error, also where its decoder panics. Checksums of pages are
//!   verified where there are some.
//! - Timestamps of 96 bits are read as microseconds: as nanoseconds, which arrow makes of them,
//!   only the years 1677 to 2262 are right. Those that microseconds do not hold are refused.

use std::{fs::File, path::Path, sync::Arc, time::Instant};

use arrow::{
    array::AsArray,
    datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, TimestampSecondType},
};
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
    contained::contained,
    cut::Piece,
    limits::{PIECE_BYTES, PIECE_ROWS},
    load::{NewTable, store},
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

/// Its rows. One thread at a time decodes a batch; others convert theirs meanwhile.
struct ParquetPieces {
    place: Arc<(String, std::path::PathBuf)>,
    conversion: Conversion,
    reader: ParquetRecordBatchReader,
    /// Rows before the next piece.
    rows: u64,
    /// Rows that the file says it has.
    rows_total: u64,
    /// Nothing more is read after an error: the reader may have panicked.
    has_failed: bool,
}

impl ParquetFile {
    fn open(path: &Path, table: &str) -> Result<Self, LoadError> {
        let refused =
            |action: &'static str| move |source| LoadError::File { action, path: path.to_owned(), source };
        let file = File::open(path).map_err(refused("open"))?;
        let bytes = file.metadata().map_err(refused("read"))?.len();
        let beyond = file.try_clone().map_err(refused("read"))?;
        if let Some(problem) = read(path, || beyond_micros(beyond))? {
            return Err(malformed(path, &problem));
        }
        let builder = read(path, || reader(file))?;
        let fields: Vec<_> = builder.schema().fields().iter().map(Arc::clone).collect();
        let conversion = Conversion::of(table, fields.iter().map(AsRef::as_ref))?;
        let rows = builder.metadata().file_metadata().num_rows();
        let rows = u64::try_from(rows).map_err(|_| malformed(path, &format!("it has {rows} rows")))?;
        let batch_rows = batch_rows(builder.metadata());
        let reader = read(path, || builder.with_batch_size(batch_rows).build())?;
        let place = Arc::new((table.to_owned(), path.to_owned()));
        let pieces =
            ParquetPieces { place, conversion, reader, rows: 0, rows_total: rows, has_failed: false };
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
        let read = read(&self.place.1, || self.reader.next().transpose()).and_then(|batch| {
            let problem = format!("its pages have {} rows, its footer {}", self.rows, self.rows_total);
            let is_whole = batch.is_some() || self.rows == self.rows_total;
            if is_whole { Ok(batch) } else { Err(malformed(&self.place.1, &problem)) }
        });
        self.has_failed = read.is_err();
        let batch = match read {
            Ok(batch) => batch?,
            Err(error) => return Some(Err(error)),
        };
        self.rows += batch.num_rows() as u64;
        let (place, conversion) = (Arc::clone(&self.place), self.conversion.clone());
        let piece: Piece = Box::new(move || {
            let stored = conversion.stored(batch.columns());
            stored.map_err(|fault| fault.in_table(&place.0, "convert its rows", first_row))
        });
        Some(Ok(piece))
    }
}

fn reader(file: File) -> Result<ParquetRecordBatchReaderBuilder<File>, ParquetError> {
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())?;
    let schema = as_read(metadata.schema(), metadata.metadata(), TimeUnit::Microsecond);
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

/// The first timestamp of 96 bits that 64 bits of microseconds do not hold: arrow's reader would
/// make another time of it. Seconds are read, which always fit.
fn beyond_micros(file: File) -> Result<Option<String>, ParquetError> {
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())?;
    let parquet = metadata.metadata();
    let roots: Vec<usize> = (0..metadata.schema().fields().len())
        .filter(|at| is_96(parquet, metadata.schema().field(*at).name()))
        .collect();
    if roots.is_empty() {
        return Ok(None);
    }
    let schema = as_read(metadata.schema(), parquet, TimeUnit::Second);
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

/// Seconds before or after 1970 whose microseconds fit into 64 bits.
const SECONDS_MAX: i64 = i64::MAX / 1_000_000 - 1;

/// Rows of a piece, fewer where rows are wide.
fn batch_rows(metadata: &ParquetMetaData) -> usize {
    let row_bytes = metadata.row_groups().iter().map(|group| {
        usize::try_from(group.total_byte_size() / group.num_rows().max(1)).unwrap_or(PIECE_BYTES)
    });
    (PIECE_BYTES / row_bytes.max().unwrap_or(0).max(1)).clamp(1, PIECE_ROWS)
}

/// Whether the column has timestamps of 96 bits.
fn is_96(metadata: &ParquetMetaData, name: &str) -> bool {
    let leaves = metadata.file_metadata().schema_descr().columns();
    let mut of_name = leaves.iter().filter(|leaf| leaf.path().parts() == [name]);
    of_name.any(|leaf| leaf.physical_type() == PhysicalType::INT96)
}

/// The schema with this unit where the file has timestamps of 96 bits, and with views of texts:
/// rows that share one text do not copy it.
fn as_read(schema: &SchemaRef, metadata: &ParquetMetaData, of_96: TimeUnit) -> SchemaRef {
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Timestamp(_, zone) if is_96(metadata, field.name()) => {
            let timestamp = DataType::Timestamp(of_96, zone.clone());
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

/// What the file's reader says, also if it panics.
fn read<T, E: ToString>(path: &Path, work: impl FnOnce() -> Result<T, E>) -> Result<T, LoadError> {
    match contained(work) {
        Ok(read) => read.map_err(|error| malformed(path, &error)),
        Err(problem) => Err(malformed(path, &problem)),
    }
}

fn malformed(path: &Path, error: &impl ToString) -> LoadError {
    let problem = error.to_string().replace('\n', " ");
    LoadError::Malformed { file: path.to_owned(), problem, expected: "a Parquet file" }
}
