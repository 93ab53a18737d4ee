//! Defines the arguments of `rackscan load`.

use super::{
    ascii_character, delimiter, page_size, scale, segment_rows, table_name,
    values::{SCHEDULES, one_of},
};
use clap::{Args, Subcommand, ValueEnum};
use rackscan_datasets::csv::{CsvOptions, Encoding, encoding_named};
use rackscan_format::schema::Protection;
use rackscan_stripe::Way;
use std::path::PathBuf;

/// How the rows of a load are stored, whatever their source.
#[derive(Clone, Debug, Args)]
pub(crate) struct LoadShape {
    /// Target size of a page, 4KiB to 1MiB
    #[arg(long, value_name = "SIZE", default_value = "128KiB", value_parser = page_size)]
    pub(crate) page_size: u32,
    /// Rows of a segment, a multiple of 1024
    #[arg(long, value_name = "N", default_value_t = rackscan_format::limits::SEGMENT_ROWS_DEFAULT, value_parser = segment_rows)]
    pub(crate) segment_rows: u32,
    /// Protection against lost nodes: none; one parity, for any one node; two, for any two. On n
    /// nodes it takes n/(n-1) or n/(n-2) times the space [default: 2d-xor with four or more nodes,
    /// otherwise none]
    #[arg(long, value_enum)]
    pub(crate) parity: Option<LoadParity>,
    /// Who computes the parity
    #[arg(long, value_parser = one_of(&SCHEDULES), default_value = "relay")]
    pub(crate) schedule: Way,
}

/// What to load.
#[derive(Debug, Subcommand)]
pub(crate) enum Load {
    /// Generate and load the eight TPC-H tables
    #[command(after_help = "Examples:\n  rackscan load tpch --scale 1\n  \
                            rackscan load tpch --scale 0.1 --page-size 16KiB --sort-by lineitem.l_shipdate\n  \
                            rackscan load tpch --scale 1 --parity 2d-xor --schedule naive")]
    Tpch {
        /// Scale factor: 1 is about 1 GB of raw data
        #[arg(long, default_value_t = 0.1, value_parser = scale)]
        scale: f64,
        #[command(flatten)]
        shape: LoadShape,
        /// Sort a table's rows by a column within each node, so that zone maps skip more; may be
        /// repeated
        #[arg(long, value_name = "TABLE.COLUMN")]
        sort_by: Vec<String>,
    },
    /// Load a Parquet file as a table
    #[command(
        after_help = "Example:\n  rackscan load parquet trips.parquet --table trips --partition-by trip_id"
    )]
    Parquet(FileLoad),
    /// Load a CSV file as a table; files compressed with gzip, zstd, bzip2 or xz are decompressed
    #[command(after_help = "Examples:\n  \
                            rackscan load csv cities.csv --table cities --partition-by id --delimiter ';'\n  \
                            rackscan load csv films.tsv.gz --table films --partition-by id --delimiter tab --quote none\n  \
                            rackscan load csv log.csv --table log --partition-by column1 --header no --null NA --null ''\n  \
                            rackscan load csv odd.csv --table odd --partition-by id --reject odd-rejected.csv")]
    Csv {
        #[command(flatten)]
        file: FileLoad,
        #[command(flatten)]
        dialect: CsvDialect,
    },
}

/// The dialect of a CSV file.
#[derive(Debug, Args)]
pub(crate) struct CsvDialect {
    /// Field delimiter; \t or tab for a tab
    #[arg(long, value_name = "CHAR", default_value = ",", value_parser = delimiter)]
    delimiter: u8,
    /// Character around fields that contain delimiters, line ends or quotes; none if fields are
    /// never quoted
    #[arg(long, value_name = "CHAR|none", default_value = "\"", value_parser = quote)]
    quote: Quote,
    /// Escape character before a quote within quotes [default: the quote itself]
    #[arg(long, value_name = "CHAR", value_parser = ascii_character)]
    escape: Option<u8>,
    /// Text that stands for NULL if it is not quoted; may be repeated [default: the empty text]
    #[arg(long, value_name = "TEXT")]
    null: Vec<String>,
    /// Whether the first line names the columns; otherwise they are column1, column2 and so on
    #[arg(long, value_enum, default_value = "yes")]
    header: YesNo,
    /// Encoding of the file, such as utf-16le, iso-8859-1 or windows-1252 [default: UTF-8, or
    /// UTF-16 where it is recognised]
    #[arg(long, value_name = "NAME", value_parser = encoding_named)]
    encoding: Option<Encoding>,
    /// Skip rows that do not parse, and write them to this CSV file with line, column and reason
    #[arg(long, value_name = "FILE")]
    reject: Option<PathBuf>,
}

/// `--quote`
#[derive(Clone, Copy, Debug)]
struct Quote(Option<u8>);

/// `--header`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum YesNo {
    /// The first line names the columns
    Yes,
    /// The first line is a row
    No,
}

fn quote(text: &str) -> Result<Quote, String> {
    match text {
        "none" => Ok(Quote(None)),
        _ => match ascii_character(text) {
            Ok(byte) => Ok(Quote(Some(byte))),
            Err(expected) => Err(format!("{expected}, or none")),
        },
    }
}

impl CsvDialect {
    pub(crate) fn options(&self) -> CsvOptions {
        let nulls = if self.null.is_empty() { vec![String::new()] } else { self.null.clone() };
        CsvOptions {
            delimiter: self.delimiter,
            quote: self.quote.0,
            escape: self.escape,
            nulls,
            has_header: self.header == YesNo::Yes,
            encoding: self.encoding,
            reject: self.reject.clone(),
        }
    }
}

/// A file to load.
#[derive(Debug, Args)]
pub(crate) struct FileLoad {
    /// File to load
    pub(crate) file: PathBuf,
    /// Name of the table; an existing table of that name is replaced
    #[arg(long, value_name = "NAME", value_parser = table_name)]
    pub(crate) table: String,
    /// Column whose hash selects the node of a row
    #[arg(long, value_name = "COLUMN")]
    pub(crate) partition_by: String,
    /// Sort the rows by this column within each node
    #[arg(long, value_name = "COLUMN")]
    pub(crate) sort_by: Option<String>,
    #[command(flatten)]
    pub(crate) shape: LoadShape,
}

/// `rackscan load --parity`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadParity {
    /// A lost node's rows are unavailable until it is back
    None,
    /// Any one node may be lost
    Xor,
    /// Any two nodes may be lost
    #[value(name = "2d-xor")]
    TwoD,
}

impl LoadParity {
    /// The default for a load onto `nodes` nodes.
    pub(crate) fn of(nodes: usize) -> Self {
        if nodes >= 4 { Self::TwoD } else { Self::None }
    }

    /// The same value in the form that table definitions use.
    pub(crate) fn protection(self) -> Option<Protection> {
        match self {
            Self::None => None,
            Self::Xor => Some(Protection::Xor),
            Self::TwoD => Some(Protection::TwoD),
        }
    }
}
