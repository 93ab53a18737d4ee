//! What does a format have to do to be read?
//!
//! A text format parses lines ([`LineParser`]) and leaves files to [`Lines`]; a binary one is a
//! [`Source`] itself.

use std::{path::PathBuf, sync::Arc};

use crate::{
    Defect, DetectedUnits, NamedDevice, Place, Record, TraceError,
    input::{Input, InputReader},
    line::LineReader,
};

/// Where records come from: each format has one.
pub trait Source: Send {
    /// The next record, or why what stands there is none; `None` at the end, and after an error
    /// that ends it.
    fn next(&mut self) -> Option<Result<Record, Fault>>;

    /// What the numbers of the trace count.
    fn units(&self) -> &DetectedUnits;

    /// The devices that have names, as far as they have been seen.
    fn devices(&self) -> &[NamedDevice];
}

/// Why the next entry is no record.
#[derive(Debug)]
pub enum Fault {
    /// The entry can be passed over.
    Defect(Defect),
    /// Nothing behind it can be read.
    End(TraceError),
}

/// A format whose records are lines.
pub(crate) trait LineParser: Send {
    /// The line's record; none if the line says something else.
    ///
    /// # Errors
    /// What was found and what was expected.
    fn parse(&mut self, line: &str) -> Result<Option<Record>, String>;

    /// See [`Source::units`].
    fn units(&self) -> &DetectedUnits;

    /// See [`Source::devices`].
    fn devices(&self) -> &[NamedDevice];
}

/// The records of a text.
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
