//! `rackscan lab ramp` measures transactions on nodes started for it; `rackscan lab ramp-stress`
//! checks them while nodes are killed.
//!
//! Invariants
//! - If a measurement ends early, its results so far are printed before the error.
//! - A history that violates its isolation level is an error, whatever the figures are.

use super::{
    bench::{append, ended, publish},
    signals::stop_on_signals,
};
use crate::{
    args::{BenchRamp, BenchRampStress, ParticipantsArguments},
    cluster::{TransactionNodes, TransactionNodesOptions},
    failure::Failure,
    output::{Cell, TextTable, print_text},
    progress,
};
use az::SaturatingAs;
use rackscan_client::{LinesOptions, NodeEndpoint, Operations as SessionOperations, SessionOptions};
use rackscan_fabric::{ClusterKey, Wire};
use rackscan_lab::{
    Bounds, Provenance,
    transactions::{
        Axes, ClusterSession, Durability, Failure as StoreFailure, Operations, Plan, Series, Stress,
        StressOutcome, Strike, SweepOutcome, TransactionHost, TransactionLine, TransactionStore, report,
        stress, sweep,
        workload::{Choice, Span},
    },
};
use rackscan_ramp::algorithm::Algorithm;
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Memory of a session for each node, in bytes.
const SESSION_BYTES: usize = rackscan_client::limits::SESSION_MEMORY_BYTES_MIN;
/// Timeout of a transaction, and of a node that does not answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long failed sessions are retried: longer than a node takes to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// Memory of the nodes per byte of a value: versions that readers hold, slots, the log's batches.
const BYTES_PER_VALUE_BYTE: u64 = 8;
const TRANSACTIONS_BYTES_MIN: u64 = 64 << 20;

/// Measures the grid that the options describe.
pub(crate) fn run(asked: &BenchRamp) -> Result<(), Failure> {
    let stop = stop_on_signals()?;
    let axes = axes(asked);
    let gigabytes = f64::from(asked.keys) * f64::from(asked.value_bytes) / 1e9;
    let provenance = Provenance::now("ramp", gigabytes);
    let plan = Plan {
        series: if asked.series.is_empty() { axes.series() } else { asked.series.clone() },
        points: axes.points(),
        baselines: baselines(asked),
        rounds: asked.rounds,
        warm_up: Duration::from_secs_f64(asked.warm_up),
        bounds: Bounds { duration: Duration::from_secs_f64(asked.seconds), count_max: None },
        load_threads: 2,
        seed: asked.seed,
        check: asked.check,
        patience: PATIENCE,
        provenance: provenance.clone(),
        stop: &stop,
    };
    let value_bytes = u64::from(asked.keys) * u64::from(asked.value_bytes);
    let mut host = Hosts { participants: &asked.participants, value_bytes, started: Vec::new() };
    let bar = progress::turns();
    let outcome = sweep(&plan, &mut host, &mut |step| progress::show(&bar, step));
    bar.finish_and_clear();
    let outcome = outcome.map_err(|error| Failure::Usage(error.to_string()))?;
    let files = (asked.json.as_deref(), asked.report.as_deref());
    publish(&outcome.lines, &figures(&outcome.lines), files, &|| report(&outcome, &provenance))?;
    check(&outcome)?;
    ended(&outcome.failures, "turns failed", outcome.stopped)
}

/// Checks that every history kept its isolation level.
fn check(outcome: &SweepOutcome) -> Result<(), Failure> {
    if outcome.violated() == 0 {
        return Ok(());
    }
    let first = outcome.lines.iter().filter_map(|line| line.checked.as_ref()?.first.first()).next();
    Err(Failure::Runtime(format!(
        "{} violations of read atomicity; the first: {}",
        outcome.violated(),
        first.map_or("", String::as_str)
    )))
}

fn axes(asked: &BenchRamp) -> Axes {
    Axes {
        algorithms: asked.algorithms.clone(),
        operations: asked.operations.clone(),
        wires: asked.wires.clone(),
        durabilities: asked.durability.clone(),
        mixes: asked.workloads.clone(),
        choice: asked.distribution,
        sizes: asked.sizes.clone(),
        read_shares: asked.read_shares.clone(),
        threads: asked.clients.clone(),
        keys: asked.keys,
        value_bytes: asked.value_bytes,
    }
}

