//! Which words does `rackscan lab` understand?

use super::{Bench, Replay, Stripe};
use clap::Subcommand;

/// `rackscan lab`: experiments.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    #[command(flatten)]
    Bench(Bench),
    /// Run a trace of IOs again, near or far, at its own times or as fast as possible
    Replay(Box<Replay>),
    /// Show where the cells of a stripe lie and, with --schedule, by which transfers they get there
    Stripe(Stripe),
}
