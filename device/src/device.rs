//! Opens devices for direct IO.
//!
//! A device is a regular file or a block device opened with O_DIRECT.
//!
//! Invariants
//! - An open `Device` really bypasses the page cache: filesystems that refuse O_DIRECT, and those
//!   that accept the flag and ignore it, are [`OpenError::DirectIoRefused`]. There is no fallback.
//! - At most one process has a device open for writing (an exclusive `flock`, and O_EXCL on block
//!   devices, which also refuses mounted ones). Readers take no lock: the owner's protocol defines
//!   what they may read.
//! - Size and alignment are determined when the device is opened.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, StatxFlags, fallocate, flock,
    fstat, fstatvfs, ioctl_blksszget, open, seek, statx, unlink,
};
use rustix::io::Errno;

use crate::error::OpenError;
use crate::filesystem::{self, DirectIo};
use crate::limits::{IO_ALIGN_BYTES, LOCK_POLL, LOCK_WAIT_MAX};
use crate::memory::{Buffer, BufferPool};

/// How a process may use a device that it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads only; no lock is taken, so the owner may be writing other parts.
    ReadOnly,
    /// Reads and writes; no other process may have it open for writing.
    ReadWrite,
}

/// The alignment that direct IO on a device needs, in bytes; powers of two, at most 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    /// Memory addresses.
    pub memory_bytes: u32,
    /// Offsets and lengths on the device.
    pub offset_bytes: u32,
}

/// An open device.
#[derive(Debug)]
pub struct Device {
    file: OwnedFd,
    path: PathBuf,
    bytes: u64,
    access: Access,
    alignment: Alignment,
}

