//! Which words say how much memory queries take?

use super::bytes;
use crate::memory::QUERY_BYTES_MIN;
use clap::Args;
use std::{ffi::OsString, path::PathBuf};

/// The memory of queries (decision 0056).
#[derive(Clone, Debug, Args)]
pub(crate) struct QueryMemory {
    /// Memory for queries and loads (`1GiB`): what operators hold, pages of scans, and answers of
    /// nodes; sorts, groupings and joins write to disk what does not fit, other operators fail, and
    /// loads close segments early [default: 60 % of what this host, its control group or
    /// `ulimit -v` has, less what nodes on this host take]
    #[arg(long, global = true, value_name = "SIZE", env = "RACKSCAN_MEMORY", value_parser = query_memory)]
    pub(crate) memory: Option<u64>,
    /// Where queries write what does not fit into memory [default: spill beside the cluster file]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) spill_folder: Option<PathBuf>,
    /// How much they write there at a time [default: half of what is free there]
    #[arg(long, global = true, value_name = "SIZE", value_parser = bytes)]
    pub(crate) spill_limit: Option<u64>,
}

impl QueryMemory {
    /// The same options as words for another process of this program.
    pub(super) fn words(&self) -> Vec<OsString> {
        let size = |bytes: Option<u64>| bytes.map(|bytes| OsString::from(format!("{bytes}B")));
        let options = [
            ("--memory", size(self.memory)),
            ("--spill-folder", self.spill_folder.clone().map(Into::into)),
            ("--spill-limit", size(self.spill_limit)),
        ];
        options.into_iter().filter_map(|(option, value)| Some([option.into(), value?])).flatten().collect()
    }
}

fn query_memory(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        bytes if bytes >= QUERY_BYTES_MIN => Ok(bytes),
        bytes => Err(format!("{bytes} bytes; expected at least {}MiB", QUERY_BYTES_MIN >> 20)),
    }
}
