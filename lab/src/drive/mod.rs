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
mod open;
mod places;
mod team;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::latency::Latencies;
use crate::limits;
use crate::target::{CacheHits, IoDone, IoOperation, Target, TargetError};

pub use places::{Distribution, Region};
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
pub enum Pace {
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

/// The work of every connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Read or write.
    pub operation: IoOperation,
    /// Where on the devices.
    pub region: Region,
    /// Bytes of each IO.
    pub length_bytes: u32,
    /// IOs in flight on each connection.
    pub depth: u32,
    /// Distribution of the offsets.
    pub distribution: Distribution,
    /// When the next one begins.
    pub pace: Pace,
    /// Seed of offsets and arrivals.
    pub seed: u64,
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
    /// Pin each connection's thread to a core, round robin.
    pub pin: bool,
    /// Set by the caller to end the run early.
    pub stop: &'a AtomicBool,
}

/// Counters of one connection, or of all together, in one phase.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// From submission (closed loop) or from the intended time (open loop).
    pub latencies: Latencies,
    /// IOs that succeeded.
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

impl Counters {
    fn count(&mut self, load: &Load, ended: &IoDone, latency: Duration) {
        if ended.outcome.is_ok() {
            self.latencies.record(latency);
            self.ios += 1;
            self.bytes += u64::from(load.length_bytes);
            self.cached.count(ended.cached);
        }
    }

    fn add(&mut self, other: &Self) {
        self.latencies.add(&other.latencies);
        self.ios += other.ios;
        self.in_time += other.in_time;
        self.bytes += other.bytes;
        self.cached.add(other.cached);
        self.late += other.late;
        self.unissued += other.unissued;
        self.elapsed = self.elapsed.max(other.elapsed);
    }
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
    #[error("a rate of {rate} IOs per second is not possible; expected a number above 0, at most {max}", max = limits::RATE_MAX)]
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
    let Run { connections, load: Load { depth, length_bytes, pace, .. }, .. } = *run;
    let bytes = u64::from(connections) * u64::from(depth) * u64::from(length_bytes);
    let fits = (1..=limits::CONNECTIONS_MAX).contains(&connections)
        && (1..=limits::DEPTH_MAX).contains(&depth)
        && (1..=limits::IO_BYTES_LARGEST).contains(&length_bytes)
        && bytes <= limits::LOAD_MEMORY_BYTES_MAX;
    if !fits {
        return Err(DriveError::BadShape { connections, depth, length_bytes });
    }
    match pace {
        Pace::Open { rate, .. } if !(rate > 0.0 && rate <= limits::RATE_MAX) => {
            Err(DriveError::BadRate { rate })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod stall;
