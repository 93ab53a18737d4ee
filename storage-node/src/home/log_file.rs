//! What does the log's thread need of a file?
//!
//! The seam between what is decided about a log (`writer`, `compaction`) and the disk: the tests'
//! disks are full, torn or broken when it matters.
//!
//! Invariants
//! - A full disk is told apart from one that has failed: after the former, what was written before
//!   is known to be there.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use rustix::fs::FallocateFlags;

/// The file of a log.
pub(crate) trait LogFile {
    /// Reads exactly these bytes.
    fn read_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()>;
    /// Writes all of them, or fails having written some.
    fn write_at(&mut self, bytes: &[u8], offset_bytes: u64) -> io::Result<()>;
    /// Takes disk space up to `end_bytes`, filled with zeroes.
    fn reserve(&mut self, end_bytes: u64) -> io::Result<()>;
    /// Takes disk space up to `end_bytes` without making the file longer.
    fn reserve_ahead(&mut self, end_bytes: u64) -> io::Result<()>;
    /// Makes durable what was written.
    fn sync(&mut self) -> io::Result<()>;
    /// Gives back everything behind `end_bytes`.
    fn cut(&mut self, end_bytes: u64) -> io::Result<()>;
}

/// Where a log and its new version lie.
pub(super) trait LogFolder {
    /// What their files are.
    type File: LogFile;
    /// Begins a new version, over whatever is left of an earlier one.
    fn create(&self) -> io::Result<Self::File>;
    /// Puts the new version, which is durable, in the place of the log, durably.
    fn put_in_place(&self) -> io::Result<()>;
    /// Gives the new version up.
    fn discard(&self);
    /// What the log is called.
    fn name(&self) -> String;
}

/// Whether this means that there is no more space, and not that the disk is broken.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

impl LogFile for File {
    fn read_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset_bytes)
    }

    fn write_at(&mut self, bytes: &[u8], offset_bytes: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset_bytes)
    }

    fn reserve(&mut self, end_bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&*self, FallocateFlags::empty(), 0, end_bytes) {
            // A filesystem that cannot do it takes the space when it is written.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn reserve_ahead(&mut self, end_bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&*self, FallocateFlags::KEEP_SIZE, 0, end_bytes) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, end_bytes: u64) -> io::Result<()> {
        self.set_len(end_bytes)
    }
}

/// A folder of the filesystem.
#[derive(Debug)]
pub(super) struct Folder {
    folder: PathBuf,
    log: PathBuf,
    new_version: PathBuf,
}

impl Folder {
    /// With the names of the log and its new version in it.
    pub(super) fn new(folder: &Path, log: &str, new_version: &str) -> Self {
        Self { folder: folder.to_owned(), log: folder.join(log), new_version: folder.join(new_version) }
    }
}

impl LogFolder for Folder {
    type File = File;

    fn create(&self) -> io::Result<File> {
        fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&self.new_version)
    }

    fn put_in_place(&self) -> io::Result<()> {
        fs::rename(&self.new_version, &self.log)?;
        File::open(&self.folder)?.sync_all()
    }

    fn discard(&self) {
        // What is left of it is overwritten by the next one.
        let _ = fs::remove_file(&self.new_version);
    }

    fn name(&self) -> String {
        self.log.display().to_string()
    }
}
