//! Runs a measurement of devices.
//!
//! Invariants
//! - Devices are opened for writing only by cases that change data; [`check_writable`] has allowed
//!   it before.
//! - A case that fails has no further turns; the other cases go on.
//!
//! [`check_writable`]: super::check_writable

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rackscan_device::{Access, Device};

use super::experiment::DeviceExperiment;
use super::grid::{DeviceCase, IoEngine};
use super::line::{Measurement, Turn, Turns};
use crate::drive::{Bounds, Distribution, DriveError, IoMix, Load, Run, Spread, drive};
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
        if self.precondition > 0 {
            on_step(&Step { done: 0, total, doing: "writing the devices before the first turn" });
            self.write_all(stop)?;
        }
        let mut done = 0;
        for round in 0..self.rounds_max {
            for turns in all.iter_mut().filter(|turns| turns.failure.is_none()) {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                on_step(&Step { done, total, doing: &turns.case.to_string() });
                let (turn, failure) = match self.turn(&turns.case, round, stop) {
                    Ok((turn, failure)) => (turn, failure.map(|error| error.to_string())),
                    Err(error) => (None, Some(error.to_string())),
                };
                turns.turns.extend(turn);
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
    fn write_all(&self, stop: &AtomicBool) -> Result<(), TurnError> {
        let devices = u64::try_from(self.paths.len()).expect("a list in memory");
        let ios = self.region.length_bytes / u64::from(PRECONDITION_BYTES) * devices;
        let load = Load {
            mix: IoMix::Only(IoOperation::Write),
            region: self.region,
            spread: self.striped(),
            length_bytes: PRECONDITION_BYTES,
            depth: PRECONDITION_DEPTH,
            distribution: Distribution::Sequential,
            seed: self.seed,
            ..Load::default()
        };
        let count_max = Some(ios * u64::from(self.precondition));
        let bounds = Bounds { duration: PRECONDITION_TIME_MAX, count_max };
        let case = DeviceCase {
            mix: load.mix,
            distribution: load.distribution,
            size_bytes: PRECONDITION_BYTES,
            threads: 1,
            depth: PRECONDITION_DEPTH,
            engine: IoEngine::Uring,
        };
        let run = Run { bounds, warm_up: Duration::ZERO, ..self.of(load, 1, stop) };
        let devices = self.open(&case)?;
        let measured = drive(&run, &|_thread| Self::target(devices.clone(), &case))?;
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

    /// Runs one turn. Returns its result, and what ended it early.
    fn turn(
        &self,
        case: &DeviceCase,
        round: u32,
        stop: &AtomicBool,
    ) -> Result<(Option<Turn>, Option<TargetError>), TurnError> {
        if case.engine == IoEngine::Fio {
            return Ok((Some(self.fio(case)?), None));
        }
        let load = Load {
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
        };
        let devices = self.open(case)?;
        let run = self.of(load, case.threads, stop);
        let measured = drive(&run, &|_thread| Self::target(devices.clone(), case))?;
        let turn = (measured.counters.ios > 0).then(|| Turn::of(&measured));
        Ok((turn, measured.failure))
    }

    fn open(&self, case: &DeviceCase) -> Result<Vec<Arc<Device>>, TurnError> {
        let access = if case.mix.changes_data() { Access::ReadWrite } else { Access::ReadOnly };
        let mut devices = Vec::with_capacity(self.paths.len());
        for path in &self.paths {
            let device = Device::open(path, access).map_err(TargetError::from)?;
            let align_bytes = device.alignment().offset_bytes;
            if !case.size_bytes.is_multiple_of(align_bytes) {
                let (path, size_bytes) = (path.display().to_string(), case.size_bytes);
                return Err(TurnError::Unaligned { path, size_bytes, align_bytes });
            }
            devices.push(Arc::new(device));
        }
        Ok(devices)
    }

    fn target(devices: Vec<Arc<Device>>, case: &DeviceCase) -> Result<Box<dyn Target>, TargetError> {
        let options = LocalOptions { depth: case.depth, slot_bytes: case.size_bytes };
        Ok(match case.engine.ring() {
            Some(shape) => Box::new(Local::uring(devices, shape, options)?),
            None => Box::new(Local::blocking(devices, options)?),
        })
    }

    fn fio(&self, case: &DeviceCase) -> Result<Turn, TurnError> {
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
        };
        Ok(Turn::of_fio(&load.run()?))
    }
}
