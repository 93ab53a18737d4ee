//! Defines the arguments of `rackscan lab ramp` and `rackscan lab ramp-stress`.

use super::{
    kv::algorithm,
    unused::Unused,
    values::{WIRES, WITHOUT_VERBS, one_of},
};
use clap::Args;
use rackscan_fabric::Wire;
use rackscan_lab::transactions::{
    Durability, Operations, Series,
    workload::{Choice, Core, Mix},
};
use rackscan_ramp::algorithm::Algorithm;
use std::path::PathBuf;

/// The nodes to measure on.
#[derive(Clone, Debug, Args)]
pub(crate) struct ParticipantsArguments {
    /// Number of nodes; each is a process started for this command
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) nodes: u16,
    /// Folder for the nodes' logs; removed afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Listening address of the nodes for the wire verbs; RACKSCAN_VERBS_DEVICE names the adapter
    /// of this side
    #[arg(long, value_name = "DEVICE@ADDRESS")]
    pub(crate) verbs: Option<String>,
}

/// `rackscan lab ramp`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchRamp {
    /// Isolation algorithms, comma-separated: ramp-fast, ramp-small, ramp-hybrid, s2pl, none
    #[arg(long, value_delimiter = ',', value_name = "NAME", default_value = "ramp-fast", value_parser = algorithm)]
    pub(crate) algorithms: Vec<Algorithm>,
    /// Operations on keys, comma-separated: get (messages), get+ (polled message buffers), get*
    /// (one-sided reads)
    #[arg(long, value_delimiter = ',', value_name = "NAME", default_value = "get,get+,get*", value_parser = operations)]
    pub(crate) operations: Vec<Operations>,
    /// Wires to the nodes, comma-separated
    #[arg(long, value_parser = one_of(&WIRES), value_delimiter = ',', default_value = "shm,tcp")]
    pub(crate) wires: Vec<Wire>,
    /// When nodes acknowledge a write, comma-separated: replicas (durable in the log and in a log
    /// replica), log (durable in the log), memory (in a log in memory, as in the paper)
    #[arg(long, value_delimiter = ',', value_name = "NAME", default_value = "replicas", value_parser = durability)]
    pub(crate) durability: Vec<Durability>,
    /// Single series instead of all combinations, comma-separated: ALGORITHM:OPERATIONS:WIRE, or
    /// ALGORITHM:OPERATIONS:WIRE:DURABILITY, as ramp-fast:get:tcp
    #[arg(long, value_delimiter = ',', value_name = "SERIES", value_parser = str::parse::<Series>,
          conflicts_with_all = ["algorithms", "operations", "wires", "durability"])]
    pub(crate) series: Vec<Series>,
    /// Workloads, comma-separated: micro, ycsb-a to ycsb-f
    #[arg(long, value_delimiter = ',', value_name = "NAME", default_value = "micro", value_parser = mix)]
    pub(crate) workloads: Vec<Mix>,
    /// Distribution of keys: uniform, zipfian, latest [default: uniform for micro, otherwise that
    /// of the workload]
    #[arg(long, value_name = "NAME", value_parser = choice)]
    pub(crate) distribution: Option<Choice>,
    /// Keys per transaction, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "4,8")]
    pub(crate) sizes: Vec<u32>,
    /// Shares of read transactions in micro, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "SHARE", default_value = "1", value_parser = share)]
    pub(crate) read_shares: Vec<f64>,
    /// Numbers of client threads, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "8")]
    pub(crate) clients: Vec<u32>,
    /// Number of keys to load
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) keys: u32,
    /// Size of each value in bytes
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) value_bytes: u32,
    /// Repetitions of each measurement; the median is reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Seconds of each repetition
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Seconds of warm-up before each repetition, in which clients learn where keys are
    #[arg(long, value_name = "N", default_value_t = 3.0, value_parser = seconds)]
    pub(crate) warm_up: f64,
    /// Record what every client read, and check that it was read-atomic; slows the clients a little
    #[arg(long)]
    pub(crate) check: bool,
    /// Seed of the random keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) participants: ParticipantsArguments,
    /// Append one JSON line per measurement to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write a page with figures 5, 6 and 7, bars and tables into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
}

/// `rackscan lab ramp-stress`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchRampStress {
    /// Isolation algorithm
    #[arg(long, value_name = "NAME", default_value = "ramp-fast", value_parser = algorithm)]
    pub(crate) algorithm: Algorithm,
    /// Operations on keys: get, get+ or get*
    #[arg(long, value_name = "NAME", default_value = "get*", value_parser = operations)]
    pub(crate) operations: Operations,
    /// Wire to the nodes
    #[arg(long, value_parser = one_of(&WIRES), default_value = "shm")]
    pub(crate) over: Wire,
    /// Number of transactions of all clients together
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub(crate) transactions: u64,
    /// Maximum duration in seconds
    #[arg(long, value_name = "N", default_value_t = 60.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Number of client threads
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) clients: u32,
    /// Number of keys; few, so that transactions conflict
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) keys: u32,
    /// Share of read transactions
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = share)]
    pub(crate) read_share: f64,
    /// Transactions between two kills or starts of a node, drawn from half to twice this number; 0
    /// kills none
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) between_kills: u32,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) participants: ParticipantsArguments,
    /// Append a JSON line to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl BenchRamp {
    pub(super) fn unused(&self) -> Vec<Unused> {
        let rule = |option, is_unused, why| Unused { option, is_unused, why };
        let has_verbs = match self.series.is_empty() {
            true => self.wires.contains(&Wire::Verbs),
            false => self.series.iter().any(|series| series.wire == Wire::Verbs),
        };
        let micro = self.workloads.iter().any(|mix| matches!(mix, Mix::Micro { .. }));
        vec![
            rule("verbs", !has_verbs, WITHOUT_VERBS),
            rule("read_shares", !micro, "--workloads does not contain micro, and YCSB has shares of its own"),
        ]
    }
}

impl BenchRampStress {
    pub(super) fn unused(&self) -> Vec<Unused> {
        vec![Unused { option: "verbs", is_unused: self.over != Wire::Verbs, why: "--over is not verbs" }]
    }
}

fn durability(text: &str) -> Result<Durability, String> {
    text.parse().map_err(|error: rackscan_lab::transactions::workload::NoSuchName| error.to_string())
}

fn operations(text: &str) -> Result<Operations, String> {
    text.parse().map_err(|error: rackscan_lab::transactions::workload::NoSuchName| error.to_string())
}

fn choice(text: &str) -> Result<Choice, String> {
    text.parse().map_err(|error: rackscan_lab::transactions::workload::NoSuchName| error.to_string())
}

fn mix(text: &str) -> Result<Mix, String> {
    if text == "micro" {
        return Ok(Mix::Micro { read_share: 1.0 });
    }
    let core = text.parse::<Core>();
    core.map(Mix::Ycsb).map_err(|_| format!("'{text}' is no workload, expected micro or ycsb-a to ycsb-f"))
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a share from 0 to 1".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(seconds),
        _ => Err("expected seconds above 0, at most a day".to_owned()),
    }
}
