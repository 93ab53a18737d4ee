//! `rackscan lab placement`: compares automatic placement with the best forced one, over
//! selectivities, processor shares and bandwidths.
//!
//! Invariants
//! - A limit that is not possible on this host is left out, and the output says so. No result
//!   claims a limit that was not in force.
//! - If the measurement ends early, its lines, table and report so far are written before the
//!   error.

use super::{bench::publish, signals::stop_on_signals};
use crate::{
    args::{BenchPlacement, Global},
    cluster::{NarrowWire, PlacementNodes, PlacementNodesOptions, Quota, ResourceLimits},
    failure::Failure,
    output::{Cell, TextTable, bytes},
    progress,
    session::threads,
};
use rackscan_bench::placement::{
    self, Conditions, Ended, PlacementLine, PlacementOptions, PlacementOutcome, ScanQuery, report, summary,
};
use rackscan_fabric::Wire;
use rackscan_lab::Step;
use std::{
    fmt::Write as _,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

/// Measures the grid that the options describe.
pub(crate) fn run(global: &Global, asked: &BenchPlacement) -> Result<(), Failure> {
    if !matches!(global.wire, None | Some(Wire::Tcp)) {
        let text =
            "--wire: lab placement measures over tcp, the only wire whose bandwidth can be limited here";
        return Err(Failure::Usage(text.to_owned()));
    }
    let mut options = options(global, asked);
    let stop = stop_on_signals()?;
    // May restart this command: nothing permanent may be done before.
    let (limits, left_out) = limits(&mut options, asked.nodes)?;
    for text in &left_out {
        note!("{text}");
    }
    let outcome = measure(global, asked, &options, limits, &stop)?;
    let files = (asked.json.as_deref(), asked.report.as_deref());
    let table = shown(&outcome.lines, &options, &left_out);
    publish(&outcome.lines, &table, files, &|| report(&outcome.lines))?;
    ended(&outcome, &options)
}

fn options(global: &Global, asked: &BenchPlacement) -> PlacementOptions {
    PlacementOptions {
        scale: asked.scale,
        queries: asked.queries.clone(),
        selectivities: asked.selectivities.clone(),
        cpu_shares: asked.cpu_shares.clone(),
        wires: asked.bandwidths.iter().map(|bandwidth| bandwidth.0).collect(),
        attached: asked.attached,
        repeat: asked.repeat,
        time_max: Duration::from_secs_f64(asked.minutes * 60.0),
        threads: threads(global),
    }
}

/// Sets up the limits that the options ask for. Removes an axis that is not possible from the
/// options, and returns a description of it.
fn limits(options: &mut PlacementOptions, nodes: u16) -> Result<(ResourceLimits, Vec<String>), Failure> {
    let mut reasons = Vec::new();
    let mut wire = None;
    if options.wires.iter().any(Option::is_some) {
        wire = NarrowWire::enter().map_err(|text| reasons.push(("--bandwidths", text))).ok();
    }
    let mut quota = None;
    if options.cpu_shares.iter().any(|share| *share < 100) {
        quota = Quota::create(nodes).map_err(|text| reasons.push(("--cpu-shares", text))).ok();
    }
    if !reasons.is_empty() && wire.is_none() && quota.is_none() {
        let reasons: Vec<String> = reasons.iter().map(|(axis, text)| format!("{axis}: {text}")).collect();
        return Err(Failure::Runtime(format!(
            "neither the wire nor the nodes' processor time can be shaped as asked: {}; run it as root, or give \
             --cpu-shares 100 --bandwidths unlimited to measure selectivities only",
            reasons.join("; ")
        )));
    }
    let left_out = reasons.into_iter().map(|(axis, text)| {
        if axis == "--bandwidths" {
            options.wires = vec![None];
        } else {
            options.cpu_shares = vec![100];
        }
        format!("{axis} is left out: {text}")
    });
    let left_out = left_out.collect();
    Ok((ResourceLimits { quota, wire }, left_out))
}

/// Runs the measurement with a progress bar, on nodes that are removed afterwards.
fn measure(
    global: &Global,
    asked: &BenchPlacement,
    options: &PlacementOptions,
    mut limits: ResourceLimits,
    stop: &Arc<AtomicBool>,
) -> Result<PlacementOutcome, Failure> {
    let of_nodes = PlacementNodesOptions {
        folder: asked.folder.clone(),
        scale: asked.scale,
        segment_rows: asked.segment_rows,
        nodes: asked.nodes,
        cache_bytes: asked.cache,
        attached: asked.attached,
        stop: Arc::clone(stop),
    };
    // Declared after the limits, so that the nodes end before their control group is removed.
    let nodes = PlacementNodes::create(global, &of_nodes, limits.quota.as_ref())?;
    let session = nodes.session()?;
    let bar = progress::turns();
    let mut on_step = |step: &Step<'_>| progress::show(&bar, step);
    let outcome = session.block_on(async {
        Ok::<_, Failure>(placement::run(session.engine(), &mut limits, options, stop, &mut on_step).await)
    });
    bar.finish_and_clear();
    outcome
}

/// The error, if the measurement failed or was stopped. Reaching the time limit was asked for: it
/// is only noted.
fn ended(outcome: &PlacementOutcome, options: &PlacementOptions) -> Result<(), Failure> {
    let (done, all) = (outcome.lines.len(), options.points());
    match &outcome.ended {
        None => Ok(()),
        Some(Ended::NoTime) => {
            note!("{done} of {all} points were measured, then the time of --minutes was over");
            Ok(())
        }
        Some(Ended::Stopped) => Err(Failure::Runtime(format!(
            "stopped after {done} of {all} points; the figures above are of these"
        ))),
        Some(Ended::Failed(text)) => Err(Failure::Runtime(format!("{text} (after {done} of {all} points)"))),
    }
}

/// The table, with a row for each query under each condition, and a summary.
fn shown(lines: &[PlacementLine], options: &PlacementOptions, left_out: &[String]) -> String {
    let Some(first) = lines.first() else { return String::new() };
    let devices =
        if first.attached { "attached to the engine's host" } else { "not attached, so local has no part" };
    let mut text = format!(
        "auto over the best forced placement (F remote-fetch, P remote-process, L local), medians of {} turns: lineitem at scale factor \
         {} on {} nodes, tcp, {} threads, devices {devices}; the nodes keep up to {} of pages in memory.\n",
        options.repeat,
        first.provenance.scale,
        first.nodes,
        first.threads,
        bytes(first.node_cache_bytes)
    );
    for reason in left_out {
        text.push_str(reason);
        text.push('\n');
    }
    text.push_str(&ratios(lines, options).to_string());
    if let Some(all) = summary(lines) {
        let worst = &lines[all.worst.1];
        // Writing to a string cannot fail.
        let _written = writeln!(
            text,
            "{} points: median {:.3}, worst {:.3} ({}, selectivity {}, {} % of the processor, wire {}); at most 1.05 in {}.\n\
             First runs under new conditions, which do not count: median {:.3}, worst {:.3}.",
            lines.len(),
            all.median,
            all.worst.0,
            worst.query,
            worst.selectivity,
            worst.cpu_share_percent,
            wire_name(worst.wire_mb_per_s),
            all.within_goal,
            all.first_median,
            all.first_worst,
        );
    }
    text
}

fn wire_name(wire: Option<u32>) -> String {
    wire.map_or_else(|| "unlimited".to_owned(), |rate| format!("{rate} MB/s"))
}

fn ratios(lines: &[PlacementLine], options: &PlacementOptions) -> TextTable {
    let selectivities: Vec<String> = options.selectivities.iter().map(f64::to_string).collect();
    let heads: Vec<&str> =
        ["query", "wire", "cpu %"].into_iter().chain(selectivities.iter().map(String::as_str)).collect();
    let mut table = TextTable::new(&heads);
    let mut rows: Vec<(ScanQuery, Conditions)> = Vec::new();
    for line in lines {
        let row = (line.query, line.conditions());
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    for (query, conditions) in rows {
        let cell = |selectivity: &f64| {
            let line = lines.iter().find(|line| {
                (line.query, line.conditions()) == (query, conditions)
                    && line.selectivity.to_bits() == selectivity.to_bits()
            });
            Cell::Number(line.map_or_else(String::new, ratio))
        };
        let mut row = vec![Cell::from(query.to_string()), Cell::from(wire_name(conditions.wire_mb_per_s))];
        row.push(Cell::Count(conditions.cpu_share_percent.into()));
        row.extend(options.selectivities.iter().map(cell));
        table.push(row);
    }
    table
}

/// The ratio, with a letter for the placement that was best.
fn ratio(line: &PlacementLine) -> String {
    let letter = match line.best_forced.as_str() {
        "local" => "L",
        "remote-process" => "P",
        _ => "F",
    };
    format!("{:.2} {letter}", line.over_best)
}
