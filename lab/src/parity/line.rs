//! Summarises the turns of a parity measurement as lines of JSON.
//!
//! Invariants
//! - A line contains the rate of every turn. Its figures are medians of turns, and its percentiles
//!   are over all turns together.
//! - A ratio is the median of the ratios of turns in the same round.

use std::collections::BTreeMap;

use rackscan_fabric::Wire;
use rackscan_format::message::RelayStatus;
use rackscan_stripe::Parity;
use serde::Serialize;

use super::{
    Case, Plan, Protection,
    turn::{Turn, slots},
};
use crate::{
    latency::{Latencies, LatencySummary},
    median::median,
    record::Provenance,
};

/// All turns of one way of writing under one condition.
#[derive(Clone, Debug, Serialize)]
pub struct ParityLine {
    /// Source of the figure. The scale is the gigabytes (10^9) of data that all turns wrote.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The way of writing: `none`, `naive` or `relay`.
    pub way: &'static str,
    /// Protection of the stripes: `2d-xor` or `xor`.
    pub parity: &'static str,
    /// Number of nodes that share a stripe.
    pub nodes: usize,
    /// Wire between client and nodes.
    pub wire: Wire,
    /// Bytes of a transfer.
    pub block_bytes: usize,
    /// Bytes of a cell.
    pub cell_bytes: usize,
    /// Stripes in flight at once.
    pub lanes: usize,
    /// Blocks that a ring holds.
    pub slots: usize,
    /// Whether cells were written to disks and flushed.
    pub on_disk: bool,
    /// Limit of the client's link in megabits per second; null without a limit.
    pub link_mbit: Option<u32>,
    /// Megabytes (10^6) of data per second, of each turn.
    pub mb_per_s: Vec<f64>,
    /// Their median.
    pub median_mb_per_s: f64,
    /// Difference between the fastest and the slowest turn, as a share of the median.
    pub spread: f64,
    /// From the start of a stripe until all its nodes have it.
    pub stripe_latency: LatencySummary,
    /// Bytes of slices that the client sent, per byte of data.
    pub client_sent: f64,
    /// Bytes that the client's connections carried, per byte of data: slices and their headers,
    /// without other messages.
    pub client_wire: f64,
    /// Bytes that the client read to compute parity, per byte of data.
    pub client_xored: f64,
    /// Bytes that each node sent to other nodes, per byte of data, by node.
    pub node_sent: Vec<f64>,
    /// Bytes that each node received, likewise.
    pub node_received: Vec<f64>,
    /// Bytes that each node stored, likewise.
    pub node_kept: Vec<f64>,
    /// Bytes that each node read to compute parity, likewise.
    pub node_xored: Vec<f64>,
    /// How often a slice of the client waited for space at its receiver, per stripe.
    pub client_waits_per_stripe: f64,
    /// How often a slice of any node waited, likewise.
    pub node_waits_per_stripe: f64,
    /// Rate relative to that of each other way of writing.
    pub over: BTreeMap<&'static str, f64>,
}

impl ParityLine {
    /// Name of the line's series in figures.
    pub(super) fn series(&self) -> String {
        format!("{} {}", self.way, self.wire)
    }
}

/// Name of a parity, as users choose it.
pub(super) fn parity_name(parity: Parity) -> &'static str {
    match parity {
        Parity::Xor => "xor",
        Parity::TwoD => "2d-xor",
    }
}

