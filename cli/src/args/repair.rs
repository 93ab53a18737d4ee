//! Which words do `rackscan scrub`, `rackscan fsck`, `rackscan rebuild`, `rackscan recover` and
//! `rackscan lab rebuild` understand?

use super::{Format, ScheduleArgument};
use clap::Args;
use std::path::PathBuf;

/// `rackscan scrub`
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Nodes read their pages and cells of parity from their devices, past their caches, and check them. What is corrupt comes back from what other nodes have and is\n\
                  written where it lies; queries and writers go on meanwhile. Tables without parity have nothing to come back from and are not looked at.\n\n\
                  Exit code 0 if everything is whole (again), 1 if not: what does not come back is named.\n\n\
                  Examples:\n  rackscan scrub\n  rackscan scrub lineitem --rate 100MiB\n  rackscan scrub --dry-run --format json"
)]
pub(crate) struct Scrub {
    /// The tables [default: all that are protected]
    #[arg(value_name = "TABLE")]
    pub(crate) tables: Vec<String>,
    /// Only say what is corrupt
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Read all cells here, too, and hold them against the equations of the parity
    #[arg(long)]
    pub(crate) equations: bool,
    /// What devices may read for it in a second, all nodes together [default: as much as they can]
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) rate: Option<u64>,
    /// How to print what was found
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

/// `rackscan fsck`
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Looks at everything and changes nothing: catalogs and maps of all nodes, checksums of all pages and cells of parity, and all equations. `rackscan scrub` repairs what is\n\
                  corrupt, `rackscan rebuild` gives a node back what it has lost.\n\n\
                  Exit code 0 if nothing at all is wrong, 1 if something is.\n\n\
                  Examples:\n  rackscan fsck\n  rackscan fsck orders --rate 50MiB"
)]
pub(crate) struct Fsck {
    /// The tables [default: all]
    #[arg(value_name = "TABLE")]
    pub(crate) tables: Vec<String>,
    /// What devices may read for it in a second, all nodes together [default: as much as they can]
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) rate: Option<u64>,
    /// How to print what was found
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

/// `rackscan rebuild`
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "A node that has lost its folder or its devices gets its parts of all protected tables back, byte by byte, from what the others have; queries go on meanwhile. With --onto it\n\
                  first gets a new folder, with new device files of the same sizes: the cluster's file then names that one. For another machine, change the node's entry in the cluster's\n\
                  file on all hosts, start the node there, and rebuild it without --onto.\n\n\
                  Whatever ends it early, the same command goes on where it was. Exit code 0 if the node has everything, 1 if not: tables that it does not get back are named.\n\n\
                  Examples:\n  rackscan rebuild 2 --onto /mnt/new/node2\n  rackscan rebuild 2 --rate 200MiB"
)]
pub(crate) struct Rebuild {
    /// The node
    pub(crate) node: u16,
    /// The node's new folder, which must be empty or not be there yet; the node must not run
    #[arg(long, value_name = "FOLDER")]
    pub(crate) onto: Option<PathBuf>,
    /// What devices may read for it in a second, all nodes together [default: as much as they can]
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) rate: Option<u64>,
    /// Who computes what comes back
    #[arg(long, value_enum, default_value = "relay")]
    pub(crate) schedule: ScheduleArgument,
    /// How to print what was done
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

/// `rackscan recover`
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "A node that has lost its log of transactions gets it from its replicas in other nodes, by itself, if one is proved to have every acknowledged record. If none is, the node\n\
                  refuses what needs its keys, and `rackscan cluster status` says which records may be missing. Start the nodes that it names, with the folders that they had. If those are\n\
                  lost, too, this command has the node go on with the best replica that can be reached. What that one lacks is lost then.\n\n\
                  Example:\n  rackscan recover --node 2 --accept-loss"
)]
pub(crate) struct Recover {
    /// The node
    #[arg(long, value_name = "N")]
    pub(crate) node: u16,
    /// Go on without records that may be missing
    #[arg(long, required = true)]
    pub(crate) accept_loss: bool,
}

/// `rackscan lab rebuild`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchRebuild {
    /// The scale factor of the data
    #[arg(long, default_value_t = 1.0, value_parser = super::scale)]
    pub(crate) scale: f64,
    /// Nodes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(4..=17))]
    pub(crate) nodes: u16,
    /// The node that loses everything
    #[arg(long, default_value_t = 1)]
    pub(crate) node: u16,
    /// Rebuilds; medians count
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Who computes what comes back, by comma: taken in turns
    #[arg(long, value_enum, value_delimiter = ',', default_value = "relay,naive")]
    pub(crate) schedule: Vec<ScheduleArgument>,
    /// Let only so many megabytes (10^6 bytes) a second through the wire, of both directions
    /// together; over tcp, needs root
    #[arg(long, value_name = "MB/S", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) wire_rate: Option<u32>,
    /// Let only so many megabytes (10^6 bytes) a second be read from the disk of each node, and as
    /// many be written; needs root
    #[arg(long, value_name = "MB/S", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) disk_rate: Option<u32>,
    /// Where the nodes' folders are made, on a filesystem with direct IO
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Append the JSON line to this file; the table is standard output then
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

fn rate(text: &str) -> Result<u64, String> {
    match super::bytes(text)? {
        0 => Err("expected at least a byte a second; leave it out for as much as there is".to_owned()),
        bytes => Ok(bytes),
    }
}
