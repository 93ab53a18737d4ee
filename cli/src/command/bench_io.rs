//! `rackscan lab io`: measures random reads by this process and by a storage node, and the wire
//! alone. The node is one of this command, or one of a cluster.
//!
//! Invariants
//! - If the measurement ends early, its lines and table so far are printed before the error.

use super::{
    bench::{append_lines, write_lines},
    signals::stop_on_signals,
};
use crate::{
    args::{BenchIo, Global},
    cluster::{ClusterNode, ScratchNodes, ScratchOptions},
    failure::Failure,
    output::{Cell, TextTable},
    progress,
};
use rackscan_fabric::Wire;
use rackscan_lab::{
    Arrivals, Axes, Bounds, Case, Distribution, Experiment, LoopKind, Mode, NodeHost, NodeShape, Outcome,
    PointLine, Provenance, SweepPlan, limits, sweep, sweep_report,
};
use std::time::Duration;

/// Repetitions, unless the user says how many.
const REPEAT: u32 = 3;

/// Measures the grid that the options describe.
pub(crate) fn run(global: &Global, asked: &BenchIo) -> Result<(), Failure> {
    let cluster = global.cluster.as_deref().map(|path| ClusterNode::find(path, asked.node)).transpose()?;
    let wires = match (asked.wires.as_slice(), &cluster) {
        ([], Some(node)) => node.first_wire().into_iter().collect(),
        ([], None) => vec![Wire::Shm],
        (wires, _) => wires.to_vec(),
    };
    if cluster.is_none() {
        check_verbs(asked)?;
    }
    let mut experiment = experiment(asked, axes(asked, &wires))?;
    if let Some(node) = &cluster {
        experiment.cases = of_shape(experiment.cases, node.shape());
        // How much data there is, the node's file says.
        experiment.provenance.scale = 0.0;
    }
    if asked.sweep {
        let [wire] = *wires.as_slice() else {
            return Err(Failure::Usage("--sweep measures over one wire; give one to --wires".to_owned()));
        };
        let SweepPlan { cases, turn, warm_up, watched } = sweep(asked.effort, wire);
        experiment = Experiment {
            cases,
            rounds: asked.repeat.unwrap_or(if asked.effort < 1.0 { 1 } else { REPEAT }),
            warm_up,
            watched: Some(watched),
            bounds: Bounds { duration: turn, count_max: asked.count },
            ..experiment
        };
    }
    let outcome = match cluster {
        Some(mut node) => driven(&mut node, &experiment)?,
        None => measure(asked, &experiment)?,
    };
    if outcome.lines.is_empty() {
        return ended(outcome);
    }
    write_lines(&outcome.lines, asked.json.as_deref(), &figures(&outcome.lines))?;
    if asked.sweep {
        if let Some(path) = &asked.json {
            let samples = outcome.core_use.iter().flat_map(|sample| sample.lines(&experiment.provenance));
            append_lines(&samples.collect::<Vec<_>>(), path)?;
        }
        let page = sweep_report(&outcome, &experiment.provenance).write(&asked.report)?;
        note!("figures: {}", page.display());
    }
    ended(outcome)
}

/// The cases on a node whose shape cannot be chosen, each once.
fn of_shape(cases: Vec<Case>, node: NodeShape) -> Vec<Case> {
    let mut all: Vec<Case> = Vec::with_capacity(cases.len());
    for case in cases {
        let case = Case { node, ..case };
        if !all.contains(&case) {
            all.push(case);
        }
    }
    all
}

/// Checks that the wire verbs is available, if it is asked for.
fn check_verbs(asked: &BenchIo) -> Result<(), Failure> {
    let text = match &asked.verbs {
        _ if !asked.wires.contains(&Wire::Verbs) => return Ok(()),
        _ if !cfg!(feature = "verbs") => {
            "--wires verbs: this program was built without verbs; build it with --features verbs"
        }
        None => "--wires verbs needs --verbs with the node's adapter and address, as DEVICE@ADDRESS",
        Some(_) => return Ok(()),
    };
    Err(Failure::Usage(text.to_owned()))
}

/// The error of a measurement that ended early.
fn ended(outcome: Outcome) -> Result<(), Failure> {
    match outcome {
        Outcome { failure: Some(text), lines, .. } if lines.is_empty() => Err(Failure::Runtime(text)),
        Outcome { failure: Some(text), .. } => {
            Err(Failure::Runtime(format!("{text} (the figures above are what was measured before)")))
        }
        Outcome { stopped: true, .. } => Err(Failure::Runtime(
            "stopped before everything was measured; the figures above are partial".to_owned(),
        )),
        _ => Ok(()),
    }
}

