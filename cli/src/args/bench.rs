//! Defines the arguments of the measurements of `rackscan lab`.

use super::{
    BenchDegraded, BenchDevice, BenchIo, BenchParity, BenchPlacement, BenchQuery, BenchRamp, BenchRampStress,
    BenchRebuild, BenchRefresh, BenchRefreshStreams, BenchScan, BenchTpch, BenchXor, effort,
    unused::Unused,
    values::{WIRES, WITHOUT_VERBS, one_of},
};
use clap::{Args, Subcommand};
use rackscan_bench::fabric::Shape;
use rackscan_fabric::Wire;
use std::path::PathBuf;

/// `rackscan lab`
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Time the 22 TPC-H queries under each placement, optionally next to DataFusion and DuckDB
    #[command(after_help = "Examples:\n  rackscan lab tpch --scale 1 --repeat 3\n  \
                            rackscan lab tpch --placements auto,local,remote-fetch,remote-process --cache 128MiB --repeat 7\n  \
                            rackscan lab tpch --peers datafusion,duckdb-native --json results.jsonl --report tpch-report\n  \
                            sudo rackscan lab tpch --cold --peers duckdb-native --queries q01,q06")]
    Tpch(BenchTpch),
    /// Measure each wire: one-sided transfers next to a plain copy, round trips next to a Unix
    /// socket
    #[command(after_help = "Examples:\n  rackscan lab fabric\n  \
                            rackscan lab fabric --wires shm --repeat 5 --json results.jsonl")]
    Fabric(BenchFabric),
    /// Measure messages through a shared inbox next to private rings: latency, bandwidth, receive
    /// memory
    #[command(after_help = "Examples:\n  rackscan lab inbox\n  \
                            rackscan lab inbox --wires shm --sizes 8,64,1048576 --repeat 7\n  \
                            rackscan lab inbox --memory-only --senders 64,1000")]
    Inbox(BenchInbox),
    /// Measure multi-key transactions by algorithm, operations and wire: the RAMP paper's
    /// micro-benchmark and YCSB
    #[command(after_help = "Examples:\n  rackscan lab ramp\n  \
                            rackscan lab ramp --sizes 2,4,8,16,32 --read-shares 0.95 --report ramp-report\n  \
                            rackscan lab ramp --sizes 4,8 --read-shares 0,0.25,0.5,0.75,0.95,1 --algorithms ramp-fast,s2pl\n  \
                            rackscan lab ramp --workloads ycsb-a,ycsb-b,ycsb-c,ycsb-d,ycsb-e,ycsb-f --sizes 4 --check")]
    Ramp(Box<BenchRamp>),
    /// Run transactions on few keys while nodes are killed and restarted, and check everything that
    /// was read
    #[command(after_help = "Examples:\n  rackscan lab ramp-stress\n  \
                            rackscan lab ramp-stress --algorithm ramp-small --over tcp --transactions 100000 --seed 7")]
    RampStress(Box<BenchRampStress>),
    /// Measure writes of stripes: without parity, with parity by the client, with parity by relays
    #[command(after_help = "Examples:\n  rackscan lab parity\n  \
                            rackscan lab parity --nodes 3,4,5,8 --blocks 64KiB --to memory --wires shm --report parity-report\n  \
                            rackscan lab parity --wires tcp --client-link 200 --blocks 64KiB --to memory\n  \
                            rackscan lab parity --parity xor --nodes 3 --blocks 4KiB,8KiB,16KiB --ways naive,relay")]
    Parity(Box<BenchParity>),
    /// Measure queries with and without TPC-H refresh functions at full rate, and check that every
    /// order is complete
    #[command(
        after_help = "The refresh streams use their own sessions in a process that this command starts and ends.\n\nExamples:\n  rackscan lab refresh\n  \
                            rackscan lab refresh --scale 0.1 --queries q01,q06,q15 --placement remote-process --streams 2"
    )]
    Refresh(BenchRefresh),
    /// Measure queries with all nodes and after killing some, over tables with parity, and compare
    /// the answers
    #[command(after_help = "Examples:\n  rackscan lab degraded\n  \
                            rackscan lab degraded --scale 0.1 --queries q01,q06 --lose 3 --placement remote-fetch\n\n\
                            This command starts the nodes, kills them with a signal and starts them again.")]
    Degraded(BenchDegraded),
    /// Measure the rebuild of a node that lost everything, next to the time its bytes need on
    /// devices and wire alone
    #[command(
        after_help = "Examples:\n  rackscan lab rebuild\n  rackscan lab rebuild --scale 0.1 --nodes 5 --repeat 1\n  \
                            sudo rackscan lab rebuild --wire-rate 200 --schedule relay\n  \
                            sudo rackscan lab rebuild --disk-rate 100\n\n\
                            This command creates its own nodes in the folder and removes them afterwards."
    )]
    Rebuild(BenchRebuild),
    /// Measure random reads of a device: by this process, by a storage node, and the wire alone
    #[command(after_help = "Examples:\n  rackscan lab io\n  \
                            rackscan lab io --sizes 4KiB --bridges reactor,static,dynamic --connections 1,4\n  \
                            rackscan lab io --open-loop 20000 --depths 128\n  \
                            rackscan lab io --cluster cluster.toml --node 1 --modes wire,remote --depths 1,32\n  \
                            rackscan lab io --sweep --effort 0.2 --report lab-report")]
    Io(Box<BenchIo>),
    /// Measure devices of this host: reads, writes, mixes, trims; by threads, depth, and way of IO
    #[command(after_help = "Examples:\n  rackscan lab device\n  \
                            rackscan lab device --devices /dev/nvme0n1,/dev/nvme1n1 --jobs 1,2,4 --depths 1,32,128\n  \
                            rackscan lab device --workloads write,mix:70 --fsync-every 16 --verify --folder /mnt/disk\n  \
                            rackscan lab device --engines uring,uring-sqpoll,pread,fio --events --report device-report\n  \
                            rackscan lab device --devices /dev/nvme0n1 --overwrite --workloads write --precondition 2 --steady\n  \
                            rackscan lab device --jobs 1,2 --depths 1,2,4,8,16,32 --p99-below 500us\n  \
                            rackscan lab device --job random-read.fio")]
    Device(Box<BenchDevice>),
    /// Measure the filters of three queries over lineitem: in this process, over fetched pages, in
    /// a storage node
    #[command(after_help = "Examples:\n  rackscan lab query-io --scale 0.1 --report query-report\n  \
                            rackscan lab query-io --queries q06 --page-sizes 16KiB --connections 1,2,4 --io-threads 1,2,8\n  \
                            rackscan lab query-io --wire tcp --placements remote-fetch,remote-process")]
    QueryIo(Box<BenchQuery>),
    /// Compare automatic placement with the best forced one, by selectivity, processor share and
    /// bandwidth
    #[command(after_help = "Examples:\n  sudo rackscan lab placement --report placement-report\n  \
                            sudo rackscan lab placement --scale 0.1 --selectivities 0.001,1 --cpu-shares 10,100 --bandwidths 50,unlimited\n  \
                            rackscan lab placement --cpu-shares 100 --bandwidths unlimited --queries aggregate\n\n\
                            The nodes are processes of this host, each in a control group with a quota, reached over tcp in a network namespace of \
                            the command;\nboth are removed when the command ends. Without --attached, the engine cannot open the nodes' devices, as if they were on another machine.")]
    Placement(Box<BenchPlacement>),
    /// Measure the scan kernels on one core over pages in memory, next to a plain copy of the same
    /// bytes
    #[command(after_help = "Examples:\n  rackscan lab scan\n  \
                            rackscan lab scan --levels all --repeat 11 --report scan-report\n  \
                            rackscan lab scan --kernels unpack,checksum --json results.jsonl")]
    Scan(BenchScan),
    /// Measure XOR of blocks on one core, from memory and from the cache, next to a loop that reads
    /// and writes as much
    #[command(
        after_help = "Examples:\n  rackscan lab xor\n  rackscan lab xor --blocks 4KiB,64KiB,1MiB --report xor-report"
    )]
    Xor(BenchXor),
    /// The second process of a measurement; started by the first
    #[command(hide = true)]
    Answer,
    /// The process that runs the refresh streams of `lab refresh`; started by it
    #[command(hide = true)]
    RefreshStreams(BenchRefreshStreams),
}

