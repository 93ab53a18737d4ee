//! Defines the arguments of `rackscan lab scan`.

use super::scale;
use clap::Args;
use rackscan_format::simd::Level;
use rackscan_lab::kernels;
use std::path::PathBuf;

/// `rackscan lab scan`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchScan {
    /// Kernels, comma-separated [default: all]
    #[arg(long, value_delimiter = ',', value_name = "KERNEL",
          value_parser = clap::builder::PossibleValuesParser::new(kernels::names()))]
    pub(crate) kernels: Vec<String>,
    /// Vector levels, comma-separated: plain, v2, v3, v4, or all that this machine has [default:
    /// the best]
    #[arg(long, value_delimiter = ',', value_name = "LEVEL", value_parser = levels)]
    pub(crate) levels: Vec<Levels>,
    /// Repetitions of each measurement, after one warm-up; the median is reported
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Milliseconds of a repetition: a kernel runs as often as fits, at least once
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub(crate) turn_ms: u64,
    /// Scale factor of lineitem; its pages are held in memory
    #[arg(long, default_value_t = 1.0, value_parser = scale)]
    pub(crate) scale: f64,
    /// Draw the rates as an HTML page into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Append JSON lines to this file, and print the table to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// One value of `--levels`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Levels(pub(crate) Vec<Level>);

fn levels(name: &str) -> Result<Levels, String> {
    if name == "all" {
        return Ok(Levels(Level::available()));
    }
    let known: Vec<String> = Level::available().iter().map(Level::to_string).collect();
    let level = Level::named(name);
    let level = level
        .ok_or_else(|| format!("this machine has {}; expected one of them, or all", known.join(", ")))?;
    Ok(Levels(vec![level]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_that_the_machine_has() {
        assert_eq!(levels("plain"), Ok(Levels(vec![Level::Plain])));
        assert_eq!(levels("all"), Ok(Levels(Level::available())));
        let error = levels("v9").unwrap_err();
        assert!(error.contains("plain"), "{error}");
    }
}
