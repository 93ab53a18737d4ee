//! Measures an experiment: compares local and remote reads in alternating turns.
//!
//! ```text
//! for each round
//!   for each node configuration   a real node is started (unless it runs)
//!     for each case               sizes, connections and depth of the reads
//!       local, wire, remote       a turn each; in reverse order in every second round
//! ```
//!
//! Invariants
//! - Ratios compare adjacent turns, so that a change of the machine's speed affects both sides.
//! - If an experiment ends early, its lines contain the results until then.

mod grid;
mod host;
mod line;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rackscan_device::{Access, Device, allowed_cores};
use rackscan_fabric::Wire;
use rackscan_format::ids::NodeId;
use rackscan_format::message::IoKind;

pub use grid::{Axes, Case, GridError, Mode, NodeShape, check_threads};
pub(crate) use grid::{distinct, together};
pub use host::{NodeHost, RunningNode};
pub use line::{CpuPerIo, PointLine};

use crate::core_use::{CoreUse, watch};
use crate::drive::{Bounds, Distribution, DriveError, IoMix, Load, LoopKind, Measured, Region, Run, drive};
use crate::fio::{FioError, FioLoad};
use crate::limits::NODE_PATIENCE;
use crate::record::Provenance;
use crate::target::{IoOperation, LineOptions, Local, LocalOptions, Remote, Target, TargetError, UringShape};
use line::{Common, Turn, Turns};

/// One experiment.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The cases to compare.
    pub cases: Vec<Case>,
    /// Turns of each mode of each case.
    pub rounds: u32,
    /// Warm-up of each turn.
    pub warm_up: Duration,
    /// Bounds of the measured phase of each turn.
    pub bounds: Bounds,
    /// Closed or open loop.
    pub loop_kind: LoopKind,
    /// Distribution of offsets.
    pub distribution: Distribution,
    /// Seed of the offsets.
    pub seed: u64,
    /// Case in whose first turn the use of the cores is sampled.
    pub watched: Option<Case>,
    /// Source of the figures.
    pub provenance: Provenance,
}

/// Progress of an experiment.
#[derive(Debug, Clone)]
pub struct Step<'a> {
    /// Number of completed turns.
    pub done: usize,
    /// Number of turns of the whole experiment.
    pub total: usize,
    /// Description of the current turn.
    pub doing: &'a str,
}

/// Result of an experiment.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// A line for each mode of each case that had a turn.
    pub lines: Vec<PointLine>,
    /// Use of the cores in the watched case.
    pub core_use: Vec<CoreUse>,
    /// The failure that ended it early.
    pub failure: Option<String>,
    /// Whether the caller stopped it.
    pub stopped: bool,
}

/// Samples of core use in one turn, unless the kernel's ticks are coarser.
const SAMPLES_PER_TURN: u32 = 20;
const SAMPLE_LEAST: Duration = Duration::from_millis(50);

/// The running node and its data.
struct Bench {
    node: RunningNode,
    /// Its first device, if it is of this host.
    device: Option<(Arc<Device>, PathBuf)>,
    /// What the reads of a node on another host must be multiples of.
    align_bytes: u32,
    region: Region,
}

