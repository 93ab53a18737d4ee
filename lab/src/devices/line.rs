//! Collects the turns of each case, and summarises them as lines of JSON.
//!
//! Invariants
//! - A line contains the results of every turn. Its figures are medians of turns, and its
//!   percentiles are over all turns together.
//! - `over_fio` is the median of the ratios of adjacent turns.

use std::io;
use std::time::Duration;

use serde::Serialize;

use super::experiment::DeviceExperiment;
use super::grid::{DeviceCase, IoEngine, pattern};
use super::stop::{Judgement, StopRule};
use crate::drive::{Interval, LoopKind, Measured, Spread};
use crate::events::Events;
use crate::fio::FioResult;
use crate::latency::{Latencies, LatencySummary};
use crate::median::median;
use crate::record::Provenance;

/// One turn of one case.
#[derive(Debug, Clone, Default)]
pub(super) struct Turn {
    iops: f64,
    ios: u64,
    /// Until they are merged with those of other turns.
    histograms: Option<Histograms>,
    /// What fio summarised: of all IOs or the reads, and of the writes of a mix.
    by_fio: Option<(LatencySummary, Option<LatencySummary>)>,
    cpu: Duration,
    events: Option<Events<u64>>,
    intervals: Vec<Interval>,
    verified: u64,
    late: u64,
    unissued: u64,
    /// Whether it ended before its bounds.
    short: bool,
}

impl Turn {
    pub(super) fn of(measured: &Measured) -> Self {
        let counters = &measured.counters;
        Self {
            iops: measured.iops,
            ios: counters.ios,
            histograms: Some(Histograms {
                ios: counters.latencies.clone(),
                writes: counters.writes.as_deref().cloned(),
                fsyncs: counters.fsyncs.as_deref().cloned(),
            }),
            by_fio: None,
            cpu: measured.own_cpu,
            events: measured.events,
            intervals: counters.intervals.clone(),
            verified: counters.verified,
            late: counters.late,
            unissued: counters.unissued,
            short: measured.stopped || measured.failure.is_some(),
        }
    }

    pub(super) fn of_fio(result: &FioResult) -> Self {
        let FioResult { iops, ios, cpu, latency, writes } = *result;
        Self { iops, ios, cpu, by_fio: Some((latency, writes)), ..Self::default() }
    }
}

/// Latencies by kind of IO. A histogram takes a quarter of a megabyte.
#[derive(Debug, Clone, Default)]
struct Histograms {
    /// Of a mix, those of the reads.
    ios: Latencies,
    writes: Option<Latencies>,
    fsyncs: Option<Latencies>,
}

impl Histograms {
    fn add(&mut self, other: &Self) {
        self.ios.add(&other.ios);
        for (own, other) in [(&mut self.writes, &other.writes), (&mut self.fsyncs, &other.fsyncs)] {
            if let Some(other) = other {
                own.get_or_insert_default().add(other);
            }
        }
    }
}

/// The turns of one case.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    pub(super) case: DeviceCase,
    pub(super) turns: Vec<Turn>,
    /// Why it has no further turns.
    pub(super) failure: Option<String>,
    /// Latencies of earlier turns, merged.
    merged: Option<Histograms>,
}

/// The figures of one case.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// Its line.
    pub line: DeviceLine,
    /// The case.
    pub case: DeviceCase,
    /// IOs of each interval of each turn.
    pub intervals: Vec<IntervalLine>,
    latencies: Latencies,
}

