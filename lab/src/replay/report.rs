//! Prints the report of a replay, for the user and as a file.
//!
//! Invariants
//! - A report describes the settings of its replay, so that a comparison of two reports shows
//!   different settings.
//! - The report of a replay that ended early says so.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lane::{Counters, Timing};
use super::plan::{Changes, Plan};
use super::{Replay, Replayed};
use crate::latency::{Latencies, LatencySummary};

/// The setting of a replay.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Setting {
    /// Path of the trace.
    pub trace: String,
    /// Format of the trace.
    pub format: String,
    /// Units of the trace's numbers, and how they were detected.
    pub units: String,
    /// Lines or events of the trace that are not records.
    pub defects: u64,
    /// `local` or `remote`.
    pub mode: String,
    /// Description of the devices.
    pub target: String,
    /// The wire to the nodes, if there was one.
    pub wire: Option<String>,
    /// The nodes' bridge, if there were any.
    pub bridge: Option<String>,
    /// Reader threads of each poller, if the bridge or the IO uses any.
    pub io_threads: Option<u32>,
    /// How offsets were mapped.
    pub offsets: String,
    /// Bytes of each request, if not as recorded.
    #[serde(default)]
    pub size_bytes: Option<u32>,
}

/// A replay's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// The setting.
    pub setting: Setting,
    /// Speed relative to the trace; `None` if as fast as possible.
    pub speed: Option<f64>,
    /// Connections to each node.
    pub connections: u32,
    /// Requests in flight on each connection.
    pub depth: u32,
    /// Records of the trace.
    pub records: u64,
    /// The changes that the records needed.
    pub changes: Changes,
    /// Number of requests.
    pub requests: u64,
    /// Requests that were not issued.
    pub unissued: u64,
    /// Requests that failed.
    pub failed: u64,
    /// The first failure of a request.
    pub first_failure: Option<String>,
    /// Why the replay ended early, if it did.
    pub cut_short: Option<String>,
    /// Seconds from the first to the last record of the trace.
    pub trace_seconds: f64,
    /// Seconds that the replay took.
    pub seconds: f64,
    /// Requests that succeeded.
    pub ios: u64,
    /// Of these, requests answered from a node's page cache.
    pub cached: u64,
    /// Of these, requests read one-sidedly from a node's page cache.
    #[serde(default)]
    pub one_sided: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests per second.
    pub iops: f64,
    /// Megabytes (10^6) per second.
    pub mb_per_s: f64,
    /// From the issue to the end.
    pub from_issue: LatencySummary,
    /// Fidelity of a timed replay.
    pub fidelity: Option<Fidelity>,
    /// Processor time of this process per request, in nanoseconds.
    pub cpu_own_ns_per_io: Option<f64>,
    /// Processor time of the nodes per request, in nanoseconds.
    pub cpu_nodes_ns_per_io: Option<f64>,
    /// Histogram of latencies from the issue.
    pub histogram: Vec<Bin>,
}

/// How closely a timed replay followed its trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fidelity {
    /// From the intended time to the end.
    pub from_intended: LatencySummary,
    /// From the intended time to the issue.
    pub lateness: LatencySummary,
    /// A request issued later than this counts as late.
    pub late_after_us: f64,
    /// Number of late requests.
    pub late: u64,
    /// Share of late requests among those issued.
    pub late_share: f64,
    /// Histogram of latencies from the intended time.
    pub histogram: Vec<Bin>,
    /// Histogram of times from the intended time to the issue.
    pub lateness_histogram: Vec<Bin>,
}

/// A bin of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Upper end in microseconds; the lower end is that of the bin before.
    pub up_to_us: f64,
    /// Number of values in the bin.
    pub count: u64,
}

impl ReplayReport {
    /// Creates the report of a replay.
    #[must_use]
    pub fn new(setting: Setting, run: &Replay<'_>, replayed: &Replayed) -> Self {
        let (plan, counters): (&Plan, &Counters) = (run.plan, &replayed.counters);
        let seconds = counters.elapsed.as_secs_f64();
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let per_io = |time: Option<Duration>| {
            time.filter(|_| counters.ended > 0).map(|time| time.as_secs_f64() * 1e9 / counters.ended as f64)
        };
        let speed = match run.timing {
            Timing::AtSpeed(speed) => Some(speed),
            Timing::NoStall => None,
        };
        let fidelity = speed.map(|_| Fidelity {
            from_intended: counters.from_intended.summary(),
            lateness: counters.lateness.summary(),
            late_after_us: run.late_after.as_secs_f64() * 1e6,
            late: counters.late,
            late_share: if counters.issued > 0 { counters.late as f64 / counters.issued as f64 } else { 0.0 },
            histogram: bins(&counters.from_intended),
            lateness_histogram: bins(&counters.lateness),
        });
        Self {
            setting,
            speed,
            connections: run.connections,
            depth: run.depth,
            records: plan.records(),
            changes: plan.changes().clone(),
            requests: plan.requests(),
            unissued: counters.unissued,
            failed: counters.failed,
            first_failure: counters.first_failure.clone(),
            cut_short: replayed.cut_short.clone(),
            trace_seconds: Duration::from_nanos(plan.trace_ns()).as_secs_f64(),
            seconds,
            ios: counters.ended,
            cached: counters.cached.by_request,
            one_sided: counters.cached.one_sided,
            read_bytes: counters.read_bytes,
            written_bytes: counters.written_bytes,
            iops: per_second(counters.ended),
            mb_per_s: per_second(counters.read_bytes + counters.written_bytes) / 1e6,
            from_issue: counters.from_issue.summary(),
            fidelity,
            cpu_own_ns_per_io: per_io(replayed.cpu_own),
            cpu_nodes_ns_per_io: per_io(replayed.cpu_nodes),
            histogram: bins(&counters.from_issue),
        }
    }

