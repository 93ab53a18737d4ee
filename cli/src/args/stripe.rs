//! What may be asked of `rackscan stripe`?

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `rackscan stripe`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rackscan stripe --nodes 5\n  rackscan stripe --nodes 5 --schedule relay --svg stripe.svg\n  \
                  rackscan stripe --nodes 8 --stripe 3 --schedule naive --json"
)]
pub(crate) struct Stripe {
    /// How many nodes share a stripe, 3 to 64
    #[arg(long)]
    pub(crate) nodes: usize,
    /// Which stripe: from one to the next the columns move on by one node
    #[arg(long, default_value_t = 0)]
    pub(crate) stripe: u64,
    /// Show also by which transfers a client's stripe gets to its nodes, and what each link carries
    #[arg(long, value_enum)]
    pub(crate) schedule: Option<ScheduleArgument>,
    /// Draw it into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print one JSON object in place of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a stripe is transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScheduleArgument {
    /// The client computes both parities and sends all cells
    Naive,
    /// The client sends each data cell once; nodes compute parities on the way
    Relay,
}
