//! Defines the options for the memory that queries take.

use super::bytes;
use crate::memory::QUERY_BYTES_MIN;
use clap::Args;
use std::{ffi::OsString, path::PathBuf};

/// The memory of queries (decision 0056).
#[derive(Clone, Debug, Args)]
pub(crate) struct QueryMemory {
    /// Memory for queries and loads (`1GiB`): operators, pages of scans, answers of nodes. Sorts,
    /// groupings and joins spill to disk what does not fit, other operators fail, and loads close
    /// segments early [default: 60 % of the memory of this host, its control group or `ulimit -v`,
    /// less what nodes on this host take]
    #[arg(long, global = true, value_name = "SIZE", env = "RACKSCAN_MEMORY", value_parser = query_memory)]
    pub(crate) memory: Option<u64>,
    /// Folder for spill files of queries [default: spill, next to the cluster file]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) spill_folder: Option<PathBuf>,
    /// Maximum size of all spill files at a time [default: half of the free disk space]
    #[arg(long, global = true, value_name = "SIZE", value_parser = bytes)]
    pub(crate) spill_limit: Option<u64>,
}

impl QueryMemory {
    /// The same options as arguments for another process of this program.
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
