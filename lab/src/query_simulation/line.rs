//! Collects the turns of a query, and summarises them as one line of JSON.
//!
//! Invariants
//! - A line contains the results of every turn. Ratios are medians of the ratios of adjacent turns.
//! - Shares of processor time are shares of all cores of the machine, as in the paper's table 4.6.

use std::time::Duration;

use serde::Serialize;

use super::placement::Placement;
use super::plan::Case;
use super::queries::SimulatedQuery;
use super::turn::{Turn, Used};
use crate::cpu::Ticks;
use crate::median::median;
use crate::record::Provenance;
use rackscan_fabric::Wire;

/// Processor time of a process.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct CpuShare {
    /// User and kernel mode, in percent of all cores.
    pub percent: f64,
    /// User mode, in percent of all cores; `None` if the runs were too short to tell.
    pub user_percent: Option<f64>,
    /// Kernel mode, in percent of all cores; `None` if the runs were too short to tell.
    pub system_percent: Option<f64>,
    /// Seconds of both per run.
    pub seconds: f64,
}

/// One placement of one case, over all turns.
#[derive(Debug, Clone, Serialize)]
pub struct QueryLine {
    /// Source of the figure.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The query.
    pub query: SimulatedQuery,
    /// The placement.
    pub placement: Placement,
    /// Page size of the load in bytes; a page holds at least a block of 1,024 rows.
    pub page_size_bytes: u32,
    /// Mean bytes of a page that was read.
    pub page_bytes: f64,
    /// Number of connections; 0 if no node takes part.
    pub connections: u32,
    /// Threads of each connection, or of this process.
    pub threads: u32,
    /// Number of all threads.
    pub workers: u32,
    /// The wire; `None` without one.
    pub wire: Option<Wire>,
    /// Rows of the table.
    pub table_rows: u64,
    /// Rows that pass.
    pub rows: u64,
    /// Share of the rows that pass.
    pub selectivity: f64,
    /// Pages read from the device in one run.
    pub pages: u64,
    /// Bytes of these pages.
    pub read_bytes: u64,
    /// Bytes that crossed the wire in one run.
    pub wire_bytes: u64,
    /// Seconds of each turn.
    pub seconds: Vec<f64>,
    /// Median seconds.
    pub median_s: f64,
    /// Pages per second, of the median.
    pub iops: f64,
    /// Megabytes (10^6) read per second, of the median.
    pub mb_per_s: f64,
    /// Processor time of this process.
    pub own_cpu: CpuShare,
    /// Processor time of the node.
    pub node_cpu: Option<CpuShare>,
    /// How often the node refused a scan as busy, in all turns.
    pub bounces: u64,
    /// Time relative to `local` with as many threads; less than 1 is faster.
    pub over_local: Option<f64>,
    /// Why there are fewer turns than asked for.
    pub partial: Option<String>,
}

/// The turns of each placement of one case.
#[derive(Debug)]
pub(super) struct Turns {
    pub(super) case: Case,
    pub(super) table_rows: u64,
    pub(super) turns: Vec<(Placement, Vec<Turn>)>,
}

/// What the lines of one simulation share.
pub(super) struct Common<'a> {
    pub(super) provenance: &'a Provenance,
    pub(super) wire: Wire,
    pub(super) rounds: u32,
    pub(super) partial: Option<String>,
}

impl Turns {
    pub(super) fn new(case: Case, placements: &[Placement], table_rows: u64) -> Self {
        Self { case, table_rows, turns: placements.iter().map(|of| (*of, Vec::new())).collect() }
    }

    pub(super) fn push(&mut self, placement: Placement, turn: Turn) {
        if let Some((_, turns)) = self.turns.iter_mut().find(|(of, _)| *of == placement) {
            turns.push(turn);
        }
    }

