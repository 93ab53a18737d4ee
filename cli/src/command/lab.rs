//! Dispatches the commands of `rackscan lab`.

use super::{
    bench_degraded, bench_device, bench_fabric, bench_io, bench_parity, bench_placement, bench_query,
    bench_ramp, bench_rebuild, bench_refresh, bench_scan, bench_tpch, bench_xor, paper, replay, stripe,
};
use crate::{
    args::{Bench, Global, Lab, Replay, Stripe, warn_command},
    failure::Failure,
};

pub(crate) fn run(global: &Global, lab: &Lab) -> Result<(), Failure> {
    match lab {
        Lab::Bench(options) => bench(global, options),
        Lab::Replay(options) => replay::run(global, options),
        Lab::Stripe(options) => stripe::run(options),
        Lab::Paper(options) => paper::run(options),
    }
}

fn bench(global: &Global, bench: &Bench) -> Result<(), Failure> {
    match bench {
        Bench::Tpch(options) => bench_tpch::run(global, options),
        Bench::Fabric(options) => bench_fabric::fabric(options),
        Bench::Inbox(options) => bench_fabric::inbox(options),
        Bench::Device(options) => bench_device::run(options),
        Bench::Io(options) => bench_io::run(global, options),
        Bench::Placement(options) => bench_placement::run(global, options),
        Bench::QueryIo(options) => bench_query::run(global, options),
        Bench::Parity(options) => bench_parity::run(options),
        Bench::Ramp(options) => bench_ramp::run(options),
        Bench::Refresh(options) => bench_refresh::run(global, options),
        Bench::RefreshStreams(options) => bench_refresh::streams(global, options),
        Bench::Degraded(options) => bench_degraded::run(global, options),
        Bench::Rebuild(options) => bench_rebuild::run(global, options),
        Bench::RampStress(options) => bench_ramp::run_stress(options),
        Bench::Scan(options) => bench_scan::run(options),
        Bench::Xor(options) => bench_xor::run(options),
        Bench::Answer => Ok(rackscan_bench::fabric::answer()?),
    }
}

/// Old names of these commands from before `lab`; the next release removes them.
pub(crate) fn bench_by_old_name(global: &Global, options: &Bench) -> Result<(), Failure> {
    warn_command("bench", "lab");
    bench(global, options)
}

pub(crate) fn replay_by_old_name(global: &Global, options: &Replay) -> Result<(), Failure> {
    warn_command("replay", "lab replay");
    replay::run(global, options)
}

pub(crate) fn stripe_by_old_name(options: &Stripe) -> Result<(), Failure> {
    warn_command("stripe", "lab stripe");
    stripe::run(options)
}
