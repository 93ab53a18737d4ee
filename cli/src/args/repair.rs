//! Defines the arguments of `rackscan scrub`, `rackscan fsck`, `rackscan rebuild`, `rackscan
//! recover` and `rackscan lab rebuild`.

use super::{
    Format,
    values::{SCHEDULES, one_of},
};
use clap::Args;
use rackscan_stripe::Way;
use std::path::PathBuf;

/// `rackscan scrub`
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Nodes read their pages and parity cells from their devices, bypassing their caches, and check them. Corrupt ones are reconstructed from the other nodes and\n\
                  written in place; queries and writers continue meanwhile. Tables without parity cannot be reconstructed and are not checked.\n\n\
                  Exit code 0 if everything is intact or was repaired, 1 if not: the output names what could not be repaired.\n\n\
                  Examples:\n  rackscan scrub\n  rackscan scrub lineitem --rate 100MiB\n  rackscan scrub --dry-run --format json"
)]
pub(crate) struct Scrub {
    /// Tables to scrub [default: all that are protected]
    #[arg(value_name = "TABLE")]
    pub(crate) tables: Vec<String>,
    /// Report what is corrupt without repairing it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also read all cells into this process and check the parity equations
    #[arg(long)]
    pub(crate) equations: bool,
    /// Maximum bytes per second read from devices, all nodes together [default: unlimited]
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) rate: Option<u64>,
    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

/// `rackscan fsck`
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Checks everything and changes nothing: catalogs and maps of all nodes, checksums of all pages and parity cells, and all parity equations. `rackscan scrub` repairs\n\
                  corrupt pages and cells, `rackscan rebuild` restores what a node has lost.\n\n\
                  Exit code 0 if nothing is wrong, 1 otherwise.\n\n\
                  Examples:\n  rackscan fsck\n  rackscan fsck orders --rate 50MiB"
)]
pub(crate) struct Fsck {
    /// Tables to check [default: all]
    #[arg(value_name = "TABLE")]
    pub(crate) tables: Vec<String>,
    /// Maximum bytes per second read from devices, all nodes together [default: unlimited]
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) rate: Option<u64>,
    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

/// `rackscan rebuild`
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Restores a node that has lost its folder or its devices: its parts of all protected tables are recomputed, byte by byte, from the other nodes; queries continue meanwhile. With\n\
                  --onto the node first gets a new folder, with new device files of the same sizes, and the cluster's file is changed to name it. For another machine, change the node's entry in\n\
                  the cluster's file on all hosts, start the node there, and rebuild it without --onto.\n\n\
                  If the command is interrupted, run it again: it continues where it stopped. Exit code 0 if the node has everything, 1 if not: the output names tables that could not be rebuilt.\n\n\
                  Examples:\n  rackscan rebuild 2 --onto /mnt/new/node2\n  rackscan rebuild 2 --rate 200MiB"
)]
pub(crate) struct Rebuild {
    /// Number of the node
    pub(crate) node: u16,
    /// New folder of the node, empty or not yet existing; the node must not run
    #[arg(long, value_name = "FOLDER")]
    pub(crate) onto: Option<PathBuf>,
    /// Maximum bytes per second read from devices, all nodes together [default: unlimited]
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) rate: Option<u64>,
    /// Who computes the rebuilt cells
    #[arg(long, value_parser = one_of(&SCHEDULES), default_value = "relay")]
    pub(crate) schedule: Way,
    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

/// `rackscan recover`
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "A node that has lost its transaction log restores it by itself from a replica on another node, if that replica is proved to have every acknowledged record. If none is, the node\n\
                  refuses requests for its keys, and `rackscan cluster status` says which records may be missing. Start the nodes that it names, with their old folders. If those are lost, too,\n\
                  this command lets the node continue with the best replica that can be reached. Records that this replica lacks are lost.\n\n\
                  Example:\n  rackscan recover --node 2 --accept-loss"
)]
pub(crate) struct Recover {
    /// Number of the node
    #[arg(long, value_name = "N")]
    pub(crate) node: u16,
    /// Continue without records that may be missing
    #[arg(long, required = true)]
    pub(crate) accept_loss: bool,
}

/// `rackscan lab rebuild`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchRebuild {
    /// Scale factor of the data
    #[arg(long, default_value_t = 1.0, value_parser = super::scale)]
    pub(crate) scale: f64,
    /// Number of nodes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(4..=17))]
    pub(crate) nodes: u16,
    /// Number of the node that loses everything
    #[arg(long, default_value_t = 1)]
    pub(crate) node: u16,
    /// Number of rebuilds; the median is reported
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Who computes the rebuilt cells, comma-separated; measured alternately
    #[arg(long, value_parser = one_of(&SCHEDULES), value_delimiter = ',', default_value = "relay,naive")]
    pub(crate) schedule: Vec<Way>,
    /// Limit of the wire in MB (10^6 bytes) per second, both directions together; needs tcp and
    /// root
    #[arg(long, value_name = "MB/S", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) wire_rate: Option<u32>,
    /// Limit of each node's disk in MB (10^6 bytes) per second, for reads and for writes; needs
    /// root
    #[arg(long, value_name = "MB/S", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) disk_rate: Option<u32>,
    /// Folder for the nodes, on a filesystem with direct IO
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Append the JSON line to this file, and print the table to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

fn rate(text: &str) -> Result<u64, String> {
    match super::bytes(text)? {
        0 => Err("expected at least a byte a second; leave it out for as much as there is".to_owned()),
        bytes => Ok(bytes),
    }
}
