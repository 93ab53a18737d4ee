//! How does a Parquet file become a table?
//!
//! Invariants
//! - Columns, their order and whether they may be null are the file's. A type without a stored form is refused before a row is
//!   read.

use std::{fs::File, path::Path, sync::Arc, time::Instant};

use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use rackscan_client::Cluster;

use crate::{
    LoadError, LoadOptions, LoadSummary, OnProgress, TableSpec,
    cut::Piece,
    limits::PIECE_ROWS,
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
}

impl ParquetFile {
    fn open(path: &Path, table: &str) -> Result<Self, LoadError> {
        let refused =
            |action: &'static str| move |source| LoadError::File { action, path: path.to_owned(), source };
        let file = File::open(path).map_err(refused("open"))?;
        let bytes = file.metadata().map_err(refused("read"))?.len();
        let builder = ParquetRecordBatchReaderBuilder::try_new(file);
        let builder = builder.map_err(|error| malformed(path, &error))?;
        let fields: Vec<_> = builder.schema().fields().iter().map(Arc::clone).collect();
        let conversion = Conversion::of(table, fields.iter().map(AsRef::as_ref))?;
        let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
        let reader = builder.with_batch_size(PIECE_ROWS).build().map_err(|error| malformed(path, &error))?;
        let place = Arc::new((table.to_owned(), path.to_owned()));
        Ok(Self { bytes, rows, pieces: ParquetPieces { place, conversion, reader, rows: 0 } })
    }
}

impl Iterator for ParquetPieces {
    type Item = Result<Piece, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let first_row = self.rows;
        let batch = match self.reader.next()? {
            Ok(batch) => batch,
            Err(error) => return Some(Err(malformed(&self.place.1, &error))),
        };
        self.rows += batch.num_rows() as u64;
        let (place, conversion) = (Arc::clone(&self.place), self.conversion.clone());
        let piece: Piece = Box::new(move || {
            let stored = conversion.stored(&batch);
            stored.map_err(|fault| fault.in_table(&place.0, "convert its rows", first_row))
        });
        Some(Ok(piece))
    }
}

fn malformed(path: &Path, error: &impl ToString) -> LoadError {
    LoadError::Malformed { file: path.to_owned(), problem: error.to_string(), expected: "a Parquet file" }
}
