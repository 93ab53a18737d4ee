//! Defines the command-line arguments: all commands, and the options that every command takes.

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
mod old_names;
mod paper;
mod query_memory;
mod refresh;
mod repair;
mod replay;
mod stripe;
mod unused;
mod used_options;
mod values;

use clap::{Args, Parser, Subcommand, ValueEnum};
use rackscan_engine::Isolation as SqlIsolation;
use rackscan_fabric::Wire;
use rackscan_planner::Policy;
use rackscan_trace::WriteFormat;
use std::{ffi::OsString, path::PathBuf};

pub(crate) use bench::{Bench, BenchFabric, BenchInbox, BenchWires};
pub(crate) use bench_io::BenchIo;
pub(crate) use bench_parity::BenchParity;
pub(crate) use bench_placement::BenchPlacement;
pub(crate) use bench_query::BenchQuery;
pub(crate) use bench_ramp::{BenchRamp, BenchRampStress, ParticipantsArguments};
pub(crate) use bench_scan::BenchScan;
pub(crate) use bench_tpch::BenchTpch;
pub(crate) use bench_xor::BenchXor;
pub(crate) use help::parsed;
pub(crate) use kv::{Isolation, Kv, KvGet, KvPut, KvScan};
pub(crate) use lab::Lab;
pub(crate) use load::{FileLoad, Load, LoadParity, LoadShape};
pub(crate) use old_names::warn_command;
pub(crate) use paper::PaperArguments;
pub(crate) use query_memory::QueryMemory;
pub(crate) use refresh::{BenchDegraded, BenchRefresh, BenchRefreshStreams, Refresh};
pub(crate) use repair::{BenchRebuild, Fsck, Rebuild, Recover, Scrub};
pub(crate) use replay::Replay;
pub(crate) use stripe::Stripe;
use values::{
    Named, PLACEMENTS, WIRES, ascii_character, bytes, delimiter, effort, one_of, page_size, scale,
    segment_rows, table_name,
};
pub(crate) use values::{SCHEDULES, word_of};

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

/// Options that every command takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Folder with an embedded cluster's nodes, devices and key
    #[arg(long, global = true, value_name = "DIR", default_value = "rackscan-data", env = "RACKSCAN_DATA")]
    pub(crate) data: PathBuf,
    /// TOML file that describes the cluster [default: cluster.toml in the data folder]
    #[arg(long, global = true, value_name = "FILE", env = "RACKSCAN_CLUSTER")]
    pub(crate) cluster: Option<PathBuf>,
    /// Wire by which to reach the nodes [default: the first address that each node lists]
    #[arg(long, global = true, value_parser = one_of(&WIRES))]
    pub(crate) wire: Option<Wire>,
    /// Number of threads of the engine [default: one per core]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Memory for the engine's own page cache, in addition to the nodes' caches (`64MiB`) [default:
    /// none]
    #[arg(long, global = true, value_name = "SIZE", default_value = "0", hide_default_value = true, value_parser = bytes)]
    pub(crate) engine_cache: u64,
    #[command(flatten)]
    pub(crate) queries: QueryMemory,
    /// How many nodes may be unavailable, 0 to 2: tables loaded with parity are read without them
    /// [default: 2 of four or more nodes and 1 of three for queries; otherwise 0]
    #[arg(long, alias = "away", global = true, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) tolerate_unavailable: Option<u8>,
    /// Log filter for standard error, as in RUST_LOG (`info`, `rackscan_engine=debug`)
    #[arg(long, global = true, value_name = "FILTER")]
    pub(crate) log: Option<String>,
}

impl Global {
    /// The same options as arguments for another process of this program.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let mut words = vec![OsString::from("--data"), self.data.clone().into()];
        let mut say = |option: &str, value: Option<OsString>| {
            if let Some(value) = value {
                words.extend([option.into(), value]);
            }
        };
        say("--cluster", self.cluster.clone().map(Into::into));
        say("--wire", self.wire.map(|wire| wire.to_string().into()));
        say("--threads", self.threads.map(|threads| threads.to_string().into()));
        say("--engine-cache", Some(format!("{}B", self.engine_cache).into()));
        say("--tolerate-unavailable", self.tolerate_unavailable.map(|nodes| nodes.to_string().into()));
        say("--log", self.log.clone().map(Into::into));
        words.extend(self.queries.words());
        words
    }
}

