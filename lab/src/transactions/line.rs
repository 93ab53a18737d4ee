//! Collects the turns of a series (algorithm, operations and wire) under one condition, and
//! summarises them as one line of JSON.
//!
//! Invariants
//! - A line contains the rate of every turn. Its figures are medians of turns, and its percentiles
//!   and shares are over all turns together.
//! - A ratio is the median of the ratios of turns in the same round.
//! - A measurement that ended early has the reason in `partial`. A measurement that does something
//!   else than its name says has an explanation in `notes`.

use super::counters::Counters;
use super::driver::Measured;
use super::recorder::Checked;
use super::workload::{Choice, Mix, NoSuchName, Workload, named};
use crate::latency::LatencySummary;
use crate::median::median;
use crate::record::Provenance;
use az::SaturatingAs;
use rackscan_fabric::Wire;
use rackscan_ramp::algorithm::{Algorithm, NoSuchAlgorithm};
use serde::Deserialize as _;
use serde::Serialize;
use serde::de::IntoDeserializer as _;
use serde::de::value::StrDeserializer;
use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

/// The operations that read and write keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operations {
    /// GET and PUT: ordinary messages of the wire.
    Get,
    /// GET+ and PUT+: requests by one-sided writes into a polled buffer.
    GetPlus,
    /// GET* and PUT+: one-sided reads through the client's address cache, falling back to GET+.
    GetStar,
}

impl Operations {
    /// All operations.
    pub const ALL: [Self; 3] = [Self::Get, Self::GetPlus, Self::GetStar];

    /// The name by which users choose it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::GetPlus => "get+",
            Self::GetStar => "get*",
        }
    }
}

impl FromStr for Operations {
    type Err = NoSuchName;

    fn from_str(text: &str) -> Result<Self, NoSuchName> {
        named("kind of operations", &Self::ALL, Self::name, text)
    }
}

/// When a node acknowledges a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// When it is durable in its log and in a log replica on another node, as in a cluster.
    #[default]
    Replicas,
    /// When it is durable in its log.
    Log,
    /// When it is in its log in memory, which is lost with the host: as in the paper.
    Memory,
}

impl Durability {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Replicas, Self::Log, Self::Memory];

    /// The name by which users choose it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Replicas => "replicas",
            Self::Log => "log",
            Self::Memory => "memory",
        }
    }
}

impl FromStr for Durability {
    type Err = NoSuchName;

    fn from_str(text: &str) -> Result<Self, NoSuchName> {
        named("durability", &Self::ALL, Self::name, text)
    }
}

/// A combination that is compared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Series {
    /// The isolation algorithm.
    pub algorithm: Algorithm,
    /// The operations.
    pub operations: Operations,
    /// The wire.
    pub wire: Wire,
    /// When writes are acknowledged.
    pub durability: Durability,
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.algorithm, self.operations.name(), self.wire)?;
        if self.durability == Durability::default() {
            Ok(())
        } else {
            write!(f, " {}", self.durability.name())
        }
    }
}

/// Parses `ramp-fast:get:tcp`, or `ramp-fast:get:tcp:log`: an algorithm, operations, a wire, and a
/// durability, by default `replicas`.
impl FromStr for Series {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (algorithm, operations, wire, durability) = match *text.split(':').collect::<Vec<_>>() {
            [algorithm, operations, wire] => (algorithm, operations, wire, Durability::default().name()),
            [algorithm, operations, wire, durability] => (algorithm, operations, wire, durability),
            _ => {
                return Err(format!(
                    "expected ALGORITHM:OPERATIONS:WIRE or ALGORITHM:OPERATIONS:WIRE:DURABILITY as ramp-fast:get:tcp, found {text:?}"
                ));
            }
        };
        let series = Self {
            algorithm: algorithm.parse().map_err(|error: NoSuchAlgorithm| error.to_string())?,
            operations: operations.parse().map_err(|error: NoSuchName| error.to_string())?,
            wire: wire_of(wire)?,
            durability: durability.parse().map_err(|error: NoSuchName| error.to_string())?,
        };
        if series.algorithm == Algorithm::Locking && series.operations == Operations::GetStar {
            return Err(format!("{text}: s2pl locks what it reads, which get* cannot do"));
        }
        Ok(series)
    }
}

