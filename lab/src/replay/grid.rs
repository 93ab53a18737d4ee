//! Lists the replays of one trace that several values of options ask for, and draws their figures.
//!
//! Invariants
//! - Two replays of a grid differ in a value that has an effect: without a node, the wire and the
//!   bridge have none.
//! - A line is the round with the median time, so that its figures belong together.

use rackscan_fabric::Wire;
use rackscan_figures::{Axis, Chart, Figure, Kind, Point, Report, SERIES_MAX, Scale, Section, Series};
use rackscan_format::message::{BridgeKind, IoKind};
use serde::Serialize;

use super::report::ReplayReport;
use crate::experiment::Mode;
use crate::record::Provenance;

/// One replay of a grid. `None` leaves a value as it is configured or recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayCase {
    /// Whether this process reads the devices, without nodes.
    pub local: bool,
    /// The wire to the nodes.
    pub wire: Option<Wire>,
    /// The nodes' bridge.
    pub bridge: Option<BridgeKind>,
    /// Size of each pool of reader threads.
    pub io_threads: Option<u16>,
    /// Connections to each node.
    pub connections: u32,
    /// Requests in flight on each connection.
    pub depth: u32,
    /// Bytes of each request.
    pub size_bytes: Option<u32>,
}

/// The values of each option; an empty list leaves it as it is configured or recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayAxes {
    /// [`Mode::Local`] and [`Mode::Remote`].
    pub modes: Vec<Mode>,
    /// Wires to the nodes.
    pub wires: Vec<Wire>,
    /// Bridges of the nodes.
    pub bridges: Vec<BridgeKind>,
    /// How reactors and this process read.
    pub io: Option<IoKind>,
    /// Sizes of each pool of reader threads.
    pub io_threads: Vec<u16>,
    /// Numbers of connections to each node.
    pub connections: Vec<u32>,
    /// Requests in flight on each connection.
    pub depths: Vec<u32>,
    /// Bytes of each request.
    pub sizes: Vec<u32>,
}

impl ReplayAxes {
    /// Every combination once, those of one size next to each other.
    #[must_use]
    pub fn cases(&self) -> Vec<ReplayCase> {
        let mut cases = Vec::new();
        for size_bytes in optional(&self.sizes) {
            for &mode in &self.modes {
                for case in self.of_mode(mode == Mode::Local) {
                    let case = ReplayCase { size_bytes, ..case };
                    if !cases.contains(&case) {
                        cases.push(case);
                    }
                }
            }
        }
        cases
    }

    fn of_mode(&self, local: bool) -> Vec<ReplayCase> {
        let mut cases = Vec::new();
        let (wires, bridges) = match local {
            true => (vec![None], vec![None]),
            false => (optional(&self.wires), optional(&self.bridges)),
        };
        for &wire in &wires {
            for &bridge in &bridges {
                for io_threads in optional(&self.io_threads) {
                    // A cluster's file may choose a pool where the options do not.
                    let has_pool = match bridge {
                        Some(BridgeKind::Static) => true,
                        Some(BridgeKind::Dynamic) => false,
                        Some(BridgeKind::Reactor) => self.io != Some(IoKind::Uring),
                        None => !local || self.io == Some(IoKind::Pread),
                    };
                    let io_threads = io_threads.filter(|_| has_pool);
                    for &connections in &self.connections {
                        for &depth in &self.depths {
                            let size_bytes = None;
                            cases.push(ReplayCase {
                                local,
                                wire,
                                bridge,
                                io_threads,
                                connections,
                                depth,
                                size_bytes,
                            });
                        }
                    }
                }
            }
        }
        cases
    }
}

fn optional<T: Copy>(values: &[T]) -> Vec<Option<T>> {
    if values.is_empty() { vec![None] } else { values.iter().copied().map(Some).collect() }
}

/// One replay of a grid, over all rounds.
#[derive(Debug, Clone, Serialize)]
pub struct ReplayLine {
    /// Source of the figure.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The round with the median time.
    #[serde(flatten)]
    pub report: ReplayReport,
    /// Seconds of each round.
    pub rounds_s: Vec<f64>,
}

impl ReplayLine {
    /// The line of the rounds of one case; `None` without rounds.
    #[must_use]
    pub fn of(provenance: Provenance, rounds: &[ReplayReport]) -> Option<Self> {
        let mut ordered: Vec<&ReplayReport> = rounds.iter().collect();
        ordered.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let report = (*ordered.get(ordered.len() / 2)?).clone();
        Some(Self { provenance, report, rounds_s: rounds.iter().map(|round| round.seconds).collect() })
    }

