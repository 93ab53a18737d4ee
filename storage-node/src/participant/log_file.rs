//! Defines the operations on files that the log's thread needs: the interface between its logic
//! (`writer`, `compaction`) and the disk.
//!
//! Tests implement it with disks that become full, write partly or fail at chosen points.
//!
//! Invariants
//! - The interface distinguishes a full disk from a failed one, because after a full disk, earlier
//!   writes are known to be intact.

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
    /// Writes all bytes; on failure some of them may be written.
    fn write_at(&mut self, bytes: &[u8], offset_bytes: u64) -> io::Result<()>;
    /// Reserves disk space up to `end_bytes`, filled with zeroes.
    fn reserve(&mut self, end_bytes: u64) -> io::Result<()>;
    /// Reserves disk space up to `end_bytes` without making the file longer.
    fn reserve_ahead(&mut self, end_bytes: u64) -> io::Result<()>;
    /// Makes earlier writes durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Truncates the file at `end_bytes`.
    fn cut(&mut self, end_bytes: u64) -> io::Result<()>;
}

/// The folder of a log and its new version.
pub(super) trait LogFolder {
    /// The type of their files.
    type File: LogFile;
    /// Creates the new version, replacing any earlier one.
    fn create(&self) -> io::Result<Self::File>;
    /// Puts the new version, which is durable, in the place of the log, durably.
    fn put_in_place(&self) -> io::Result<()>;
    /// Removes the new version.
    fn discard(&self);
    /// The name of the log, for messages.
    fn name(&self) -> String;
}

/// Whether an error means that the disk is full, and not that it is broken.
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
            // A filesystem without support allocates the space when it is written.
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
    /// The folder with these names of the log and its new version.
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
        // If the file stays, the next new version overwrites it.
        let _ = fs::remove_file(&self.new_version);
    }

    fn name(&self) -> String {
        self.log.display().to_string()
    }
}