fn wire_of(text: &str) -> Result<Wire, String> {
    let word: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
    Wire::deserialize(word).map_err(|_| format!("there is no wire {text:?}, expected shm, tcp or verbs"))
}

/// Conditions under which series are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Transactions, keys and values.
    pub workload: Workload,
    /// Number of threads, each with a session.
    pub threads: u32,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Workload { mix, choice, size, .. } = self.workload;
        write!(f, "{}", mix.name())?;
        if let Mix::Micro { read_share } = mix {
            write!(f, " {:.0} % reads", read_share * 100.0)?;
        }
        write!(f, ", {choice}, {} keys each, {} threads", size.most, self.threads)
    }
}

/// All turns of one series at one point.
#[derive(Clone, Debug, Serialize)]
pub struct TransactionLine {
    /// Source of the figure. The scale is the gigabytes (10^9) of loaded values.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// Name of the algorithm.
    pub algorithm: &'static str,
    /// Name of the operations.
    pub operations: &'static str,
    /// The wire.
    pub wire: Wire,
    /// When writes are acknowledged: `replicas`, `log` or `memory`.
    pub durability: &'static str,
    /// `micro`, or the name of the core workload.
    pub workload: &'static str,
    /// Distribution of the keys.
    pub distribution: Choice,
    /// Keys per transaction.
    pub size: u32,
    /// Share of read transactions, for `micro`.
    pub read_share: Option<f64>,
    /// Number of threads, each with a session.
    pub threads: u32,
    /// Number of loaded keys.
    pub keys: u32,
    /// Bytes of each value.
    pub value_bytes: u32,
    /// Seconds of each turn.
    pub seconds: f64,
    /// Transactions per second of each turn.
    pub per_s: Vec<f64>,
    /// Their median.
    pub median_per_s: f64,
    /// Difference between the fastest and the slowest turn, as a share of the median.
    pub spread: f64,
    /// Keys read and written per second, median of the turns.
    pub operations_per_s: f64,
    /// Latency of whole transactions.
    pub latency: LatencySummary,
    /// Latency of reads and scans.
    pub read_latency: LatencySummary,
    /// Latency of writes.
    pub write_latency: LatencySummary,
    /// Mean round trips of a read.
    pub rounds_per_read: Option<f64>,
    /// Share of reads that took one round trip.
    pub one_round_share: Option<f64>,
    /// Share of keys that were read one-sidedly.
    pub one_sided_share: Option<f64>,
    /// Keys without a value.
    pub absent: u64,
    /// Transactions that failed, by kind.
    pub failures: BTreeMap<&'static str, u64>,
    /// Message of the first failure.
    pub first_failure: Option<String>,
    /// Processor time of this process per transaction, in nanoseconds.
    pub own_cpu_ns: f64,
    /// Processor time of the nodes per transaction, in nanoseconds.
    pub nodes_cpu_ns: Option<f64>,
    /// Rate relative to each baseline, by the baseline's name.
    pub over: BTreeMap<String, f64>,
    /// Result of the check, if there was one.
    pub checked: Option<Checked>,
    /// Deviations from the usual procedure.
    pub notes: Vec<&'static str>,
    /// Why there are fewer or shorter turns than asked for.
    pub partial: Option<String>,
}

impl TransactionLine {
    /// The series as text.
    #[must_use]
    pub fn series(&self) -> String {
        let series = format!("{} {} {}", self.algorithm, self.operations, self.wire);
        if self.durability == Durability::default().name() {
            return series;
        }
        format!("{series} {}", self.durability)
    }
}

/// Turns with their rounds.
pub(super) type Turns = Vec<(u32, Measured)>;

/// What the lines of one sweep share.
#[derive(Clone, Debug)]
pub(super) struct Common<'a> {
    pub(super) provenance: &'a Provenance,
    pub(super) seconds: f64,
    pub(super) rounds: u32,
    pub(super) partial: &'a str,
    pub(super) baselines: &'a [Series],
}

