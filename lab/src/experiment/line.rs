//! Collects the turns of a measurement, and summarises them as one line of JSON.
//!
//! Invariants
//! - A line contains the results of every turn. Its figures are medians of turns, and its
//!   percentiles are over all turns together.
//! - A ratio is the median of the ratios of adjacent turns.
//! - A measurement that ended early has the reason in `partial`.

use std::time::Duration;

use rackscan_fabric::Wire;
use rackscan_format::message::{BridgeKind, IoKind};
use serde::Serialize;

use super::grid::{Case, Mode};
use crate::drive::Measured;
use crate::latency::{Latencies, LatencySummary};
use crate::median::median;
use crate::record::Provenance;
use crate::target::CacheHits;

/// One turn of one mode.
#[derive(Debug, Clone, Default)]
pub(super) struct Turn {
    pub(super) iops: f64,
    pub(super) ios: u64,
    pub(super) latencies: Latencies,
    /// What another program summarised of its latencies.
    pub(super) latency: Option<LatencySummary>,
    /// IOs of one message to the node, at most; 0 without a node.
    pub(super) batch: u32,
    pub(super) own_cpu: Duration,
    pub(super) node_cpu: Option<Duration>,
    pub(super) late: u64,
    pub(super) unissued: u64,
    pub(super) cached: CacheHits,
    /// Whether it ended before its bounds.
    pub(super) short: bool,
}

impl Turn {
    pub(super) fn of(measured: &Measured) -> Self {
        let counters = &measured.counters;
        Self {
            iops: measured.iops,
            ios: counters.ios,
            latencies: counters.latencies.clone(),
            latency: None,
            batch: 0,
            own_cpu: measured.own_cpu,
            node_cpu: measured.peer_cpu,
            late: counters.late,
            unissued: counters.unissued,
            cached: counters.cached,
            short: measured.stopped || measured.failure.is_some(),
        }
    }
}

/// Processor time of one IO, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct CpuPerIo {
    /// Of the requesting process.
    pub own_ns: f64,
    /// Of the node.
    pub node_ns: Option<f64>,
}

/// One mode of one case, over all turns.
#[derive(Debug, Clone, Serialize)]
pub struct PointLine {
    /// Source of the figure. The scale is the size of the data in GiB.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// Mode that was measured.
    pub mode: Mode,
    /// Bytes of each IO.
    pub size_bytes: u32,
    /// Number of connections, each with a requesting thread.
    pub connections: u32,
    /// IOs in flight on each connection.
    pub depth: u32,
    /// IOs of one message to the node, at most; `None` without a node.
    pub batch: Option<u32>,
    /// The wire; `None` without one.
    pub wire: Option<Wire>,
    /// The node's bridge; `None` without a node.
    pub bridge: Option<BridgeKind>,
    /// How the device was read; `None` if it was not.
    pub io: Option<IoKind>,
    /// Blocking reader threads of each serving thread; 0 if there were none.
    pub io_threads: u16,
    /// Threads of the node that serve connections; 0 without a node.
    pub serving: u16,
    /// Whether threads were pinned to cores.
    pub pinned: bool,
    /// `closed`, or `open` with a rate.
    #[serde(rename = "loop")]
    pub loop_kind: &'static str,
    /// IOs per second that an open loop intended.
    pub rate: Option<f64>,
    /// Seconds of each turn.
    pub seconds: f64,
    /// IOs per second of each turn.
    pub iops: Vec<f64>,
    /// Median IOs per second.
    pub median_iops: f64,
    /// Megabytes (10^6) per second, of the median.
    pub mb_per_s: f64,
    /// Latency over all turns; from the intended time in an open loop.
    pub latency: LatencySummary,
    /// Processor time per IO.
    pub cpu: CpuPerIo,
    /// IOs per second of processor time on the reading side: the node if there is one, otherwise
    /// this process.
    pub ios_per_cpu_s: Option<f64>,
    /// Open loop: IOs issued more than a millisecond late.
    pub late: u64,
    /// Open loop: IOs never issued.
    pub unissued: u64,
    /// IOs that the node answered from its page cache.
    pub cached: u64,
    /// IOs read one-sidedly from the node's page cache.
    pub one_sided: u64,
    /// IOs per second of this mode over those of `local`.
    pub over_local: Option<f64>,
    /// IOs per second of this mode over the lesser of `local` and `wire`.
    pub over_limit: Option<f64>,
    /// IOs per second of this mode over those of `fio`.
    pub over_fio: Option<f64>,
    /// Why there are fewer or shorter turns than asked for.
    pub partial: Option<String>,
}

