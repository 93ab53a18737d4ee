//! Which words does `rackscan lab` understand?

use super::{
    BenchDegraded, BenchIo, BenchParity, BenchPlacement, BenchQuery, BenchRamp, BenchRampStress,
    BenchRebuild, BenchRefresh, BenchRefreshStreams, BenchScan, BenchTpch, BenchXor,
};
use clap::{Args, Subcommand, ValueEnum};
use rackscan_bench::fabric::Shape;
use std::path::PathBuf;

/// `rackscan lab`
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// The 22 queries under each placement, medians of turns, beside DataFusion and DuckDB if asked
    #[command(after_help = "Examples:\n  rackscan lab tpch --scale 1 --repeat 3\n  \
                            rackscan lab tpch --placements auto,local,remote-fetch,remote-process --cache 128MiB --repeat 7\n  \
                            rackscan lab tpch --peers datafusion,duckdb-native --json results.jsonl --report tpch-report\n  \
                            sudo rackscan lab tpch --cold --peers duckdb-native --queries q01,q06")]
    Tpch(BenchTpch),
    /// One-sided transfers of each wire beside a plain copy, and its round trips beside a Unix
    /// socket
    #[command(after_help = "Examples:\n  rackscan lab fabric\n  \
                            rackscan lab fabric --wires shm --repeat 5 --json results.jsonl")]
    Fabric(BenchFabric),
    /// Messages through an inbox beside private rings: latency, bandwidth, receive memory
    #[command(after_help = "Examples:\n  rackscan lab inbox\n  \
                            rackscan lab inbox --wires shm --sizes 8,64,1048576 --repeat 7\n  \
                            rackscan lab inbox --memory-only --senders 64,1000")]
    Inbox(BenchInbox),
    /// Transactions of several keys: by algorithm, by operations, by wire; the paper's
    /// micro-benchmark and YCSB
    #[command(after_help = "Examples:\n  rackscan lab ramp\n  \
                            rackscan lab ramp --sizes 2,4,8,16,32 --read-shares 0.95 --report ramp-report\n  \
                            rackscan lab ramp --sizes 4,8 --read-shares 0,0.25,0.5,0.75,0.95,1 --algorithms ramp-fast,s2pl\n  \
                            rackscan lab ramp --workloads ycsb-a,ycsb-b,ycsb-c,ycsb-d,ycsb-e,ycsb-f --sizes 4 --check")]
    Ramp(Box<BenchRamp>),
    /// Transactions on few keys while nodes are killed and started again: everything that was seen
    /// is checked
    #[command(after_help = "Examples:\n  rackscan lab ramp-stress\n  \
                            rackscan lab ramp-stress --algorithm ramp-small --over tcp --transactions 100000 --seed 7")]
    RampStress(Box<BenchRampStress>),
    /// Writing stripes that survive lost nodes: data alone, parities by the client, parities by
    /// relays
    #[command(after_help = "Examples:\n  rackscan lab parity\n  \
                            rackscan lab parity --nodes 3,4,5,8 --blocks 64KiB --to memory --wires shm --report parity-report\n  \
                            rackscan lab parity --wires tcp --client-link 200 --blocks 64KiB --to memory\n  \
                            rackscan lab parity --parity xor --nodes 3 --blocks 4KiB,8KiB,16KiB --ways naive,relay")]
    Parity(Box<BenchParity>),
    /// Queries while the refresh functions of TPC-H run at full rate, beside the same without;
    /// every order is looked at for being whole
    #[command(
        after_help = "The refreshes are sessions of their own, in a process that is started for this command and ends with it.\n\nExamples:\n  rackscan lab refresh\n  \
                            rackscan lab refresh --scale 0.1 --queries q01,q06,q15 --placement remote-process --streams 2"
    )]
    Refresh(BenchRefresh),
    /// Queries while nodes are killed whose rows are protected by parity, beside the same with all
    /// nodes; answers are compared
    #[command(after_help = "Examples:\n  rackscan lab degraded\n  \
                            rackscan lab degraded --scale 0.1 --queries q01,q06 --lose 3 --placement remote-fetch\n\n\
                            The nodes are started for this command; it kills them with a signal and starts them again.")]
    Degraded(BenchDegraded),
    /// Rebuild a node that has lost everything, beside what its bytes cost the devices and the wire
    /// alone
    #[command(
        after_help = "Examples:\n  rackscan lab rebuild\n  rackscan lab rebuild --scale 0.1 --nodes 5 --repeat 1\n  \
                            sudo rackscan lab rebuild --wire-rate 200 --schedule relay\n  \
                            sudo rackscan lab rebuild --disk-rate 100\n\n\
                            The nodes are its own: they are made in the folder, and gone afterwards."
    )]
    Rebuild(BenchRebuild),
    /// Random reads of a device: by this process, by a storage node, and the wire between them
    /// alone
    #[command(after_help = "Examples:\n  rackscan lab io\n  \
                            rackscan lab io --sizes 4KiB --bridges reactor,static,dynamic --connections 1,4\n  \
                            rackscan lab io --open-loop 20000 --depths 128\n  \
                            rackscan lab io --sweep --effort 0.2 --report lab-report")]
    Io(Box<BenchIo>),
    /// The filters of three queries over lineitem: by this process, over fetched pages, and in a
    /// storage node
    #[command(after_help = "Examples:\n  rackscan lab query-io --scale 0.1 --report query-report\n  \
                            rackscan lab query-io --queries q06 --page-sizes 16KiB --connections 1,2,4 --io-threads 1,2,8\n  \
                            rackscan lab query-io --wire tcp --placements remote-fetch,remote-process")]
    QueryIo(Box<BenchQuery>),
    /// Automatic placement beside the best forced one: by selectivity, by the nodes' processor
    /// time, by the wire's bandwidth
    #[command(after_help = "Examples:\n  sudo rackscan lab placement --report placement-report\n  \
                            sudo rackscan lab placement --scale 0.1 --selectivities 0.001,1 --cpu-shares 10,100 --bandwidths 50,unlimited\n  \
                            rackscan lab placement --cpu-shares 100 --bandwidths unlimited --queries aggregate\n\n\
                            The nodes are real processes of this host, each in a control group with a quota, reached over tcp in a network of the command's \
                            own;\nboth end with the command. Their devices cannot be opened by the engine, as on another machine, unless --attached.")]
    Placement(Box<BenchPlacement>),
    /// The kernels of a scan on one core, over pages in memory, beside a plain copy of the same
    /// bytes
    #[command(after_help = "Examples:\n  rackscan lab scan\n  \
                            rackscan lab scan --levels all --repeat 11 --report scan-report\n  \
                            rackscan lab scan --kernels unpack,checksum --json results.jsonl")]
    Scan(BenchScan),
    /// XOR of blocks on one core, out of memory and out of the cache, beside a plain loop that
    /// reads and writes as much
    #[command(
        after_help = "Examples:\n  rackscan lab xor\n  rackscan lab xor --blocks 4KiB,64KiB,1MiB --report xor-report"
    )]
    Xor(BenchXor),
    /// The second process of a measurement; started by the first
    #[command(hide = true)]
    Answer,
    /// The process of the streams of `lab refresh`; started by that
    #[command(hide = true)]
    RefreshStreams(BenchRefreshStreams),
}

