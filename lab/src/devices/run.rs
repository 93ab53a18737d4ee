//! Runs a measurement of devices.
//!
//! Invariants
//! - Devices are opened for writing only if some case changes data; [`check_writable`] has allowed
//!   it before. They stay open, so nobody else can take them between turns.
//! - Written bytes differ from those of every other turn, also of earlier runs.
//! - Trims have something to trim, and reads never hit what was trimmed: trims are measured alone,
//!   and the devices are written again before each turn.
//! - A case that fails has no further turns; the other cases go on.
//!
//! [`check_writable`]: super::check_writable

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use az::WrappingAs;
use rackscan_device::{Access, Device};

use super::experiment::DeviceExperiment;
use super::grid::{DeviceCase, IoEngine};
use super::line::{Measurement, Turn, Turns};
use crate::drive::{Bounds, Distribution, DriveError, IoMix, Load, Measured, Region, Run, Spread, drive};
use crate::experiment::Step;
use crate::fio::{FioError, FioLoad};
use crate::target::{IoOperation, Local, LocalOptions, Target, TargetError};

/// Result of a measurement.
#[derive(Debug)]
pub struct DeviceOutcome {
    /// The figures of each case that had a turn.
    pub measurements: Vec<Measurement>,
    /// The cases that failed, and why; or why the devices could not be written before.
    pub failures: Vec<String>,
    /// Whether the caller stopped it.
    pub stopped: bool,
}

