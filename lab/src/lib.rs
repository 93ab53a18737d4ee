//! How many reads and writes does a device give, near and far, and at which price?
//!
//! ```text
//!   drive (closed loop | open loop)          replay (a trace's own times)
//!            \                                   /
//!             v                                 v
//!        Target: submit, flush, reap -- one per thread
//!          Local      io_uring or pread threads on a file of this host
//!          Remote     raw reads and writes by a storage node, over a wire
//!                     or its answer without any IO
//!
//!   query_simulation   filters over stored tables, in each placement; beside the targets
//!   kernels            what a scan costs on one core, over pages in memory; without any target
//!   side_by_side       how long files take to give and take bytes, all at once; the limit of a rebuild
//!   xor                what a XORed byte costs on one core; without any target
//!   parity             stripes that survive lost nodes, written by each way; without any target
//!   transactions       reads and writes of several keys, by sessions of a cluster; without any target
//! ```
//!
//! Invariants
//! - A target belongs to one thread and holds at most its depth in flight.
//! - Memory is given out before a run starts; an IO allocates nothing here.
//! - Targets and drivers know nothing of pages, tables and queries: offsets and lengths are all
//!   they see. Only [`query_simulation`] and [`kernels`] do, and no SQL: their queries are scan
//!   programs.

#![forbid(unsafe_code)]

mod clock;
mod core_use;
mod cpu;
mod drive;
mod experiment;
mod fio;
pub mod kernels;
mod latency;
pub mod limits;
mod median;
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
pub use core_use::CoreUse;
pub use cpu::CpuSample;
pub use drive::{
    Arrivals, Bounds, Counters, Distribution, DriveError, Load, MakeTarget, Measured, Pace, Region, Run,
    drive,
};
pub use experiment::{
    Axes, Case, CpuPerIo, Experiment, GridError, Mode, NodeHost, NodeShape, Outcome, PointLine, RunningNode,
    Step, WireKind,
};
pub use fio::{FioError, FioLoad, FioRead};
pub use latency::{Latencies, LatencySummary};
pub use median::median;
pub use rackscan_device::allowed_cores;
pub use record::{COMMIT, Provenance, machine};
pub use room::free_bytes;
pub use side_by_side::{Stream, StreamError, move_bytes};
pub use sweep::{SweepPlan, sweep, sweep_report};
pub use target::{
    CacheHits, Cached, Io, IoDone, IoOperation, LineOptions, Local, LocalOptions, Remote, Target,
    TargetError, Wait,
};