/// One case, over all turns.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceLine {
    /// Source of the figure. The scale is the size of the region in GiB.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// Name of the job in a job file.
    pub job: Option<String>,
    /// The devices.
    pub devices: Vec<String>,
    /// `one`, `striped`, or `per-thread`.
    pub layout: &'static str,
    /// `read`, `write`, `trim`, or `mix:70` for 70 % reads.
    pub workload: String,
    /// `random`, `sequential`, or `zipf:0.99`.
    pub pattern: String,
    /// Bytes of each IO.
    pub size_bytes: u32,
    /// Number of threads.
    pub threads: u32,
    /// IOs in flight of each thread.
    pub depth: u32,
    /// How a thread does IO.
    pub engine: IoEngine,
    /// Writes of a thread after which it flushes.
    pub fsync_every: Option<u32>,
    /// `closed`, or `open` with a rate.
    #[serde(rename = "loop")]
    pub loop_kind: &'static str,
    /// IOs per second that an open loop intended.
    pub rate: Option<f64>,
    /// Seconds of each turn.
    pub seconds: f64,
    /// IOs per second of each turn.
    pub iops: Vec<f64>,
    /// Median IOs per second; with a steady state, of its five turns, as all figures below.
    pub median_iops: f64,
    /// Megabytes (10^6) per second, of the median.
    pub mb_per_s: f64,
    /// Latency over all turns; of a mix, that of the reads.
    pub latency: LatencySummary,
    /// Latency of the writes of a mix.
    pub write_latency: Option<LatencySummary>,
    /// Latency of the flushes.
    pub fsync_latency: Option<LatencySummary>,
    /// Processor time per IO, in nanoseconds.
    pub cpu_ns: f64,
    /// Events per IO.
    pub events: Option<Events<f64>>,
    /// What the rule for stopping says of the turns.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// Writes that were read again and compared.
    pub verified: u64,
    /// Open loop: IOs issued more than a millisecond late.
    pub late: u64,
    /// Open loop: IOs never issued.
    pub unissued: u64,
    /// IOs per second over those of fio.
    pub over_fio: Option<f64>,
    /// Why there are fewer or shorter turns than asked for.
    pub partial: Option<String>,
}

/// IOs of one interval of one turn.
#[derive(Debug, Clone, Serialize)]
pub struct IntervalLine {
    /// Source of the figure.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The case, as `read random 4096 B, 1 x 32, uring`.
    pub case: String,
    /// Number of the turn, from 0.
    pub turn: usize,
    /// Milliseconds from the begin of the turn to the begin of the interval.
    pub at_ms: f64,
    /// IOs per second.
    pub iops: f64,
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// Greatest latency in microseconds.
    pub max_us: f64,
}

impl Turns {
    pub(super) fn new(case: DeviceCase) -> Self {
        Self { case, turns: Vec::new(), failure: None, merged: None }
    }

    /// Adds a turn, and keeps the histograms of as few turns as the rule needs.
    pub(super) fn push(&mut self, turn: Turn, rule: StopRule) {
        self.turns.push(turn);
        let earlier = self.turns.len().saturating_sub(rule.turns_looked_at());
        for turn in &mut self.turns[..earlier] {
            let Some(histograms) = turn.histograms.take() else { continue };
            if rule.turns_looked_at() == 0 {
                self.merged.get_or_insert_default().add(&histograms);
            }
        }
    }

    pub(super) fn iops(&self) -> Vec<f64> {
        self.turns.iter().map(|turn| turn.iops).collect()
    }

    /// The figures of the case, which has a turn.
    #[expect(clippy::cast_precision_loss, reason = "averages for people: 53 bits are plenty")]
    pub(super) fn measurement(&self, of: &DeviceExperiment, stopped: bool) -> Measurement {
        let (case, all) = (self.case, self.iops());
        let counted = of.rule.counted(self.turns.len());
        let (turns, iops) = (&self.turns[counted.clone()], &all[counted]);
        let median_iops = median(iops.to_vec()).unwrap_or(0.0);
        let mut histograms = self.merged.clone().unwrap_or_default();
        turns.iter().filter_map(|turn| turn.histograms.as_ref()).for_each(|more| histograms.add(more));
        let Histograms { ios: latencies, writes, fsyncs } = histograms;
        let by_fio = turns.last().and_then(|turn| turn.by_fio);
        let summary = |all: Option<Latencies>| all.filter(|all| all.count() > 0).map(|all| all.summary());
        let writes = summary(writes);
        let sum = |of: fn(&Turn) -> u64| turns.iter().map(of).sum::<u64>();
        let cpu: Duration = turns.iter().map(|turn| turn.cpu).sum();
        let events = turns.iter().map(|turn| turn.events).reduce(|one, other| Some(one?.plus(other?)));
        let judgement = of.rule.judge(&all);
        let fewer = self.turns.iter().any(|turn| turn.short)
            || self.turns.len() < of.rounds_min as usize
            || !judgement.is_enough;
        let not_reached =
            (!judgement.is_enough).then(|| "the most turns were taken before the rule held".to_owned());
        let stopped = (stopped && fewer).then(|| "it was asked to stop".to_owned());
        let (loop_kind, rate) = match of.loop_kind {
            LoopKind::Closed => ("closed", None),
            LoopKind::Open { rate, .. } => ("open", Some(rate)),
        };
        let line = DeviceLine {
            provenance: of.provenance.clone(),
            job: of.job.clone(),
            devices: of.paths.iter().map(|path| path.display().to_string()).collect(),
            layout: match of.spread {
                Spread::One => "one",
                Spread::Striped(_) => "striped",
                Spread::PerConnection(_) => "per-thread",
            },
            workload: case.mix.to_string(),
            pattern: pattern(case.distribution),
            size_bytes: case.size_bytes,
            threads: case.threads,
            depth: case.depth,
            engine: case.engine,
            fsync_every: of.fsync_every.filter(|_| case.mix.has_writes()),
            loop_kind,
            rate,
            seconds: of.bounds.duration.as_secs_f64(),
            median_iops,
            mb_per_s: median_iops * f64::from(case.size_bytes) / 1e6,
            latency: by_fio.map_or_else(|| latencies.summary(), |(latency, _)| latency),
            write_latency: by_fio.map_or(writes, |(_, writes)| writes),
            fsync_latency: summary(fsyncs),
            cpu_ns: match sum(|turn| turn.ios) {
                0 => 0.0,
                ios => cpu.as_nanos() as f64 / ios as f64,
            },
            events: events.flatten().map(|events| events.per_io(sum(|turn| turn.ios))),
            judgement,
            verified: sum(|turn| turn.verified),
            late: sum(|turn| turn.late),
            unissued: sum(|turn| turn.unissued),
            over_fio: None,
            partial: self.failure.clone().or(stopped).or(not_reached),
            iops: all,
        };
        Measurement { line, case, intervals: self.intervals(of), latencies }
    }

