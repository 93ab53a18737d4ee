//! `rackscan lab xor`: measures the cost of a XORed byte on one core, next to a plain kernel that
//! reads and writes as much.

use super::bench::{publish, shown};
use crate::{args::BenchXor, failure::Failure, progress};
use az::SaturatingAs;
use rackscan_lab::{
    Provenance,
    xor::{XorSpeed, report, table},
};
use std::time::Duration;

/// Measures every block size.
pub(crate) fn run(asked: &BenchXor) -> Result<(), Failure> {
    let blocks = asked.blocks.iter().map(|bytes| (*bytes).saturating_as::<usize>());
    let speed = XorSpeed {
        blocks: blocks.collect(),
        rounds: asked.repeat,
        turn: Duration::from_millis(asked.turn_ms),
        // Scale 0: no table is read.
        provenance: Provenance::now("xor", 0.0),
    };
    let steps = progress::steps();
    let lines = speed.run(&mut |block| steps.set_message(format!("blocks of {} KiB", block >> 10)));
    steps.finish_and_clear();
    let lines = lines.map_err(|error| Failure::Usage(error.to_string()))?;
    // The second column is text.
    let table = shown(table(&lines), |place| place == 1);
    let page = || report(&lines, &speed.provenance);
    publish(&lines, &table, (asked.json.as_deref(), asked.report.as_deref()), &page)
}
