//! Describes a measurement of devices.

use std::path::PathBuf;
use std::time::Duration;

use super::grid::DeviceCase;
use super::stop::StopRule;
use crate::drive::{Bounds, LoopKind, Region, Spread};
use crate::record::Provenance;

/// A measurement of devices.
#[derive(Debug, Clone)]
pub struct DeviceExperiment {
    /// Name of the job in a job file.
    pub job: Option<String>,
    /// Files or block devices.
    pub paths: Vec<PathBuf>,
    /// Where on each device.
    pub region: Region,
    /// How threads use several devices.
    pub spread: Spread,
    /// The cases to measure.
    pub cases: Vec<DeviceCase>,
    /// Writes of a thread after which it flushes.
    pub fsync_every: Option<u32>,
    /// Reads what was written after each turn, and compares it.
    pub verify: bool,
    /// Writes the region this many times, sequentially, before the first turn.
    pub precondition: u32,
    /// Closed or open loop.
    pub loop_kind: LoopKind,
    /// Cores for the threads, round robin; none are pinned if it is empty.
    pub cores: Vec<usize>,
    /// Rounds at least.
    pub rounds_min: u32,
    /// Rounds at most.
    pub rounds_max: u32,
    /// When the rounds are enough.
    pub rule: StopRule,
    /// Warm-up of each turn.
    pub warm_up: Duration,
    /// Bounds of the measured phase of each turn.
    pub bounds: Bounds,
    /// Length of the intervals that are counted apart.
    pub interval: Option<Duration>,
    /// Counts events of the processor and the kernel.
    pub counts_events: bool,
    /// Seed of the offsets.
    pub seed: u64,
    /// Source of the figures.
    pub provenance: Provenance,
}

impl DeviceExperiment {
    /// Whether some case changes what the devices hold.
    #[must_use]
    pub fn changes_data(&self) -> bool {
        self.precondition > 0 || self.cases.iter().any(|case| case.mix.changes_data())
    }
}
