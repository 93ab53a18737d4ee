//! `rackscan lab degraded`: measures queries while some nodes are lost.

use super::{bench::write_lines, load, query::selected};
use crate::{
    args::{BenchDegraded, Global},
    failure::Failure,
    output::{Cell, TextTable, bytes},
    progress,
    session::{Session, threads},
};
use rackscan_bench::degraded::{Degraded, DegradedLine, DegradedOptions};
use rackscan_format::ids::NodeId;

/// Number of lost nodes that two parities compensate for.
const LOST_MAX: usize = 2;

/// Runs the measurement with a progress bar.
pub(crate) fn run(global: &Global, asked: &BenchDegraded) -> Result<(), Failure> {
    let queries =
        if asked.queries.is_empty() { rackscan_queries::tpch().collect() } else { selected(&asked.queries)? };
    let mut session = Session::open_to_read(global)?;
    let nodes: Vec<u16> = session.cluster().nodes().map(|node| node.0).collect();
    check(&asked.lose, &nodes)?;
    load::ensure_tpch_protected(&session, asked.scale)?;
    let options = DegradedOptions {
        scale: asked.scale,
        queries,
        repeat: asked.repeat,
        policy: asked.placement,
        threads: threads(global),
        nodes: nodes.len(),
        parity: "2d-xor".to_owned(),
    };
    let mut phases = Phases { degraded: Degraded::default(), done: 0, total: asked.lose.len() as u64 + 2 };
    let mut lost: Vec<u16> = Vec::new();
    phases.next(&session, &options, &lost)?;
    for node in &asked.lose {
        session.kill_node(global, *node)?;
        lost.push(*node);
        phases.next(&session, &options, &lost)?;
    }
    for node in lost.drain(..) {
        session.start_node(global, node)?;
    }
    phases.next(&session, &options, &lost)?;
    let lines = phases.degraded.lines(&options);
    write_lines(&lines, asked.json.as_deref(), &shown(&lines))
}

/// Several phases under one progress bar.
struct Phases {
    degraded: Degraded,
    done: u64,
    total: u64,
}

impl Phases {
    fn next(&mut self, session: &Session, options: &DegradedOptions, lost: &[u16]) -> Result<(), Failure> {
        let runs = options.queries.len() as u64 * u64::from(options.repeat + 1);
        let bar = progress::turns();
        bar.set_length(self.total * runs);
        let before = self.done * runs;
        let lost: Vec<NodeId> = lost.iter().copied().map(NodeId).collect();
        let progress = |done: u64, query: &str| {
            bar.set_position(before + done);
            bar.set_message(format!("{query}, {} lost", lost.len()));
        };
        let phase = session.block_on(self.degraded.phase(session.engine(), options, &lost, &progress));
        bar.finish_and_clear();
        self.done += 1;
        phase
    }
}

/// Checks that the nodes to lose exist, are different and not too many.
fn check(lose: &[u16], nodes: &[u16]) -> Result<(), Failure> {
    let unique: std::collections::BTreeSet<&u16> = lose.iter().collect();
    let is_known = lose.iter().all(|node| nodes.contains(node));
    if !lose.is_empty()
        && lose.len() <= LOST_MAX
        && unique.len() == lose.len()
        && is_known
        && nodes.len() >= 4
    {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "--lose {lose:?} of nodes {nodes:?}: expected one or two different nodes, in a cluster of four or more"
    )))
}

/// The table: a row for each query.
fn shown(lines: &[DegradedLine]) -> String {
    let mut table = TextTable::new(&["query", "lost", "all nodes ms", "ms", "ratio", "pages", "of others"]);
    for line in lines {
        let figure = |value: f64, digits: usize| Cell::Number(format!("{value:.digits$}"));
        let lost: Vec<String> = line.lost.iter().map(ToString::to_string).collect();
        table.push(vec![
            Cell::from(line.query.as_str()),
            Cell::from(lost.join(" ").as_str()),
            figure(line.whole_median_ms, 1),
            figure(line.median_ms, 1),
            figure(line.over_whole, 2),
            Cell::Number(line.pages_reconstructed.to_string()),
            Cell::Number(bytes(line.survivor_bytes)),
        ]);
    }
    let mut text = table.render(crate::args::Format::Table);
    let mut phases: Vec<&Vec<u16>> = lines.iter().map(|line| &line.lost).collect();
    phases.dedup();
    for lost in phases {
        let of: Vec<&DegradedLine> = lines.iter().filter(|line| line.lost == *lost).collect();
        let sum = |ms: &dyn Fn(&DegradedLine) -> f64| of.iter().map(|line| ms(line)).sum::<f64>();
        let (whole, degraded) = (sum(&|line| line.whole_median_ms), sum(&|line| line.median_ms));
        text.push_str(&format!(
            "without {lost:?}: {degraded:.0} ms for {} queries, {whole:.0} with all nodes: {:.2} times as long\n",
            of.len(),
            degraded / whole
        ));
    }
    text
}
