//! Makes the folder (`--folder`) in which a command of the laboratory creates its own nodes.

use crate::failure::{Failure, at_path};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The absolute path of the folder, which is made if it does not exist.
///
/// # Errors
/// The folder cannot be made, or keeps files in memory only: devices are read without the page
/// cache.
pub(crate) fn own_folder(folder: &Path) -> Result<PathBuf, Failure> {
    fs::create_dir_all(folder).map_err(at_path(folder))?;
    let folder = fs::canonicalize(folder).map_err(at_path(folder))?;
    match rackscan_device::memory_filesystem(&folder).map_err(at_path(&folder))? {
        Some(filesystem) => Err(Failure::Runtime(format!(
            "--folder {}: this is {filesystem}, which keeps files in memory only; give a folder on ext4, xfs or btrfs",
            folder.display()
        ))),
        None => Ok(folder),
    }
}
