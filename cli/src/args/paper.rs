//! Defines the arguments of `rackscan lab paper`.

use super::effort;
use clap::{Args, builder::PossibleValuesParser};
use std::path::PathBuf;

/// `rackscan lab paper`
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  rackscan lab paper                                    # lists papers and figures\n  \
                        rackscan lab paper ramp-with-rdma --report ramp-report\n  \
                        rackscan lab paper disaggregated-query --figure 4.19\n  \
                        rackscan lab paper disaggregated-query --effort 0.1 --repeat 1\n  \
                        rackscan lab paper ramp-with-rdma --report ramp-report --redraw\n\n\
                        The command runs other commands of rackscan and prints them. Their JSON lines stay in the report's folder."
)]
pub(crate) struct PaperArguments {
    /// Name of the paper; without it, all papers and their figures are listed
    #[arg(value_parser = PossibleValuesParser::new(["disaggregated-query", "ipush", "ramp-with-rdma", "redundant-writes"]))]
    pub(crate) name: Option<String>,
    /// Figures or tables, comma-separated: 4.19, "table 4.2" [default: all]
    #[arg(long = "figure", value_delimiter = ',', value_name = "NUMBER", requires = "name")]
    pub(crate) figures: Vec<String>,
    /// Fraction of the time and data of the experiments: 1 is usual, 0.01 is a smoke test
    #[arg(long, default_value_t = 1.0, value_parser = effort, requires = "name")]
    pub(crate) effort: f64,
    /// Rounds of each measurement; medians are reported
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000), requires = "name")]
    pub(crate) repeat: u32,
    /// Folder for the page, its figures, and the JSON lines; data are created there and removed
    #[arg(long, value_name = "DIR", default_value = "paper-report", requires = "name")]
    pub(crate) report: PathBuf,
    /// Measure nothing, and draw the page from the JSON lines in the folder
    #[arg(long, requires = "name", conflicts_with_all = ["effort", "repeat"])]
    pub(crate) redraw: bool,
}
