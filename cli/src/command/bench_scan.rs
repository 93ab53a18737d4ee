//! `rackscan lab scan`: measures the cost of a scanned byte on one core, kernel by kernel, next to
//! a plain copy.
//!
//! Invariants
//! - If the measurement ends early, its lines, table and report so far are written before the
//!   error.

use super::{
    bench::{publish, shown},
    signals::stop_on_signals,
};
use crate::{args::BenchScan, failure::Failure, progress};
use rackscan_format::simd::Level;
use rackscan_lab::{
    Provenance,
    kernels::{KernelError, KernelOutcome, Kernels, report, table},
};
use std::time::Duration;

/// Measures the kernels that the options name.
pub(crate) fn run(asked: &BenchScan) -> Result<(), Failure> {
    let kernels = Kernels {
        rounds: asked.repeat,
        turn: Duration::from_millis(asked.turn_ms),
        levels: levels(asked),
        only: asked.kernels.clone(),
        provenance: Provenance::now("scan", asked.scale),
    };
    let stop = stop_on_signals()?;
    let bar = progress::turns();
    let outcome = kernels.run(&stop, &mut |step| progress::show(&bar, step));
    bar.finish_and_clear();
    let lines = &outcome.lines;
    // The first three columns are text.
    let table = shown(table(lines), |place| place < 3);
    let page = || report(lines, &kernels.provenance);
    publish(lines, &table, (asked.json.as_deref(), asked.report.as_deref()), &page)?;
    ended(outcome)
}

/// The levels without duplicates, the plainest first.
fn levels(asked: &BenchScan) -> Vec<Level> {
    let mut levels: Vec<Level> = asked.levels.iter().flat_map(|levels| levels.0.clone()).collect();
    if levels.is_empty() {
        levels.push(Level::chosen());
    }
    levels.sort_unstable();
    levels.dedup();
    levels
}

/// The error of a measurement that ended early.
fn ended(outcome: KernelOutcome) -> Result<(), Failure> {
    match outcome {
        KernelOutcome {
            failure: Some(error @ (KernelError::Scale { .. } | KernelError::Rounds { .. })),
            ..
        } => Err(Failure::Usage(error.to_string())),
        KernelOutcome { failure: Some(error), .. } => Err(Failure::of(&error)),
        KernelOutcome { stopped: true, .. } => Err(Failure::Runtime(
            "stopped before everything was measured; the figures above are partial".to_owned(),
        )),
        _ => Ok(()),
    }
}
