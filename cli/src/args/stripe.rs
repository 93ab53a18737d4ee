//! Defines the arguments of `rackscan lab stripe`.

use super::values::{PARITIES, SCHEDULES, one_of};
use clap::Args;
use rackscan_stripe::{Parity, Way};
use std::path::PathBuf;

/// `rackscan lab stripe`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rackscan lab stripe --nodes 5\n  rackscan lab stripe --nodes 5 --schedule relay --svg stripe.svg\n  \
                  rackscan lab stripe --nodes 8 --stripe 3 --schedule naive --json\n  rackscan lab stripe --nodes 5 --rebuild 1,3\n  \
                  rackscan lab stripe --nodes 3 --parity xor --rebuild 0"
)]
pub(crate) struct Stripe {
    /// Number of nodes that share a stripe: 3 to 64, or 2 to 64 with one parity
    #[arg(long)]
    pub(crate) nodes: usize,
    /// Protection of the stripe: rows and diagonals (any two nodes may be lost), or rows only (any
    /// one)
    #[arg(long, value_parser = one_of(&PARITIES), default_value = "2d-xor")]
    pub(crate) parity: Parity,
    /// Number of the stripe; the columns shift by one node from each stripe to the next
    #[arg(long, default_value_t = 0)]
    pub(crate) stripe: u64,
    /// Also show the transfers by which a client's stripe reaches its nodes, and the load of each
    /// link
    #[arg(long, value_parser = one_of(&SCHEDULES))]
    pub(crate) schedule: Option<Way>,
    /// Show instead how the stripe is rebuilt without these nodes
    #[arg(long, value_name = "NODE", value_delimiter = ',', conflicts_with_all = ["schedule", "svg"])]
    pub(crate) rebuild: Vec<u8>,
    /// Draw the stripe as SVG into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}
