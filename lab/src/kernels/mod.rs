//! Measures the kernels of a scan (unpacking, checksums, filters, ...) on one core, next to a plain
//! copy of the same bytes.
//!
//! ```text
//! for each kernel
//!   for each turn     the kernel with each level of vector instructions, then a copy of the bytes;
//!                     the first turn does not count
//! ```
//!
//! [`Kernels::run`] returns a [`KernelLine`] for each kernel and level: each is a line of JSON;
//! [`table()`] and [`report`] show them. [`names`] lists the kernels. The module `lineitem`
//! generates the pages, and `subject` runs one kernel.
//!
//! Invariants
//! - Everything runs on the calling thread, without devices, nodes and wires.
//! - The levels and the copy, which are compared, alternate.
//! - Scans verify page checksums, as they do for users. A line states the time that this took.
//! - If the measurement ends early, its lines contain the results until then.

mod error;
mod line;
mod lineitem;
mod program;
mod subject;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use error::KernelError;
pub use line::{KernelLine, report, table};

use az::SaturatingAs;
use rackscan_format::ids::ColumnId;
use rackscan_format::schema::TableDefinition;
use rackscan_format::simd::Level;

use self::lineitem::Segment;
use self::program::SCANS;
use self::subject::{Ran, Scan, Subject, Travel, Unpack, Verify, Way};
use crate::experiment::Step;
use crate::limits::{KERNEL_ROUNDS_MAX, KERNEL_SCALE_MAX};
use crate::median::median;
use crate::record::Provenance;

/// Bit widths of the numbers to unpack.
const WIDTHS: [u8; 14] = [1, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64];
const UNPACK: &str = "unpack";
const CHECKSUM: &str = "checksum";
const ENCODE: &str = "wire-encode";
const DECODE: &str = "wire-decode";
/// The scan whose rows are encoded for the wire.
const TRAVELS: &str = "rows-half";
/// The column whose pages are verified: the one with the most bytes that are not text.
const VERIFIED: ColumnId = ColumnId(2);
/// Default duration of a turn.
pub const TURN: Duration = Duration::from_millis(20);

/// A measurement of kernels.
#[derive(Debug, Clone)]
pub struct Kernels {
    /// Turns of each kernel.
    pub rounds: u32,
    /// Duration of a turn: a kernel runs as often as fits, at least once.
    pub turn: Duration,
    /// Vector levels, from [`Level::available`].
    pub levels: Vec<Level>,
    /// Names of the kernels to measure; empty for all.
    pub only: Vec<String>,
    /// Source of the figures; its scale is that of lineitem.
    pub provenance: Provenance,
}

/// Result of a measurement.
#[derive(Debug)]
pub struct KernelOutcome {
    /// A line for each kernel and level that had a turn.
    pub lines: Vec<KernelLine>,
    /// The failure that ended it early.
    pub failure: Option<KernelError>,
    /// Whether the caller stopped it.
    pub stopped: bool,
}

/// The names of all kernels.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let scans = SCANS.iter().map(|scan| scan.kernel);
    [UNPACK, CHECKSUM].into_iter().chain(scans).chain([ENCODE, DECODE]).collect()
}

