//! Defines the arguments of `rackscan kv`.

use super::Format;
use clap::{Args, Subcommand};

/// `rackscan kv`
#[derive(Debug, Subcommand)]
pub(crate) enum Kv {
    /// Write values under keys in one transaction: all of them or none
    #[command(
        after_help = "Examples:\n  rackscan kv put color blue\n  rackscan kv put a 1 b 2 c 3\n  rackscan kv put photo @photo.jpg"
    )]
    Put(KvPut),
    /// Print the value of a key: its exact bytes and a newline
    #[command(after_help = "Examples:\n  rackscan kv get color\n  rackscan kv get photo --raw > photo.jpg")]
    Get(KvGet),
    /// Read several keys in one read-atomic transaction
    #[command(after_help = "Example:\n  rackscan kv multi-get a b c --format json")]
    MultiGet(KvMultiGet),
    /// Delete keys in one transaction: all of them or none
    #[command(after_help = "Example:\n  rackscan kv delete color size")]
    Delete(KvKeys),
    /// Read keys in order
    #[command(
        after_help = "Examples:\n  rackscan kv scan\n  rackscan kv scan user: --limit 20\n  rackscan kv scan user: --after user:42"
    )]
    Scan(KvScan),
}

/// Isolation of the transactions, and their timeout.
#[derive(Clone, Debug, Args)]
pub(crate) struct Isolation {
    /// Isolation algorithm: ramp-fast, ramp-small, ramp-hybrid, s2pl (locks) or none (no isolation)
    #[arg(long, value_name = "NAME", default_value = "ramp-fast", value_parser = algorithm)]
    pub(crate) algorithm: rackscan_ramp::algorithm::Algorithm,
    /// Seconds after which a transaction is given up
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = timeout)]
    pub(crate) timeout: f64,
}

/// `rackscan kv put`
#[derive(Clone, Debug, Args)]
pub(crate) struct KvPut {
    /// Keys and values, alternating; a value @FILE is the content of the file, @- standard input
    #[arg(required = true, num_args = 2.., value_name = "KEY VALUE")]
    pub(crate) items: Vec<String>,
    #[command(flatten)]
    pub(crate) isolation: Isolation,
}

/// `rackscan kv get`
#[derive(Clone, Debug, Args)]
pub(crate) struct KvGet {
    /// Key to read
    pub(crate) key: String,
    /// Print no newline after the value
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) isolation: Isolation,
}

/// `rackscan kv multi-get`
#[derive(Clone, Debug, Args)]
pub(crate) struct KvMultiGet {
    /// Keys to read
    #[arg(required = true, value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) isolation: Isolation,
}

/// `rackscan kv delete`
#[derive(Clone, Debug, Args)]
pub(crate) struct KvKeys {
    /// Keys to delete
    #[arg(required = true, value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    pub(crate) isolation: Isolation,
}

/// `rackscan kv scan`
#[derive(Clone, Debug, Args)]
pub(crate) struct KvScan {
    /// Prefix of the keys [default: all keys]
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Only keys after this one
    #[arg(long, value_name = "KEY")]
    pub(crate) after: Option<String>,
    /// Maximum number of keys, read in one transaction
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) limit: u32,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) isolation: Isolation,
}

pub(super) fn algorithm(text: &str) -> Result<rackscan_ramp::algorithm::Algorithm, String> {
    text.parse().map_err(|error: rackscan_ramp::algorithm::NoSuchAlgorithm| error.to_string())
}

fn timeout(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _ => Err("expected seconds above 0, at most 3600".to_owned()),
    }
}
