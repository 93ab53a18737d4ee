//! Compares the reports of two replays in a table.

use super::report::{Fidelity, ReplayReport, microseconds};
use crate::latency::LatencySummary;

/// One figure of two replays.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Name of the figure.
    pub what: String,
    /// In the first replay.
    pub a: String,
    /// In the second.
    pub b: String,
    /// The second over the first, where both are numbers and the first is not 0.
    pub ratio: Option<f64>,
}

/// The figures of two replays next to each other; texts only where they differ.
#[must_use]
pub fn compared(a: &ReplayReport, b: &ReplayReport) -> Vec<Difference> {
    let mut rows = words(a, b);
    let mut number =
        |what: &str, of: &dyn Fn(&ReplayReport) -> Option<f64>, write: &dyn Fn(f64) -> String| {
            let (a, b) = (of(a), of(b));
            if a.is_none() && b.is_none() {
                return;
            }
            let ratio = match (a, b) {
                (Some(a), Some(b)) if a != 0.0 => Some(b / a),
                _ => None,
            };
            let written = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), write);
            rows.push(Difference { what: what.to_owned(), a: written(a), b: written(b), ratio });
        };
    let count = |value: f64| format!("{value:.0}");
    number("requests that ended well", &|report| Some(report.ios as f64), &count);
    number("not issued", &|report| Some(report.unissued as f64), &count);
    number("failed", &|report| Some(report.failed as f64), &count);
    number("from the page cache, by request", &|report| Some(report.cached as f64), &count);
    number("from the page cache, one-sidedly", &|report| Some(report.one_sided as f64), &count);
    number("time", &|report| Some(report.seconds * 1e6), &microseconds);
    number("IOPS", &|report| Some(report.iops), &count);
    number("MB/s", &|report| Some(report.mb_per_s), &|value| format!("{value:.1}"));
    type OfReport = fn(&ReplayReport) -> Option<&LatencySummary>;
    let summaries: [(&str, OfReport); 3] = [
        ("latency from issue", |report| Some(&report.from_issue)),
        ("latency from intended time", |report| Some(&report.fidelity.as_ref()?.from_intended)),
        ("issued behind intended time", |report| Some(&report.fidelity.as_ref()?.lateness)),
    ];
    for (name, of) in summaries {
        type OfSummary = fn(&LatencySummary) -> f64;
        let percentiles: [(&str, OfSummary); 4] = [
            ("p50", |summary| summary.p50_us),
            ("p99", |summary| summary.p99_us),
            ("p99.9", |summary| summary.p999_us),
            ("max", |summary| summary.max_us),
        ];
        for (percentile, value) in percentiles {
            number(&format!("{name}, {percentile}"), &|report| of(report).map(value), &microseconds);
        }
    }
    let late = |report: &ReplayReport| {
        report.fidelity.as_ref().map(|Fidelity { late_share, .. }| late_share * 100.0)
    };
    number("share issued late [%]", &late, &|value| format!("{value:.3}"));
    number("processor time here, ns per request", &|report| report.cpu_own_ns_per_io, &count);
    number("processor time of nodes, ns per request", &|report| report.cpu_nodes_ns_per_io, &count);
    rows
}

fn words(a: &ReplayReport, b: &ReplayReport) -> Vec<Difference> {
    type OfReport = fn(&ReplayReport) -> String;
    let parts: [(&str, OfReport); 11] = [
        ("trace", |report| report.setting.trace.clone()),
        ("mode", |report| report.setting.mode.clone()),
        ("target", |report| report.setting.target.clone()),
        ("wire", |report| report.setting.wire.clone().unwrap_or_default()),
        ("bridge", |report| report.setting.bridge.clone().unwrap_or_default()),
        ("IO threads", |report| report.setting.io_threads.map(|n| n.to_string()).unwrap_or_default()),
        ("offsets", |report| report.setting.offsets.clone()),
        ("speed", |report| report.speed.map_or_else(|| "no stall".to_owned(), |speed| format!("{speed} x"))),
        ("connections", |report| report.connections.to_string()),
        ("depth", |report| report.depth.to_string()),
        ("cut short", |report| report.cut_short.clone().unwrap_or_default()),
    ];
    let row = |(what, of): (&str, OfReport)| {
        let (a, b) = (of(a), of(b));
        let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        (a != b).then(|| Difference { what: what.to_owned(), a: dash(a), b: dash(b), ratio: None })
    };
    parts.into_iter().filter_map(row).collect()
}
