//! Creates files and folders that only their owner can read.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

/// Creates a folder and its parents, unless they exist.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Options that create a file only its owner can read.
pub(crate) fn options() -> OpenOptions {
    let mut options = File::options();
    options.create(true).mode(0o600);
    options
}

/// Creates an empty file, replacing any other.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    options().write(true).truncate(true).open(path)
}

/// Writes a file, replacing any other. It is durable when this returns.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
