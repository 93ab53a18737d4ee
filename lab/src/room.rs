//! Reads how much disk space is free for the data of an experiment.

use std::io;
use std::path::Path;

/// Bytes of the filesystem of `path` that this process may still use.
///
/// # Errors
/// The system's error, for instance because the path does not exist.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let status = rustix::fs::statvfs(path)?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_room_and_a_path_that_is_not_there_has_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(free_bytes(folder.path()).unwrap() > 0);
        assert!(free_bytes(&folder.path().join("absent")).is_err());
    }
}
