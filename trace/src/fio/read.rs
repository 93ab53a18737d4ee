//! Parses the lines of an iolog, version 2 or 3.
//!
//! Version 2 has no times except `wait` lines. According to fio's documentation their number is
//! microseconds since the previous `wait`, and waits below 100 are ignored; this reader does the
//! same. (fio's own replay takes the number for milliseconds since its start.) Version 3 has a time
//! in each line. fio writes and replays microseconds in every release that supports version 3 (from
//! 3.31), though its documentation names no unit.

use std::{collections::HashMap, path::PathBuf, time::Duration};

use super::{VERSION_2, VERSION_3, node_and_device};
use crate::{
    DetectedUnits, Format, NamedDevice, OffsetUnit, Operation, Record, TimeUnit, TraceError,
    decimal::Decimal, error::excerpt, input::Input, limits::DEVICES_MAX, source::LineParser,
};

/// Waits of fewer microseconds are ignored.
const WAIT_US_MIN: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Two,
    Three,
}

/// The parser of one iolog.
pub(crate) struct FioParser {
    version: Version,
    units: DetectedUnits,
    /// Added files by name, with their node and device.
    files: HashMap<String, (u16, u16)>,
    /// Added files whose names [`file_name`](super::file_name) did not make.
    named: Vec<NamedDevice>,
    /// The time after all waits so far, for version 2.
    clock: Duration,
    is_first_line: bool,
}

/// Whether this is the first line of an iolog of any version.
pub(crate) fn is_fio(line: &str) -> bool {
    line.starts_with("fio version ")
}

impl FioParser {
    pub(crate) fn new(input: &Input, time_unit: Option<TimeUnit>) -> Result<Self, TraceError> {
        let lines = input.head_lines(1);
        let first = lines.first().map_or("", |line| line.trim_end());
        let version = match first {
            VERSION_2 => Version::Two,
            VERSION_3 => Version::Three,
            _ => {
                return Err(TraceError::NotOfFormat {
                    path: PathBuf::clone(&input.path),
                    format: Format::Fio,
                    reason: format!(
                        "begins with {}, expected {VERSION_2:?} or {VERSION_3:?}",
                        excerpt(first)
                    ),
                });
            }
        };
        let time_why = match (time_unit, version) {
            (Some(_), _) => "as requested",
            (None, Version::Two) => "wait lines: fio documents microseconds since the previous one",
            (None, Version::Three) => "what fio writes and replays in every version that has times",
        };
        let units = DetectedUnits {
            time: time_unit.unwrap_or(TimeUnit::Microseconds),
            time_why: time_why.to_owned(),
            offset: OffsetUnit::Bytes,
            length: OffsetUnit::Bytes,
            offset_why: "the format says so".to_owned(),
            notes: Vec::new(),
        };
        Ok(Self {
            version,
            units,
            files: HashMap::new(),
            named: Vec::new(),
            clock: Duration::ZERO,
            is_first_line: true,
        })
    }

    fn time(&self, text: &str) -> Result<Duration, String> {
        let number = Decimal::parse(text);
        let number =
            number.map_err(|expected| format!("the time is {}, expected {expected}", excerpt(text)))?;
        let nanoseconds = u64::try_from(self.units.time.to_nanoseconds(number));
        let nanoseconds = nanoseconds.map_err(|_| format!("the time {} is too large", excerpt(text)))?;
        Ok(Duration::from_nanos(nanoseconds))
    }

    /// Processes a line without offset and length.
    fn file_line(&mut self, name: &str, action: &str) -> Result<(), String> {
        match action {
            "add" => self.add(name),
            "open" | "close" if self.files.contains_key(name) => Ok(()),
            "open" | "close" => {
                Err(format!("cannot {action} the file {}, which no earlier line adds", excerpt(name)))
            }
            _ => Err(format!(
                "the action is {}, expected add, open or close, or an offset and a length behind it",
                excerpt(action)
            )),
        }
    }

    fn add(&mut self, name: &str) -> Result<(), String> {
        if self.files.contains_key(name) {
            return Ok(());
        }
        if self.files.len() == DEVICES_MAX {
            return Err(format!("the trace names more than {DEVICES_MAX} files, which is the maximum"));
        }
        let place = if let Some(ours) = node_and_device(name) {
            ours
        } else {
            let device = u16::try_from(self.named.len()).expect("a device: fewer than DEVICES_MAX files");
            self.named.push(NamedDevice { node: 0, device, name: name.to_owned() });
            (0, device)
        };
        self.files.insert(name.to_owned(), place);
        Ok(())
    }

    fn io_line(
        &mut self,
        time: Option<Duration>,
        [name, action, offset, length]: [&str; 4],
    ) -> Result<Option<Record>, String> {
        let number = |text: &str, what: &str| {
            text.parse::<u64>()
                .map_err(|_| format!("the {what} is {}, expected a number below 2^64", excerpt(text)))
        };
        if action == "wait" {
            return match time {
                None => self.wait(number(offset, "wait")?).map(|()| None),
                Some(_) => Err("found the action wait, which version 3 does not define, because each of its lines contains a time".to_owned()),
            };
        }
        let operation = match action {
            "read" => Operation::Read,
            "write" => Operation::Write,
            "sync" | "datasync" => Operation::Flush,
            "trim" => Operation::Discard,
            _ => {
                return Err(format!(
                    "the action is {}, expected read, write, sync, datasync, trim or wait",
                    excerpt(action)
                ));
            }
        };
        let Some(&(node, device)) = self.files.get(name) else {
            return Err(format!("cannot {action} the file {}, which no earlier line adds", excerpt(name)));
        };
        Ok(Some(Record {
            at: time.unwrap_or(self.clock),
            node,
            device,
            offset_bytes: number(offset, "offset")?,
            length_bytes: number(length, "length")?,
            operation,
            table: None,
            column: None,
            thread: None,
        }))
    }

    fn wait(&mut self, steps: u64) -> Result<(), String> {
        if self.units.time == TimeUnit::Microseconds && steps < WAIT_US_MIN {
            return Ok(());
        }
        let nanoseconds = steps.checked_mul(self.units.time.nanoseconds());
        let clock =
            nanoseconds.and_then(|nanoseconds| self.clock.checked_add(Duration::from_nanos(nanoseconds)));
        self.clock = clock.ok_or_else(|| format!("a wait of {steps} {} is too long", self.units.time))?;
        Ok(())
    }
}

impl LineParser for FioParser {
    fn parse(&mut self, line: &str) -> Result<Option<Record>, String> {
        if std::mem::take(&mut self.is_first_line) {
            return Ok(None);
        }
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (time, words) = match (self.version, words.as_slice()) {
            (_, []) => return Ok(None),
            (Version::Two, words) => (None, words),
            (Version::Three, [time, words @ ..]) => (Some(self.time(time)?), words),
        };
        match *words {
            [name, action] => self.file_line(name, action).map(|()| None),
            [name, action, offset, length] => self.io_line(time, [name, action, offset, length]),
            _ => Err(format!(
                "found {}, expected {}FILE ACTION, or the same with an offset and a length",
                excerpt(line),
                if time.is_some() { "TIME " } else { "" }
            )),
        }
    }

    fn units(&self) -> &DetectedUnits {
        &self.units
    }

    fn devices(&self) -> &[NamedDevice] {
        &self.named
    }
}
