//! How does nothing of a file stay in memory?
//!
//! Invariants
//! - Whether it is possible is known before anything is measured, and a failure is never taken for
//!   cold.

use std::{fs, path::Path};

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
/// The page cache, and with it directories and inodes.
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

/// Whether this process may drop caches; drops nothing.
///
/// # Errors
/// When it may not, with what is missing.
pub fn may_drop_caches() -> Result<(), ColdError> {
    let opened = fs::File::options().write(true).open(Path::new(DROP_CACHES));
    opened.map(drop).map_err(|source| ColdError { source })
}

/// Writes what is waiting to be written, then drops what the kernel keeps of files.
///
/// # Errors
/// When this process may not.
pub fn drop_caches() -> Result<(), ColdError> {
    // Pages that were not written yet would stay.
    rustix::fs::sync();
    fs::write(DROP_CACHES, EVERYTHING).map_err(|source| ColdError { source })
}
