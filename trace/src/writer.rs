//! How do records become a file?
//!
//! Invariants
//! - A file that could not be written to its end holds whole lines, and the error says how many records that is.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{Record, TraceError, WriteFormat, csv, fio::Iolog, limits::BUFFER_BYTES};

/// A trace that is being written.
#[derive(Debug)]
pub struct TraceWriter {
    path: PathBuf,
    file: File,
    format: Lines,
    /// Whole lines that are not in the file yet.
    buffer: Vec<u8>,
    written_bytes: u64,
    records: u64,
    records_written: u64,
}

#[derive(Debug)]
enum Lines {
    Csv,
    Fio(Iolog),
}

impl TraceWriter {
    /// Makes the file, or empties it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path, format: WriteFormat) -> Result<Self, TraceError> {
        let file = File::create(path);
        let file = file.map_err(|error| TraceError::Open { path: path.to_owned(), error })?;
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        let format = match format {
            WriteFormat::Csv => {
                buffer.extend_from_slice(csv::HEADER.as_bytes());
                Lines::Csv
            }
            WriteFormat::Fio => {
                Iolog::begin(&mut buffer);
                Lines::Fio(Iolog::default())
            }
        };
        let path = path.to_owned();
        Ok(Self { path, file, format, buffer, written_bytes: 0, records: 0, records_written: 0 })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When the file cannot be written any further, or the format has no form for the record.
    pub fn write(&mut self, record: &Record) -> Result<(), TraceError> {
        match &mut self.format {
            Lines::Csv => csv::append(record, &mut self.buffer),
            Lines::Fio(iolog) => iolog
                .append(record, &mut self.buffer)
                .map_err(|reason| TraceError::NotWritable { path: self.path.clone(), reason })?,
        }
        self.records += 1;
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes what is left, and says how many records the file holds.
    ///
    /// # Errors
    /// When the file cannot be written any further.
    pub fn finish(mut self) -> Result<u64, TraceError> {
        if let Lines::Fio(iolog) = &self.format {
            iolog.end(&mut self.buffer);
        }
        self.flush()?;
        Ok(self.records)
    }

    fn flush(&mut self) -> Result<(), TraceError> {
        if let Err(error) = self.file.write_all(&self.buffer) {
            return Err(self.cut(error));
        }
        self.written_bytes += self.buffer.len() as u64;
        self.records_written = self.records;
        self.buffer.clear();
        Ok(())
    }

    /// Leaves whole lines in the file. What cannot be cut (a pipe) stays as it is.
    fn cut(&mut self, error: io::Error) -> TraceError {
        let _ = self.file.set_len(self.written_bytes);
        TraceError::Write {
            path: self.path.clone(),
            records: self.records,
            records_written: self.records_written,
            error,
        }
    }
}