    #[expect(clippy::cast_precision_loss, reason = "averages for people: 53 bits are plenty")]
    fn intervals(&self, of: &DeviceExperiment) -> Vec<IntervalLine> {
        let Some(length) = of.interval else { return Vec::new() };
        let us = |duration: Duration| duration.as_secs_f64() * 1e6;
        let line = |turn, (number, interval): (usize, &Interval)| IntervalLine {
            provenance: of.provenance.clone(),
            case: self.case.to_string(),
            turn,
            at_ms: number as f64 * length.as_secs_f64() * 1e3,
            iops: interval.ios as f64 / length.as_secs_f64(),
            mean_us: if interval.ios == 0 { 0.0 } else { us(interval.latency) / interval.ios as f64 },
            max_us: us(interval.longest),
        };
        let of_turn = |(turn, measured): (usize, &Turn)| {
            measured.intervals.iter().enumerate().map(|at| line(turn, at)).collect::<Vec<_>>()
        };
        self.turns.iter().enumerate().flat_map(of_turn).collect()
    }
}

/// The rates of a measurement, for comparison.
#[derive(Debug, Clone)]
pub struct Rates {
    job: Option<String>,
    case: DeviceCase,
    iops: Vec<f64>,
}

impl Measurement {
    /// Its rates.
    #[must_use]
    pub fn rates(&self) -> Rates {
        Rates { job: self.line.job.clone(), case: self.case, iops: self.line.iops.clone() }
    }

    /// Adds the ratio to fio's measurement of the same load, if there is one.
    pub fn compare(&mut self, others: &[Rates]) {
        let same = DeviceCase { engine: IoEngine::Fio, ..self.case };
        let fio = others.iter().find(|other| other.job == self.line.job && other.case == same);
        let Some(fio) = fio.filter(|_| self.case != same).map(|fio| &fio.iops) else { return };
        let ratios = fio.iter().zip(&self.line.iops).filter(|(fio, _)| **fio > 0.0);
        self.line.over_fio = median(ratios.map(|(fio, own)| own / fio).collect());
    }

    /// Writes the latencies as the percentile distribution that the tools of HdrHistogram read
    /// (`.hgrm`), in microseconds.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_percentiles(&self, out: &mut dyn io::Write) -> io::Result<()> {
        self.latencies.write_percentiles(out)
    }
}

/// The measurement with the most IOs per second whose 99th percentile, of reads and writes, is
/// below a limit.
#[must_use]
pub fn best_below<'a>(of: impl Iterator<Item = &'a DeviceLine>, p99_us: f64) -> Option<&'a DeviceLine> {
    let fits = |line: &&DeviceLine| {
        line.latency.p99_us < p99_us && line.write_latency.is_none_or(|writes| writes.p99_us < p99_us)
    };
    of.filter(fits).max_by(|one, other| one.median_iops.total_cmp(&other.median_iops))
}
