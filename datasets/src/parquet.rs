//! How does a Parquet file become a table?
//!
//! Invariants
//! - Columns, their order and whether they may be null are the file's. A type without a stored form is refused before a row is
//!   read.
//! - A file that is malformed is an error, also where its decoder panics. Checksums of pages are
//!   verified where there are some.
//! - Timestamps of 96 bits are read as microseconds: as nanoseconds, which arrow makes of them,
//!   only the years 1677 to 2262 are right.

use std::{fs::File, path::Path, sync::Arc, time::Instant};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::{
    arrow::arrow_reader::{
        ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
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
    let schema = as_read(metadata.schema(), metadata.metadata());
    let metadata = ArrowReaderMetadata::try_new(
        Arc::clone(metadata.metadata()),
        ArrowReaderOptions::new().with_schema(schema),
    )?;
    Ok(ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata))
}

/// Rows of a piece, fewer where rows are wide.
fn batch_rows(metadata: &ParquetMetaData) -> usize {
    let row_bytes = metadata.row_groups().iter().map(|group| {
        usize::try_from(group.total_byte_size() / group.num_rows().max(1)).unwrap_or(PIECE_BYTES)
    });
    (PIECE_BYTES / row_bytes.max().unwrap_or(0).max(1)).clamp(1, PIECE_ROWS)
}

/// The schema with microseconds where the file has timestamps of 96 bits, and with views of texts:
/// rows that share one text do not copy it.
fn as_read(schema: &SchemaRef, metadata: &ParquetMetaData) -> SchemaRef {
    let leaves = metadata.file_metadata().schema_descr().columns();
    let is_96 = |name: &str| {
        let mut of_name = leaves.iter().filter(|leaf| leaf.path().parts() == [name]);
        of_name.any(|leaf| leaf.physical_type() == PhysicalType::INT96)
    };
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Timestamp(_, zone) if is_96(field.name()) => {
            let micros = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            Arc::new(field.as_ref().clone().with_data_type(micros))
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
