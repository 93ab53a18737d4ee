//! Replaces a small file atomically: after a crash, either the earlier or the new content is there,
//! and a replacement succeeds even on a full disk.
//!
//! Invariant: the earlier file stays under the name of the new one (such as `NAME.new`), and the
//! next replacement overwrites it. So its disk space is available even if the disk is full by then,
//! and a node can still start.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Writes the bytes into the file `new` of the folder and durably puts it in the place of the file
/// `name`.
pub(crate) fn replace(folder: &Path, new: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let (new, file) = (folder.join(new), folder.join(name));
    let mut opened = File::options().create(true).truncate(false).write(true).mode(0o600).open(&new)?;
    opened.write_all(bytes)?;
    opened.set_len(bytes.len() as u64)?;
    opened.sync_all()?;
    // Without an earlier file, or where the file system cannot exchange two, the new one is
    // renamed.
    let is_exchanged = renameat_with(CWD, &new, CWD, &file, RenameFlags::EXCHANGE).is_ok();
    if !is_exchanged {
        fs::rename(&new, &file)?;
    }
    File::open(folder)?.sync_all()?;
    if !is_exchanged {
        // This file only reserves space, which the next replacement needs.
        let _ = fs::write(&new, bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_file_is_kept_and_written_over_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let there = |name: &str| fs::read(folder.path().join(name)).unwrap();
        replace(folder.path(), "a.new", "a", b"longer").unwrap();
        assert_eq!((there("a"), there("a.new")), (b"longer".to_vec(), b"longer".to_vec()));
        replace(folder.path(), "a.new", "a", b"one").unwrap();
        assert_eq!((there("a"), there("a.new")), (b"one".to_vec(), b"longer".to_vec()));
        replace(folder.path(), "a.new", "a", b"two").unwrap();
        assert_eq!((there("a"), there("a.new")), (b"two".to_vec(), b"one".to_vec()));
    }
}
