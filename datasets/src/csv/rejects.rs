//! Where do rows go that a load leaves out?
//!
//! Into a CSV file of their lines, columns, reasons and texts, in the order of their lines.

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

/// The file of the rows that are left out.
pub(super) struct Rejects {
    path: PathBuf,
    file: BufWriter<File>,
    count: Arc<AtomicU64>,
    /// Rows of the present piece, which are not yet in the file.
    pending: Vec<(CsvFault, String)>,
    pending_bytes: usize,
}

impl Rejects {
    /// Begins the file; its rows are counted here.
    pub(super) fn create(path: &Path, count: Arc<AtomicU64>) -> Result<Self, LoadError> {
        let file = File::create(path).map_err(|source| refused("create", path, source))?;
        let mut file = BufWriter::new(file);
        let header = file.write_all(b"line,column,reason,row\n");
        header.map_err(|source| refused("write", path, source))?;
        Ok(Self { path: path.to_owned(), file, count, pending: Vec::new(), pending_bytes: 0 })
    }

    /// Leaves a row out.
    pub(super) fn add(&mut self, fault: CsvFault, row: String) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.pending_bytes += row.len();
        self.pending.push((fault, row));
    }

    /// Whether as many rows wait as a piece may have.
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() >= PIECE_ROWS || self.pending_bytes >= PIECE_BYTES
    }

    /// Writes the rows that are not yet in the file.
    pub(super) fn write(&mut self) -> Result<(), LoadError> {
        self.pending_bytes = 0;
        self.pending.sort_by_key(|(fault, _)| fault.line);
        let written = self.pending.drain(..).try_for_each(|(CsvFault { line, column, reason }, row)| {
            let column = column.unwrap_or_default();
            writeln!(self.file, "{line},{},{},{}", in_quotes(&column), in_quotes(&reason), in_quotes(&row))
        });
        written.map_err(|source| refused("write", &self.path, source))
    }

    /// Makes sure that all of them are in the file.
    pub(super) fn finish(&mut self) -> Result<(), LoadError> {
        self.write()?;
        self.file.flush().map_err(|source| refused("write", &self.path, source))
    }
}

fn refused(action: &'static str, path: &Path, source: io::Error) -> LoadError {
    LoadError::File { action, path: path.to_owned(), source }
}

fn in_quotes(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
