//! Drops the kernel's caches, so that no part of a file stays in memory.
//!
//! Invariants
//! - The caller can check beforehand whether dropping is possible. A run whose drop failed never
//!   counts as cold.

use std::{fs, path::Path};

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
/// The page cache, and directories and inodes.
const EVERYTHING: &str = "3";

/// Why the caches cannot be made cold.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot drop the kernel's caches: {DROP_CACHES}: {source}; this needs root of the machine itself, not of a container; leave \
     --cold out to measure with warm caches"
)]
pub struct ColdError {
    source: std::io::Error,
}

/// Checks that this process may drop caches; drops nothing.
///
/// # Errors
/// This process may not; the error says what is missing.
pub fn may_drop_caches() -> Result<(), ColdError> {
    let opened = fs::File::options().write(true).open(Path::new(DROP_CACHES));
    opened.map(drop).map_err(|source| ColdError { source })
}

/// Writes dirty pages, then drops the kernel's caches of files.
///
/// # Errors
/// This process may not drop caches.
pub fn drop_caches() -> Result<(), ColdError> {
    // Dirty pages would not be dropped.
    rustix::fs::sync();
    fs::write(DROP_CACHES, EVERYTHING).map_err(|source| ColdError { source })
}