fn axes(asked: &BenchIo, wires: &[Wire]) -> Axes {
    let mut modes = asked.modes.clone();
    if asked.fio && modes.contains(&Mode::Local) {
        modes.insert(0, Mode::Fio);
    }
    Axes {
        sizes: asked.sizes.clone(),
        modes,
        connections: asked.connections.clone(),
        io_threads: asked.io_threads.clone(),
        depths: asked.depths.clone(),
        batches: asked.batch.clone(),
        bridges: asked.bridges.clone(),
        ios: asked.io.clone(),
        wires: wires.to_vec(),
        reactors: asked.reactors,
        pin: asked.pin,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a size for people: 53 bits are plenty")]
fn experiment(asked: &BenchIo, axes: Axes) -> Result<Experiment, Failure> {
    let usage = |error: &dyn std::error::Error| Failure::Usage(error.to_string());
    let cases = axes.cases().map_err(|error| usage(&error))?;
    let arrivals = if asked.even { Arrivals::Uniform } else { Arrivals::Poisson };
    if let Some(rate) = asked.open_loop
        && !(limits::RATE_MIN..=limits::RATE_MAX).contains(&rate)
    {
        let (least, most) = (limits::RATE_MIN, limits::RATE_MAX);
        return Err(Failure::Usage(format!("--open-loop {rate}: expected a number from {least} to {most}")));
    }
    if let Some(skew) = asked.zipf
        && !(skew > 0.0 && skew < 1.0)
    {
        return Err(Failure::Usage(format!("--zipf {skew}: expected a number above 0, below 1")));
    }
    Ok(Experiment {
        cases,
        rounds: asked.repeat.unwrap_or(REPEAT),
        warm_up: Duration::from_secs_f64(asked.warm_up),
        bounds: Bounds { duration: Duration::from_secs_f64(asked.seconds), count_max: asked.count },
        loop_kind: asked.open_loop.map_or(LoopKind::Closed, |rate| LoopKind::Open { rate, arrivals }),
        distribution: asked.zipf.map_or(Distribution::Uniform, |skew| Distribution::Zipfian { skew }),
        seed: asked.seed,
        watched: None,
        provenance: Provenance::now("io", asked.file_size as f64 / f64::from(1 << 30)),
    })
}

/// Runs the measurement on nodes that are removed afterwards.
fn measure(asked: &BenchIo, experiment: &Experiment) -> Result<Outcome, Failure> {
    let options = ScratchOptions {
        folder: asked.folder.clone(),
        file_bytes: asked.file_size,
        keep: asked.keep,
        cache_bytes: asked.cache,
        verbs: asked.verbs.clone().filter(|_| asked.wires.contains(&Wire::Verbs)),
    };
    driven(&mut ScratchNodes::create(&options)?, experiment)
}

/// Runs the measurement with a progress bar.
fn driven(host: &mut dyn NodeHost, experiment: &Experiment) -> Result<Outcome, Failure> {
    let stop = stop_on_signals()?;
    let bar = progress::turns();
    let outcome = experiment.run(host, &stop, &mut |step| progress::show(&bar, step));
    bar.finish_and_clear();
    Ok(outcome)
}

/// The table: a row for each line.
fn figures(lines: &[PointLine]) -> TextTable {
    let mut table = TextTable::new(&[
        "size",
        "mode",
        "wire",
        "bridge",
        "io",
        "conns",
        "threads",
        "depth",
        "batch",
        "IOPS",
        "MB/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "max us",
        "own ns/read",
        "node ns/read",
        "of local",
        "of limit",
        "of fio",
        "cached",
        "one-sided",
        "note",
    ]);
    let number = |value: f64, digits: usize| Cell::Number(format!("{value:.digits$}"));
    let optional = |value: Option<f64>, digits: usize| {
        Cell::Number(value.map_or_else(String::new, |value| format!("{value:.digits$}")))
    };
    let name = |name: Option<String>| Cell::from(name.unwrap_or_default());
    for line in lines {
        let latency = &line.latency;
        let note = match line {
            PointLine { partial: Some(_), .. } => "partial".to_owned(),
            PointLine { loop_kind: "open", late, unissued, .. } => {
                format!("{late} late, {unissued} not issued")
            }
            _ => String::new(),
        };
        table.push(vec![
            Cell::Bytes(line.size_bytes.into()),
            Cell::from(line.mode.to_string()),
            name(line.wire.map(|wire| wire.to_string())),
            name(line.bridge.map(|bridge| bridge.to_string())),
            name(line.io.map(|io| io.to_string())),
            Cell::Count(line.connections.into()),
            Cell::Count(line.io_threads.into()),
            Cell::Count(line.depth.into()),
            name(line.batch.map(|batch| batch.to_string())),
            number(line.median_iops, 0),
            number(line.mb_per_s, 1),
            number(latency.p50_us, 1),
            number(latency.p99_us, 1),
            number(latency.p999_us, 1),
            number(latency.max_us, 1),
            number(line.cpu.own_ns, 0),
            optional(line.cpu.node_ns, 0),
            optional(line.over_local, 3),
            optional(line.over_limit, 3),
            optional(line.over_fio, 3),
            Cell::Count(line.cached),
            Cell::Count(line.one_sided),
            Cell::from(note),
        ]);
    }
    table
}