/// The turns of each mode of one case.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    pub(super) case: Case,
    pub(super) turns: Vec<(Mode, Vec<Turn>)>,
}

/// What the lines of one run share.
#[derive(Debug, Clone)]
pub(super) struct Common {
    pub(super) provenance: Provenance,
    pub(super) loop_kind: &'static str,
    pub(super) rate: Option<f64>,
    pub(super) seconds: f64,
    pub(super) partial: Option<String>,
    pub(super) rounds: u32,
}

impl Turns {
    pub(super) fn new(case: Case) -> Self {
        let turns = case.modes.iter().map(|mode| (*mode, Vec::new())).collect();
        Self { case, turns }
    }

    pub(super) fn push(&mut self, mode: Mode, turn: Turn) {
        if let Some((_, turns)) = self.turns.iter_mut().find(|(of, _)| *of == mode) {
            turns.push(turn);
        }
    }

    fn iops(&self, mode: Mode) -> Option<Vec<f64>> {
        let (_, turns) = self.turns.iter().find(|(of, turns)| *of == mode && !turns.is_empty())?;
        Some(turns.iter().map(|turn| turn.iops).collect())
    }

    /// A line for each mode that has a turn.
    pub(super) fn lines(&self, common: &Common) -> Vec<PointLine> {
        let measured = self.turns.iter().filter(|(_, turns)| !turns.is_empty());
        measured.map(|(mode, turns)| self.line(*mode, turns, common)).collect()
    }

    fn line(&self, mode: Mode, turns: &[Turn], common: &Common) -> PointLine {
        let Case { size_bytes, connections, depth, wire, node, .. } = self.case;
        let iops: Vec<f64> = turns.iter().map(|turn| turn.iops).collect();
        let (local, wire_alone, fio) = (self.iops(Mode::Local), self.iops(Mode::Wire), self.iops(Mode::Fio));
        let limit = match (&local, &wire_alone) {
            (Some(local), Some(wire)) => {
                Some(local.iter().zip(wire).map(|(local, wire)| local.min(*wire)).collect())
            }
            _ => None,
        };
        let over = |others: Option<&Vec<f64>>| {
            let ratios = others?.iter().zip(&iops).filter(|(other, _)| **other > 0.0);
            median(ratios.map(|(other, own)| own / other).collect())
        };
        let (is_remote, has_node) = (mode == Mode::Remote, matches!(mode, Mode::Wire | Mode::Remote));
        let cpu = cpu_per_io(turns);
        let reader_ns = if has_node { cpu.node_ns } else { Some(cpu.own_ns) };
        let median_iops = median(iops.clone()).unwrap_or(0.0);
        let cut = turns.len() < common.rounds as usize || turns.iter().any(|turn| turn.short);
        let sum = |of: fn(&Turn) -> u64| turns.iter().map(of).sum();
        PointLine {
            provenance: common.provenance.clone(),
            mode,
            size_bytes,
            connections,
            depth,
            batch: turns.first().map(|turn| turn.batch).filter(|batch| *batch > 0),
            wire: has_node.then_some(wire),
            bridge: has_node.then_some(node.bridge),
            io: match mode {
                Mode::Wire => None,
                Mode::Remote => Some(node.io),
                Mode::Local => Some(self.case.local_io()),
                Mode::Fio => Some(IoKind::Uring),
            },
            io_threads: match mode {
                Mode::Remote => node.io_threads,
                Mode::Local if self.case.local_io() == IoKind::Pread && !self.case.reads_itself() => {
                    node.io_threads
                }
                _ => 0,
            },
            serving: if has_node { node.serving } else { 0 },
            pinned: node.pin,
            loop_kind: common.loop_kind,
            rate: common.rate,
            seconds: common.seconds,
            median_iops,
            mb_per_s: median_iops * f64::from(size_bytes) / 1e6,
            latency: latency(turns),
            cpu,
            ios_per_cpu_s: reader_ns.filter(|ns| *ns > 0.0).map(|ns| 1e9 / ns),
            late: sum(|turn| turn.late),
            unissued: sum(|turn| turn.unissued),
            cached: sum(|turn| turn.cached.by_request),
            one_sided: sum(|turn| turn.cached.one_sided),
            over_local: if is_remote { over(local.as_ref()) } else { None },
            over_limit: if is_remote { over(limit.as_ref()) } else { None },
            over_fio: if mode == Mode::Local { over(fio.as_ref()) } else { None },
            partial: common.partial.clone().filter(|_| cut),
            iops,
        }
    }
}

impl Case {
    /// How this process reads in the mode `local`: like the node's reactors, or by io_uring if the
    /// node has another bridge.
    #[must_use]
    pub fn local_io(&self) -> IoKind {
        if self.node.bridge == BridgeKind::Reactor { self.node.io } else { IoKind::Uring }
    }
}

