//! Which words does the command line understand?

mod bench;
mod bench_io;
mod bench_parity;
mod bench_placement;
mod bench_query;
mod bench_ramp;
mod bench_scan;
mod bench_tpch;
mod bench_xor;
mod help;
mod kv;
mod lab;
mod load;
mod query_memory;
mod refresh;
mod repair;
mod replay;
mod stripe;
mod values;

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::{ffi::OsString, path::PathBuf};

pub(crate) use bench::{Bench, BenchFabric, BenchInbox, BenchWires, FabricWire};
pub(crate) use bench_io::{BenchIo, LabMode, LabWire};
pub(crate) use bench_parity::{BenchParity, CellsTo};
pub(crate) use bench_placement::BenchPlacement;
pub(crate) use bench_query::BenchQuery;
pub(crate) use bench_ramp::{BenchRamp, BenchRampStress, HomesArguments};
pub(crate) use bench_scan::BenchScan;
pub(crate) use bench_tpch::BenchTpch;
pub(crate) use bench_xor::BenchXor;
pub(crate) use help::parsed;
pub(crate) use kv::{Isolation, Kv, KvGet, KvPut, KvScan};
pub(crate) use lab::Lab;
pub(crate) use load::{FileLoad, Load, LoadParity, LoadShape};
pub(crate) use query_memory::QueryMemory;
pub(crate) use refresh::{
    BenchDegraded, BenchRefresh, BenchRefreshStreams, Refresh, RefreshFunction, StreamsInArgument,
};
pub(crate) use repair::{BenchRebuild, Fsck, Rebuild, Recover, Scrub};
pub(crate) use replay::Replay;
pub(crate) use stripe::{ParityArgument, ScheduleArgument, Stripe};
use values::{ascii_character, bytes, delimiter, page_size, scale, segment_rows};

/// A parallel SQL engine over disaggregated storage.
#[derive(Debug, Parser)]
#[command(
    name = "rackscan",
    version,
    about = "A parallel SQL engine over disaggregated storage",
    long_about = "A parallel SQL engine over disaggregated storage.\n\nStorage nodes keep tables as pages on their devices and serve them over a fabric; each scan runs where you \
                  (or the price model) say: next to the devices (local), in the engine after fetching raw pages \
                  (remote-fetch), or inside the storage nodes (remote-process).",
    after_help = "Examples:\n  rackscan query q06                          load TPC-H at scale 0.1 if needed, run query 6\n  \
                  rackscan query all --placement remote-process --timing\n  \
                  rackscan sql \"SELECT count(*) FROM lineitem\"\n  \
                  rackscan explain --analyze q06\n  \
                  rackscan shell\n\n\
                  Exit codes: 0 success, 1 failure at run time, 2 wrong usage."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options every command takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// The folder that holds an embedded cluster's nodes, devices and key
    #[arg(long, global = true, value_name = "DIR", default_value = "rackscan-data", env = "RACKSCAN_DATA")]
    pub(crate) data: PathBuf,
    /// The cluster's description, a TOML file [default: cluster.toml in the data folder]
    #[arg(long, global = true, value_name = "FILE", env = "RACKSCAN_CLUSTER")]
    pub(crate) cluster: Option<PathBuf>,
    /// The wire to reach the nodes by [default: the first address each node lists]
    #[arg(long, global = true, value_enum)]
    pub(crate) wire: Option<Wire>,
    /// Threads the engine computes with [default: one per core]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Memory in which the engine keeps pages that it has fetched, beside what the nodes keep
    /// (`64MiB`) [default: none]
    #[arg(long, global = true, value_name = "SIZE", default_value = "0", hide_default_value = true, value_parser = bytes)]
    pub(crate) engine_cache: u64,
    #[command(flatten)]
    pub(crate) queries: QueryMemory,
    /// How many nodes may be away, at most 2: tables that were loaded with parity are read without
    /// them [default: for queries, 2 of four nodes or more, 1 of three; else 0]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) away: Option<u8>,
    /// What to log on standard error, as in RUST_LOG (`info`, `rackscan_engine=debug`)
    #[arg(long, global = true, value_name = "FILTER")]
    pub(crate) log: Option<String>,
}

