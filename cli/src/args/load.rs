//! What may be asked of `rackscan load`?

use super::{ScheduleArgument, delimiter, page_size, scale, segment_rows};
use clap::{Args, Subcommand, ValueEnum};
use rackscan_format::schema::Protection;
use std::path::PathBuf;

/// Where a load's rows go, whatever they come from.
#[derive(Clone, Debug, Args)]
pub(crate) struct LoadShape {
    /// Target bytes of a page, 4KiB to 1MiB
    #[arg(long, value_name = "SIZE", default_value = "128KiB", value_parser = page_size)]
    pub(crate) page_size: u32,
    /// Rows of a segment, a multiple of 1024
    #[arg(long, value_name = "N", default_value_t = rackscan_format::limits::SEGMENT_ROWS_DEFAULT, value_parser = segment_rows)]
    pub(crate) segment_rows: u32,
    /// What makes up for lost nodes: nothing; one parity, for any one node; two, for any two. Needs n/(n-1) or n/(n-2) times the room on n nodes [default: 2d-xor with four nodes or more, else none]
    #[arg(long, value_enum)]
    pub(crate) parity: Option<LoadParity>,
    /// Who computes the parity
    #[arg(long, value_enum, default_value = "relay")]
    pub(crate) schedule: ScheduleArgument,
}

/// What to load.
#[derive(Debug, Subcommand)]
pub(crate) enum Load {
    /// Generate and load the eight tables of TPC-H
    #[command(after_help = "Examples:\n  rackscan load tpch --scale 1\n  \
                            rackscan load tpch --scale 0.1 --page-size 16KiB --sort-by lineitem.l_shipdate\n  \
                            rackscan load tpch --scale 1 --parity 2d-xor --schedule naive")]
    Tpch {
        /// The scale factor: 1 is about 1 GB of raw data
        #[arg(long, default_value_t = 0.1, value_parser = scale)]
        scale: f64,
        #[command(flatten)]
        shape: LoadShape,
        /// Sort a table's rows by a column within each node, so that zone maps skip more; may be repeated
        #[arg(long, value_name = "TABLE.COLUMN")]
        sort_by: Vec<String>,
    },
    /// Load a Parquet file as a table
    #[command(
        after_help = "Example:\n  rackscan load parquet trips.parquet --table trips --partition-by trip_id"
    )]
    Parquet(FileLoad),
    /// Load a CSV file with a header line as a table
    #[command(
        after_help = "Example:\n  rackscan load csv cities.csv --table cities --partition-by id --delimiter ';'"
    )]
    Csv {
        #[command(flatten)]
        file: FileLoad,
        /// The character between fields
        #[arg(long, default_value = ",", value_parser = delimiter)]
        delimiter: u8,
    },
}

/// A file to load.
#[derive(Debug, Args)]
pub(crate) struct FileLoad {
    /// The file
    pub(crate) file: PathBuf,
    /// The table's name; a table of that name is replaced
    #[arg(long, value_name = "NAME")]
    pub(crate) table: String,
    /// The column whose hash decides the node of a row
    #[arg(long, value_name = "COLUMN")]
    pub(crate) partition_by: String,
    /// Sort the rows by a column within each node
    #[arg(long, value_name = "COLUMN")]
    pub(crate) sort_by: Option<String>,
    #[command(flatten)]
    pub(crate) shape: LoadShape,
}

/// `rackscan load --parity`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadParity {
    /// A lost node's rows are gone until it is back
    None,
    /// Any one node may be lost
    Xor,
    /// Any two nodes may be lost
    #[value(name = "2d-xor")]
    TwoD,
}

impl LoadParity {
    /// What a load to so many nodes gets if nobody says.
    pub(crate) fn of(nodes: usize) -> Self {
        if nodes >= 4 { Self::TwoD } else { Self::None }
    }

    /// As definitions of tables say it.
    pub(crate) fn protection(self) -> Option<Protection> {
        match self {
            Self::None => None,
            Self::Xor => Some(Protection::Xor),
            Self::TwoD => Some(Protection::TwoD),
        }
    }
}
