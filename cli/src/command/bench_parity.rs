//! `rackscan lab parity`: measures writes of stripes that survive lost nodes, on nodes started for
//! it.
//!
//! Invariants
//! - If one condition fails, the results of the others are printed before the error.

use super::{
    bench::{ended, publish},
    signals::stop_on_signals,
};
use crate::{
    args::BenchParity,
    cluster::{ClientLink, EphemeralNodes, RelayOptions},
    failure::Failure,
    output::{Cell, TextTable},
    progress,
};
use az::SaturatingAs;
use rackscan_client::NodeEndpoint;
use rackscan_fabric::{Address, Wire};
use rackscan_lab::{
    Provenance,
    parity::{Case, ParityLine, Plan, RelayHost, Relays, measure, parity_report, relay_bytes},
};
use rackscan_relay::Member;
use rackscan_storage_node::limits::RELAY_BYTES_MIN;
use std::time::Duration;

/// Measures the grid that the options describe.
pub(crate) fn run(asked: &BenchParity) -> Result<(), Failure> {
    if asked.wires.contains(&Wire::Verbs) && asked.verbs.is_none() {
        let text = "--wires verbs needs --verbs with the nodes' adapter and address, as DEVICE@ADDRESS";
        return Err(Failure::Usage(text.to_owned()));
    }
    let link = asked.client_link.map(|rate| narrow_link(asked, rate)).transpose()?;
    let stop = stop_on_signals()?;
    let provenance = Provenance::now("parity", 0.0);
    let length = |bytes: u64| bytes.saturating_as::<usize>();
    let plan = Plan {
        cases: cases(asked),
        ways: asked.ways.clone(),
        cell_bytes: length(asked.cell),
        lanes: asked.lanes.into(),
        ring_bytes: length(asked.ring),
        rounds: asked.repeat,
        duration: Duration::from_secs_f64(asked.seconds),
        link_mbit: asked.client_link.map(|mb_per_s| 8 * mb_per_s),
        provenance: provenance.clone(),
        stop: &stop,
    };
    let relay_bytes = relay_bytes(&plan).map_err(|error| Failure::Usage(error.to_string()))?;
    let mut host = Host { asked, link, relay_bytes, running: None };
    let bar = progress::turns();
    let outcome = measure(&plan, &mut host, &mut |step| progress::show(&bar, step));
    bar.finish_and_clear();
    let outcome = outcome.map_err(|error| Failure::Usage(error.to_string()))?;
    let files = (asked.json.as_deref(), asked.report.as_deref());
    let page = || parity_report(&outcome, &provenance);
    publish(&outcome.lines, &figures(&outcome.lines), files, &page)?;
    ended(&outcome.failures, "conditions could not be measured", outcome.stopped)
}

/// Creates the link between this command and its nodes. This restarts the process first.
fn narrow_link(asked: &BenchParity, mb_per_s: u32) -> Result<ClientLink, Failure> {
    if asked.wires.iter().any(|wire| *wire != Wire::Tcp) {
        let text = "--client-link limits the wire tcp and no other: give --wires tcp with it";
        return Err(Failure::Usage(text.to_owned()));
    }
    ClientLink::enter(mb_per_s).map_err(|text| Failure::Runtime(format!("--client-link: {text}")))
}

fn cases(asked: &BenchParity) -> Vec<Case> {
    let mut cases = Vec::new();
    for nodes in &asked.nodes {
        for wire in &asked.wires {
            for on_disk in &asked.to {
                let (nodes, wire, on_disk) = (usize::from(*nodes), *wire, *on_disk);
                let case = |block: &u64| {
                    let slice_bytes = (*block).saturating_as::<usize>();
                    Case { nodes, wire, parity: asked.parity, slice_bytes, on_disk }
                };
                cases.extend(asked.blocks.iter().map(case));
            }
        }
    }
    cases
}

/// The nodes, restarted for each number of nodes.
struct Host<'a> {
    asked: &'a BenchParity,
    link: Option<ClientLink>,
    /// Memory of each relay in bytes: what the largest session of the grid needs.
    relay_bytes: u64,
    running: Option<(usize, EphemeralNodes)>,
}

impl Host<'_> {
    fn nodes(&mut self, nodes: usize) -> Result<&EphemeralNodes, Failure> {
        if self.running.as_ref().is_none_or(|(running, _)| *running != nodes) {
            self.running = None;
            let options = RelayOptions {
                folder: self.asked.folder.clone(),
                nodes: nodes.saturating_as::<u16>(),
                link: self.link.as_ref(),
                wires: self.asked.wires.clone(),
                relay_bytes: self.relay_bytes.max(RELAY_BYTES_MIN),
                area_bytes: self.asked.to.contains(&true).then_some(self.asked.file_size),
                verbs: self.asked.verbs.clone(),
            };
            self.running = Some((nodes, options.start()?));
        }
        self.running.as_ref().map(|(_, nodes)| nodes).ok_or_else(|| Failure::Runtime("no nodes".to_owned()))
    }
}

impl RelayHost for Host<'_> {
    fn start(&mut self, nodes: usize, wire: Wire) -> Result<Relays, String> {
        let nodes = self.nodes(nodes).map_err(|failure| failure.to_string())?;
        let wire_of = |address: &&Address| address.wire() == wire;
        let member = |member: &crate::cluster::Member| {
            let address = member.config.relay.iter().find(wire_of).cloned();
            let address =
                address.ok_or_else(|| format!("node {} does not relay over {wire}", member.config.node))?;
            Ok(Member { node: member.config.node, address })
        };
        let members = nodes.file().members.iter().map(member).collect::<Result<_, String>>()?;
        let endpoints: Vec<NodeEndpoint> = nodes.file().endpoints();
        let key = nodes.file().key().map_err(|failure| failure.to_string())?;
        Ok(Relays { members, nodes: endpoints, key })
    }

    fn gone(&mut self) -> Option<String> {
        self.running.as_mut()?.1.ended()
    }
}

/// The table: a row for each line.
fn figures(lines: &[ParityLine]) -> TextTable {
    let mut table = TextTable::new(&[
        "nodes",
        "wire",
        "block",
        "to",
        "way",
        "MB/s",
        "spread",
        "stripe p50 ms",
        "stripe p99 ms",
        "client sends",
        "a node sends",
        "a node receives",
        "ratios",
    ]);
    let number = |value: f64, digits: usize| Cell::Number(format!("{value:.digits$}"));
    let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    for line in lines {
        let ratios = line.over.iter().map(|(of, ratio)| format!("{ratio:.2} x {of}"));
        table.push(vec![
            Cell::Count(line.nodes as u64),
            Cell::from(line.wire.to_string()),
            Cell::Count(line.block_bytes as u64),
            Cell::from(if line.on_disk { "disk" } else { "memory" }),
            Cell::from(line.way),
            number(line.median_mb_per_s, 0),
            number(line.spread, 2),
            number(line.stripe_latency.p50_us / 1e3, 2),
            number(line.stripe_latency.p99_us / 1e3, 2),
            number(line.client_sent, 3),
            number(most(&line.node_sent), 3),
            number(most(&line.node_received), 3),
            Cell::from(ratios.collect::<Vec<_>>().join(", ")),
        ]);
    }
    table
}
