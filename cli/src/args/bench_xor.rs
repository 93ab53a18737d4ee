//! Defines the arguments of `rackscan lab xor`.

use super::bytes;
use clap::Args;
use std::path::PathBuf;

/// `rackscan lab xor`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchXor {
    /// Bytes per XOR call, comma-separated: powers of two from 1KiB to 16MiB
    #[arg(long, value_delimiter = ',', value_name = "SIZE", default_value = "4KiB,16KiB,64KiB,256KiB,1MiB", value_parser = bytes)]
    pub(crate) blocks: Vec<u64>,
    /// Repetitions of each measurement, after one warm-up; the median is reported
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Milliseconds of a repetition; each goes through the memory at least once
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub(crate) turn_ms: u64,
    /// Draw the rates as an HTML page into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Append JSON lines to this file, and print the table to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}
