//! Defines the interface that every format implements for reading.
//!
//! A text format parses lines ([`LineParser`]), and [`Lines`] turns it into a [`Source`]; a binary
//! format implements [`Source`] itself.

use std::{path::PathBuf, sync::Arc};

use crate::{
    Defect, DetectedUnits, NamedDevice, Place, Record, TraceError,
    input::{Input, InputReader},
    line::LineReader,
};

/// A source of records; each format has one.
pub trait Source: Send {
    /// The next record, or the reason why the next entry is not one; `None` at the end and after an
    /// error that ends the trace.
    fn next(&mut self) -> Option<Result<Record, Fault>>;

    /// The units of the trace.
    fn units(&self) -> &DetectedUnits;

    /// The devices that the trace identifies by name, as far as they have been read.
    fn devices(&self) -> &[NamedDevice];
}

/// Why the next entry is not a record.
#[derive(Debug)]
pub enum Fault {
    /// The entry can be skipped.
    Defect(Defect),
    /// Nothing after it can be read.
    End(TraceError),
}

/// A format whose records are lines.
pub(crate) trait LineParser: Send {
    /// Parses a line; `None` if it holds no record but is valid.
    ///
    /// # Errors
    /// What was found and what was expected.
    fn parse(&mut self, line: &str) -> Result<Option<Record>, String>;

    /// See [`Source::units`].
    fn units(&self) -> &DetectedUnits;

    /// See [`Source::devices`].
    fn devices(&self) -> &[NamedDevice];
}

/// The source of a text format.
pub(crate) struct Lines<P> {
    path: Arc<PathBuf>,
    reader: LineReader<InputReader>,
    parser: P,
    is_over: bool,
}

impl<P: LineParser> Lines<P> {
    pub(crate) fn new(input: Input, parser: P) -> Self {
        let path = Arc::clone(&input.path);
        Self { path, reader: LineReader::new(input.into_reader()), parser, is_over: false }
    }

    fn defect(&self, reason: String) -> Fault {
        let place = Place::Line(self.reader.number());
        Fault::Defect(Defect { file: Arc::clone(&self.path), place, reason })
    }
}

impl<P: LineParser> Source for Lines<P> {
    fn next(&mut self) -> Option<Result<Record, Fault>> {
        while !self.is_over {
            let line = match self.reader.next() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(error) => {
                    self.is_over = true;
                    let (path, position_bytes) = (self.path.to_path_buf(), self.reader.position_bytes());
                    return Some(Err(Fault::End(TraceError::Read { path, position_bytes, error })));
                }
            };
            let parsed = line.and_then(|line| self.parser.parse(&line));
            let verified = parsed.and_then(|record| match record {
                Some(record) => record.verify().map(|()| Some(record)),
                None => Ok(None),
            });
            match verified {
                Ok(Some(record)) => return Some(Ok(record)),
                Ok(None) => {}
                Err(reason) => return Some(Err(self.defect(reason))),
            }
        }
        None
    }

    fn units(&self) -> &DetectedUnits {
        self.parser.units()
    }

    fn devices(&self) -> &[NamedDevice] {
        self.parser.devices()
    }
}