    /// A line for each placement that has a turn.
    pub(super) fn lines(&self, common: &Common<'_>) -> Vec<QueryLine> {
        let measured = self.turns.iter().filter(|(_, turns)| !turns.is_empty());
        measured.filter_map(|(placement, turns)| self.line(*placement, turns, common)).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "rates for people: 53 bits are plenty")]
    fn line(&self, placement: Placement, turns: &[Turn], common: &Common<'_>) -> Option<QueryLine> {
        let Case { query, page_size_bytes, connections, threads } = self.case;
        let counters = turns.first()?.counters;
        let seconds: Vec<f64> = turns.iter().map(|turn| turn.time.as_secs_f64()).collect();
        let median_s = median(seconds.clone())?;
        let per_s = |amount: u64| if median_s > 0.0 { amount as f64 / median_s } else { 0.0 };
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let is_local = placement == Placement::Local;
        let local = self.turns.iter().find(|(of, _)| *of == Placement::Local);
        let over_local = local.filter(|_| !is_local).and_then(|(_, local)| {
            let pairs = turns.iter().zip(local).filter(|(_, local)| !local.time.is_zero());
            median(pairs.map(|(own, local)| own.time.as_secs_f64() / local.time.as_secs_f64()).collect())
        });
        let wall: Duration = turns.iter().map(|turn| turn.time).sum();
        let own = cpu(turns.iter().map(|turn| turn.own), wall, turns.len());
        let node: Option<Vec<Used>> = turns.iter().map(|turn| turn.node).collect();
        Some(QueryLine {
            provenance: common.provenance.clone(),
            query,
            placement,
            page_size_bytes,
            page_bytes: share(counters.page_bytes, counters.pages),
            connections: if is_local { 0 } else { connections },
            threads: if is_local { self.case.workers() } else { threads },
            workers: self.case.workers(),
            wire: (!is_local).then_some(common.wire),
            table_rows: self.table_rows,
            rows: counters.rows,
            selectivity: share(counters.rows, self.table_rows),
            pages: counters.pages,
            read_bytes: counters.page_bytes,
            wire_bytes: counters.wire_bytes,
            median_s,
            iops: per_s(counters.pages),
            mb_per_s: per_s(counters.page_bytes) / 1e6,
            own_cpu: own,
            node_cpu: node.filter(|_| !is_local).map(|node| cpu(node.into_iter(), wall, turns.len())),
            bounces: turns.iter().map(|turn| turn.counters.bounces).sum(),
            over_local,
            partial: common.partial.clone().filter(|_| turns.len() < common.rounds as usize),
            seconds,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "shares for people: 53 bits are plenty")]
fn cpu(turns: impl Iterator<Item = Used>, wall: Duration, count: usize) -> CpuShare {
    let (mut all, mut ticks) = (Duration::ZERO, Ticks::default());
    for used in turns {
        all += used.all;
        ticks = ticks.plus(used.ticks);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let available = wall.as_secs_f64() * cores;
    let percent = if available > 0.0 { all.as_secs_f64() / available * 100.0 } else { 0.0 };
    CpuShare {
        percent,
        user_percent: ticks.user_share().map(|share| percent * share),
        system_percent: ticks.user_share().map(|share| percent * (1.0 - share)),
        seconds: all.as_secs_f64() / count.max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_simulation::scan::Counters;

    fn turn(milliseconds: u64) -> Turn {
        let time = Duration::from_millis(milliseconds);
        let counters =
            Counters { rows: 25, pages: 100, page_bytes: 409_600, bounces: 1, ..Counters::default() };
        let used = Used { all: time, ticks: Ticks::of(3 * milliseconds, milliseconds) };
        Turn { time, counters, own: used, node: Some(used), short: false }
    }

    #[test]
    fn a_line_holds_rates_of_the_median_and_ratios_of_neighbours() {
        let case = Case { query: SimulatedQuery::Q15, page_size_bytes: 4096, connections: 2, threads: 3 };
        let mut turns = Turns::new(case, &Placement::ALL, 100);
        // The machine gets slower by half between the rounds; ratios stay the same.
        for slower in [1, 2, 4] {
            turns.push(Placement::Local, turn(100 * slower));
            turns.push(Placement::RemoteFetch, turn(150 * slower));
        }
        let provenance = Provenance::now("query-io", 1.0);
        let partial = Some("stopped".to_owned());
        let common = Common { provenance: &provenance, wire: Wire::Tcp, rounds: 3, partial };
        let lines = turns.lines(&common);
        let [local, fetch] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!((local.connections, local.threads, local.workers), (0, 6, 6));
        assert_eq!((fetch.connections, fetch.threads, fetch.workers), (2, 3, 6));
        assert_eq!(local.over_local, None);
        assert!((fetch.over_local.unwrap() - 1.5).abs() < 1e-9);
        assert_eq!((local.partial.as_deref(), local.wire, local.node_cpu), (None, None, None));
        assert!((fetch.median_s - 0.3).abs() < 1e-9 && (fetch.selectivity - 0.25).abs() < 1e-9);
        assert!((fetch.iops - 100.0 / 0.3).abs() < 1e-6 && (fetch.page_bytes - 4096.0).abs() < 1e-9);
        let cpu = fetch.node_cpu.unwrap();
        assert!((cpu.user_percent.unwrap() / cpu.system_percent.unwrap() - 3.0).abs() < 1e-9, "{cpu:?}");
        assert_eq!(fetch.bounces, 3);
        let more = Common { rounds: 4, ..common };
        assert_eq!(turns.lines(&more)[0].partial.as_deref(), Some("stopped"));
        let text = serde_json::to_string(fetch).unwrap();
        assert!(text.starts_with("{\"bench\":\"query-io\"") && text.contains("\"remote-fetch\""), "{text}");
    }
}
