//! What filesystem is a file on, and does it honour O_DIRECT?
//!
//! tmpfs and ramfs keep data only in the page cache. Since Linux 6.6 tmpfs accepts O_DIRECT and ignores it, so asking
//! the kernel is not enough: the filesystem's type is looked at.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{fstatfs, statfs};
use rustix::io::Errno;

/// Magic numbers of statfs(2) with the names people know.
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

/// Filesystems whose files live in the page cache and nowhere else.
const MEMORY_ONLY: [&str; 2] = ["tmpfs", "ramfs"];

/// The name of the filesystem if direct IO on this file would go through the page cache all the same.
pub(crate) fn ignores_direct_io(file: impl AsFd) -> Result<Option<String>, Errno> {
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if kind == rustix::fs::FileType::BlockDevice {
        // The node of a block device lives on devtmpfs (a tmpfs), its bytes do not.
        return Ok(None);
    }
    let name = name_of(fstatfs(file)?.f_type);
    Ok(MEMORY_ONLY.contains(&name.as_str()).then_some(name))
}

/// Name of the filesystem at `path`, for messages.
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
    fn shared_memory_is_recognised_as_memory_only() {
        let file = rustix::fs::memfd_create("probe", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(ignores_direct_io(&file).unwrap().as_deref(), Some("tmpfs"));
    }

    #[test]
    fn unknown_filesystems_are_named_by_number() {
        assert_eq!(name_of(0x1234_i64), "a filesystem of type 0x1234");
        assert_eq!(name_of(0x9123_683e_i64), "btrfs");
    }
}
