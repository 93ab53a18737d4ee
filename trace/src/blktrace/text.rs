//! Parses the lines of blkparse.
//!
//! ```text
//! 8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
//! device cpu sequence   seconds       pid  event and what; sectors of 512
//! ```
//!
//! After the events comes a summary, which begins with `CPU0 (8,0):` or `Total (8,0):` and is
//! skipped.

use std::time::Duration;

use super::event::{Kind, units};
use crate::{
    DetectedUnits, NamedDevice, OffsetUnit, Operation, Record, TimeUnit, decimal::Decimal, devices::Numbers,
    error::excerpt, input::Input, limits::SAMPLE_ROWS_MAX, source::LineParser,
};

/// The parser of the text of one trace.
pub(crate) struct BlkparseParser {
    kind: Kind,
    units: DetectedUnits,
    numbers: Numbers,
    named: Vec<NamedDevice>,
    is_in_summary: bool,
}

/// The fields at the beginning of the line of an event.
struct Event<'l> {
    device: &'l str,
    time: Decimal,
    thread: Option<u32>,
    action: &'l str,
    what: &'l str,
    /// The following words, at most three.
    rest: Vec<&'l str>,
}

/// Whether the line is an event.
pub(crate) fn is_blkparse(line: &str) -> bool {
    event(line).is_some()
}

fn event(line: &str) -> Option<Event<'_>> {
    let mut words = line.split_ascii_whitespace();
    let device = words.next()?;
    let (major, minor) = device.split_once(',')?;
    let number = |text: &str| text.parse::<u64>().ok();
    number(major).zip(number(minor))?;
    // Processor and sequence number.
    number(words.next()?).zip(number(words.next()?))?;
    let time = Decimal::parse(words.next()?).ok().filter(|time| time.has_fraction())?;
    let thread = words.next()?.parse().ok();
    let action = words.next()?;
    let is_letters = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphabetic());
    let what = words.next()?;
    (is_letters(action) && action.len() <= 2 && is_letters(what)).then(|| Event {
        device,
        time,
        thread,
        action,
        what,
        rest: words.take(3).collect(),
    })
}

fn kind(action: &str) -> Option<Kind> {
    match action {
        "Q" => Some(Kind::Queued),
        "D" => Some(Kind::Issued),
        _ => None,
    }
}

impl BlkparseParser {
    pub(crate) fn new(input: &Input) -> Self {
        let lines = input.head_lines(SAMPLE_ROWS_MAX);
        let kind = Kind::chosen(lines.iter().filter_map(|line| kind(event(line)?.action)));
        Self {
            kind,
            units: units(TimeUnit::Seconds, kind),
            numbers: Numbers::default(),
            named: Vec::new(),
            is_in_summary: false,
        }
    }

    fn record(&mut self, event: &Event<'_>) -> Result<Option<Record>, String> {
        let (offset_bytes, length_bytes) = match event.rest.as_slice() {
            [sector, "+", sectors] => (bytes(sector, "sector")?, bytes(sectors, "number of sectors")?),
            _ => (0, 0),
        };
        let Some(operation) = operation(event.what, length_bytes) else { return Ok(None) };
        let (device, is_new) = self.numbers.of(event.device)?;
        if is_new {
            self.named.push(NamedDevice { node: 0, device, name: event.device.to_owned() });
        }
        let nanoseconds = u64::try_from(TimeUnit::Seconds.to_nanoseconds(event.time));
        let nanoseconds = nanoseconds.map_err(|_| "the time is beyond 584 years".to_owned())?;
        Ok(Some(Record {
            at: Duration::from_nanos(nanoseconds),
            node: 0,
            device,
            offset_bytes,
            length_bytes,
            operation,
            table: None,
            column: None,
            thread: event.thread,
        }))
    }
}

/// The operation that the letters of an event stand for: `R`, `WS`, `FWFS` (a write after a flush),
/// `D`, `N` (none) ...
fn operation(letters: &str, length_bytes: u64) -> Option<Operation> {
    if length_bytes == 0 {
        return letters.starts_with('F').then_some(Operation::Flush);
    }
    let letters = letters.strip_prefix('F').unwrap_or(letters);
    match letters.chars().next() {
        Some('R') => Some(Operation::Read),
        Some('W') => Some(Operation::Write),
        Some('D') => Some(Operation::Discard),
        _ => None,
    }
}

fn bytes(text: &str, what: &str) -> Result<u64, String> {
    let bytes = text.parse::<u64>().ok().and_then(|sectors| sectors.checked_mul(OffsetUnit::Sectors.bytes()));
    bytes.ok_or_else(|| format!("the {what} is {}, expected a number of sectors below 2^55", excerpt(text)))
}

/// Whether this line begins the summary.
fn begins_summary(line: &str) -> bool {
    let behind_cpu = line.strip_prefix("CPU");
    behind_cpu.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == ' '))
        || line.starts_with("Total (")
}

impl LineParser for BlkparseParser {
    fn parse(&mut self, line: &str) -> Result<Option<Record>, String> {
        match event(line) {
            Some(event) if kind(event.action) == Some(self.kind) => self.record(&event),
            Some(_) => Ok(None),
            None => {
                self.is_in_summary |= begins_summary(line);
                if self.is_in_summary || line.trim().is_empty() {
                    return Ok(None);
                }
                Err(format!(
                    "found {}, expected an event: MAJOR,MINOR CPU SEQUENCE SECONDS PID EVENT WHAT ...",
                    excerpt(line)
                ))
            }
        }
    }

    fn units(&self) -> &DetectedUnits {
        &self.units
    }

    fn devices(&self) -> &[NamedDevice] {
        &self.named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_mean_operations() {
        let cases = [
            ("R", 4096, Some(Operation::Read)),
            ("RA", 4096, Some(Operation::Read)),
            ("WS", 4096, Some(Operation::Write)),
            ("FWFS", 4096, Some(Operation::Write)),
            ("DS", 4096, Some(Operation::Discard)),
            ("FWS", 0, Some(Operation::Flush)),
            ("F", 0, Some(Operation::Flush)),
            ("N", 0, None),
            ("N", 4096, None),
        ];
        for (letters, length, expected) in cases {
            assert_eq!(operation(letters, length), expected, "{letters} {length}");
        }
    }

    #[test]
    fn a_line_that_only_resembles_an_event_is_none() {
        assert!(is_blkparse("  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]"));
        for line in ["8,0 1 2 3 4 Q W", "8,0 1 2 0.5", "a,b 1 2 0.5 4 Q W", "8,0 1 2 0.5 4 + W", ""] {
            assert!(!is_blkparse(line), "{line}");
        }
    }
}
