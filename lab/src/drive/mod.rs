//! Drives a load of IOs on targets (devices of this host or of a storage node) and measures it.
//!
//! Each connection is a thread with a target of its own. All threads create their targets, then
//! warm up, then run. Between these phases no IO is in flight, and the processor time of both sides
//! is read.
//!
//! Invariants
//! - A failure of one connection ends the load on all connections. The results until then are
//!   returned with the failure.
//! - Samples of processor time enclose exactly the measured phase.

mod closed;
mod content;
mod open;
mod sequence;
mod team;
mod verify;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use az::SaturatingAs;

use crate::clock::Clock;
use crate::events::Events;
use crate::latency::Latencies;
use crate::limits;
use crate::target::{CacheHits, IoDone, IoOperation, Target, TargetError};

pub use sequence::{Distribution, Region, Spread};
pub use team::drive;

/// Arrivals of the IOs of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arrivals {
    /// At equal intervals.
    Uniform,
    /// Independently of each other, as from many users.
    #[default]
    Poisson,
}

/// When the next IO begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LoopKind {
    /// When a previous one ends.
    Closed,
    /// At its intended time, whether previous ones have ended or not.
    Open {
        /// IOs per second, over all connections.
        rate: f64,
        /// Distribution of the arrivals.
        arrivals: Arrivals,
    },
}

/// What the IOs of a load do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IoMix {
    /// All the same.
    Only(IoOperation),
    /// Reads and writes, drawn independently for each IO.
    Mixed {
        /// Percent of reads; the others are writes.
        read_percent: u8,
    },
}

impl IoMix {
    /// Whether it changes what the devices hold.
    #[must_use]
    pub fn changes_data(self) -> bool {
        self != Self::Only(IoOperation::Read)
    }

    /// Whether some of its IOs are writes.
    #[must_use]
    pub fn has_writes(self) -> bool {
        matches!(self, Self::Only(IoOperation::Write) | Self::Mixed { .. })
    }
}

/// `read`, `write`, `trim`, or `mix:70` for 70 % reads.
impl fmt::Display for IoMix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only(operation) => operation.fmt(out),
            Self::Mixed { read_percent } => write!(out, "mix:{read_percent}"),
        }
    }
}

/// The work of every connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Reads, writes, or both.
    pub mix: IoMix,
    /// Writes of a connection after which it flushes the device.
    pub fsync_every: Option<u32>,
    /// Writes bytes that depend on their place, and reads all written places after the measured
    /// phase to compare them.
    pub verify: bool,
    /// Where on the devices.
    pub region: Region,
    /// The devices that connections use.
    pub spread: Spread,
    /// Bytes of each IO.
    pub length_bytes: u32,
    /// IOs in flight on each connection.
    pub depth: u32,
    /// Distribution of the offsets.
    pub distribution: Distribution,
    /// When the next one begins.
    pub loop_kind: LoopKind,
    /// Seed of offsets and arrivals.
    pub seed: u64,
    /// Seed of the bytes that are written. Loads that verify need one that no earlier load on the
    /// devices had: otherwise bytes of that load look like theirs.
    pub content_seed: u64,
}

/// Uniform reads of one place of 4 KiB, one at a time.
impl Default for Load {
    fn default() -> Self {
        Self {
            mix: IoMix::Only(IoOperation::Read),
            fsync_every: None,
            verify: false,
            region: Region { device: 0, offset_bytes: 0, length_bytes: 4096 },
            spread: Spread::One,
            length_bytes: 4096,
            depth: 1,
            distribution: Distribution::Uniform,
            loop_kind: LoopKind::Closed,
            seed: 1,
            content_seed: 0,
        }
    }
}

/// When a phase ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// After this time.
    pub duration: Duration,
    /// After this many IOs on each connection, if that comes first.
    pub count_max: Option<u64>,
}

/// A whole measurement.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The load of each connection.
    pub load: Load,
    /// Number of threads, each with a target of its own.
    pub connections: u32,
    /// Time to run before anything is measured.
    pub warm_up: Duration,
    /// Bounds of the measured phase.
    pub bounds: Bounds,
    /// Process id of the other side, if there is one.
    pub peer: Option<u32>,
    /// Pin each connection's thread to one of these cores, round robin; nothing is pinned if there
    /// are none.
    pub cores: &'a [usize],
    /// Counts the IOs of each such interval of the measured phase, too.
    pub interval: Option<Duration>,
    /// Counts events of the processor and the kernel in the measured phase, too.
    pub counts_events: bool,
    /// Set by the caller to end the run early.
    pub stop: &'a AtomicBool,
}

