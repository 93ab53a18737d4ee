//! Writes records to a file.
//!
//! Invariants
//! - When writing fails, the file contains complete lines, and the error reports how many records
//!   it contains. Nothing is written to it afterwards.

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
    format: LineFormat,
    /// Complete lines that are not in the file yet.
    buffer: Vec<u8>,
    /// The end of each record in the buffer.
    ends: Vec<usize>,
    written_bytes: u64,
    records: u64,
    records_written: u64,
    is_cut: bool,
}

#[derive(Debug)]
enum LineFormat {
    Csv,
    Fio(Iolog),
}

impl TraceWriter {
    /// Creates the file, or truncates an existing one.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(path: &Path, format: WriteFormat) -> Result<Self, TraceError> {
        let file = File::create(path);
        let file = file.map_err(|error| TraceError::Open { path: path.to_owned(), error })?;
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        let format = match format {
            WriteFormat::Csv => {
                buffer.extend_from_slice(csv::HEADER.as_bytes());
                LineFormat::Csv
            }
            WriteFormat::Fio => {
                Iolog::begin(&mut buffer);
                LineFormat::Fio(Iolog::default())
            }
        };
        let path = path.to_owned();
        let ends = Vec::new();
        Ok(Self {
            path,
            file,
            format,
            buffer,
            ends,
            written_bytes: 0,
            records: 0,
            records_written: 0,
            is_cut: false,
        })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When the file cannot be written, or the format cannot represent the record.
    pub fn write(&mut self, record: &Record) -> Result<(), TraceError> {
        match &mut self.format {
            LineFormat::Csv => csv::append(record, &mut self.buffer),
            LineFormat::Fio(iolog) => iolog
                .append(record, &mut self.buffer)
                .map_err(|reason| TraceError::NotWritable { path: self.path.clone(), reason })?,
        }
        self.records += 1;
        self.ends.push(self.buffer.len());
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the remaining buffer, and returns the number of records in the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> Result<u64, TraceError> {
        if let LineFormat::Fio(iolog) = &self.format {
            iolog.end(&mut self.buffer);
        }
        self.flush()?;
        Ok(self.records)
    }

    fn flush(&mut self) -> Result<(), TraceError> {
        if self.is_cut {
            return Err(self.failure(io::Error::other("it failed before")));
        }
        let (written, outcome) = write_out(&mut self.file, &self.buffer);
        if let Err(error) = outcome {
            return Err(self.cut(written, error));
        }
        self.written_bytes += self.buffer.len() as u64;
        self.records_written = self.records;
        self.buffer.clear();
        self.ends.clear();
        Ok(())
    }

    /// Truncates the file to its complete records after `written` bytes of the buffer were written.
    /// A file that cannot be truncated (a pipe) stays as it is.
    fn cut(&mut self, written: usize, error: io::Error) -> TraceError {
        let whole = self.ends.partition_point(|&end| end <= written);
        let kept = whole.checked_sub(1).map_or(0, |last| self.ends[last]);
        self.records_written += whole as u64;
        self.written_bytes += kept as u64;
        let _ = self.file.set_len(self.written_bytes);
        self.is_cut = true;
        self.buffer = Vec::new();
        self.failure(error)
    }

    fn failure(&self, error: io::Error) -> TraceError {
        TraceError::Write {
            path: self.path.clone(),
            records: self.records,
            records_written: self.records_written,
            error,
        }
    }
}

/// Writes until the end or an error, and returns the number of bytes written.
fn write_out(file: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;
    use crate::{Operation, ReadOptions, TraceReader};

    #[test]
    fn a_file_that_is_cut_holds_the_records_that_are_whole() {
        let folder = tempfile::TempDir::new().unwrap();
        for format in [WriteFormat::Csv, WriteFormat::Fio] {
            let path = folder.path().join("trace");
            let mut writer = TraceWriter::create(&path, format).unwrap();
            for number in 0..5 {
                let record = Record {
                    at: Duration::from_micros(number),
                    node: 0,
                    device: 0,
                    offset_bytes: number * 4096,
                    length_bytes: 4096,
                    operation: Operation::Read,
                    table: None,
                    column: None,
                    thread: None,
                };
                writer.write(&record).unwrap();
            }
            // The disk accepts one byte less than four records.
            let taken = writer.ends[3] - 1;
            fs::write(&path, &writer.buffer[..taken]).unwrap();
            let error = writer.cut(taken, io::Error::other("full")).to_string();
            assert!(error.contains("holds the first 3 of 5 records"), "{error}");
            let reader = TraceReader::open(&path, &ReadOptions::default()).unwrap();
            let read = reader.collect::<Result<Vec<_>, _>>().unwrap();
            assert_eq!(read.len(), 3);
            assert!(writer.finish().unwrap_err().to_string().contains("the first 3 of 5"));
        }
    }

    /// A file that accepts a few bytes at a time, and `room` bytes in total.
    struct Small {
        room: usize,
    }

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room).min(7);
            self.room -= taken;
            if taken == 0 { Err(io::Error::other("full")) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_was_written_before_a_failure_is_counted() {
        let (written, outcome) = write_out(&mut Small { room: 100 }, &[0; 64]);
        assert!(written == 64 && outcome.is_ok());
        let (written, outcome) = write_out(&mut Small { room: 33 }, &[0; 64]);
        assert!(written == 33 && outcome.is_err());
    }
}
