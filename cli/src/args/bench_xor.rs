//! Which words does `rackscan lab xor` understand?

use super::bytes;
use clap::Args;
use std::path::PathBuf;

/// `rackscan lab xor`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchXor {
    /// Bytes that are XORed by a call, by comma: powers of two from 1KiB to 16MiB
    #[arg(long, value_delimiter = ',', value_name = "SIZE", default_value = "4KiB,16KiB,64KiB,256KiB,1MiB", value_parser = bytes)]
    pub(crate) blocks: Vec<u64>,
    /// Turns of each figure; medians count, and one more turn before them does not
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Milliseconds of a turn, once through the memory at least
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub(crate) turn_ms: u64,
    /// Draw the rates into this folder, with a page that opens from disk
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Append the JSON lines to this file; the table is standard output then
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}
