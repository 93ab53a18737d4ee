//! Defines the arguments of `rackscan lab`.

use super::{Bench, PaperArguments, Replay, Stripe};
use clap::Subcommand;

/// `rackscan lab`: experiments.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    #[command(flatten)]
    Bench(Bench),
    /// Replay an IO trace locally or through nodes, at its own times or as fast as possible
    Replay(Box<Replay>),
    /// Show where the cells of a stripe lie; with --schedule, also the transfers that put them
    /// there
    Stripe(Stripe),
    /// Repeat the experiments of a paper, and draw our figures beside its numbers
    Paper(PaperArguments),
}