impl Global {
    /// The same options as words for another process of this program.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let mut words = vec![OsString::from("--data"), self.data.clone().into()];
        let mut say = |option: &str, value: Option<OsString>| {
            if let Some(value) = value {
                words.extend([option.into(), value]);
            }
        };
        say("--cluster", self.cluster.clone().map(Into::into));
        say("--wire", self.wire.as_ref().map(word));
        say("--threads", self.threads.map(|threads| threads.to_string().into()));
        say("--engine-cache", Some(format!("{}B", self.engine_cache).into()));
        say("--away", self.away.map(|away| away.to_string().into()));
        say("--log", self.log.clone().map(Into::into));
        words.extend(self.queries.words());
        words
    }
}

/// How a value is said on the command line.
pub(crate) fn word<V: ValueEnum>(value: &V) -> OsString {
    value.to_possible_value().map_or_else(OsString::new, |value| value.get_name().into())
}

/// A wire of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wire {
    /// Shared memory, on one machine
    Shm,
    /// TCP, between machines
    Tcp,
    /// RDMA (InfiniBand, RoCE, iWARP); needs a build with --features verbs
    Verbs,
}

/// Where scans run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlacementArgument {
    /// The engine reads the devices attached to its own host
    Local,
    /// Nodes send raw pages, the engine scans them
    RemoteFetch,
    /// Nodes scan, only qualifying rows (or groups) travel
    RemoteProcess,
    /// The price model decides, segment by segment
    Auto,
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns for people
    Table,
    /// RFC 4180, with a header line
    Csv,
    /// One array of objects
    Json,
    /// One object a line
    Ndjson,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Load tables: TPC-H, a Parquet file, a CSV file
    #[command(subcommand)]
    Load(Load),
    /// Run TPC-H queries by number
    Query(Query),
    /// Run SQL
    Sql(Sql),
    /// Read SQL from a prompt
    Shell(Shell),
    /// Show where the scans of a query run, and with --analyze what they did
    Explain(Explain),
    /// List the tables of the cluster
    Tables(Tables),
    /// Drop a table
    Drop(DropTable),
    /// Write changed rows into segments, while others read and write
    Seal(Seal),
    /// Check pages and parity on their devices, and repair what is corrupt
    Scrub(Scrub),
    /// Check everything, also the parity's equations, and change nothing
    Fsck(Fsck),
    /// Rebuild what a node has lost, from what the others have
    Rebuild(Rebuild),
    /// Let a node go on whose transaction log is lost, though records may be missing
    Recover(Recover),
    /// Run TPC-H's refresh functions: insert or delete orders with their lines
    Refresh(Refresh),
    /// Read and write keys and values in read-atomic transactions
    #[command(subcommand)]
    Kv(Kv),
    /// Run one storage node in the foreground
    Node(Node),
    /// Start and stop the cluster's storage nodes, and show their status
    #[command(subcommand)]
    Cluster(Cluster),
    /// Measure this cluster's costs, by which automatic placement decides
    Calibrate(Calibrate),
    /// Measure IO, wires, queries and transactions; replay traces; show stripes
    #[command(subcommand)]
    Lab(Lab),
    /// The old name of the measurements of `lab`
    #[command(subcommand, hide = true)]
    Bench(Bench),
    /// The old name of `lab replay`
    #[command(hide = true)]
    Replay(Box<Replay>),
    /// The old name of `lab stripe`
    #[command(hide = true)]
    Stripe(Stripe),
}

/// How transactions of SQL are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolationArgument {
    /// Each sees one moment, and no change of a row is lost
    Snapshot,
    /// Each sees one moment; of two that change a row the later one stays
    ReadAtomic,
}

/// How to run queries and print their rows.
#[derive(Clone, Debug, Args)]
pub(crate) struct Running {
    /// Where scans run
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) placement: PlacementArgument,
    /// How rows are printed
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
    /// Print how long it took, on standard error
    #[arg(long)]
    pub(crate) timing: bool,
}

/// Where a query's reads are recorded.
#[derive(Clone, Debug, Args)]
pub(crate) struct Tracing {
    /// Record each page that is read from a device: time, node, device, offset, length, table,
    /// column
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// How the trace is written
    #[arg(long, value_enum, default_value = "csv", requires = "trace")]
    pub(crate) trace_format: TraceFormat,
}

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceFormat {
    /// With a header line, to the nanosecond, with tables and columns
    Csv,
    /// An iolog of version 3, which fio replays with --read_iolog: microseconds, neither tables nor
    /// columns
    Fio,
}