const BY_KEY: &str =
    "the store has no scans: each was a read of the next loaded keys in the order of their names";

/// The line of a series, if it has a turn; `all` are the turns of every series at this point.
pub(super) fn line(
    point: &Point,
    (series, turns): &(Series, Turns),
    all: &[(Series, Turns)],
    common: &Common<'_>,
) -> Option<TransactionLine> {
    let Point { workload, threads } = *point;
    let per_s: Vec<f64> = turns.iter().map(|(_, turn)| turn.per_s).collect();
    let median_per_s = median(per_s.clone())?;
    let (mut counters, mut checked) = (Counters::default(), None::<Checked>);
    for (_, turn) in turns {
        counters.add(&turn.counters);
        if let Some(more) = &turn.checked {
            checked.get_or_insert_default().add(more);
        }
    }
    let least = per_s.iter().copied().fold(f64::INFINITY, f64::min);
    let most = per_s.iter().copied().fold(0.0, f64::max);
    let cpu = |time: Duration| share(nanoseconds(time), counters.transactions).unwrap_or(0.0);
    let nodes_cpu: Option<Duration> = turns.iter().map(|(_, turn)| turn.peers_cpu).sum();
    let cut = turns.iter().find_map(|(_, turn)| turn.failure.clone());
    let fewer = turns.len() < common.rounds as usize || turns.iter().any(|(_, turn)| turn.stopped);
    Some(TransactionLine {
        provenance: common.provenance.clone(),
        algorithm: series.algorithm.name(),
        operations: series.operations.name(),
        wire: series.wire,
        durability: series.durability.name(),
        workload: workload.mix.name(),
        distribution: workload.choice,
        size: workload.size.most,
        read_share: match workload.mix {
            Mix::Micro { read_share } => Some(read_share),
            Mix::Ycsb(_) => None,
        },
        threads,
        keys: workload.keys,
        value_bytes: workload.value_bytes.most,
        seconds: common.seconds,
        median_per_s,
        spread: if median_per_s > 0.0 { (most - least) / median_per_s } else { 0.0 },
        operations_per_s: median(turns.iter().map(|(_, turn)| turn.operations_per_s).collect())?,
        latency: counters.latencies.summary(),
        read_latency: counters.reads.summary(),
        write_latency: counters.writes.summary(),
        rounds_per_read: share(counters.rounds, counters.reads.count()),
        one_round_share: share(counters.one_round, counters.reads.count()),
        one_sided_share: share(counters.one_sided, counters.keys_read),
        absent: counters.absent,
        own_cpu_ns: cpu(turns.iter().map(|(_, turn)| turn.own_cpu).sum()),
        nodes_cpu_ns: nodes_cpu.map(cpu),
        over: over(series, turns, all, common.baselines),
        checked,
        notes: if counters.scans_by_key > 0 { vec![BY_KEY] } else { Vec::new() },
        partial: cut.or_else(|| fewer.then(|| common.partial.to_owned())),
        failures: counters.failures,
        first_failure: counters.first_failure,
        per_s,
    })
}

/// Median ratios of the turns to those of each baseline, with the same durability, in the same
/// rounds.
fn over(of: &Series, turns: &Turns, all: &[(Series, Turns)], baselines: &[Series]) -> BTreeMap<String, f64> {
    let ratio = |baseline: &Series| {
        let baseline = Series { durability: of.durability, ..*baseline };
        let (_, others) = all.iter().find(|(series, _)| *series == baseline)?;
        let ratios = turns.iter().filter_map(|(round, turn)| {
            let (_, other) = others.iter().find(|(of, other)| of == round && other.per_s > 0.0)?;
            Some(turn.per_s / other.per_s)
        });
        Some((baseline.to_string(), median(ratios.collect())?))
    };
    baselines.iter().filter_map(ratio).collect()
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().saturating_as::<u64>()
}