impl Device {
    /// Opens an existing file or block device.
    ///
    /// # Errors
    /// [`OpenError`]: direct IO refused, in use, not a device, empty, unsupported alignment, or an
    /// error of the system.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self, OpenError> {
        let path = path.as_ref();
        check_kind(path)?;
        let file = open_direct(path, access)?;
        if access == Access::ReadWrite {
            lock(path, &file)?;
        }
        let bytes = size_of(path, &file)?;
        Self::over(path, file, bytes, access)
    }

    /// Creates a file of `bytes` bytes whose blocks are reserved (reading them gives zeroes), and
    /// opens it for writing. On failure the file is removed.
    ///
    /// # Errors
    /// [`OpenError::Exists`], [`OpenError::BadSize`] unless `bytes` is a positive multiple of 4
    /// KiB, [`OpenError::NoSpace`] with the numbers, and everything [`Device::open`] reports.
    pub fn create(path: impl AsRef<Path>, bytes: u64) -> Result<Self, OpenError> {
        Self::make(path.as_ref(), bytes, reserve)
    }

    /// As [`Device::create`], but the filesystem allocates blocks when they are written: `bytes` is
    /// a limit, and a write fails with ENOSPC when the filesystem is full.
    ///
    /// # Errors
    /// As [`Device::create`]; `NoSpace` only when the filesystem allows no file of that size.
    pub fn create_sparse(path: impl AsRef<Path>, bytes: u64) -> Result<Self, OpenError> {
        Self::make(path.as_ref(), bytes, extend)
    }

    fn make(
        path: &Path,
        bytes: u64,
        give_size: impl Fn(&Path, &OwnedFd, u64) -> Result<(), OpenError>,
    ) -> Result<Self, OpenError> {
        if bytes == 0 || !bytes.is_multiple_of(IO_ALIGN_BYTES as u64) {
            return Err(OpenError::BadSize { path: path.to_owned(), bytes });
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let plain = match open(path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => file,
            Err(Errno::EXIST) => return Err(OpenError::Exists { path: path.to_owned() }),
            Err(errno) => return Err(os(path, "creating the file")(errno)),
        };
        let made = give_size(path, &plain, bytes).and_then(|()| sync_new(path, &plain)).and_then(|()| {
            let file = open_direct(path, Access::ReadWrite)?;
            lock(path, &file)?;
            write_first_block(path, &file)?;
            Self::over(path, file, bytes, Access::ReadWrite)
        });
        if made.is_err() {
            // The first failure is the one to report; if the removal fails too, the next `create`
            // says `Exists`.
            let _removed = unlink(path);
        }
        made
    }

    fn over(path: &Path, file: OwnedFd, bytes: u64, access: Access) -> Result<Self, OpenError> {
        let direct_io = filesystem::direct_io(&file).map_err(os(path, "statfs"))?;
        if let DirectIo::Ignored { filesystem } = direct_io {
            return Err(OpenError::DirectIoRefused { path: path.to_owned(), filesystem });
        }
        let alignment = alignment_of(path, &file)?;
        let usable = bytes - bytes % u64::from(alignment.offset_bytes);
        if usable == 0 {
            return Err(OpenError::BadSize { path: path.to_owned(), bytes });
        }
        let read_first_block = || probe(&file, alignment);
        match read_first_block() {
            Ok(()) => {}
            Err(Errno::INVAL) => return Err(refused(path)),
            Err(errno) => return Err(os(path, "a first read")(errno)),
        }
        if let DirectIo::ToBeMeasured { filesystem } = direct_io {
            let measured = filesystem::reads_through_page_cache(&file, read_first_block);
            if measured.map_err(os(path, "checking whether its first page is in the page cache"))? {
                return Err(OpenError::DirectIoRefused { path: path.to_owned(), filesystem });
            }
        }
        Ok(Self { file, path: path.to_owned(), bytes: usable, access, alignment })
    }

    /// Size in bytes, a multiple of the offset alignment.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Tells the filesystem that a range is unused: its blocks are freed and it reads as zeroes. On
    /// block devices, and on filesystems that do not support it, nothing changes.
    ///
    /// # Errors
    /// The system's error, if the filesystem supports it and failed.
    pub fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), Errno> {
        if FileType::from_raw_mode(fstat(&self.file)?.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        match self.trim(offset_bytes, length_bytes) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            outcome => outcome,
        }
    }

    /// Frees the blocks of a range, which reads as zeroes afterwards: a hole in a file; on a block
    /// device, a write of zeroes that may unmap.
    ///
    /// # Errors
    /// The system's error, EOPNOTSUPP if the filesystem or device cannot do it.
    pub fn trim(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), Errno> {
        fallocate(
            &self.file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            offset_bytes,
            length_bytes,
        )
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The access it was opened with.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The alignment that requests need.
    #[must_use]
    pub fn alignment(&self) -> Alignment {
        self.alignment
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.access == Access::ReadWrite {
            // Closing is not enough: the kernel may keep the open file, and with it the lock, until
            // it has taken down a ring in which the file was registered. If unlocking fails, the
            // lock is released then.
            let _unlocked = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn os(path: &Path, action: &'static str) -> impl FnOnce(Errno) -> OpenError {
    move |source| OpenError::Os { path: path.to_owned(), action, source }
}

/// Refuses anything that is neither a file nor a block device, before opening it: opening a FIFO
/// would block.
fn check_kind(path: &Path) -> Result<(), OpenError> {
    let status = rustix::fs::stat(path).map_err(os(path, "looking it up"))?;
    let found = match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile | FileType::BlockDevice => return Ok(()),
        FileType::Directory => "directory",
        FileType::CharacterDevice => "character device",
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        _ => "file of another kind",
    };
    Err(OpenError::NotADevice { path: path.to_owned(), found })
}

fn open_direct(path: &Path, access: Access) -> Result<OwnedFd, OpenError> {
    let mut flags = OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOCTTY;
    flags |= match access {
        Access::ReadOnly => OFlags::RDONLY,
        Access::ReadWrite => OFlags::RDWR,
    };
    let status = rustix::fs::stat(path).map_err(os(path, "looking it up"))?;
    let is_block_device = FileType::from_raw_mode(status.st_mode) == FileType::BlockDevice;
    if is_block_device && access == Access::ReadWrite {
        // Without O_CREAT this asks for exclusive use of a block device and fails if it is mounted.
        flags |= OFlags::EXCL;
    }
    // Only opening a block device exclusively can fail with EBUSY.
    match once_free(Errno::BUSY, || open(path, flags, Mode::empty())) {
        Ok(file) => Ok(file),
        Err(Errno::INVAL) => Err(refused(path)),
        Err(Errno::BUSY) => Err(OpenError::InUse { path: path.to_owned() }),
        Err(errno) => Err(os(path, "opening it")(errno)),
    }
}

fn refused(path: &Path) -> OpenError {
    OpenError::DirectIoRefused { path: path.to_owned(), filesystem: filesystem::name_at(path) }
}

fn lock(path: &Path, file: &OwnedFd) -> Result<(), OpenError> {
    match once_free(Errno::WOULDBLOCK, || flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(OpenError::InUse { path: path.to_owned() }),
        Err(errno) => Err(os(path, "locking it")(errno)),
    }
}

/// Repeats `attempt` until it does not fail with `taken`, for at most [`LOCK_WAIT_MAX`].
fn once_free<T>(taken: Errno, mut attempt: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let give_up = Instant::now() + LOCK_WAIT_MAX;
    loop {
        match attempt() {
            Err(errno) if errno == taken && Instant::now() < give_up => std::thread::sleep(LOCK_POLL),
            answer => return answer,
        }
    }
}

fn size_of(path: &Path, file: &OwnedFd) -> Result<u64, OpenError> {
    // A block device has no length in its inode, but seeking to the end works for block devices and
    // files.
    seek(file, SeekFrom::End(0)).map_err(os(path, "finding its end"))
}

fn reserve(path: &Path, file: &OwnedFd, bytes: u64) -> Result<(), OpenError> {
    let free_bytes = || fstatvfs(file).map_or(0, |status| status.f_bavail.saturating_mul(status.f_frsize));
    let no_space =
        || OpenError::NoSpace { path: path.to_owned(), needed_bytes: bytes, free_bytes: free_bytes() };
    // Checked first, because some filesystems take minutes to find out that a file does not fit.
    if bytes > free_bytes() {
        return Err(no_space());
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => {}
        Err(Errno::NOSPC | Errno::FBIG | Errno::DQUOT) => return Err(no_space()),
        Err(errno) => return Err(os(path, "reserving its blocks")(errno)),
    }
    Ok(())
}

fn extend(path: &Path, file: &OwnedFd, bytes: u64) -> Result<(), OpenError> {
    match rustix::fs::ftruncate(file, bytes) {
        Ok(()) => Ok(()),
        Err(Errno::FBIG | Errno::INVAL) => {
            Err(OpenError::NoSpace { path: path.to_owned(), needed_bytes: bytes, free_bytes: 0 })
        }
        Err(errno) => Err(os(path, "setting its size")(errno)),
    }
}

fn sync_new(path: &Path, file: &OwnedFd) -> Result<(), OpenError> {
    rustix::fs::fsync(file).map_err(os(path, "syncing the new file"))?;
    // Without this the directory entry itself could be lost in a crash.
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = File::open(folder).map_err(|error| os(path, "opening its folder")(errno_of(&error)))?;
    rustix::fs::fsync(&folder).map_err(os(path, "syncing its folder"))
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn alignment_of(path: &Path, file: &OwnedFd) -> Result<Alignment, OpenError> {
    let status = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).map_err(os(path, "statx"))?;
    let alignment = if status.stx_mask & StatxFlags::DIOALIGN.bits() != 0 {
        if status.stx_dio_offset_align == 0 {
            return Err(refused(path));
        }
        Alignment { memory_bytes: status.stx_dio_mem_align.max(1), offset_bytes: status.stx_dio_offset_align }
    } else {
        // Filesystems that do not report an alignment need at most their block size; pool buffers
        // are always aligned to 4 KiB.
        let kind = FileType::from_raw_mode(fstat(file).map_err(os(path, "fstat"))?.st_mode);
        let block_bytes = match kind {
            FileType::BlockDevice => ioctl_blksszget(file).map_err(os(path, "reading its block size"))?,
            _ => u32::try_from(IO_ALIGN_BYTES).expect("4 KiB fits"),
        };
        Alignment { memory_bytes: block_bytes, offset_bytes: block_bytes }
    };
    let supported = |bytes: u32| bytes.is_power_of_two() && bytes as usize <= IO_ALIGN_BYTES;
    if !supported(alignment.memory_bytes) || !supported(alignment.offset_bytes) {
        return Err(OpenError::AlignmentUnsupported {
            path: path.to_owned(),
            memory_bytes: alignment.memory_bytes,
            offset_bytes: alignment.offset_bytes,
        });
    }
    Ok(alignment)
}

/// Writes zeroes to the first 4 KiB of a new file. Blocks that were only reserved are never in the
/// page cache, even on filesystems that ignore O_DIRECT, so
/// [`filesystem::reads_through_page_cache`] needs a written block to measure.
fn write_first_block(path: &Path, file: &OwnedFd) -> Result<(), OpenError> {
    let mut buffer = one_block().map_err(os(path, "allocating memory for a first write"))?;
    buffer.fill(0);
    match rustix::io::pwrite(file, &buffer, 0) {
        Ok(_) => Ok(()),
        Err(Errno::INVAL) => Err(refused(path)),
        Err(errno) => Err(os(path, "a first write")(errno)),
    }
}

fn one_block() -> Result<Buffer, Errno> {
    let pool = BufferPool::new(IO_ALIGN_BYTES, IO_ALIGN_BYTES);
    pool.ok().and_then(|pool| pool.take(IO_ALIGN_BYTES).ok()).ok_or(Errno::NOMEM)
}

/// Reads the first block: some filesystems accept O_DIRECT at open and refuse the first transfer.
fn probe(file: &OwnedFd, alignment: Alignment) -> Result<(), Errno> {
    let mut buffer = one_block()?;
    rustix::io::pread(file, &mut buffer[..alignment.offset_bytes as usize], 0).map(drop)
}
