//! What does each command do? One file each; `main` holds the only match on them.

mod bench;
pub(crate) mod bench_degraded;
pub(crate) mod bench_fabric;
pub(crate) mod bench_io;
pub(crate) mod bench_parity;
pub(crate) mod bench_placement;
pub(crate) mod bench_query;
pub(crate) mod bench_ramp;
pub(crate) mod bench_refresh;
pub(crate) mod bench_scan;
pub(crate) mod bench_tpch;
pub(crate) mod calibrate;
pub(crate) mod cluster;
mod compare;
pub(crate) mod explain;
pub(crate) mod kv;
pub(crate) mod load;
pub(crate) mod node;
pub(crate) mod query;
pub(crate) mod refresh;
pub(crate) mod replay;
pub(crate) mod seal;
pub(crate) mod shell;
pub(crate) mod sql;
pub(crate) mod stripe;
pub(crate) mod tables;
mod traced;
