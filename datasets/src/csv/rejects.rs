//! Writes the rows that a load leaves out to a CSV file.
//!
//! The columns are line, column, reason and the row as it was written. Rows are in line order.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    CsvFault, LoadError,
    limits::{PIECE_BYTES, PIECE_ROWS},
};

/// The file of the rejected rows.
pub(super) struct Rejects {
    path: PathBuf,
    file: BufWriter<File>,
    count: Arc<AtomicU64>,
    /// Rows of the current piece that are not in the file yet.
    pending: Vec<(CsvFault, String)>,
    pending_bytes: usize,
}

impl Rejects {
    /// Creates the file. `count` receives the number of rejected rows.
    pub(super) fn create(path: &Path, count: Arc<AtomicU64>) -> Result<Self, LoadError> {
        let file = File::create(path).map_err(|source| file_error("create", path, source))?;
        let mut file = BufWriter::new(file);
        let header = file.write_all(b"line,column,reason,row\n");
        header.map_err(|source| file_error("write", path, source))?;
        Ok(Self { path: path.to_owned(), file, count, pending: Vec::new(), pending_bytes: 0 })
    }

    /// Rejects a row.
    pub(super) fn add(&mut self, fault: CsvFault, row: String) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.pending_bytes += row.len();
        self.pending.push((fault, row));
    }

    /// Whether as many rows are pending as a piece may have.
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() >= PIECE_ROWS || self.pending_bytes >= PIECE_BYTES
    }

    /// Writes the pending rows to the file.
    pub(super) fn write(&mut self) -> Result<(), LoadError> {
        self.pending_bytes = 0;
        self.pending.sort_by_key(|(fault, _)| fault.line);
        let written = self.pending.drain(..).try_for_each(|(CsvFault { line, column, reason }, row)| {
            let column = column.unwrap_or_default();
            writeln!(self.file, "{line},{},{},{}", in_quotes(&column), in_quotes(&reason), in_quotes(&row))
        });
        written.map_err(|source| file_error("write", &self.path, source))
    }

    /// Writes everything to the file and flushes it.
    pub(super) fn finish(&mut self) -> Result<(), LoadError> {
        self.write()?;
        self.file.flush().map_err(|source| file_error("write", &self.path, source))
    }
}

fn file_error(action: &'static str, path: &Path, source: io::Error) -> LoadError {
    LoadError::File { action, path: path.to_owned(), source }
}

fn in_quotes(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