/// Callback that receives the progress.
type OnStep<'a> = &'a mut dyn FnMut(&Step<'_>);

/// One kernel, before its pages are created.
#[derive(Clone, Copy)]
enum Case {
    Unpack(u8),
    Checksum,
    Scan(usize),
    Travel(Way),
}

impl Case {
    fn all() -> Vec<Self> {
        let unpack = WIDTHS.into_iter().map(Self::Unpack);
        let scans = (0..SCANS.len()).map(Self::Scan);
        let travel = [Self::Travel(Way::Encode), Self::Travel(Way::Decode)];
        unpack.chain([Self::Checksum]).chain(scans).chain(travel).collect()
    }

    fn kernel(self) -> &'static str {
        match self {
            Self::Unpack(_) => UNPACK,
            Self::Checksum => CHECKSUM,
            Self::Scan(scan) => SCANS[scan].kernel,
            Self::Travel(Way::Encode) => ENCODE,
            Self::Travel(Way::Decode) => DECODE,
        }
    }

    fn detail(self) -> String {
        match self {
            Self::Unpack(1) => "1 bit".to_owned(),
            Self::Unpack(width) => format!("{width} bits"),
            Self::Checksum => "CRC-32C and header of the pages of l_extendedprice".to_owned(),
            Self::Scan(scan) => SCANS[scan].detail.to_owned(),
            Self::Travel(Way::Encode) => format!("rows of {TRAVELS}, before they travel"),
            Self::Travel(Way::Decode) => format!("rows of {TRAVELS}, when they have come"),
        }
    }

    fn subject<'s>(
        self,
        segments: &'s [Segment],
        table: &TableDefinition,
    ) -> Result<Box<dyn Subject + 's>, KernelError> {
        let scan = |scan: &program::ScanOf| Scan::new(segments, scan.program(table)?);
        Ok(match self {
            Self::Unpack(width) => Box::new(Unpack::new(width)?),
            Self::Checksum => Box::new(Verify::new(segments, VERIFIED)),
            Self::Scan(of) => Box::new(scan(&SCANS[of])?),
            Self::Travel(way) => {
                let of = SCANS.iter().find(|scan| scan.kernel == TRAVELS);
                let batches = of.map(|of| scan(of)?.batches()).transpose()?;
                Box::new(Travel::new(batches.unwrap_or_default(), way)?)
            }
        })
    }
}

/// The turns of one kernel at one level.
#[derive(Default)]
struct Turns {
    ms: Vec<f64>,
    checksum_ms: Vec<f64>,
    copy_ms: Vec<f64>,
    rows_out: u64,
}

impl Kernels {
    /// Measures everything, until it is done, fails, or `stop` is set.
    pub fn run(&self, stop: &AtomicBool, on_step: OnStep<'_>) -> KernelOutcome {
        let mut lines = Vec::new();
        let failure = self.measure(stop, on_step, &mut lines).err();
        KernelOutcome { lines, failure, stopped: stop.load(Ordering::Relaxed) }
    }

