//! Measures IO, scans and transactions: how fast devices, wires and nodes are, and what each costs.
//!
//! ```text
//! drive (closed loop | open loop)          replay (a trace's own times)
//!          \                                   /
//!           v                                 v
//!      target: submit, flush, reap -- one per thread
//!        Local      io_uring or pread threads on a file of this host
//!        Remote     raw reads and writes by a storage node, over a wire,
//!                   or the node's answer without any IO
//!
//! devices             grids of loads on devices of this host: reads, writes, mixes, trims
//! experiment, sweep   grids of driven loads: device, wire and node, in alternating turns
//! query_simulation    filters over stored tables, in each placement; without targets
//! kernels             cost of a scan on one core, over pages in memory
//! side_by_side        time of reading and writing many files in parallel, the limit of a rebuild
//! rebuild             figures of a node's rebuild
//! xor                 cost of a XORed byte on one core
//! parity              writes of stripes that survive lost nodes, by each way of computing parity
//! transactions        reads and writes of several keys, by sessions of a cluster
//! paper               the figures of the four papers, drawn from the lines of the above
//! ```
//!
//! A *target* carries out IOs, a *driver* decides when each begins. A *turn* is one timed run under
//! one condition. Conditions that are compared take turns in every *round*, so that a change of the
//! machine's speed affects all of them. A *line* is the result of all turns under one condition, as
//! JSON.
//!
//! Invariants
//! - A target belongs to one thread and has at most its depth of IOs in flight.
//! - Memory is allocated before a run starts; an IO allocates nothing in this crate.
//! - Targets and drivers do not know pages, tables and queries, only offsets and lengths. Only
//!   [`query_simulation`] and [`kernels`] know tables. They know no SQL: their queries are scan
//!   programs.
//!
//! An example: two connections read a simulated device in a closed loop, a hundred times each.
//!
//! ```
//! use rackscan_device::BufferPool;
//! use rackscan_device::sim::{SimConfig, SimDisk, SimIo};
//! use rackscan_lab::*;
//! use std::{sync::atomic::AtomicBool, time::Duration};
//!
//! let (depth, length_bytes, stop) = (4, 4096, AtomicBool::new(false));
//! let region = Region { device: 0, offset_bytes: 0, length_bytes: 1 << 20 };
//! let load = Load { region, length_bytes, depth, ..Load::default() };
//! let bounds = Bounds { duration: Duration::from_secs(60), count_max: Some(100) };
//! let (connections, warm_up) = (2, Duration::ZERO);
//! let (peer, cores, interval, counts_events) = (None, &[][..], None, false);
//! let run = Run { load, connections, warm_up, bounds, peer, cores, interval, counts_events, stop: &stop };
//! let make = |_connection| -> Result<Box<dyn Target>, TargetError> {
//!     let io = SimIo::new(SimConfig::seeded(1), vec![SimDisk::zeroed(1 << 20)]);
//!     let options = LocalOptions { depth, slot_bytes: length_bytes };
//!     Ok(Box::new(Local::over(io, &BufferPool::new(64 << 10, 4096)?, options)?))
//! };
//! let measured = drive(&run, &make)?;
//! assert!(measured.failure.is_none() && !measured.stopped && measured.iops > 0.0);
//! assert_eq!((measured.counters.ios, measured.counters.bytes), (200, 200 * 4096));
//! assert_eq!(measured.counters.latencies.count(), 200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod clock;
mod core_use;
mod cpu;
pub mod devices;
mod drive;
mod events;
mod experiment;
mod fio;
pub mod kernels;
mod latency;
pub mod limits;
mod median;
pub mod paper;
pub mod parity;
pub mod query_simulation;
pub mod rebuild;
mod record;
pub mod replay;
mod room;
mod side_by_side;
mod sweep;
mod target;
pub mod transactions;
pub mod xor;
mod zipf;

pub use clock::{Clock, SystemClock};
pub use core_use::{CoreLine, CoreUse};
pub use cpu::CpuSample;
pub use drive::{
    Arrivals, Bounds, Counters, Distribution, DriveError, Interval, IoMix, Load, LoopKind, MakeTarget,
    Measured, Region, Run, Spread, drive,
};
pub use events::Events;
pub use experiment::{
    Axes, Case, CpuPerIo, Experiment, GridError, Mode, NodeHost, NodeShape, Outcome, PointLine, RunningNode,
    Step, check_threads,
};
pub use fio::{FioError, FioLoad, FioResult};
pub use latency::{Latencies, LatencySummary};
pub use median::median;
pub use rackscan_device::allowed_cores;
pub use record::{COMMIT, Provenance, machine};
pub use room::free_bytes;
pub use side_by_side::{Stream, StreamError, move_bytes};
pub use sweep::{SweepPlan, sweep, sweep_report};
pub use target::{
    CacheHits, Cached, Io, IoDone, IoOperation, LineOptions, Local, LocalOptions, Remote, Target,
    TargetError, UringShape, Wait,
};