/// Why a turn failed.
#[derive(Debug, thiserror::Error)]
enum TurnError {
    #[error("the node could not be started: {0}")]
    Node(String),
    #[error("the node has no scratch area to read; its configuration must give `scratch`")]
    NoScratch,
    #[error("node {0} has no device to read")]
    NoDevice(NodeId),
    #[error("node {0} is on another host, so this process cannot read its device: leave out the mode local")]
    NotHere(NodeId),
    #[error(
        "node {node}: reads of {size_bytes} bytes are not possible: its device needs multiples of {align_bytes} bytes"
    )]
    Unaligned { node: NodeId, size_bytes: u32, align_bytes: u32 },
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Drive(#[from] DriveError),
    #[error(transparent)]
    Fio(#[from] FioError),
}

impl From<rackscan_device::OpenError> for TurnError {
    fn from(error: rackscan_device::OpenError) -> Self {
        Self::Target(error.into())
    }
}

impl Experiment {
    /// Measures everything, until it is done, fails, or `stop` is set.
    pub fn run(
        &self,
        host: &mut dyn NodeHost,
        stop: &AtomicBool,
        on_step: &mut dyn FnMut(&Step<'_>),
    ) -> Outcome {
        let mut all: Vec<Turns> = self.cases.iter().cloned().map(Turns::new).collect();
        let mut core_use = Vec::new();
        let ended = self.rounds(&mut all, host, stop, on_step, &mut core_use);
        let failure = ended.err().map(|error| error.to_string());
        let stopped = stop.load(Ordering::Relaxed);
        let partial = failure.clone().or(stopped.then(|| "it was asked to stop".to_owned()));
        let (loop_kind, rate) = match self.loop_kind {
            LoopKind::Closed => ("closed", None),
            LoopKind::Open { rate, .. } => ("open", Some(rate)),
        };
        let common = Common {
            provenance: self.provenance.clone(),
            loop_kind,
            rate,
            seconds: self.bounds.duration.as_secs_f64(),
            partial,
            rounds: self.rounds,
        };
        let lines = all.iter().flat_map(|turns| turns.lines(&common)).collect();
        Outcome { lines, core_use, failure, stopped }
    }

    fn rounds(
        &self,
        all: &mut [Turns],
        host: &mut dyn NodeHost,
        stop: &AtomicBool,
        on_step: &mut dyn FnMut(&Step<'_>),
        core_use: &mut Vec<CoreUse>,
    ) -> Result<(), TurnError> {
        let total = self.cases.iter().map(|case| case.modes.len()).sum::<usize>() * self.rounds as usize;
        let mut done = 0;
        for round in 0..self.rounds {
            let mut bench: Option<(NodeShape, Bench)> = None;
            for turns in all.iter_mut() {
                let case = turns.case.clone();
                // If the case sends no request to the node, a node of any shape will do: it has the
                // data.
                let asked = case.modes.iter().any(|mode| matches!(mode, Mode::Wire | Mode::Remote));
                if bench.as_ref().is_none_or(|(shape, _)| asked && *shape != case.node) {
                    on_step(&Step { done, total, doing: "starting a node" });
                    // Closes the old node's device before a new node opens the file exclusively.
                    drop(bench.take());
                    bench = Some((case.node, Bench::start(host, &case.node)?));
                }
                let Some((_, bench)) = &bench else { continue };
                bench.check(&case)?;
                let mut modes = case.modes.clone();
                if round % 2 == 1 {
                    modes.reverse();
                }
                for mode in modes {
                    if stop.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    on_step(&Step { done, total, doing: &describe(&case, mode) });
                    let turn = || self.turn(bench, &case, mode, round, stop);
                    let watched = round == 0 && self.watched.as_ref() == Some(&case);
                    let (turn, ended) = if watched { self.while_watching(turn, core_use) } else { turn() }?;
                    if let Some(turn) = turn {
                        turns.push(mode, turn);
                    }
                    ended.map_or(Ok(()), Err)?;
                    done += 1;
                }
            }
        }
        Ok(())
    }

    /// Runs one turn. Returns its result, and what ended it early.
    fn turn(
        &self,
        bench: &Bench,
        case: &Case,
        mode: Mode,
        round: u32,
        stop: &AtomicBool,
    ) -> Result<(Option<Turn>, Option<TurnError>), TurnError> {
        if mode == Mode::Fio {
            return Ok((Some(self.fio(bench, case, stop)?), None));
        }
        let cores = if case.node.pin { allowed_cores() } else { Vec::new() };
        let run = Run {
            load: Load {
                region: bench.region,
                length_bytes: case.size_bytes,
                depth: case.depth,
                distribution: self.distribution,
                loop_kind: self.loop_kind,
                // Every mode reads the same offsets in one round.
                seed: self.seed.wrapping_add(round.into()),
                ..Load::default()
            },
            connections: case.connections,
            warm_up: self.warm_up,
            bounds: self.bounds,
            peer: bench.node.pid.filter(|_| mode != Mode::Local),
            cores: &cores,
            interval: None,
            counts_events: false,
            stop,
        };
        let batch = AtomicU32::new(0);
        let device = match mode {
            Mode::Local => Some(Arc::clone(&bench.here()?.0)),
            _ => None,
        };
        let measured = drive(&run, &|_connection| match &device {
            Some(device) => Self::local(Arc::clone(device), case),
            None => Self::remote(bench, case, mode, &batch),
        })?;
        let (turn, ended) = taken(measured);
        Ok((turn.map(|turn| Turn { batch: batch.into_inner(), ..turn }), ended))
    }

    fn while_watching<T>(&self, turn: impl FnOnce() -> T, core_use: &mut Vec<CoreUse>) -> T {
        let over = AtomicBool::new(false);
        let interval = (self.bounds.duration / SAMPLES_PER_TURN).max(SAMPLE_LEAST);
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| watch(interval, &over));
            let result = turn();
            over.store(true, Ordering::Relaxed);
            // If the sampling failed there is nothing to draw, and the page says so.
            *core_use = watching.join().unwrap_or_default();
            result
        })
    }

    /// The target of a thread that reads the device itself.
    fn local(device: Arc<Device>, case: &Case) -> Result<Box<dyn Target>, TargetError> {
        let Case { depth, size_bytes: slot_bytes, .. } = *case;
        let (devices, options) = (vec![device], LocalOptions { depth, slot_bytes });
        Ok(match case.local_io() {
            IoKind::Uring => Box::new(Local::uring(devices, UringShape::USUAL, options)?),
            IoKind::Pread if case.reads_itself() => Box::new(Local::blocking(devices, options)?),
            IoKind::Pread => Box::new(Local::pread(devices, case.node.io_threads.into(), options)?),
        })
    }

    /// The target of one connection. Stores in `batch` how many IOs a message to the node has.
    fn remote(
        bench: &Bench,
        case: &Case,
        mode: Mode,
        batch: &AtomicU32,
    ) -> Result<Box<dyn Target>, TargetError> {
        let Case { depth, size_bytes: slot_bytes, .. } = *case;
        let line = bench.line(case.wire, depth, slot_bytes, case.batch)?;
        let remote = match mode {
            Mode::Wire => Remote::wire_only(&line)?,
            _ => Remote::connect(&line)?,
        };
        batch.store(remote.batch(), Ordering::Relaxed);
        Ok(Box::new(remote))
    }

    fn fio(&self, bench: &Bench, case: &Case, stop: &AtomicBool) -> Result<Turn, TurnError> {
        let load = FioLoad {
            path: &bench.here()?.1,
            region: bench.region,
            mix: IoMix::Only(IoOperation::Read),
            distribution: self.distribution,
            fsync_every: None,
            size_bytes: case.size_bytes,
            jobs: case.connections,
            depth: case.depth,
            warm_up: self.warm_up,
            duration: self.bounds.duration,
            cores: &[],
        };
        let read = load.run(stop)?;
        let latency = Some(read.latency);
        Ok(Turn { iops: read.iops, ios: read.ios, own_cpu: read.cpu, latency, ..Turn::default() })
    }
}