/// Output formats of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns
    Table,
    /// CSV as in RFC 4180, with a header line
    Csv,
    /// A single array of objects
    Json,
    /// One object per line
    Ndjson,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Load tables: TPC-H, a Parquet file or a CSV file
    #[command(subcommand)]
    Load(Load),
    /// Run TPC-H queries by number
    Query(Query),
    /// Run SQL
    Sql(Sql),
    /// Read SQL from an interactive prompt
    Shell(Shell),
    /// Show where the scans of a query run; with --analyze, also what they did
    Explain(Explain),
    /// List the tables of the cluster
    Tables(Tables),
    /// Drop a table
    Drop(DropTable),
    /// Flush changed rows into segments, while others read and write
    Flush(Flush),
    /// Check pages and parity on their devices, and repair what is corrupt
    Scrub(Scrub),
    /// Check everything, including the parity equations, and change nothing
    Fsck(Fsck),
    /// Rebuild what a node has lost from the other nodes
    Rebuild(Rebuild),
    /// Let a node continue without its lost transaction log; records may be missing
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
    /// Measure this cluster's costs for automatic placement
    Calibrate(Calibrate),
    /// Measure IO, wires, queries and transactions; replay traces; show stripes
    #[command(subcommand)]
    Lab(Lab),
    /// Old name of the measurements of `lab`
    #[command(subcommand, hide = true)]
    Bench(Bench),
    /// Old name of `lab replay`
    #[command(hide = true)]
    Replay(Box<Replay>),
    /// Old name of `lab stripe`
    #[command(hide = true)]
    Stripe(Stripe),
    /// Old name of `flush`
    #[command(hide = true)]
    Seal(Flush),
}

/// Isolation levels of SQL transactions.
const ISOLATIONS: [Named<SqlIsolation>; 2] = [
    ("snapshot", SqlIsolation::Snapshot, "Each transaction reads one snapshot, and no update is lost"),
    (
        "read-atomic",
        SqlIsolation::ReadAtomic,
        "Each transaction reads one snapshot; of two writers of a row, the later one wins",
    ),
];

/// How to run queries and print their rows.
#[derive(Clone, Debug, Args)]
pub(crate) struct Running {
    /// Where scans run
    #[arg(long, value_parser = one_of(&PLACEMENTS), default_value = "auto")]
    pub(crate) placement: Policy,
    /// Output format of rows
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
    /// Print the elapsed time on standard error
    #[arg(long)]
    pub(crate) timing: bool,
}

/// Where and how to record a query's reads.
#[derive(Clone, Debug, Args)]
pub(crate) struct Tracing {
    /// Record each page read from a device: time, node, device, offset, length, table, column
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Format of the trace
    #[arg(long, value_parser = one_of(&TRACE_FORMATS), default_value = "csv", requires = "trace")]
    pub(crate) trace_format: WriteFormat,
}

/// Formats of a trace.
const TRACE_FORMATS: [Named<WriteFormat>; 2] = [
    ("csv", WriteFormat::Csv, "CSV with a header line, times in nanoseconds, tables and columns"),
    (
        "fio",
        WriteFormat::Fio,
        "fio iolog version 3, for fio --read_iolog: times in microseconds, no tables or columns",
    ),
];

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
    /// Run each query under every placement, alternating, and print times instead of rows
    #[arg(long, conflicts_with_all = ["placement", "trace"])]
    pub(crate) compare_placements: bool,
    /// Run each query N times and print its rows once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repeat: u32,
}

/// `rackscan sql`
#[derive(Debug, Args)]
#[command(
    after_help = "INSERT, UPDATE and DELETE are transactions with snapshot isolation, each alone or several between BEGIN and COMMIT: visible on all nodes or \
                  on none. Of two that change the same row at the same time the first one commits; with --isolation read-atomic the later one overwrites it.\n\n\
                  Materialized views sum up a table's rows, an index finds rows by values, and a foreign key refers to a parent table. All are maintained in the transaction that changes the rows:\n  \
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
    /// Statements, separated by semicolons; `-` reads standard input
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub(crate) statement: Option<String>,
    /// Read the statements from a file
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Isolation of transactions that change the same row: with `snapshot` the first one commits,
    /// and the second one fails (a single statement is retried)
    #[arg(long, value_parser = one_of(&ISOLATIONS), default_value = "snapshot")]
    pub(crate) isolation: SqlIsolation,
    /// Run the statement under every placement, alternating, and print times instead of rows
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
    /// Isolation of transactions that change the same row: with `snapshot` the first one commits,
    /// and the second one fails (a single statement is retried)
    #[arg(long, value_parser = one_of(&ISOLATIONS), default_value = "snapshot")]
    pub(crate) isolation: SqlIsolation,
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
    /// Run the query and show what its scans did
    #[arg(long)]
    pub(crate) analyze: bool,
    /// Where scans run
    #[arg(long, value_parser = one_of(&PLACEMENTS), default_value = "auto")]
    pub(crate) placement: Policy,
    /// Output format: `table` for text, or `json`
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: ExplainFormat,
}