/// `rackscan query`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rackscan query q06\n  rackscan query q01 q06 --placement local --repeat 3 --timing\n  \
                        rackscan query all --format ndjson > answers.ndjson\n  \
                        rackscan query q06 --compare-placements --repeat 5\n  \
                        rackscan query q03 --placement remote-fetch --trace q03.csv"
)]
pub(crate) struct Query {
    /// q01 to q22 (or 1 to 22), or `all`
    #[arg(required = true, value_name = "QUERY")]
    pub(crate) queries: Vec<String>,
    #[command(flatten)]
    pub(crate) running: Running,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
    /// Run each query under every placement, by turns, and print what each took instead of the rows
    #[arg(long, conflicts_with_all = ["placement", "trace"])]
    pub(crate) compare_placements: bool,
    /// Run each query N times; rows are printed once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repeat: u32,
}

/// `rackscan sql`
#[derive(Debug, Args)]
#[command(
    after_help = "INSERT, UPDATE and DELETE are read-atomic transactions, alone or together between BEGIN and COMMIT: visible on all nodes or on none. Of two that \
                  change the same row at the same time the first one commits; with --isolation read-atomic the later one overwrites it.\n\n\
                  A table's rows may be added up in materialized views that change with them, in the same transaction. An index finds rows by values; a foreign key is maintained likewise:\n  \
                  CREATE MATERIALIZED VIEW name AS SELECT column, sum(amount), count(*) FROM table WHERE a range GROUP BY column\n  \
                  CREATE INDEX name ON table (column)\n  \
                  ALTER TABLE table ADD CONSTRAINT name FOREIGN KEY (column) REFERENCES parent (column)\n  \
                  DROP MATERIALIZED VIEW name | DROP INDEX name | ALTER TABLE table DROP CONSTRAINT name\n\n\
                  Examples:\n  rackscan sql \"SELECT l_shipmode, count(*) FROM lineitem GROUP BY l_shipmode\"\n  \
                        rackscan sql --file report.sql --format csv\n  echo 'SELECT 1' | rackscan sql -\n  \
                        rackscan sql \"UPDATE orders SET o_comment = 'late' WHERE o_orderkey = 7\"\n  \
                        rackscan sql \"BEGIN; DELETE FROM lineitem WHERE l_orderkey = 7; DELETE FROM orders WHERE o_orderkey = 7; COMMIT\""
)]
pub(crate) struct Sql {
    /// The statements, separated by semicolons; `-` reads standard input
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub(crate) statement: Option<String>,
    /// Read the statements from a file
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// What transactions do to each other that change the same row: with `snapshot` the first one
    /// commits, and the second one is told or, a statement alone, done again
    #[arg(long, value_enum, default_value = "snapshot")]
    pub(crate) isolation: IsolationArgument,
    /// Run it under every placement, by turns, and print what each took instead of the rows
    #[arg(long, conflicts_with_all = ["placement", "trace"])]
    pub(crate) compare_placements: bool,
    #[command(flatten)]
    pub(crate) running: Running,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
}

/// `rackscan shell`
#[derive(Debug, Args)]
#[command(
    after_help = "In the shell, statements end with `;` and may span lines. \\? lists the shell's own commands.\n\n\
                  Examples:\n  rackscan shell\n  rackscan shell --placement remote-process --timing"
)]
pub(crate) struct Shell {
    /// What transactions do to each other that change the same row: with `snapshot` the first one
    /// commits, and the second one is told or, a statement alone, done again
    #[arg(long, value_enum, default_value = "snapshot")]
    pub(crate) isolation: IsolationArgument,
    #[command(flatten)]
    pub(crate) running: Running,
}

/// `rackscan explain`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rackscan explain q06\n  rackscan explain --analyze q03 --placement remote-process\n  \
                        rackscan explain --analyze \"SELECT count(*) FROM orders\" --format json"
)]
pub(crate) struct Explain {
    /// q01 to q22, or SQL
    pub(crate) query: String,
    /// Run the query and show what happened
    #[arg(long)]
    pub(crate) analyze: bool,
    /// Where scans run
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) placement: PlacementArgument,
    /// `table` for text, or `json`
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: ExplainFormat,
}

/// How an explanation is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainFormat {
    /// Text for people
    #[value(alias = "text")]
    Table,
    /// One object
    Json,
}