/// Options that the wire benchmarks share.
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchWires {
    /// Wires, comma-separated
    #[arg(long, value_parser = one_of(&WIRES), value_delimiter = ',', default_value = "shm,tcp")]
    pub(crate) wires: Vec<Wire>,
    /// Both ends of --wires verbs: DEVICE@ADDRESS of this process and of the second one
    #[arg(long, value_delimiter = ',', value_name = "OURS,THEIRS", num_args = 1)]
    pub(crate) verbs: Vec<String>,
    /// Repetitions of each measurement; the best is reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Amount of work per repetition, as a factor: 1 is usual, 0.01 is a smoke test
    #[arg(long, default_value_t = 1.0, value_parser = effort)]
    pub(crate) effort: f64,
    /// Append JSON lines to this file, and print the table to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl BenchWires {
    pub(super) fn unused(&self) -> Vec<Unused> {
        vec![Unused { option: "verbs", is_unused: !self.wires.contains(&Wire::Verbs), why: WITHOUT_VERBS }]
    }
}

/// `rackscan lab fabric`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchFabric {
    #[command(flatten)]
    pub(crate) common: BenchWires,
}

impl BenchInbox {
    pub(super) fn unused(&self) -> Vec<Unused> {
        let rule =
            |option| Unused { option, is_unused: self.memory_only, why: "--memory-only measures no time" };
        let common = self.common.unused().into_iter();
        common.chain(["repeat", "effort"].map(rule)).collect()
    }
}

/// `rackscan lab inbox`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchInbox {
    #[command(flatten)]
    pub(crate) common: BenchWires,
    /// Message sizes in bytes, comma-separated [default: 8 to 1048576]
    #[arg(long, value_delimiter = ',', value_name = "BYTES", conflicts_with = "memory_only")]
    pub(crate) sizes: Vec<usize>,
    /// Size of each ring in bytes
    #[arg(long, value_name = "BYTES", default_value_t = Shape::default().ring_bytes)]
    pub(crate) ring_bytes: usize,
    /// Size of a packet in bytes
    #[arg(long, value_name = "BYTES", default_value_t = Shape::default().packet_bytes)]
    pub(crate) packet_bytes: usize,
    /// Measure a ring that senders can share (one sender uses it), instead of a private ring
    #[arg(long)]
    pub(crate) shared: bool,
    /// Numbers of senders for the memory figures, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "64,1000",
          value_parser = clap::value_parser!(u16).range(18..=4000))]
    pub(crate) senders: Vec<u16>,
    /// Measure only memory, without latency and bandwidth
    #[arg(long)]
    pub(crate) memory_only: bool,
}