/// Output formats of an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainFormat {
    /// Text
    #[value(alias = "text")]
    Table,
    /// One JSON object
    Json,
}

/// `rackscan tables`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rackscan tables\n  rackscan tables lineitem\n  rackscan tables --format json"
)]
pub(crate) struct Tables {
    /// Show the columns of this table, and what is derived from them
    pub(crate) table: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

/// `rackscan flush`
#[derive(Debug, Args)]
#[command(
    after_help = "Changed rows stay in the memory of the nodes until they are flushed into segments. Writing programs\n\
                  flush by themselves when enough of a table has changed; this command flushes now. Queries continue;\n\
                  writers of the table wait briefly (`closed`). Where a node has eight or more sparsely filled\n\
                  segments, their rows are rewritten, too (`rewritten`); the next flush drops empty segments.\n\n\
                  Examples:\n  rackscan flush\n  rackscan flush orders lineitem --format json"
)]
pub(crate) struct Flush {
    /// Tables to flush [default: all]
    #[arg(value_name = "TABLE")]
    pub(crate) tables: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

/// `rackscan drop`
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rackscan drop cities")]
pub(crate) struct DropTable {
    /// Table to drop
    #[arg(value_parser = table_name)]
    pub(crate) table: String,
}

/// `rackscan node`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rackscan node --config node3.toml\n  rackscan node --config rackscan-data/cluster.toml --id 3\n\n\
                        The file describes either one node (with `cluster`, `key_file`, `listen`, `devices` ...) or a\n\
                        cluster, of which --id selects one node. `rackscan cluster start` writes an example.\n\n\
                        The bridge decides who waits for the devices: bridge = \"reactor\" (io = \"uring\" or \"pread\"), \"static\"\n\
                        or \"dynamic\", with reactors or pollers, io_threads, pin_cores; scratch = \"1GiB\" reserves an area for raw writes."
)]
pub(crate) struct Node {
    /// TOML file of the node, or of the cluster
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Number of the node to run, if the file describes a cluster
    #[arg(long, value_name = "N")]
    pub(crate) id: Option<u16>,
    /// Stop when standard input ends, so that the node does not outlive its parent
    #[arg(long, hide = true)]
    pub(crate) lifeline: bool,
    /// File that receives standard error; it is rotated when it is full
    #[arg(long, hide = true, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
}

/// `rackscan cluster`
#[derive(Debug, Subcommand)]
pub(crate) enum Cluster {
    /// Start the nodes of this host and leave them running; creates an embedded cluster if there is
    /// none
    #[command(
        after_help = "Examples:\n  rackscan cluster start\n  rackscan cluster start --nodes 8 --devices 4\n  \
                            rackscan --cluster rack.toml cluster start"
    )]
    Start {
        /// Number of nodes of a new embedded cluster
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
        nodes: u16,
        /// Device files per node of a new embedded cluster
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
        devices: u8,
        /// Maximum size of a device file of a new embedded cluster
        #[arg(long, default_value = "64GiB", value_name = "SIZE")]
        device_size: String,
    },
    /// Stop the nodes of this host
    #[command(after_help = "Examples:\n  rackscan cluster stop\n  rackscan cluster stop --node 2")]
    Stop {
        /// Stop only this node
        #[arg(long, value_name = "N")]
        node: Option<u16>,
    },
    /// Show each node: reachability, devices, memory, requests served
    #[command(after_help = "Examples:\n  rackscan cluster status\n  rackscan cluster status --format json")]
    Status {
        /// Output format
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
}

/// `rackscan calibrate`
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rackscan calibrate\n  rackscan calibrate --table lineitem")]
pub(crate) struct Calibrate {
    /// Table to measure with [default: lineitem; loads TPC-H at scale 0.1 if it does not exist]
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
            "rackscan --data d --cluster c.toml --wire tcp --threads 3 --engine-cache 64MiB --tolerate-unavailable 1 --log info tables",
        ] {
            let asked = Arguments::try_parse_from(said.split(' ')).unwrap();
            let words = asked.global.words();
            let heard = ["rackscan".into()].into_iter().chain(words).chain(["tables".into()]);
            let heard = Arguments::try_parse_from(heard).unwrap();
            assert_eq!(format!("{:?}", heard.global), format!("{:?}", asked.global));
        }
    }

    #[test]
    fn names_of_internal_tables_are_refused() {
        assert_eq!(table_name("cities"), Ok("cities".to_owned()));
        for reserved in ["rackscan index zz", "rackscan base v 1 2"] {
            assert!(table_name(reserved).is_err_and(|error| error.contains("reserved")), "{reserved}");
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