    /// Names and values, in reading order.
    #[must_use]
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = self.setting_rows();
        rows.extend(self.count_rows());
        rows.push(("trace", seconds(self.trace_seconds)));
        rows.push(("time", seconds(self.seconds)));
        rows.push(("IOPS", format!("{:.0}", self.iops)));
        rows.push(("throughput", format!("{:.1} MB/s", self.mb_per_s)));
        rows.push(("latency from issue", latency(&self.from_issue)));
        if let Some(fidelity) = &self.fidelity {
            rows.push(("latency from intended time", latency(&fidelity.from_intended)));
            rows.push(("issued behind intended time", latency(&fidelity.lateness)));
            let share = fidelity.late_share * 100.0;
            let after = microseconds(fidelity.late_after_us);
            rows.push(("issued late", format!("{} ({share:.2} %) more than {after}", fidelity.late)));
        }
        for (name, cpu) in [
            ("processor time here", self.cpu_own_ns_per_io),
            ("processor time of nodes", self.cpu_nodes_ns_per_io),
        ] {
            rows.extend(cpu.map(|cpu| (name, format!("{cpu:.0} ns per request"))));
        }
        rows
    }

    fn setting_rows(&self) -> Vec<(&'static str, String)> {
        let Setting {
            trace, format, units, mode, target, wire, bridge, io_threads, offsets, size_bytes, ..
        } = &self.setting;
        let mut means = vec![mode.clone()];
        means.extend(wire.iter().cloned());
        means.extend(bridge.iter().map(|bridge| format!("bridge {bridge}")));
        means.extend(io_threads.iter().map(|threads| format!("{threads} IO threads")));
        let times = match self.speed {
            Some(speed) => format!("the trace's times, {speed} x the speed"),
            None => "no stalls: as fast as possible".to_owned(),
        };
        let Self { connections, depth, .. } = self;
        let mut rows = vec![
            ("file", format!("{trace} ({format})")),
            ("units", units.clone()),
            ("target", target.clone()),
            ("mode", means.join(", ")),
            ("times", times),
            ("connections", format!("{connections} to each node, {depth} requests in flight on each")),
            ("offsets", offsets.clone()),
        ];
        rows.extend(
            size_bytes.map(|size| ("size", format!("{size} bytes of each request, not as recorded"))),
        );
        rows
    }

    fn count_rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![("records", self.records.to_string())];
        let mut count = |name: &'static str, count: u64, words: &str| {
            if count > 0 {
                rows.push((name, format!("{count}{words}")));
            }
        };
        count("refused", self.setting.defects, " lines or events of the file that are no records");
        for (reason, skipped) in &self.changes.skipped {
            count("left out", *skipped, &format!(" {reason}"));
        }
        count("widened", self.changes.widened, " that were not aligned");
        count("cut", self.changes.cut, " longer than 1 MiB");
        count("sorted", self.changes.out_of_order, " earlier than one before them");
        count("requests", self.requests, "");
        count("not issued", self.unissued, "");
        let failure = self.first_failure.as_deref().unwrap_or_default();
        count("failed", self.failed, &format!(", the first: {failure}"));
        count("ended well", self.ios, "");
        count("from the page cache", self.cached, " by request");
        count("from the page cache", self.one_sided, " one-sidedly, without the node");
        count("read", self.read_bytes, " bytes");
        count("written", self.written_bytes, " bytes");
        rows
    }
}

/// Ten bins per power of ten of microseconds.
fn bins(latencies: &Latencies) -> Vec<Bin> {
    let mut bins: Vec<Bin> = Vec::new();
    for (duration, count) in latencies.counts() {
        let us = (duration.as_secs_f64() * 1e6).max(0.01);
        let up_to_us = 10_f64.powf(((us.log10() * 10.0) - 1e-9).ceil() / 10.0);
        match bins.last_mut() {
            Some(last) if last.up_to_us >= up_to_us * (1.0 - 1e-9) => last.count += count,
            _ => bins.push(Bin { up_to_us, count }),
        }
    }
    bins
}

fn latency(summary: &LatencySummary) -> String {
    let LatencySummary { p50_us, p90_us, p99_us, p999_us, max_us, .. } = *summary;
    let [p50, p90, p99, p999, max] = [p50_us, p90_us, p99_us, p999_us, max_us].map(microseconds);
    format!("p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p999}, max {max}")
}

/// A duration with a suitable unit.
pub(super) fn microseconds(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.3} s", us / 1e6),
        us if us >= 1e3 => format!("{:.2} ms", us / 1e3),
        us => format!("{us:.1} us"),
    }
}

fn seconds(seconds: f64) -> String {
    microseconds(seconds * 1e6)
}