/// `rackscan tables`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rackscan tables\n  rackscan tables lineitem\n  rackscan tables --format json"
)]
pub(crate) struct Tables {
    /// Show the columns of one table, and what is derived by them
    pub(crate) table: Option<String>,
    /// How they are printed
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

/// `rackscan seal`
#[derive(Debug, Args)]
#[command(
    after_help = "Changed rows lie in the memory of the nodes until they are sealed. Programs that write do that by\n\
                  themselves when enough of a table has changed; this does it now. Queries go on meanwhile; writers\n\
                  of the table wait for a moment (`closed`). Where a node has eight segments or more with little in\n\
                  them, their rows go along (`rewritten`); segments without any row are left out the next time.\n\n\
                  Examples:\n  rackscan seal\n  rackscan seal orders lineitem --format json"
)]
pub(crate) struct Seal {
    /// The tables [default: all]
    #[arg(value_name = "TABLE")]
    pub(crate) tables: Vec<String>,
    /// How to print what was done
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

/// `rackscan drop`
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rackscan drop cities")]
pub(crate) struct DropTable {
    /// The table
    pub(crate) table: String,
}

/// `rackscan node`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rackscan node --config node3.toml\n  rackscan node --config rackscan-data/cluster.toml --id 3\n\n\
                        The file is either one node's own (with `cluster`, `key_file`, `listen`, `devices` ...) or a\n\
                        cluster's, of which --id picks one node. `rackscan cluster start` writes an example.\n\n\
                        Who waits for the devices: bridge = \"reactor\" (io = \"uring\" or \"pread\"), \"static\" or \"dynamic\", with\n\
                        reactors or pollers, io_threads, pin_cores; scratch = \"1GiB\" sets an area aside for raw writes."
)]
pub(crate) struct Node {
    /// The node's (or the cluster's) TOML file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Which node of a cluster's file
    #[arg(long, value_name = "N")]
    pub(crate) id: Option<u16>,
    /// Stop when standard input ends: a node that must not outlive its parent
    #[arg(long, hide = true)]
    pub(crate) lifeline: bool,
    /// The file that standard error goes to: it is exchanged when it is full
    #[arg(long, hide = true, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
}

/// `rackscan cluster`
#[derive(Debug, Subcommand)]
pub(crate) enum Cluster {
    /// Start the nodes of this host and leave them running; makes an embedded cluster if there is
    /// none
    #[command(
        after_help = "Examples:\n  rackscan cluster start\n  rackscan cluster start --nodes 8 --devices 4\n  \
                            rackscan --cluster rack.toml cluster start"
    )]
    Start {
        /// Nodes of a new embedded cluster
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
        nodes: u16,
        /// Device files per node of a new embedded cluster
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
        devices: u8,
        /// The most bytes a device file of a new embedded cluster may take
        #[arg(long, default_value = "64GiB", value_name = "SIZE")]
        device_size: String,
    },
    /// Stop the nodes of this host
    #[command(after_help = "Examples:\n  rackscan cluster stop\n  rackscan cluster stop --node 2")]
    Stop {
        /// Only this node
        #[arg(long, value_name = "N")]
        node: Option<u16>,
    },
    /// Show each node: reachable, devices, memory, what it has served
    #[command(after_help = "Examples:\n  rackscan cluster status\n  rackscan cluster status --format json")]
    Status {
        /// How it is printed
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
}

/// `rackscan calibrate`
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rackscan calibrate\n  rackscan calibrate --table lineitem")]
pub(crate) struct Calibrate {
    /// The table to measure with [default: lineitem, loading TPC-H at scale 0.1 if it is not there]
    #[arg(long, default_value = "lineitem")]
    pub(crate) table: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_reach_another_process_as_they_are() {
        for said in [
            "rackscan tables",
            "rackscan --data d --cluster c.toml --wire tcp --threads 3 --engine-cache 64MiB --away 1 --log info tables",
        ] {
            let asked = Arguments::try_parse_from(said.split(' ')).unwrap();
            let words = asked.global.words();
            let heard = ["rackscan".into()].into_iter().chain(words).chain(["tables".into()]);
            let heard = Arguments::try_parse_from(heard).unwrap();
            assert_eq!(format!("{:?}", heard.global), format!("{:?}", asked.global));
        }
    }

    #[test]
    fn page_sizes_off_the_sector_grid_are_refused() {
        assert_eq!(page_size("16KiB"), Ok(16_384));
        for wrong in ["5000", "2KiB", "2MiB", "", "x"] {
            assert!(page_size(wrong).is_err(), "{wrong}");
        }
    }
}
