//! Determines the filesystem of a file and whether it honours O_DIRECT.
//!
//! tmpfs and ramfs keep data only in the page cache. Since Linux 6.6 tmpfs accepts O_DIRECT and
//! ignores it, and so does an overlayfs above it. So asking the kernel is not enough: filesystems
//! in memory are recognized by type, and all others except a few known ones are tested with a
//! direct read.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Advice, FileType, fadvise, fstat, fstatfs, statfs};
use rustix::io::Errno;

use crate::residency::first_page_is_resident;

/// Magic numbers of statfs(2), with the common names of the filesystems.
const NAMES: [(u32, &str); 12] = [
    (0x0000_ef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlayfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0x0000_6969, "nfs"),
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0x7371_7368, "squashfs"),
];

/// Filesystems whose files exist only in the page cache.
const MEMORY_ONLY: [&str; 2] = ["tmpfs", "ramfs"];

/// Filesystems known to bypass the page cache when they accept O_DIRECT.
const HONEST: [&str; 4] = ["ext4", "xfs", "btrfs", "f2fs"];

/// Whether a filesystem honours O_DIRECT, as far as its type shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DirectIo {
    /// The filesystem honours O_DIRECT whenever it accepts it.
    Honoured,
    /// The filesystem accepts O_DIRECT and ignores it.
    Ignored { filesystem: String },
    /// The type does not show it: see [`reads_through_page_cache`].
    ToBeMeasured { filesystem: String },
}

/// Determines from its type whether the filesystem of an open file honours O_DIRECT.
pub(crate) fn direct_io(file: impl AsFd) -> Result<DirectIo, Errno> {
    let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
    if kind == FileType::BlockDevice {
        // The inode of a block device is on devtmpfs (a tmpfs), but its bytes are not.
        return Ok(DirectIo::Honoured);
    }
    let filesystem = name_of(fstatfs(file)?.f_type);
    Ok(match filesystem.as_str() {
        name if HONEST.contains(&name) => DirectIo::Honoured,
        name if MEMORY_ONLY.contains(&name) => DirectIo::Ignored { filesystem },
        _ => DirectIo::ToBeMeasured { filesystem },
    })
}

/// Whether `read_first_block`, a direct read of the file's first block, leaves that block in the
/// page cache.
pub(crate) fn reads_through_page_cache(
    file: impl AsFd,
    read_first_block: impl FnOnce() -> Result<(), Errno>,
) -> Result<bool, Errno> {
    // Pages that another process has read into the cache are dropped first, as far as the
    // filesystem allows.
    let _dropped = fadvise(&file, 0, None, Advice::DontNeed);
    read_first_block()?;
    first_page_is_resident(&file)
}

/// The name of the filesystem at `path`, if it keeps files in memory only.
///
/// # Errors
/// The path does not exist or cannot be read.
pub fn memory_filesystem(path: &Path) -> std::io::Result<Option<&'static str>> {
    let name = name_of(statfs(path)?.f_type);
    Ok(MEMORY_ONLY.into_iter().find(|known| *known == name))
}

/// The name of the filesystem at `path`, for messages.
pub(crate) fn name_at(path: &Path) -> String {
    statfs(path).map_or_else(|_| "its filesystem".to_owned(), |status| name_of(status.f_type))
}

#[expect(clippy::cast_possible_truncation, reason = "magic numbers have 32 bits; some are sign-extended")]
fn name_of(magic: impl Into<i128>) -> String {
    let magic = magic.into() as u32;
    let known = NAMES.iter().find(|(number, _)| *number == magic);
    known.map_or_else(|| format!("a filesystem of type {magic:#x}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_recognised_by_type_and_by_measurement() {
        let file = rustix::fs::memfd_create("probe", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(direct_io(&file), Ok(DirectIo::Ignored { filesystem: "tmpfs".to_owned() }));
        rustix::io::write(&file, &[1; 4096]).unwrap();
        let read = || rustix::io::pread(&file, &mut [0_u8; 4096][..], 0).map(drop);
        assert_eq!(reads_through_page_cache(&file, read), Ok(true));
    }

    #[test]
    fn unknown_filesystems_are_named_by_number() {
        assert_eq!(name_of(0x1234_i64), "a filesystem of type 0x1234");
        assert_eq!(name_of(0x9123_683e_i64), "btrfs");
    }
}