/// Latencies over all turns. Of those that another program summarised, the median of each
/// percentile and of the mean.
fn latency(turns: &[Turn]) -> LatencySummary {
    let summaries: Vec<LatencySummary> = turns.iter().filter_map(|turn| turn.latency).collect();
    if summaries.is_empty() {
        let mut latencies = Latencies::default();
        turns.iter().for_each(|turn| latencies.add(&turn.latencies));
        return latencies.summary();
    }
    let of =
        |figure: fn(&LatencySummary) -> f64| median(summaries.iter().map(figure).collect()).unwrap_or(0.0);
    let all = |figure: fn(&LatencySummary) -> f64| summaries.iter().map(figure);
    LatencySummary {
        count: summaries.iter().map(|summary| summary.count).sum(),
        min_us: all(|summary| summary.min_us).fold(f64::INFINITY, f64::min),
        mean_us: of(|summary| summary.mean_us),
        p50_us: of(|summary| summary.p50_us),
        p90_us: of(|summary| summary.p90_us),
        p99_us: of(|summary| summary.p99_us),
        p999_us: of(|summary| summary.p999_us),
        max_us: all(|summary| summary.max_us).fold(0.0, f64::max),
    }
}

#[expect(clippy::cast_precision_loss, reason = "averages for people: 53 bits are plenty")]
fn cpu_per_io(turns: &[Turn]) -> CpuPerIo {
    let ios: u64 = turns.iter().map(|turn| turn.ios).sum();
    let per_io = |total: Duration| if ios == 0 { 0.0 } else { total.as_nanos() as f64 / ios as f64 };
    let own = turns.iter().map(|turn| turn.own_cpu).sum();
    let node: Option<Duration> = turns.iter().map(|turn| turn.node_cpu).sum();
    CpuPerIo { own_ns: per_io(own), node_ns: node.map(per_io) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::grid::NodeShape;

    fn turn(iops: f64, ios: u64, own_us: u64) -> Turn {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_micros(100));
        let own_cpu = Duration::from_micros(own_us);
        Turn { iops, ios, latencies, own_cpu, node_cpu: Some(own_cpu * 2), ..Turn::default() }
    }

    fn common() -> Common {
        Common {
            provenance: Provenance::now("io", 1.0),
            loop_kind: "closed",
            rate: None,
            seconds: 1.0,
            partial: Some("stopped".to_owned()),
            rounds: 3,
        }
    }

    #[test]
    fn ratios_are_medians_of_turns_next_to_each_other() {
        let mut turns = Turns::new(Case {
            size_bytes: 4096,
            connections: 1,
            depth: 32,
            batch: None,
            wire: Wire::Shm,
            node: NodeShape {
                bridge: BridgeKind::Reactor,
                io: IoKind::Uring,
                io_threads: 0,
                serving: 1,
                pin: false,
            },
            modes: vec![Mode::Local, Mode::Wire, Mode::Remote],
        });
        // The machine gets slower by half between the rounds; ratios stay the same.
        for speed in [1.0, 0.5, 0.25] {
            turns.push(Mode::Local, turn(1000.0 * speed, 1000, 10));
            turns.push(Mode::Wire, turn(800.0 * speed, 1000, 10));
            turns.push(Mode::Remote, turn(600.0 * speed, 1000, 10));
        }
        let lines = turns.lines(&common());
        let remote = lines.iter().find(|line| line.mode == Mode::Remote).unwrap();
        assert_eq!(remote.over_local.map(|ratio| (ratio * 1000.0).round()), Some(600.0));
        assert_eq!(remote.over_limit.map(|ratio| (ratio * 1000.0).round()), Some(750.0));
        assert!((remote.median_iops - 300.0).abs() < 1e-9 && (remote.mb_per_s - 1.2288).abs() < 1e-9);
        assert!((remote.cpu.own_ns - 10.0).abs() < 1e-9 && remote.cpu.node_ns == Some(20.0));
        assert_eq!(remote.ios_per_cpu_s, Some(5e7));
        assert_eq!(remote.latency.count, 3);
        assert_eq!(remote.partial, None, "it has all of its turns");
        turns.turns[2].1[0].short = true;
        let lines = turns.lines(&common());
        let remote = lines.iter().find(|line| line.mode == Mode::Remote).unwrap();
        assert_eq!(remote.partial.as_deref(), Some("stopped"));
        let text = serde_json::to_string(&remote).unwrap();
        assert!(text.starts_with("{\"bench\":\"io\"") && text.contains("\"mode\":\"remote\""), "{text}");
    }
}