/// A run that ended early counts, unless it measured nothing.
fn taken(measured: Measured) -> (Option<Turn>, Option<TurnError>) {
    let turn = (measured.counters.ios > 0).then(|| Turn::of(&measured));
    (turn, measured.failure.map(TurnError::Target))
}

fn describe(case: &Case, mode: Mode) -> String {
    let Case { size_bytes, connections, depth, wire, node, .. } = case;
    let load = format!("{mode} {size_bytes} B, {connections} x {depth}");
    match mode {
        Mode::Local | Mode::Fio => load,
        Mode::Wire => format!("{load}, {wire}"),
        Mode::Remote => format!("{load}, {wire}, {}", node.bridge),
    }
}

impl Bench {
    fn start(host: &mut dyn NodeHost, shape: &NodeShape) -> Result<Self, TurnError> {
        let node = host.start(shape).map_err(TurnError::Node)?;
        let wire = node.addresses.first().map_or(Wire::Shm, |(wire, _)| *wire);
        let opened =
            |path: PathBuf| Ok::<_, TurnError>((Arc::new(Device::open(&path, Access::ReadOnly)?), path));
        let device = node.device.clone().map(opened).transpose()?;
        let region = Region { device: 0, offset_bytes: 0, length_bytes: 0 };
        let mut bench = Self { node, device, align_bytes: 1, region };
        let line = Remote::connect(&bench.line(wire, 1, 512, None)?)?;
        let status = line.status().devices.first().ok_or(TurnError::NoDevice(bench.node.node))?;
        bench.align_bytes = status.align_bytes;
        match (status.scratch, bench.node.written_bytes) {
            (Some(scratch), _) => {
                bench.region.offset_bytes = scratch.offset_bytes;
                bench.region.length_bytes = scratch.length_bytes;
            }
            (None, Some(written_bytes)) => bench.region.length_bytes = written_bytes,
            (None, None) => return Err(TurnError::NoScratch),
        }
        Ok(bench)
    }

    /// The device, if it is of this host.
    fn here(&self) -> Result<&(Arc<Device>, PathBuf), TurnError> {
        self.device.as_ref().ok_or(TurnError::NotHere(self.node.node))
    }

    fn line(
        &self,
        wire: Wire,
        depth: u32,
        slot_bytes: u32,
        batch: Option<u32>,
    ) -> Result<LineOptions, TargetError> {
        let RunningNode { node, addresses, key, .. } = &self.node;
        let address = addresses.iter().find(|(of, _)| *of == wire);
        let (_, address) = address.ok_or(TargetError::NoWire { wire: wire.to_string() })?;
        Ok(LineOptions {
            node: *node,
            address: address.clone(),
            key: key.clone(),
            patience: NODE_PATIENCE,
            depth,
            slot_bytes,
            batch,
            // A node without a page cache reports that.
            reads_cache: true,
        })
    }

    fn check(&self, case: &Case) -> Result<(), TurnError> {
        let align_bytes = match &self.device {
            Some((device, _)) => device.alignment().offset_bytes,
            None => self.align_bytes,
        };
        let (node, size_bytes) = (self.node.node, case.size_bytes);
        if size_bytes.is_multiple_of(align_bytes) {
            return Ok(());
        }
        Err(TurnError::Unaligned { node, size_bytes, align_bytes })
    }
}