/// Why a turn failed.
#[derive(Debug, thiserror::Error)]
enum TurnError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Drive(#[from] DriveError),
    #[error(transparent)]
    Fio(#[from] FioError),
    #[error("no IO ended in the turn; give a longer turn (--seconds), or a higher rate (--open-loop)")]
    NoIo,
    #[error("{size_bytes} bytes are no multiple of the {align_bytes} bytes that direct IO needs on {path}")]
    Unaligned { path: String, size_bytes: u32, align_bytes: u32 },
}

/// Bytes of each write of the preconditioning.
const PRECONDITION_BYTES: u32 = 1 << 20;
const PRECONDITION_DEPTH: u32 = 16;
/// Its count of writes ends it; this is longer than any device needs.
const PRECONDITION_TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

impl DeviceExperiment {
    /// Measures everything, until it is enough, fails, or `stop` is set.
    pub fn run(&self, stop: &AtomicBool, on_step: &mut dyn FnMut(&Step<'_>)) -> DeviceOutcome {
        let mut all: Vec<Turns> = self.cases.iter().copied().map(Turns::new).collect();
        let mut failures: Vec<String> =
            self.rounds(&mut all, stop, on_step).err().iter().map(ToString::to_string).collect();
        let of_case = |turns: &Turns| turns.failure.as_ref().map(|why| format!("{}: {why}", turns.case));
        failures.extend(all.iter().filter_map(of_case));
        let stopped = stop.load(Ordering::Relaxed);
        let measured = all.iter().filter(|turns| !turns.turns.is_empty());
        let measurements = measured.map(|turns| turns.measurement(self, stopped)).collect();
        DeviceOutcome { measurements, failures, stopped }
    }

    fn rounds(
        &self,
        all: &mut [Turns],
        stop: &AtomicBool,
        on_step: &mut dyn FnMut(&Step<'_>),
    ) -> Result<(), TurnError> {
        let total = self.cases.len() * self.rounds_max as usize;
        let devices = self.open()?;
        // Differs from that of every earlier run.
        let born = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let born = born.wrapping_as::<u64>();
        let mut done = 0;
        if self.precondition > 0 {
            on_step(&Step { done, total, doing: "writing the devices before the first turn" });
            self.write_all(&devices, self.precondition, stop)?;
        }
        for round in 0..self.rounds_max {
            for turns in all.iter_mut().filter(|turns| turns.failure.is_none()) {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                on_step(&Step { done, total, doing: &turns.case.to_string() });
                if turns.case.mix == IoMix::Only(IoOperation::Trim) {
                    self.write_all(&devices, 1, stop)?;
                }
                let content_seed = born.wrapping_add(done as u64);
                let load = self.load(&turns.case, round, content_seed);
                let (turn, failure) = match self.turn(&devices, &turns.case, load, stop) {
                    Ok((turn, failure)) => (turn, failure.map(|error| error.to_string())),
                    Err(error) => (None, Some(error.to_string())),
                };
                if let Some(turn) = turn {
                    turns.push(turn, self.rule);
                }
                turns.failure = failure;
                done += 1;
            }
            let is_enough =
                |turns: &Turns| turns.failure.is_some() || self.rule.judge(&turns.iops()).is_enough;
            if round + 1 >= self.rounds_min && all.iter().all(is_enough) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Writes the whole region of every device, as often as asked.
    fn write_all(&self, devices: &[Arc<Device>], times: u32, stop: &AtomicBool) -> Result<(), TurnError> {
        let Region { length_bytes, .. } = self.region;
        let whole_bytes = length_bytes / u64::from(PRECONDITION_BYTES) * u64::from(PRECONDITION_BYTES);
        // The rest in pieces that it is a multiple of.
        let rest_bytes = length_bytes - whole_bytes;
        let piece = 1_u64.checked_shl(rest_bytes.trailing_zeros()).unwrap_or(1);
        let piece = u32::try_from(piece).expect("less than a write of the preconditioning");
        for _ in 0..times {
            for (offset_bytes, bytes, size_bytes) in
                [(0, whole_bytes, PRECONDITION_BYTES), (whole_bytes, rest_bytes, piece)]
            {
                if bytes > 0 && !stop.load(Ordering::Relaxed) {
                    self.write_part(devices, (offset_bytes, bytes), size_bytes, stop)?;
                }
            }
        }
        Ok(())
    }

    /// Writes a part of the region of every device once, in order.
    fn write_part(
        &self,
        devices: &[Arc<Device>],
        (offset_bytes, bytes): (u64, u64),
        size_bytes: u32,
        stop: &AtomicBool,
    ) -> Result<(), TurnError> {
        let case = DeviceCase {
            mix: IoMix::Only(IoOperation::Write),
            distribution: Distribution::Sequential,
            size_bytes,
            threads: 1,
            depth: PRECONDITION_DEPTH,
            engine: IoEngine::Uring,
        };
        let load = Load {
            mix: case.mix,
            region: Region {
                offset_bytes: self.region.offset_bytes + offset_bytes,
                length_bytes: bytes,
                ..self.region
            },
            spread: self.striped(),
            length_bytes: size_bytes,
            depth: case.depth,
            distribution: case.distribution,
            seed: self.seed,
            ..Load::default()
        };
        let count_max = Some(bytes / u64::from(size_bytes) * devices.len() as u64);
        let bounds = Bounds { duration: PRECONDITION_TIME_MAX, count_max };
        let run = Run { bounds, warm_up: Duration::ZERO, ..self.of(load, 1, stop) };
        let run = Run { interval: None, counts_events: false, ..run };
        let measured = drive(&run, &|_thread| Self::target(devices.to_vec(), &case))?;
        Ok(measured.failure.map_or(Ok(()), Err)?)
    }

    fn striped(&self) -> Spread {
        match u16::try_from(self.paths.len()).expect("limits of the command line") {
            1 => Spread::One,
            devices => Spread::Striped(devices),
        }
    }

    fn of<'a>(&'a self, load: Load, threads: u32, stop: &'a AtomicBool) -> Run<'a> {
        Run {
            load,
            connections: threads,
            warm_up: self.warm_up,
            bounds: self.bounds,
            peer: None,
            cores: &self.cores,
            interval: self.interval,
            counts_events: self.counts_events,
            stop,
        }
    }

    fn load(&self, case: &DeviceCase, round: u32, content_seed: u64) -> Load {
        Load {
            mix: case.mix,
            fsync_every: self.fsync_every.filter(|_| case.mix.has_writes()),
            verify: self.verify && case.mix.has_writes(),
            region: self.region,
            spread: self.spread,
            length_bytes: case.size_bytes,
            depth: case.depth,
            distribution: case.distribution,
            loop_kind: self.loop_kind,
            seed: self.seed.wrapping_add(round.into()),
            content_seed,
        }
    }

    /// Runs one turn. Returns its result, and what ended it early.
    fn turn(
        &self,
        devices: &[Arc<Device>],
        case: &DeviceCase,
        load: Load,
        stop: &AtomicBool,
    ) -> Result<(Option<Turn>, Option<TargetError>), TurnError> {
        for device in devices {
            let (align_bytes, size_bytes) = (device.alignment().offset_bytes, case.size_bytes);
            if !size_bytes.is_multiple_of(align_bytes) {
                let path = device.path().display().to_string();
                return Err(TurnError::Unaligned { path, size_bytes, align_bytes });
            }
        }
        if case.engine == IoEngine::Fio {
            return Ok((Some(self.fio(case, stop)?), None));
        }
        let run = self.of(load, case.threads, stop);
        let measured = drive(&run, &|_thread| Self::target(devices.to_vec(), case))?;
        let turn = (measured.counters.ios > 0).then(|| Turn::of(&measured));
        match measured {
            Measured { failure: None, stopped: false, .. } if turn.is_none() => Err(TurnError::NoIo),
            Measured { failure, .. } => Ok((turn, failure)),
        }
    }

    fn open(&self) -> Result<Vec<Arc<Device>>, TurnError> {
        let access = if self.changes_data() { Access::ReadWrite } else { Access::ReadOnly };
        let open = |path| Ok(Arc::new(Device::open(path, access).map_err(TargetError::from)?));
        self.paths.iter().map(open).collect()
    }

    fn target(devices: Vec<Arc<Device>>, case: &DeviceCase) -> Result<Box<dyn Target>, TargetError> {
        let options = LocalOptions { depth: case.depth, slot_bytes: case.size_bytes };
        Ok(match case.engine.ring() {
            Some(shape) => Box::new(Local::uring(devices, shape, options)?),
            None => Box::new(Local::blocking(devices, options)?),
        })
    }

    fn fio(&self, case: &DeviceCase, stop: &AtomicBool) -> Result<Turn, TurnError> {
        let load = FioLoad {
            path: self.paths.first().expect("there is a device"),
            region: self.region,
            mix: case.mix,
            distribution: case.distribution,
            fsync_every: self.fsync_every.filter(|_| case.mix.has_writes()),
            size_bytes: case.size_bytes,
            jobs: case.threads,
            depth: case.depth,
            warm_up: self.warm_up,
            duration: self.bounds.duration,
            cores: &self.cores,
        };
        Ok(Turn::of_fio(&load.run(stop)?))
    }
}