/// Counters of one connection, or of all together, in one phase.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// From submission (closed loop) or from the intended time (open loop). Of a mix, those of the
    /// reads; flushes are not among them.
    pub latencies: Latencies,
    /// Latencies of the writes of a mix.
    pub writes: Option<Box<Latencies>>,
    /// Latencies of flushes.
    pub fsyncs: Option<Box<Latencies>>,
    /// The IOs of each interval of the measured phase, by their end.
    pub intervals: Vec<Interval>,
    /// Length of an interval.
    interval: Option<Duration>,
    /// Places whose bytes were read again and compared.
    pub verified: u64,
    /// IOs that succeeded, without flushes.
    pub ios: u64,
    /// Of these, the IOs that ended within the duration.
    pub in_time: u64,
    /// Bytes moved by the succeeded IOs.
    pub bytes: u64,
    /// Of the succeeded IOs, those answered from a node's page cache.
    pub cached: CacheHits,
    /// Open loop: IOs issued later than [`limits::LATE_AFTER`] after their intended time.
    pub late: u64,
    /// Open loop: IOs intended but not issued before the duration ended.
    pub unissued: u64,
    /// Time until the last IO ended.
    pub elapsed: Duration,
}

/// IOs that ended in one interval of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Interval {
    /// Their number.
    pub ios: u64,
    /// The sum of their latencies.
    pub latency: Duration,
    /// The greatest of their latencies.
    pub longest: Duration,
}

impl Counters {
    /// Empty counters with memory for everything that a phase of this load counts.
    fn of(load: &Load, interval: Option<Duration>, duration: Duration) -> Self {
        let kept = |is_kept: bool| is_kept.then(Box::<Latencies>::default);
        let intervals = interval.map_or(0, |interval| intervals_of(duration, interval));
        Self {
            writes: kept(matches!(load.mix, IoMix::Mixed { .. })),
            fsyncs: kept(load.fsync_every.is_some()),
            intervals: vec![Interval::default(); intervals],
            interval,
            ..Self::default()
        }
    }

    /// Counts an IO of this operation that ended at `after` since the begin of the phase.
    fn count(
        &mut self,
        load: &Load,
        (ended, operation): (&IoDone, IoOperation),
        latency: Duration,
        after: Duration,
    ) {
        if ended.outcome.is_err() {
            return;
        }
        match (operation, &mut self.writes, &mut self.fsyncs) {
            (IoOperation::Fsync, _, Some(fsyncs)) => return fsyncs.record(latency),
            (IoOperation::Write, Some(writes), _) => writes.record(latency),
            _ => self.latencies.record(latency),
        }
        self.ios += 1;
        self.bytes += u64::from(load.length_bytes);
        self.cached.count(ended.cached);
        let Some(interval) = self.interval else { return };
        let number = (after.as_nanos() / interval.as_nanos().max(1)).saturating_as::<usize>();
        // IOs that end after the phase's duration are in no interval.
        if let Some(interval) = self.intervals.get_mut(number) {
            interval.ios += 1;
            interval.latency += latency;
            interval.longest = interval.longest.max(latency);
        }
    }

    fn add(&mut self, other: &Self) {
        self.latencies.add(&other.latencies);
        add_latencies(&mut self.writes, other.writes.as_deref());
        add_latencies(&mut self.fsyncs, other.fsyncs.as_deref());
        self.intervals.resize(self.intervals.len().max(other.intervals.len()), Interval::default());
        for (own, other) in self.intervals.iter_mut().zip(&other.intervals) {
            own.ios += other.ios;
            own.latency += other.latency;
            own.longest = own.longest.max(other.longest);
        }
        self.verified += other.verified;
        self.ios += other.ios;
        self.in_time += other.in_time;
        self.bytes += other.bytes;
        self.cached.add(other.cached);
        self.late += other.late;
        self.unissued += other.unissued;
        self.elapsed = self.elapsed.max(other.elapsed);
    }
}

fn add_latencies(own: &mut Option<Box<Latencies>>, other: Option<&Latencies>) {
    if let Some(other) = other {
        own.get_or_insert_default().add(other);
    }
}

/// The number of whole intervals in a duration.
fn intervals_of(duration: Duration, interval: Duration) -> usize {
    let count = duration.as_nanos() / interval.as_nanos().max(1);
    count.saturating_as::<usize>().min(limits::INTERVALS_MAX)
}

