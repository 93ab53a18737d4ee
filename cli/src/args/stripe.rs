//! What may be asked of `rackscan lab stripe`?

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `rackscan lab stripe`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rackscan lab stripe --nodes 5\n  rackscan lab stripe --nodes 5 --schedule relay --svg stripe.svg\n  \
                  rackscan lab stripe --nodes 8 --stripe 3 --schedule naive --json\n  rackscan lab stripe --nodes 5 --rebuild 1,3\n  \
                  rackscan lab stripe --nodes 3 --parity xor --rebuild 0"
)]
pub(crate) struct Stripe {
    /// How many nodes share a stripe: 3 to 64, with one parity 2 to 64
    #[arg(long)]
    pub(crate) nodes: usize,
    /// What protects it: rows and diagonals (any two nodes may be lost), or rows alone (any one)
    #[arg(long, value_enum, default_value = "2d-xor")]
    pub(crate) parity: ParityArgument,
    /// Which stripe: from one to the next the columns move on by one node
    #[arg(long, default_value_t = 0)]
    pub(crate) stripe: u64,
    /// Show also by which transfers a client's stripe gets to its nodes, and what each link carries
    #[arg(long, value_enum)]
    pub(crate) schedule: Option<ScheduleArgument>,
    /// Show instead how it comes to be whole again without these nodes
    #[arg(long, value_name = "NODE", value_delimiter = ',', conflicts_with_all = ["schedule", "svg"])]
    pub(crate) rebuild: Vec<u8>,
    /// Draw it into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print one JSON object in place of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Who computes what a stripe needs: of loads and rebuilds, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScheduleArgument {
    /// The client, which sends all cells
    Naive,
    /// The nodes, which relay to each other what they have; the client sends each byte of data once
    Relay,
}

/// What protects a stripe; of `rackscan lab parity`, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ParityArgument {
    /// Rows and diagonals, each with its XOR
    #[value(name = "2d-xor")]
    TwoD,
    /// Rows with their XOR
    Xor,
}
