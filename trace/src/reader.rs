//! Reads a trace of any format as an iterator of records.
//!
//! Invariants
//! - A trace without any record is an error, never an empty success.
//! - After an error the iterator ends.

use std::{
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{
    ColumnNames, Defects, DetectedUnits, Fault, Format, NamedDevice, OffsetUnit, Record, Source, TimeUnit,
    TraceError,
    blktrace::{self, BlkparseParser, BlktraceSource},
    csv,
    detect::{compressed_with, detect},
    fio::FioParser,
    input::{Input, Progress},
    limits::{HEAD_BYTES_MAX, HOPELESS_DEFECTS, PART_HEAD_BYTES},
    source::{LineParser, Lines},
};

/// Options for reading a trace.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Its format; recognized from its beginning if absent.
    pub format: Option<Format>,
    /// The meaning of the columns of a CSV file; implies [`Format::Generic`].
    pub columns: Option<ColumnNames>,
    /// What to do with an entry that is not a record.
    pub on_defect: OnDefect,
    /// The unit of times, where the format does not define it or the file deviates from it.
    pub time_unit: Option<TimeUnit>,
    /// The unit of offsets and lengths, where the format does not define it.
    pub offset_unit: Option<OffsetUnit>,
}

/// What happens to an entry that is not a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDefect {
    /// It is counted and skipped.
    #[default]
    Skip,
    /// Reading ends there with an error.
    Stop,
}

/// The records of a trace, in the order of its files.
pub struct TraceReader {
    path: PathBuf,
    format: Format,
    source: Box<dyn Source>,
    on_defect: OnDefect,
    progress: Arc<Progress>,
    defects: Defects,
    records: u64,
    out_of_order: u64,
    latest: Duration,
    is_over: bool,
}

impl TraceReader {
    /// Opens a trace. For blktrace, naming the file of one processor (`sda.blktrace.0`) or the
    /// common prefix (`sda`) opens the files of all processors.
    ///
    /// # Errors
    /// When the file cannot be opened, or it cannot be a trace of the format.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self, TraceError> {
        let progress = Arc::<Progress>::default();
        let files = blktrace::files_of(path)?;
        let is_one_of_many = files.len() > 1;
        let mut inputs = Vec::with_capacity(files.len());
        for file in files {
            let head_bytes_max = if inputs.is_empty() { HEAD_BYTES_MAX } else { PART_HEAD_BYTES };
            match Input::open(&file, head_bytes_max, Arc::clone(&progress)) {
                Ok(input) => inputs.push(input),
                // A processor that did no IO leaves an empty file.
                Err(TraceError::Empty { .. }) if is_one_of_many => {}
                Err(error) => return Err(error),
            }
        }
        Self::of_inputs(path, inputs, progress, options)
    }

    /// Reads a trace from a source other than a file; errors contain `name`.
    ///
    /// # Errors
    /// When it cannot be a trace of the format.
    pub fn over(name: &Path, bytes: Box<dyn Read + Send>, options: &ReadOptions) -> Result<Self, TraceError> {
        let progress = Arc::<Progress>::default();
        let input = Input::over(name, bytes, HEAD_BYTES_MAX, Arc::clone(&progress))?;
        Self::of_inputs(name, vec![input], progress, options)
    }

    fn of_inputs(
        path: &Path,
        inputs: Vec<Input>,
        progress: Arc<Progress>,
        options: &ReadOptions,
    ) -> Result<Self, TraceError> {
        let Some(first) = inputs.first() else { return Err(TraceError::Empty { path: path.to_owned() }) };
        if let Some(with) = compressed_with(&first.head) {
            return Err(TraceError::Compressed { path: path.to_owned(), with });
        }
        let implied = options.columns.as_ref().map(|_| Format::Generic);
        let format = match options.format.or(implied) {
            Some(format) => format,
            None => detect(path, first)?,
        };
        Ok(Self {
            path: path.to_owned(),
            format,
            source: source(path, format, inputs, options)?,
            on_defect: options.on_defect,
            progress,
            defects: Defects::default(),
            records: 0,
            out_of_order: 0,
            latest: Duration::ZERO,
            is_over: false,
        })
    }

    /// The format of the trace.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The units of the trace, and how they were determined.
    #[must_use]
    pub fn units(&self) -> &DetectedUnits {
        self.source.units()
    }

    /// The devices that the trace identifies by name, as far as it has been read.
    #[must_use]
    pub fn devices(&self) -> &[NamedDevice] {
        self.source.devices()
    }

    /// The entries refused so far.
    #[must_use]
    pub fn defects(&self) -> &Defects {
        &self.defects
    }

    /// The number of records so far that are earlier than a previous one.
    #[must_use]
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// Bytes read so far, and bytes of all files of the trace (0 if unknown).
    #[must_use]
    pub fn progress_bytes(&self) -> (u64, u64) {
        (self.progress.read_bytes(), self.progress.total_bytes())
    }

    fn nothing_found(&self) -> Option<TraceError> {
        if self.records > 0 {
            return None;
        }
        let (path, format) = (self.path.clone(), self.format);
        Some(match self.defects.first().first() {
            Some(first) => TraceError::NoRecordsButDefects {
                path,
                format,
                refused: self.defects.count(),
                first: Box::new(first.clone()),
            },
            None => TraceError::NoRecords { path, format },
        })
    }

    fn note(&mut self, record: &Record) {
        self.records += 1;
        self.out_of_order += u64::from(record.at < self.latest);
        self.latest = self.latest.max(record.at);
    }
}

impl Iterator for TraceReader {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            match self.source.next() {
                Some(Ok(record)) => {
                    self.note(&record);
                    return Some(Ok(record));
                }
                Some(Err(Fault::Defect(defect))) if self.on_defect == OnDefect::Skip => {
                    self.defects.note(defect);
                    if self.defects.count() < HOPELESS_DEFECTS || self.records > 0 {
                        continue;
                    }
                    self.is_over = true;
                    return self.nothing_found().map(Err);
                }
                Some(Err(fault)) => {
                    self.is_over = true;
                    return Some(Err(match fault {
                        Fault::Defect(defect) => {
                            self.defects.note(defect.clone());
                            TraceError::Defect(defect)
                        }
                        Fault::End(error) => error,
                    }));
                }
                None => {
                    self.is_over = true;
                    return self.nothing_found().map(Err);
                }
            }
        }
        None
    }
}

/// The source of a format. There is at least one input; only blktrace has more.
fn source(
    path: &Path,
    format: Format,
    mut inputs: Vec<Input>,
    options: &ReadOptions,
) -> Result<Box<dyn Source>, TraceError> {
    if format == Format::Blktrace {
        return Ok(Box::new(BlktraceSource::new(path, inputs)?));
    }
    let input = inputs.swap_remove(0);
    if let Some(unit) = options.offset_unit
        && format != Format::Generic
    {
        return Err(TraceError::Option {
            what: "the unit of offsets",
            found: unit.name().to_owned(),
            expected: format!("none for {format}, which defines it"),
        });
    }
    Ok(match format {
        Format::Fio => lines(FioParser::new(&input, options.time_unit)?, input),
        Format::Blkparse => lines(BlkparseParser::new(&input), input),
        Format::Csv => lines(csv::ours(&input)?, input),
        Format::Msr => lines(csv::msr(options), input),
        Format::Spc => lines(csv::spc(options), input),
        Format::Generic | Format::Blktrace => lines(csv::generic(&input, options)?, input),
    })
}

fn lines<P: LineParser + 'static>(parser: P, input: Input) -> Box<dyn Source> {
    Box::new(Lines::new(input, parser))
}