    /// What distinguishes the curves of a figure over connections.
    fn curve(&self) -> String {
        let ReplayReport { setting, depth, .. } = &self.report;
        let mut words = vec![setting.mode.clone()];
        words.extend(setting.wire.clone());
        words.extend(setting.bridge.clone());
        words.extend(setting.io_threads.map(|threads| format!("{threads} threads")));
        words.push(format!("{depth} in flight"));
        words.join(", ")
    }

    fn size(&self) -> String {
        self.report.setting.size_bytes.map_or_else(|| "as recorded".to_owned(), |size| format!("{size} B"))
    }
}

/// A page with the times and rates of all replays of a grid, by connections; a figure for each
/// size.
#[must_use]
pub fn grid_report(lines: &[ReplayLine], provenance: Vec<(String, String)>) -> Report {
    let mut sizes: Vec<String> = Vec::new();
    for line in lines {
        if !sizes.contains(&line.size()) {
            sizes.push(line.size());
        }
    }
    let mut figures = Vec::new();
    for (number, size) in sizes.iter().enumerate() {
        let of_size: Vec<&ReplayLine> = lines.iter().filter(|line| line.size() == *size).collect();
        figures.push(figure(&of_size, (number, size), ("seconds", |line| line.report.seconds)));
        figures.push(figure(&of_size, (number, size), ("requests per second", |line| line.report.iops)));
    }
    let trace = lines.first().map_or("", |line| line.report.setting.trace.as_str());
    Report {
        title: format!("Replays of {trace}"),
        provenance,
        sections: vec![Section { heading: "By connections".to_owned(), figures, ..Section::default() }],
        points: lines.iter().filter_map(|line| serde_json::to_value(line).ok()).collect(),
    }
}

type Measure = (&'static str, fn(&ReplayLine) -> f64);

fn figure(lines: &[&ReplayLine], (number, size): (usize, &str), (label, measure): Measure) -> Figure {
    let point = |line: &&ReplayLine| {
        (line.curve(), Point { x: line.report.connections.into(), y: measure(line), bar: None })
    };
    let mut series = Series::grouped(lines.iter().map(point));
    let left_out = series.len().saturating_sub(SERIES_MAX);
    series.truncate(SERIES_MAX);
    let mut caption = "Each point is the round with the median time.".to_owned();
    if left_out > 0 {
        caption.push_str(&format!(" {left_out} more curves are in points.jsonl only."));
    }
    let kind = if label == "seconds" { "times" } else { "rates" };
    Figure {
        name: format!("replay-{kind}-{number}"),
        caption,
        chart: Chart {
            title: format!("Requests of {size}: {label}"),
            kind: Kind::Lines,
            x: Axis::new("connections to each node", Scale::Log2),
            y: Axis::new(label, Scale::Automatic),
            series,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> ReplayAxes {
        ReplayAxes {
            modes: vec![Mode::Local, Mode::Remote],
            wires: vec![Wire::Shm, Wire::Tcp],
            bridges: vec![BridgeKind::Static, BridgeKind::Dynamic],
            io: None,
            io_threads: vec![1, 16],
            connections: vec![1, 2],
            depths: vec![32],
            sizes: vec![512, 4096],
        }
    }

    #[test]
    fn values_without_effect_do_not_repeat_a_replay() {
        let cases = axes().cases();
        // For each size and number of connections: once here; on each wire, twice by the static
        // bridge and once by the dynamic one, which has no pool.
        assert_eq!(cases.len(), 2 * 2 * (1 + 2 * (2 + 1)), "{cases:?}");
        for (index, case) in cases.iter().enumerate() {
            assert!(!cases[..index].contains(case), "{case:?}");
            assert!(!case.local || case.wire.is_none() && case.bridge.is_none() && case.io_threads.is_none());
            assert!(case.bridge != Some(BridgeKind::Dynamic) || case.io_threads.is_none());
        }
    }

    #[test]
    fn options_that_are_not_given_leave_one_replay() {
        let plain = ReplayAxes {
            modes: vec![Mode::Remote],
            wires: Vec::new(),
            bridges: Vec::new(),
            io: None,
            io_threads: Vec::new(),
            connections: vec![1],
            depths: vec![32],
            sizes: Vec::new(),
        };
        let one = ReplayCase {
            local: false,
            wire: None,
            bridge: None,
            io_threads: None,
            connections: 1,
            depth: 32,
            size_bytes: None,
        };
        assert_eq!(plain.cases(), [one]);
    }
}