/// The baselines that the paper divides by: messages over a network without RDMA, and polled
/// buffers.
fn baselines(asked: &BenchRamp) -> Vec<Series> {
    let algorithm = asked.algorithms.first().copied().unwrap_or(Algorithm::Fast);
    // The ratio of a series is to the baseline with its own durability.
    let series = |operations, wire| Series { algorithm, operations, wire, durability: Durability::default() };
    vec![series(Operations::Get, Wire::Tcp), series(Operations::GetPlus, Wire::Shm)]
}

/// Nodes that the sessions of all series of one durability share.
struct Host {
    durability: Durability,
    nodes: TransactionNodes,
    endpoints: Vec<NodeEndpoint>,
    key: ClusterKey,
}

impl Host {
    fn start(
        participants: &ParticipantsArguments,
        value_bytes: u64,
        durability: Durability,
    ) -> Result<Self, Failure> {
        let ParticipantsArguments { nodes, folder, verbs } = participants.clone();
        let each = value_bytes * BYTES_PER_VALUE_BYTE / u64::from(nodes.max(1));
        let transactions_bytes = each.max(TRANSACTIONS_BYTES_MIN);
        let options = TransactionNodesOptions { folder, nodes, transactions_bytes, verbs, durability };
        let nodes = options.start()?;
        let (endpoints, key) = (nodes.nodes.file().endpoints(), nodes.nodes.file().key()?);
        Ok(Self { durability, nodes, endpoints, key })
    }
}

/// The nodes of each durability, which are started for its first turn.
struct Hosts<'a> {
    participants: &'a ParticipantsArguments,
    value_bytes: u64,
    started: Vec<Host>,
}

impl Hosts<'_> {
    fn of(&self, series: &Series) -> Option<&Host> {
        self.started.iter().find(|host| host.durability == series.durability)
    }
}

impl TransactionHost for Hosts<'_> {
    fn begin(&mut self, series: &Series) -> Result<(), String> {
        if self.of(series).is_none() {
            let host = Host::start(self.participants, self.value_bytes, series.durability);
            self.started.push(host.map_err(|failure| failure.to_string())?);
        }
        if self.of(series).is_some_and(|host| host.nodes.nodes.has_wire(series.wire)) {
            return Ok(());
        }
        Err(format!(
            "nodes of this command have no wire {}, expected shm or tcp, or verbs with --verbs",
            series.wire
        ))
    }

    fn place(&self, series: &Series) -> String {
        series.durability.name().to_owned()
    }

    fn processes(&self, series: &Series) -> Vec<u32> {
        self.of(series).map(|host| host.nodes.nodes.pids()).unwrap_or_default()
    }

    fn session(&self, series: &Series, _thread: u32) -> Result<Box<dyn TransactionStore + '_>, StoreFailure> {
        let host = self.of(series).expect("the nodes of a series are started before its sessions");
        open(&host.endpoints, &host.key, series)
    }
}

fn open<'s>(
    endpoints: &[NodeEndpoint],
    key: &ClusterKey,
    series: &Series,
) -> Result<Box<dyn TransactionStore + 's>, StoreFailure> {
    let lines = LinesOptions {
        nodes: endpoints.to_vec(),
        key: key.clone(),
        wire: Some(series.wire),
        memory_bytes: SESSION_BYTES,
        patience: TIMEOUT,
        posts: false,
    };
    let operations = match series.operations {
        Operations::Get => SessionOperations::Messages,
        Operations::GetPlus => SessionOperations::Posted,
        Operations::GetStar => SessionOperations::OneSided,
    };
    let (algorithm, timeout) = (series.algorithm, TIMEOUT);
    let options = SessionOptions { algorithm, operations, timeout, ..SessionOptions::new(lines) };
    Ok(Box::new(ClusterSession::open(options)?))
}

