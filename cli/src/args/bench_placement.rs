//! Defines the arguments of `rackscan lab placement`.

use super::{
    bytes, scale, segment_rows,
    values::{Named, one_of},
};
use clap::Args;
use rackscan_bench::placement::ScanQuery;
use std::{path::PathBuf, str::FromStr};

/// `rackscan lab placement`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchPlacement {
    /// Selectivities: shares of rows that pass the filter, comma-separated: above 0, at most 1
    #[arg(long, value_delimiter = ',', value_name = "SHARE", default_value = "0.0001,0.001,0.01,0.1,0.5,1",
          value_parser = share)]
    pub(crate) selectivities: Vec<f64>,
    /// Processor shares of all nodes together, in percent of all cores, comma-separated: 1 to 100;
    /// less than 100 needs root
    #[arg(long, value_delimiter = ',', value_name = "PERCENT", default_value = "10,25,50,100",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) cpu_shares: Vec<u32>,
    /// Bandwidths of the wire in MB (10^6 bytes) per second, comma-separated: 1 to 100000, or
    /// unlimited; a limit needs root, iproute2 and util-linux
    #[arg(long, value_delimiter = ',', value_name = "MB/S", default_value = "50,200,1000,unlimited")]
    pub(crate) bandwidths: Vec<Bandwidth>,
    /// Queries over the rows that pass, comma-separated
    #[arg(long, value_parser = one_of(&QUERIES), value_delimiter = ',', default_value = "rows,aggregate")]
    pub(crate) queries: Vec<ScanQuery>,
    /// Repetitions of each point, after one warm-up; the median is reported
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Start no point later than this many minutes after the first
    #[arg(long, value_name = "N", default_value_t = 30.0, value_parser = minutes)]
    pub(crate) minutes: f64,
    /// Scale factor of lineitem
    #[arg(long, default_value_t = 1.0, value_parser = scale)]
    pub(crate) scale: f64,
    /// Rows of a segment, a multiple of 1024; each segment has a placement of its own
    #[arg(long, value_name = "N", default_value_t = rackscan_format::limits::SEGMENT_ROWS_DEFAULT,
          value_parser = segment_rows)]
    pub(crate) segment_rows: u32,
    /// Number of storage nodes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) nodes: u16,
    /// Page cache of each node, in addition to its other memory [default: enough for the table]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) cache: Option<u64>,
    /// Let the engine read the nodes' devices, which enables the placement local; its reads bypass
    /// the wire and the nodes' quota
    #[arg(long)]
    pub(crate) attached: bool,
    /// Folder for the data; removed afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Draw times and ratios as an HTML page into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Append JSON lines to this file, and print the table to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Bandwidth of the wire, in MB (10^6 bytes) per second; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bandwidth(pub(crate) Option<u32>);

impl FromStr for Bandwidth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<u32>() {
            _ if text == "unlimited" => Ok(Self(None)),
            Ok(rate) if (1..=100_000).contains(&rate) => Ok(Self(Some(rate))),
            _ => Err("expected megabytes per second from 1 to 100000, or unlimited".to_owned()),
        }
    }
}

/// Queries over lineitem.
const QUERIES: [Named<ScanQuery>; 2] = [
    ("rows", ScanQuery::Rows, "Select four columns of the rows that pass"),
    ("aggregate", ScanQuery::Aggregate, "Sum over the rows that pass"),
];

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("expected a number above 0, at most 1".to_owned()),
    }
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if minutes > 0.0 && minutes <= 10_000.0 => Ok(minutes),
        _ => Err("expected a number of minutes above 0, at most 10000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wires_and_shares_that_cannot_be_are_refused() {
        assert_eq!("unlimited".parse(), Ok(Bandwidth(None)));
        assert_eq!("50".parse(), Ok(Bandwidth(Some(50))));
        for wrong in ["0", "-1", "100001", "fast", ""] {
            assert!(wrong.parse::<Bandwidth>().is_err(), "{wrong}");
        }
        assert_eq!(share("1"), Ok(1.0));
        for wrong in ["0", "1.01", "nan", "-0.5", "x"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        assert!(minutes("0").is_err() && minutes("inf").is_err());
    }
}
