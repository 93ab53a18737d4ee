//! Divides the memory that the user allows for queries, and chooses the folder for data that does
//! not fit into memory (decision 0056).
//!
//! Invariant: the memory of operators, of pages that scans hold, and of answers of nodes together
//! stays within the requested limit.

use crate::{
    args::Global,
    cluster::ClusterFile,
    failure::{Failure, at_path},
};
use az::SaturatingAs;
use rackscan_client::limits::{MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MIN, SLOT_BYTES};
use rackscan_engine::{EngineOptions, SpillOptions};
use rackscan_storage_node::available_memory;
use rustix::fs::Access;
use std::path::{Path, PathBuf};

/// Minimum memory of queries, in bytes.
pub(crate) const QUERY_BYTES_MIN: u64 = 64 << 20;
/// Share of the available memory (numerator, denominator) for queries and this host's nodes
/// together. New clusters leave a third of it to queries (`cluster::embedded`).
const SHARE: (u64, u64) = (3, 5);
/// Queries get at least `1 / LEFT_PART` of the memory that nodes do not take.
const LEFT_PART: u64 = 3;
/// Pages of scans take at most `1 / PART` of the memory of queries, and answers of nodes the same.
const PART: usize = 4;
/// Queries spill to at most `1 / DISK_PART` of the free disk space.
const DISK_PART: u64 = 2;

// Operators get the larger half.
const _: () = assert!(MEMORY_BYTES_MIN as u64 <= QUERY_BYTES_MIN / PART as u64);
const _: () = assert!(QUERY_BYTES_MIN.is_multiple_of((PART * SLOT_BYTES) as u64));

/// The memory that queries may take, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// For operators above the scans.
    operators: usize,
    /// For stored pages, per partition of a scan.
    partition_pages: usize,
    /// For answers of nodes.
    pub(crate) answers: usize,
}

impl Budget {
    /// `--memory`, or a share of the available memory less what the nodes of this host take.
    pub(crate) fn of(global: &Global, file: &ClusterFile, threads: usize) -> Result<Self, Failure> {
        let bytes = match global.queries.memory {
            Some(bytes) => bytes,
            None => {
                let nodes = file.members_here().map(|member| member.config.memory_budget.0).sum();
                ours(available()?, nodes)
            }
        };
        Ok(Self::divided(bytes, threads))
    }

    fn divided(bytes: u64, threads: usize) -> Self {
        assert!(bytes >= QUERY_BYTES_MIN, "{bytes} bytes for queries");
        let bytes = bytes.saturating_as::<usize>();
        let part = bytes / PART;
        let answers = part.min(MEMORY_BYTES_DEFAULT) / SLOT_BYTES * SLOT_BYTES;
        let partition_pages = EngineOptions::default().partition_page_bytes.min(part / threads);
        Self { operators: bytes - answers - partition_pages * threads, partition_pages, answers }
    }

    /// Memory of a load, which runs instead of queries.
    pub(crate) fn for_loads(self) -> usize {
        self.operators
    }

    /// The engine's options with this memory.
    pub(crate) fn options(self, global: &Global, file: &ClusterFile) -> Result<EngineOptions, Failure> {
        let folder = match &global.queries.spill_folder {
            Some(folder) => folder.clone(),
            None => default_folder(file),
        };
        let bytes_max = match global.queries.spill_limit {
            Some(bytes) => bytes,
            None => free_bytes(&folder)? / DISK_PART,
        };
        Ok(EngineOptions {
            memory_bytes: Some(self.operators),
            partition_page_bytes: self.partition_pages,
            spill: Some(SpillOptions { folder, bytes_max }),
            ..EngineOptions::default()
        })
    }
}

/// A folder next to the cluster file, or in the system's temporary folder if that is not writable.
fn default_folder(file: &ClusterFile) -> PathBuf {
    let beside = file.folder.join("spill");
    let is_writable = rustix::fs::access(&file.folder, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    if is_writable {
        return beside;
    }
    std::env::temp_dir().join(format!("rackscan-spill-{}", rustix::process::getuid().as_raw()))
}

/// The memory of queries if `available` bytes exist and nodes take `nodes` bytes.
fn ours(available: u64, nodes: u64) -> u64 {
    let (numerator, denominator) = SHARE;
    let share = available / denominator * numerator;
    let left = available.saturating_sub(nodes);
    share.saturating_sub(nodes).max(left / LEFT_PART).max(QUERY_BYTES_MIN)
}

/// Free bytes of the filesystem on which a folder is or will be.
fn free_bytes(folder: &Path) -> Result<u64, Failure> {
    let there = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    let free = rustix::fs::statvfs(there).map_err(|error| at_path(there)(error.into()))?;
    Ok(free.f_bavail * free.f_frsize)
}

/// Memory of this host, or of this process's control group.
pub(crate) fn available() -> Result<u64, Failure> {
    available_memory().map_err(|error| Failure::Runtime(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_budget_are_together_what_was_asked_for() {
        for bytes in [QUERY_BYTES_MIN, 1 << 30, (7 << 30) + 12_345, 1 << 40] {
            for threads in [1, 2, 64, 1024] {
                let Budget { operators, partition_pages, answers } = Budget::divided(bytes, threads);
                let together = operators + partition_pages * threads + answers;
                assert_eq!(together as u64, bytes, "{threads} threads");
                assert!(operators as u64 >= bytes / 2, "{bytes} bytes, {threads} threads");
                assert!(answers >= MEMORY_BYTES_MIN && answers.is_multiple_of(SLOT_BYTES));
            }
        }
    }

    #[test]
    fn queries_get_three_fifths_of_what_there_is_less_the_nodes_and_never_less_than_they_need() {
        assert_eq!(ours(10 << 30, 1 << 30), 5 << 30);
        assert_eq!(ours(1 << 30, 700 << 20), 108 << 20);
        assert_eq!(ours(1 << 30, 2 << 30), QUERY_BYTES_MIN);
    }
}
