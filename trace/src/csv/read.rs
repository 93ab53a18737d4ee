//! Parses the rows of CSV files.

use std::{borrow::Cow, collections::HashSet, path::PathBuf, sync::Arc, time::Duration};

use super::{
    columns::{Layout, Role, is_ours},
    guess::{Sample, offset_units, time_unit},
    node_device::NodeDeviceNumbers,
    split::fields,
};
use crate::{
    DetectedUnits, Format, NamedDevice, OffsetUnit, Operation, ReadOptions, Record, TimeUnit, TraceError,
    decimal::Decimal,
    error::excerpt,
    input::Input,
    limits::{NAMES_KEPT_MAX, SAMPLE_ROWS_MAX},
    source::LineParser,
};

/// The origin of the times of a file.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// Times count from 0.
    Zero,
    /// Times count from the first record, whose time in nanoseconds is stored once it is known.
    FirstRecord(Option<u128>),
}

/// The parser of one file.
pub(crate) struct CsvParser {
    layout: Layout,
    units: DetectedUnits,
    origin: Origin,
    nodes_and_devices: NodeDeviceNumbers,
    names: Names,
    /// Whether the next line is the header.
    is_header_next: bool,
}

/// A parser for our CSV.
pub(crate) fn ours(input: &Input) -> Result<CsvParser, TraceError> {
    let first = first_line(input);
    if !is_ours(&first) {
        return Err(TraceError::NotOfFormat {
            path: PathBuf::clone(&input.path),
            format: Format::Csv,
            reason: format!(
                "begins with {}, expected {}",
                excerpt(&first),
                excerpt(super::HEADER.trim_end())
            ),
        });
    }
    let units = DetectedUnits {
        time: TimeUnit::Nanoseconds,
        time_why: "the format says so".to_owned(),
        offset: OffsetUnit::Bytes,
        length: OffsetUnit::Bytes,
        offset_why: "the format says so".to_owned(),
        notes: Vec::new(),
    };
    let layout = Layout::ours(&input.path, &first)?;
    Ok(CsvParser::new(layout, units, Origin::Zero, NodeDeviceNumbers::of_numbers()))
}

/// A parser for the CSV of the MSR Cambridge traces.
pub(crate) fn msr(options: &ReadOptions) -> CsvParser {
    of_format(Layout::msr(), (TimeUnit::Filetime, OffsetUnit::Bytes), options)
}

/// A parser for the CSV of the Storage Performance Council: offsets count sectors, lengths bytes.
pub(crate) fn spc(options: &ReadOptions) -> CsvParser {
    of_format(Layout::spc(), (TimeUnit::Seconds, OffsetUnit::Sectors), options)
}

/// A parser for a format that states its units: the lengths are bytes.
fn of_format(layout: Layout, (time, offset): (TimeUnit, OffsetUnit), options: &ReadOptions) -> CsvParser {
    let why = |is_requested| if is_requested { "as requested" } else { "the format says so" };
    let units = DetectedUnits {
        time: options.time_unit.unwrap_or(time),
        time_why: why(options.time_unit.is_some()).to_owned(),
        offset,
        length: OffsetUnit::Bytes,
        offset_why: why(false).to_owned(),
        notes: vec!["time begins at the first record".to_owned()],
    };
    CsvParser::new(layout, units, Origin::FirstRecord(None), NodeDeviceNumbers::default())
}

/// A parser for a CSV whose columns are named, by its header or by the user.
pub(crate) fn generic(input: &Input, options: &ReadOptions) -> Result<CsvParser, TraceError> {
    let lines = input.head_lines(SAMPLE_ROWS_MAX);
    let first = lines.first().map_or("", String::as_str);
    let layout = Layout::generic(&input.path, first, options.columns.as_ref())?;
    let sample = sample(&layout, &lines);
    let (time, time_why) = time_unit(&sample, &layout, options);
    let (offset, length, offset_why) = offset_units(&sample, &layout, options);
    let notes = vec!["time begins at the first record".to_owned()];
    let units = DetectedUnits { time, time_why, offset, length, offset_why, notes };
    Ok(CsvParser::new(layout, units, Origin::FirstRecord(None), NodeDeviceNumbers::default()))
}

fn first_line(input: &Input) -> String {
    input.head_lines(1).into_iter().next().unwrap_or_default()
}

fn sample(layout: &Layout, lines: &[String]) -> Sample {
    let mut sample = Sample::default();
    for line in lines.iter().skip(usize::from(layout.has_header)) {
        let Ok(fields) = fields(line, layout.delimiter) else { continue };
        let number = |role| Decimal::parse(layout.field(&fields, role)?).ok();
        sample.times.extend(number(Role::Time));
        sample.offsets.extend(number(Role::Offset).and_then(Decimal::whole));
        sample.lengths.extend(number(Role::Length).and_then(Decimal::whole));
    }
    sample
}