/// Result of a run.
#[derive(Debug)]
pub struct Measured {
    /// Of all connections together.
    pub counters: Counters,
    /// IOs per second: those that ended in time if the duration was the bound, otherwise all until
    /// the last one.
    pub iops: f64,
    /// Processor time of this process in the measured phase.
    pub own_cpu: Duration,
    /// Processor time of the process at the other side.
    pub peer_cpu: Option<Duration>,
    /// Events of this process's threads in the measured phase, if they were to be counted.
    pub events: Option<Events<u64>>,
    /// Wall-clock time between the samples of processor time.
    pub wall: Duration,
    /// The failure that ended it early.
    pub failure: Option<TargetError>,
    /// Whether the caller stopped the run before its bounds.
    pub stopped: bool,
}

/// Why a run could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// The region is smaller than one IO.
    #[error("a region of {region_bytes} bytes is too small for an aligned IO of {length_bytes} bytes")]
    RegionTooSmall {
        /// Length of the region in bytes.
        region_bytes: u64,
        /// Length of an IO in bytes.
        length_bytes: u32,
    },
    /// The skew of the distribution is outside its range.
    #[error("a skew of {skew} is not possible; expected a number above 0 and below 1")]
    BadSkew {
        /// The skew asked for.
        skew: f64,
    },
    /// The rate of the open loop is outside its range.
    #[error(
        "a rate of {rate} IOs per second is not possible; expected {min} to {max}",
        min = limits::RATE_MIN, max = limits::RATE_MAX
    )]
    BadRate {
        /// The rate asked for.
        rate: f64,
    },
    /// Connections, depth or memory outside the limits.
    #[error(
        "{connections} connections of depth {depth} with {length_bytes} bytes for each IO are not possible; expected 1 \
         to {connections_max} connections, a depth of 1 to {depth_max}, and at most {bytes_max} bytes together",
        connections_max = limits::CONNECTIONS_MAX, depth_max = limits::DEPTH_MAX,
        bytes_max = limits::LOAD_MEMORY_BYTES_MAX
    )]
    BadShape {
        /// Connections asked for.
        connections: u32,
        /// Depth of each.
        depth: u32,
        /// Length of an IO in bytes.
        length_bytes: u32,
    },
    /// A thread could not be pinned.
    #[error(transparent)]
    Pin(#[from] rackscan_device::PinError),
    /// A connection's target could not be created.
    #[error("the target of connection {connection} cannot be created: {source}")]
    Target {
        /// Number of the connection.
        connection: u32,
        /// The cause.
        source: TargetError,
    },
    /// A thread could not be started.
    #[error("cannot start a thread for connection {connection}: {source}")]
    Thread {
        /// Number of the connection.
        connection: u32,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Creates the target of a connection, on the connection's own thread.
pub type MakeTarget<'a> = dyn Fn(u32) -> Result<Box<dyn Target>, TargetError> + Sync + 'a;

/// Flags that tell a connection to end before its bounds.
#[derive(Clone, Copy)]
struct Ending<'a> {
    /// The caller stopped the run.
    asked: &'a AtomicBool,
    /// Another connection has failed.
    failed: &'a AtomicBool,
}

impl Ending<'_> {
    fn has_come(&self) -> bool {
        self.asked.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }
}

/// What a connection's loop needs in addition to its target.
#[derive(Clone, Copy)]
struct Frame<'a> {
    bounds: Bounds,
    clock: &'a dyn Clock,
    ending: Ending<'a>,
}

fn check(run: &Run<'_>) -> Result<(), DriveError> {
    let Run { connections, load: Load { depth, length_bytes, loop_kind, .. }, .. } = *run;
    let bytes = u64::from(connections) * u64::from(depth) * u64::from(length_bytes);
    let fits = (1..=limits::CONNECTIONS_MAX).contains(&connections)
        && (1..=limits::DEPTH_MAX).contains(&depth)
        && (1..=limits::IO_BYTES_LARGEST).contains(&length_bytes)
        && bytes <= limits::LOAD_MEMORY_BYTES_MAX;
    if !fits {
        return Err(DriveError::BadShape { connections, depth, length_bytes });
    }
    match loop_kind {
        LoopKind::Open { rate, .. } if !(limits::RATE_MIN..=limits::RATE_MAX).contains(&rate) => {
            Err(DriveError::BadRate { rate })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod stall;