#[expect(clippy::cast_precision_loss, reason = "shares for people: 53 bits are plenty")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const STAR: Series = Series {
        algorithm: Algorithm::Fast,
        operations: Operations::GetStar,
        wire: Wire::Shm,
        durability: Durability::Replicas,
    };
    pub(crate) const TCP: Series = Series {
        algorithm: Algorithm::Fast,
        operations: Operations::Get,
        wire: Wire::Tcp,
        durability: Durability::Replicas,
    };

    pub(crate) fn measured(per_s: f64) -> Measured {
        let mut counters = Counters { transactions: 100, operations: 400, ..Counters::default() };
        for _ in 0..80 {
            counters.reads.record(Duration::from_micros(10));
        }
        (counters.rounds, counters.one_round, counters.keys_read, counters.one_sided) = (88, 72, 320, 240);
        let (own_cpu, peers_cpu) = (Duration::from_micros(300), Some(Duration::from_micros(100)));
        let (checked, failure, stopped) = (None, None, false);
        Measured {
            counters,
            per_s,
            operations_per_s: 4.0 * per_s,
            own_cpu,
            peers_cpu,
            checked,
            failure,
            stopped,
        }
    }

    pub(crate) fn common<'a>(provenance: &'a Provenance, baselines: &'a [Series]) -> Common<'a> {
        Common { provenance, seconds: 1.0, rounds: 3, partial: "it was asked to stop", baselines }
    }

    #[test]
    fn ratios_are_medians_of_turns_of_the_same_round() {
        let point = Point { workload: Workload::micro(1.0, 4, 1000), threads: 8 };
        // The machine gets slower by half between the rounds, and one turn of the baseline is
        // missing.
        let star = vec![(0, measured(3000.0)), (1, measured(1500.0)), (2, measured(900.0))];
        let tcp = vec![(0, measured(1000.0)), (2, measured(300.0))];
        let all = [(STAR, star), (TCP, tcp)];
        let provenance = Provenance::now("ramp", 0.001);
        let lines =
            all.each_ref().map(|turns| line(&point, turns, &all, &common(&provenance, &[TCP])).unwrap());
        assert_eq!(lines[0].over, BTreeMap::from([("ramp-fast get tcp".to_owned(), 3.0)]));
        assert_eq!(lines[1].over, BTreeMap::from([("ramp-fast get tcp".to_owned(), 1.0)]));
        assert!((lines[0].median_per_s - 1500.0).abs() < 1e-9 && (lines[0].spread - 1.4).abs() < 1e-9);
        assert!((lines[0].operations_per_s - 6000.0).abs() < 1e-9);
        assert_eq!(
            (lines[0].partial.as_deref(), lines[1].partial.as_deref()),
            (None, Some("it was asked to stop"))
        );
        assert_eq!((lines[0].rounds_per_read, lines[0].one_round_share), (Some(1.1), Some(0.9)));
        assert_eq!((lines[0].one_sided_share, lines[0].nodes_cpu_ns), (Some(0.75), Some(1000.0)));
        assert!((lines[0].own_cpu_ns - 3000.0).abs() < 1e-9);
        let text = serde_json::to_string(&lines[0]).unwrap();
        let expected = r#""algorithm":"ramp-fast","operations":"get*","wire":"shm","durability":"replicas","workload":"micro","distribution":"uniform","size":4,"read_share":1.0,"threads":8"#;
        assert!(text.starts_with("{\"bench\":\"ramp\"") && text.contains(expected), "{text}");
    }

    #[test]
    fn a_series_without_a_turn_has_no_line() {
        let point = Point { workload: Workload::micro(1.0, 4, 1000), threads: 8 };
        let provenance = Provenance::now("ramp", 0.001);
        assert!(line(&point, &(STAR, Vec::new()), &[], &common(&provenance, &[])).is_none());
    }

    #[test]
    fn names_of_operations_are_read_as_they_are_written() {
        for operations in Operations::ALL {
            assert_eq!(operations.name().parse(), Ok(operations));
        }
        let why = "put".parse::<Operations>().unwrap_err().to_string();
        assert!(why.contains("expected one of get, get+, get*"), "{why}");
    }
}