/// A wire to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FabricWire {
    /// Shared memory
    Shm,
    /// TCP over loopback
    Tcp,
    /// RDMA between the devices named with --verbs
    Verbs,
}

/// What the benchmarks of wires have in common.
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchWires {
    /// Which wires, by comma
    #[arg(long, value_enum, value_delimiter = ',', default_value = "shm,tcp")]
    pub(crate) wires: Vec<FabricWire>,
    /// The two ends of --wires verbs: DEVICE@ADDRESS of this process and of the second one
    #[arg(long, value_delimiter = ',', value_name = "OURS,THEIRS", num_args = 1)]
    pub(crate) verbs: Vec<String>,
    /// Turns of each figure; the best counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// How much is done in each turn: 1 is usual, 0.01 only shows that it works
    #[arg(long, default_value_t = 1.0, value_parser = effort)]
    pub(crate) effort: f64,
    /// Append the JSON lines to this file; the table is standard output then
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// `rackscan lab fabric`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchFabric {
    #[command(flatten)]
    pub(crate) common: BenchWires,
}

/// `rackscan lab inbox`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchInbox {
    #[command(flatten)]
    pub(crate) common: BenchWires,
    /// Bytes of a message, by comma [default: 8 to 1048576]
    #[arg(long, value_delimiter = ',', value_name = "BYTES")]
    pub(crate) sizes: Vec<usize>,
    /// Bytes of each ring
    #[arg(long, value_name = "BYTES", default_value_t = Shape::default().ring_bytes)]
    pub(crate) ring_bytes: usize,
    /// Bytes of a packet
    #[arg(long, value_name = "BYTES", default_value_t = Shape::default().packet_bytes)]
    pub(crate) packet_bytes: usize,
    /// Measure a ring that the sender shares with nobody now but could, instead of one of its own
    #[arg(long)]
    pub(crate) shared: bool,
    /// Senders of the memory figures, by comma
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "64,1000",
          value_parser = clap::value_parser!(u16).range(18..=4000))]
    pub(crate) senders: Vec<u16>,
    /// Only the memory figures, without latency and bandwidth
    #[arg(long)]
    pub(crate) memory_only: bool,
}

pub(super) fn effort(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(effort) if effort > 0.0 && effort <= 1000.0 => Ok(effort),
        _ => Err("expected a number above 0, at most 1000".to_owned()),
    }
}
