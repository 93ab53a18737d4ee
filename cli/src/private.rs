//! How are files and folders made that nobody but their owner may read?

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

/// Makes a folder and those above it, unless they are there.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// How files are made.
pub(crate) fn options() -> OpenOptions {
    let mut options = File::options();
    options.create(true).mode(0o600);
    options
}

/// An empty file in place of any other.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    options().write(true).truncate(true).open(path)
}

/// A file with this content in place of any other, durable when this returns.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
