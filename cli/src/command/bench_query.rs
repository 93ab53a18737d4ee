//! `rackscan lab query-io`: measures the filters of three TPC-H queries in each placement, over
//! pages of several sizes.
//!
//! Invariants
//! - If the measurement ends early, its lines, table and report so far are written before the
//!   error.

use super::{bench::publish, signals::stop_on_signals};
use crate::{
    args::{BenchQuery, Global},
    cluster::{LoadedNodes, LoadedOptions},
    failure::Failure,
    output::{Cell, TextTable},
    progress,
};
use rackscan_fabric::Wire;
use rackscan_lab::{
    Provenance,
    query_simulation::{QueryLine, Simulation, SimulationOutcome, report},
};
use std::sync::Arc;

/// Measures the grid that the options describe.
pub(crate) fn run(global: &Global, asked: &BenchQuery) -> Result<(), Failure> {
    let simulation = simulation(global, asked)?;
    let outcome = measure(asked, &simulation)?;
    let files = (asked.json.as_deref(), asked.report.as_deref());
    let page = || report(&outcome.lines, &simulation.provenance);
    publish(&outcome.lines, &figures(&outcome.lines), files, &page)?;
    ended(outcome)
}

/// The error of a measurement that ended early.
fn ended(outcome: SimulationOutcome) -> Result<(), Failure> {
    let so_far = if outcome.lines.is_empty() { "nothing" } else { "the figures above are what" };
    match outcome {
        SimulationOutcome { failure: Some(text), .. } => {
            Err(Failure::Runtime(format!("{text} ({so_far} was measured before)")))
        }
        SimulationOutcome { stopped: true, .. } => Err(Failure::Runtime(format!(
            "stopped before everything was measured ({so_far} was measured before)"
        ))),
        _ => Ok(()),
    }
}

fn simulation(global: &Global, asked: &BenchQuery) -> Result<Simulation, Failure> {
    let wire = match global.wire {
        None => Wire::Shm,
        Some(wire @ (Wire::Shm | Wire::Tcp)) => wire,
        Some(Wire::Verbs | Wire::Sim) => {
            let text = "--wire verbs: the node of this command listens on shm and tcp; expected one of them";
            return Err(Failure::Usage(text.to_owned()));
        }
    };
    let simulation = Simulation {
        queries: unique(&asked.queries),
        page_sizes: unique(&asked.page_sizes),
        placements: unique(&asked.placements),
        connections: unique(&asked.connections),
        threads: unique(&asked.io_threads),
        wire,
        rounds: asked.repeat,
        provenance: Provenance::now("query-io", asked.scale),
    };
    simulation.check().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(simulation)
}

/// Removes duplicates and keeps the order.
fn unique<T: Copy + PartialEq>(values: &[T]) -> Vec<T> {
    let first = |(place, value): &(usize, &T)| !values[..*place].contains(value);
    values.iter().enumerate().filter(first).map(|(_, value)| *value).collect()
}

/// Runs the measurement with a progress bar, on a node that is removed afterwards.
fn measure(asked: &BenchQuery, simulation: &Simulation) -> Result<SimulationOutcome, Failure> {
    let stop = stop_on_signals()?;
    let mut nodes = LoadedNodes::create(LoadedOptions {
        folder: asked.folder.clone(),
        scale: asked.scale,
        segment_rows: asked.segment_rows,
        connections: asked.connections.iter().copied().max().unwrap_or(1),
        threads: asked.io_threads.iter().copied().max().unwrap_or(1),
        stop: Arc::clone(&stop),
    })?;
    let bar = progress::turns();
    let outcome = simulation.run(&mut nodes, &stop, &mut |step| progress::show(&bar, step));
    bar.finish_and_clear();
    Ok(outcome)
}

/// The table: a row for each line.
fn figures(lines: &[QueryLine]) -> TextTable {
    let mut table = TextTable::new(&[
        "query",
        "pages",
        "placement",
        "conns",
        "threads",
        "seconds",
        "IOPS",
        "MB/s",
        "wire MB",
        "own CPU %",
        "own user %",
        "node CPU %",
        "node user %",
        "rows",
        "share",
        "of local",
        "note",
    ]);
    let number = |value: f64, digits: usize| Cell::Number(format!("{value:.digits$}"));
    let optional = |value: Option<f64>, digits: usize| {
        Cell::Number(value.map_or_else(String::new, |value| format!("{value:.digits$}")))
    };
    for line in lines {
        let note = match line {
            QueryLine { partial: Some(_), .. } => "partial".to_owned(),
            QueryLine { bounces: 0, .. } => String::new(),
            QueryLine { bounces, .. } => format!("{bounces} times busy"),
        };
        table.push(vec![
            Cell::from(line.query.to_string()),
            Cell::Bytes(line.page_size_bytes.into()),
            Cell::from(line.placement.to_string()),
            Cell::Count(line.connections.into()),
            Cell::Count(line.threads.into()),
            number(line.median_s, 4),
            number(line.iops, 0),
            number(line.mb_per_s, 1),
            number(megabytes(line.wire_bytes), 1),
            number(line.own_cpu.percent, 0),
            optional(line.own_cpu.user_percent, 0),
            optional(line.node_cpu.map(|cpu| cpu.percent), 0),
            optional(line.node_cpu.and_then(|cpu| cpu.user_percent), 0),
            Cell::Count(line.rows),
            number(line.selectivity, 4),
            optional(line.over_local, 3),
            Cell::from(note),
        ]);
    }
    table
}

#[expect(clippy::cast_precision_loss, reason = "an amount for people")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_named_twice_is_measured_once() {
        assert_eq!(unique(&[4, 1, 4, 2, 1]), [4, 1, 2]);
    }
}