    fn cases(&self) -> Result<Vec<Case>, KernelError> {
        let (scale, most) = (self.provenance.scale, KERNEL_SCALE_MAX);
        if !(scale > 0.0 && scale <= most) {
            return Err(KernelError::Scale { found: scale, most });
        }
        if self.rounds == 0 || self.rounds > KERNEL_ROUNDS_MAX {
            return Err(KernelError::Rounds { found: self.rounds, most: KERNEL_ROUNDS_MAX });
        }
        let known = names();
        if let Some(found) = self.only.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(KernelError::Unknown { found: found.clone(), known });
        }
        let mut cases = Case::all();
        cases.retain(|case| self.only.is_empty() || self.only.iter().any(|name| name == case.kernel()));
        Ok(cases)
    }

    fn measure(
        &self,
        stop: &AtomicBool,
        on_step: OnStep<'_>,
        lines: &mut Vec<KernelLine>,
    ) -> Result<(), KernelError> {
        let cases = self.cases()?;
        let total = cases.len();
        let is_stopped = || stop.load(Ordering::Relaxed);
        let mut segments = Vec::new();
        if cases.iter().any(|case| !matches!(case, Case::Unpack(_))) {
            on_step(&Step { done: 0, total, doing: "making lineitem" });
            segments = lineitem::segments(self.provenance.scale, &|| !is_stopped())?;
        }
        let rows = segments.iter().map(|segment| u64::from(segment.directory.rows)).sum();
        let table = lineitem::definition(rows);
        for (done, case) in cases.into_iter().enumerate() {
            if is_stopped() {
                return Ok(());
            }
            on_step(&Step { done, total, doing: &format!("{}, {}", case.kernel(), case.detail()) });
            self.case(case, &segments, &table, stop, lines)?;
        }
        Ok(())
    }

    fn case(
        &self,
        case: Case,
        segments: &[Segment],
        table: &TableDefinition,
        stop: &AtomicBool,
        lines: &mut Vec<KernelLine>,
    ) -> Result<(), KernelError> {
        let mut subject = case.subject(segments, table)?;
        let levels = if subject.has_levels() { self.levels.as_slice() } else { &[Level::Plain] };
        let mut turns: Vec<Turns> = levels.iter().map(|_| Turns::default()).collect();
        let mut room = vec![0; subject.bytes().iter().map(|bytes| bytes.len()).sum()];
        let (mut expected, mut times) = (None, 1);
        // The first turn does not count: memory that is used for the first time costs more.
        'rounds: for round in 0..=self.rounds {
            for (level, turns) in levels.iter().zip(&mut turns) {
                let ran = repeat(subject.as_mut(), *level, times)?;
                turns.rows_out = ran.rows_out;
                agree(case, *level, ran.rows_out, *expected.get_or_insert(ran.rows_out))?;
                let mut copied = Duration::ZERO;
                for _ in 0..times {
                    copied += copy(&subject.bytes(), &mut room);
                }
                if round == 0 {
                    times = times.max(times_of(ran.time, self.turn));
                    continue;
                }
                turns.ms.push(milliseconds(ran.time, times));
                turns.checksum_ms.push(milliseconds(ran.checksum, times));
                turns.copy_ms.push(milliseconds(copied, times));
                if stop.load(Ordering::Relaxed) {
                    break 'rounds;
                }
            }
        }
        let bytes = room.len() as u64;
        for (level, turns) in levels.iter().zip(turns) {
            let level = subject.has_levels().then(|| level.to_string());
            lines.extend(self.line(case, level, (subject.rows(), bytes), turns));
        }
        Ok(())
    }

    /// Returns `None` without a turn.
    fn line(
        &self,
        case: Case,
        level: Option<String>,
        (rows, bytes): (u64, u64),
        turns: Turns,
    ) -> Option<KernelLine> {
        let Turns { ms, checksum_ms, copy_ms, rows_out } = turns;
        let ratios = ms.iter().zip(&copy_ms).map(|(ms, copy)| copy / ms).collect();
        let (median_ms, copy_ms) = (median(ms.clone())?, median(copy_ms)?);
        let cut = ms.len() < self.rounds as usize;
        Some(KernelLine {
            provenance: self.provenance.clone(),
            kernel: case.kernel(),
            detail: case.detail(),
            level,
            rows,
            rows_out,
            bytes,
            median_ms,
            checksum_ms: median(checksum_ms)?,
            gb_per_s: per_ms(bytes, median_ms) / 1e6,
            mrows_per_s: per_ms(rows, median_ms) / 1e3,
            copy_gb_per_s: per_ms(bytes, copy_ms) / 1e6,
            over_copy: median(ratios)?,
            partial: cut.then(|| "it was asked to stop".to_owned()),
            ms,
        })
    }
}

fn repeat(subject: &mut dyn Subject, level: Level, times: u32) -> Result<Ran, KernelError> {
    let mut all = Ran::default();
    for _ in 0..times {
        let Ran { time, checksum, rows_out } = subject.run(level)?;
        all = Ran { time: all.time + time, checksum: all.checksum + checksum, rows_out };
    }
    Ok(all)
}

/// How many runs of duration `one` fit into a turn.
fn times_of(one: Duration, turn: Duration) -> u32 {
    (turn.as_nanos() / one.as_nanos().max(1)).saturating_as::<u32>().clamp(1, TIMES_MAX)
}

/// Maximum runs of one turn, so that a stopped clock cannot make it endless.
const TIMES_MAX: u32 = 100_000;

fn agree(case: Case, level: Level, found: u64, expected: u64) -> Result<(), KernelError> {
    if found == expected {
        return Ok(());
    }
    let (kernel, level) = (case.kernel().to_owned(), level.to_string());
    Err(KernelError::Disagree { kernel, level, found, expected })
}

/// Copies the bytes to a buffer of the same size.
fn copy(from: &[&[u8]], room: &mut [u8]) -> Duration {
    let (start, mut at) = (Instant::now(), 0);
    for bytes in from {
        if let Some(here) = room.get_mut(at..at + bytes.len()) {
            here.copy_from_slice(black_box(bytes));
        }
        at += bytes.len();
    }
    black_box(room);
    start.elapsed()
}

fn milliseconds(time: Duration, times: u32) -> f64 {
    time.as_secs_f64() * 1e3 / f64::from(times)
}

#[expect(clippy::cast_precision_loss, reason = "rates for people: 53 bits are plenty")]
fn per_ms(count: u64, ms: f64) -> f64 {
    if ms > 0.0 { count as f64 / ms } else { 0.0 }
}

#[cfg(test)]
mod tests;