/// A line for each way of writing that had a turn.
pub(super) fn lines(plan: &Plan<'_>, case: &Case, turns: &[Vec<Turn>]) -> Vec<ParityLine> {
    let all = || plan.ways.iter().copied().zip(turns);
    all()
        .filter(|(_, turns)| !turns.is_empty())
        .map(|(way, turns)| line(plan, case, way, turns, all()))
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "bytes for people: 53 bits are plenty")]
fn line<'t>(
    plan: &Plan<'_>,
    case: &Case,
    way: Protection,
    turns: &[Turn],
    all: impl Iterator<Item = (Protection, &'t Vec<Turn>)>,
) -> ParityLine {
    let data_bytes = turns.iter().map(|turn| turn.data_bytes).sum::<u64>() as f64;
    let per_byte = |bytes: u64| bytes as f64 / data_bytes.max(1.0);
    let of_client = |of: fn(&Turn) -> u64| per_byte(turns.iter().map(of).sum());
    let of_nodes = |of: fn(&RelayStatus) -> u64| -> Vec<f64> {
        let total = |node: usize| turns.iter().filter_map(|turn| turn.nodes.get(node)).map(of).sum();
        (0..case.nodes).map(|node| per_byte(total(node))).collect()
    };
    let mut latencies = Latencies::default();
    turns.iter().for_each(|turn| latencies.add(&turn.latencies));
    let mb_per_s: Vec<f64> = turns.iter().map(rate).collect();
    let median_mb_per_s = median(mb_per_s.clone()).unwrap_or(f64::NAN);
    let (least, most) = mb_per_s
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(least, most), rate| (least.min(*rate), most.max(*rate)));
    let mut over = BTreeMap::new();
    for (other, others) in all.filter(|(other, _)| *other != way) {
        let ratios: Vec<f64> = turns.iter().zip(others).map(|(own, other)| rate(own) / rate(other)).collect();
        over.extend(median(ratios).map(|ratio| (other.name(), ratio)));
    }
    let stripes = latencies.count().max(1) as f64;
    ParityLine {
        provenance: Provenance { scale: data_bytes / 1e9, ..plan.provenance.clone() },
        way: way.name(),
        parity: parity_name(case.parity),
        nodes: case.nodes,
        wire: case.wire,
        block_bytes: case.slice_bytes,
        cell_bytes: plan.cell_bytes,
        lanes: plan.lanes,
        slots: slots(plan, case),
        on_disk: case.on_disk,
        link_mbit: plan.link_mbit,
        spread: (most - least) / median_mb_per_s,
        mb_per_s,
        median_mb_per_s,
        stripe_latency: latencies.summary(),
        client_sent: of_client(|turn| turn.client.sent_bytes),
        client_wire: of_client(|turn| turn.client.written_bytes),
        client_xored: of_client(|turn| turn.client.xored_bytes),
        node_sent: of_nodes(|node| node.sent_bytes),
        node_received: of_nodes(|node| node.received_bytes),
        node_kept: of_nodes(|node| node.kept_bytes),
        node_xored: of_nodes(|node| node.xored_bytes),
        client_waits_per_stripe: turns.iter().map(|turn| turn.client.waits_for_credit).sum::<u64>() as f64
            / stripes,
        node_waits_per_stripe: turns
            .iter()
            .flat_map(|turn| &turn.nodes)
            .map(|node| node.waits_for_credit)
            .sum::<u64>() as f64
            / stripes,
        over,
    }
}

/// Megabytes (10^6) of data per second.
#[expect(clippy::cast_precision_loss, reason = "bytes for people: 53 bits are plenty")]
fn rate(turn: &Turn) -> f64 {
    turn.data_bytes as f64 / turn.seconds.max(f64::MIN_POSITIVE) / 1e6
}

#[cfg(test)]
pub(super) mod tests {
    use std::{sync::atomic::AtomicBool, time::Duration};

    use rackscan_relay::Counters;

    use super::*;

    pub(in crate::parity) fn plan(stop: &AtomicBool) -> Plan<'_> {
        Plan {
            cases: Vec::new(),
            ways: Protection::ALL.to_vec(),
            cell_bytes: 1 << 20,
            lanes: 2,
            ring_bytes: 1 << 19,
            rounds: 2,
            duration: Duration::from_secs(1),
            link_mbit: None,
            provenance: Provenance::now("parity", 0.0),
            stop,
        }
    }

    pub(in crate::parity) fn case(nodes: usize, slice_bytes: usize) -> Case {
        Case { nodes, wire: Wire::Shm, parity: Parity::TwoD, slice_bytes, on_disk: false }
    }

    pub(in crate::parity) fn turn(seconds: f64, sent_bytes: u64) -> Turn {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_millis(3));
        let client = Counters { sent_bytes, waits_for_credit: 4, ..Counters::default() };
        let node = RelayStatus { kept_bytes: 500_000, waits_for_credit: 3, ..RelayStatus::default() };
        let nodes = vec![node; 5];
        Turn { data_bytes: 1_000_000, seconds, latencies, client, nodes }
    }

    #[test]
    fn rates_are_medians_of_turns_and_ratios_those_of_neighbouring_ones() {
        let stop = AtomicBool::new(false);
        let turns = [
            vec![turn(1.0, 1_000_000), turn(2.0, 1_000_000)],
            vec![turn(2.0, 1_600_000), turn(8.0, 1_800_000)],
            Vec::new(),
        ];
        let lines = lines(&plan(&stop), &case(5, 4096), &turns);
        assert_eq!(lines.iter().map(|line| line.way).collect::<Vec<_>>(), ["none", "naive"]);
        assert_eq!(lines[0].mb_per_s, [1.0, 0.5]);
        assert!((lines[0].median_mb_per_s - 0.75).abs() < 1e-9);
        assert!((lines[0].over["naive"] - 3.0).abs() < 1e-9, "the median of 2 and 4");
        assert!((lines[1].client_sent - 1.7).abs() < 1e-9, "bytes of all turns for each byte of theirs");
        assert_eq!(lines[1].node_kept, [0.5; 5]);
        assert!((lines[1].client_waits_per_stripe - 4.0).abs() < 1e-9);
        assert!((lines[1].node_waits_per_stripe - 15.0).abs() < 1e-9, "those of all five");
        assert_eq!(lines[0].slots, 64, "a ring of 512 KiB would hold more blocks of 4 KiB than a ring may");
        assert!((lines[0].provenance.scale - 0.002).abs() < 1e-12);
    }
}