/// The table: a row for each line.
fn figures(lines: &[TransactionLine]) -> TextTable {
    let mut table = TextTable::new(&[
        "workload",
        "reads",
        "size",
        "clients",
        "algorithm",
        "operations",
        "wire",
        "durability",
        "tx/s",
        "keys/s",
        "spread",
        "read p50 us",
        "read p99 us",
        "one round",
        "one-sided",
        "ratios",
        "checked",
        "note",
    ]);
    let number = |value: f64, digits: usize| Cell::Number(format!("{value:.digits$}"));
    for line in lines {
        let ratios = line.over.iter().map(|(of, ratio)| format!("{ratio:.2} x {of}"));
        let checked = line.checked.as_ref().map_or_else(String::new, |checked| {
            format!("{} operations, {} violations", checked.operations, checked.violated())
        });
        let notes = line.partial.iter().cloned().chain(line.notes.iter().map(ToString::to_string));
        table.push(vec![
            Cell::from(line.workload),
            line.read_share.map_or_else(|| Cell::from(""), |share| number(share, 2)),
            Cell::Count(line.size.into()),
            Cell::Count(line.threads.into()),
            Cell::from(line.algorithm),
            Cell::from(line.operations),
            Cell::from(line.wire.to_string()),
            Cell::from(line.durability),
            number(line.median_per_s, 0),
            number(line.operations_per_s, 0),
            number(line.spread, 2),
            number(line.read_latency.p50_us, 1),
            number(line.read_latency.p99_us, 1),
            line.one_round_share.map_or_else(|| Cell::from(""), |share| number(share, 4)),
            line.one_sided_share.map_or_else(|| Cell::from(""), |share| number(share, 4)),
            Cell::from(ratios.collect::<Vec<_>>().join(", ")),
            Cell::from(checked),
            Cell::from(notes.collect::<Vec<_>>().join("; ")),
        ]);
    }
    table
}

/// Kills nodes while clients continue, and checks what the clients read.
pub(crate) fn run_stress(asked: &BenchRampStress) -> Result<(), Failure> {
    let stop = stop_on_signals()?;
    let value_bytes = Span { least: 100, most: 4000 };
    let series = Series {
        algorithm: asked.algorithm,
        operations: asked.operations,
        wire: asked.over,
        durability: Durability::Replicas,
    };
    if series.wire == Wire::Verbs && asked.participants.verbs.is_none() {
        return Err(Failure::Usage(
            "--over verbs needs the adapter: name it with --verbs, or choose shm or tcp".to_owned(),
        ));
    }
    let kills = asked.between_kills;
    let options = Stress {
        threads: asked.clients,
        keys: asked.keys,
        size: Span { least: 1, most: 6.min(asked.keys) },
        value_bytes,
        read_share: asked.read_share,
        choice: Choice::Uniform,
        nodes: if kills == 0 { 0 } else { asked.participants.nodes.into() },
        between_strikes: Span { least: (kills / 2).max(1), most: kills.saturating_mul(2).max(1) },
        down_max: Duration::from_secs(5),
        transactions_max: asked.transactions,
        duration_max: Duration::from_secs_f64(asked.seconds),
        seed: asked.seed,
        patience: PATIENCE,
        stop: &stop,
    };
    let bytes = u64::from(asked.keys) * u64::from(value_bytes.most);
    let Host { nodes, endpoints, key, .. } = Host::start(&asked.participants, bytes, series.durability)?;
    let nodes = Mutex::new(nodes);
    let session = |_: u32| open(&endpoints, &key, &series);
    let mut chaos = |strike: Strike| {
        let mut nodes = nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let nodes = &mut nodes.nodes;
        let node = |node: u32| node.saturating_as::<u16>();
        let struck = match strike {
            Strike::Kill { node: of } => nodes.kill(node(of)),
            Strike::Restart { node: of } => nodes.start_again(node(of)),
        };
        struck.map_err(|failure| failure.to_string())
    };
    let bar = progress::steps();
    let outcome = stress(&options, &session, &mut chaos, &mut |step| {
        bar.println(step);
        bar.set_message(step.to_owned());
    });
    bar.finish_and_clear();
    let outcome = outcome.map_err(|error| Failure::of(&error))?;
    print_stress(asked, &outcome)?;
    outcome.verdict().map_err(|error| Failure::of(&error))
}

fn print_stress(asked: &BenchRampStress, outcome: &StressOutcome) -> Result<(), Failure> {
    let line = outcome.line(&Provenance::now("ramp-stress", 0.0));
    let failures: Vec<String> =
        outcome.failures.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let checked = &outcome.checked;
    note!(
        "{} transactions in {:.1} s, {} nodes killed and {} started again; failed: {}; {} operations checked, {} violations",
        outcome.transactions,
        outcome.seconds,
        outcome.kills,
        outcome.restarts,
        if failures.is_empty() { "none".to_owned() } else { failures.join(", ") },
        checked.operations,
        checked.violated(),
    );
    let Some(path) = &asked.json else { return print_text(&line) };
    append(&line, path)
}
