//! Which words does `rackscan kv` understand?

use super::Format;
use clap::{Args, Subcommand};

/// `rackscan kv`
#[derive(Debug, Subcommand)]
pub(crate) enum Kv {
    /// Write values under keys, all of them or none: one transaction
    #[command(
        after_help = "Examples:\n  rackscan kv put color blue\n  rackscan kv put a 1 b 2 c 3\n  rackscan kv put photo @photo.jpg"
    )]
    Put(KvPut),
    /// Print the value of a key, exactly its bytes and a line's end
    #[command(after_help = "Examples:\n  rackscan kv get color\n  rackscan kv get photo --raw > photo.jpg")]
    Get(KvGet),
    /// Read keys together: what one transaction has written is seen wholly or not at all
    #[command(after_help = "Example:\n  rackscan kv multi-get a b c --format json")]
    MultiGet(KvMultiGet),
    /// Delete keys, all of them or none
    #[command(after_help = "Example:\n  rackscan kv delete color size")]
    Delete(KvKeys),
    /// Read keys in order
    #[command(
        after_help = "Examples:\n  rackscan kv scan\n  rackscan kv scan user: --limit 20\n  rackscan kv scan user: --after user:42"
    )]
    Scan(KvScan),
}

/// How transactions are kept apart, and keys read and written.
#[derive(Clone, Debug, Args)]
pub(crate) struct Isolation {
    /// ramp-fast, ramp-small, ramp-hybrid, s2pl (locks) or none (nothing keeps them apart)
    #[arg(long, value_name = "NAME", default_value = "ramp-fast", value_parser = algorithm)]
    pub(crate) algorithm: rackscan_ramp::algorithm::Algorithm,
    /// Seconds until a transaction is given up
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = timeout)]
    pub(crate) timeout: f64,
}

/// `rackscan kv put`
#[derive(Clone, Debug, Args)]
pub(crate) struct KvPut {
    /// Keys and their values by turns; a value @FILE is the file's bytes, @- those of standard
    /// input
    #[arg(required = true, num_args = 2.., value_name = "KEY VALUE")]
    pub(crate) items: Vec<String>,
    #[command(flatten)]
    pub(crate) isolation: Isolation,
}

/// `rackscan kv get`
#[derive(Clone, Debug, Args)]
pub(crate) struct KvGet {
    /// The key
    pub(crate) key: String,
    /// No line's end behind the value
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) isolation: Isolation,
}

/// `rackscan kv multi-get`
#[derive(Clone, Debug, Args)]
pub(crate) struct KvMultiGet {
    /// The keys
    #[arg(required = true, value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// How they are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) isolation: Isolation,
}

/// `rackscan kv delete`
#[derive(Clone, Debug, Args)]
pub(crate) struct KvKeys {
    /// The keys
    #[arg(required = true, value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    pub(crate) isolation: Isolation,
}

/// `rackscan kv scan`
#[derive(Clone, Debug, Args)]
pub(crate) struct KvScan {
    /// What the keys begin with; all keys without
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Only keys behind this one
    #[arg(long, value_name = "KEY")]
    pub(crate) after: Option<String>,
    /// At most so many keys, which belong together
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) limit: u32,
    /// How they are printed
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