impl CsvParser {
    fn new(
        layout: Layout,
        units: DetectedUnits,
        origin: Origin,
        nodes_and_devices: NodeDeviceNumbers,
    ) -> Self {
        let is_header_next = layout.has_header;
        Self { layout, units, origin, nodes_and_devices, names: Names::default(), is_header_next }
    }

    fn record(&mut self, fields: &[Cow<'_, str>]) -> Result<Record, String> {
        let layout = &self.layout;
        let needed = |role, what: &str| {
            let missing = || format!("found {} fields, expected one with the {what}", fields.len());
            layout.field(fields, role).ok_or_else(missing)
        };
        let time = decimal(needed(Role::Time, "time")?, "time")?;
        let offset = needed(Role::Offset, "offset")?;
        let length = needed(Role::Length, "length")?;
        let word = needed(Role::Operation, "operation")?;
        let operation = Operation::parse(word);
        let operation =
            operation.ok_or_else(|| format!("the operation is {}, expected read or write", excerpt(word)))?;
        let thread = layout.field(fields, Role::Thread).filter(|text| !text.is_empty());
        let thread = thread.map(|text| {
            text.parse::<u32>().map_err(|_| format!("the thread is {}, expected a number", excerpt(text)))
        });
        let (node, device) = self
            .nodes_and_devices
            .numbers(layout.field(fields, Role::Node), layout.field(fields, Role::Device))?;
        let name = |role| layout.field(fields, role).filter(|name| !name.is_empty());
        Ok(Record {
            at: since(&mut self.origin, self.units.time.to_nanoseconds(time))?,
            node,
            device,
            offset_bytes: bytes(offset, "offset", self.units.offset)?,
            length_bytes: bytes(length, "length", self.units.length)?,
            operation,
            table: name(Role::Table).map(|name| self.names.shared(name)),
            column: name(Role::Column).map(|name| self.names.shared(name)),
            thread: thread.transpose()?,
        })
    }
}

impl LineParser for CsvParser {
    fn parse(&mut self, line: &str) -> Result<Option<Record>, String> {
        if std::mem::take(&mut self.is_header_next) || line.trim().is_empty() {
            return Ok(None);
        }
        let fields = fields(line, self.layout.delimiter)?;
        match self.layout.width {
            Some(width) if width != fields.len() => {
                Err(format!("found {} fields, expected {width}: {}", fields.len(), excerpt(line)))
            }
            _ => self.record(&fields).map(Some),
        }
    }

    fn units(&self) -> &DetectedUnits {
        &self.units
    }

    fn devices(&self) -> &[NamedDevice] {
        &self.nodes_and_devices.named
    }
}

fn decimal(text: &str, what: &str) -> Result<Decimal, String> {
    Decimal::parse(text).map_err(|expected| format!("the {what} is {}, expected {expected}", excerpt(text)))
}

fn bytes(text: &str, what: &str, unit: OffsetUnit) -> Result<u64, String> {
    let whole = decimal(text, what)?.whole();
    let bytes = whole.and_then(|whole| whole.checked_mul(unit.bytes()));
    bytes.ok_or_else(|| {
        format!("the {what} is {}, expected a whole number of {unit} below 2^64 bytes", excerpt(text))
    })
}

/// The time since the file's origin; times before the first record count as its time.
fn since(origin: &mut Origin, nanoseconds: u128) -> Result<Duration, String> {
    let begin = match origin {
        Origin::Zero => 0,
        Origin::FirstRecord(first) => *first.get_or_insert(nanoseconds),
    };
    let nanoseconds = nanoseconds.saturating_sub(begin);
    let seconds = u64::try_from(nanoseconds / 1_000_000_000);
    let seconds = seconds.map_err(|_| "the time is beyond 2^64 seconds".to_owned())?;
    let rest = u32::try_from(nanoseconds % 1_000_000_000).expect("a remainder: below 10^9");
    Ok(Duration::new(seconds, rest))
}

/// Names of tables and columns, stored once and shared by many records.
#[derive(Debug, Default)]
struct Names {
    kept: HashSet<Arc<str>>,
}

impl Names {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(kept) = self.kept.get(name) {
            return Arc::clone(kept);
        }
        let new: Arc<str> = name.into();
        if self.kept.len() < NAMES_KEPT_MAX {
            self.kept.insert(Arc::clone(&new));
        }
        new
    }
}
