//! Promise: a device is opened for direct IO and owned exclusively, or the error states what was
//! found and what to do.

use std::path::Path;

use crate::support::{patterned, scratch};
use rackscan_device::{Access, Device, OpenError};

#[test]
fn a_filesystem_in_memory_is_refused_with_the_way_out() {
    let shm = Path::new("/dev/shm");
    let kind = rustix::fs::statfs(shm).map(|status| status.f_type);
    if kind != Ok(0x0102_1994) {
        eprintln!("skipped: /dev/shm is not a tmpfs on this machine");
        return;
    }
    let folder = tempfile::TempDir::new_in(shm).unwrap();
    let path = folder.path().join("device");
    let created = Device::create(&path, 1 << 20).unwrap_err();
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let opened = Device::open(&path, Access::ReadOnly).unwrap_err();
    for refused in [created, opened] {
        assert!(
            matches!(&refused, OpenError::DirectIoRefused { filesystem, .. } if filesystem == "tmpfs"),
            "{refused}"
        );
        let message = refused.to_string();
        assert!(message.contains(&path.display().to_string()) && message.contains("--data"), "{message}");
    }
}

#[test]
fn a_refused_device_leaves_no_file_behind() {
    let folder = scratch();
    let path = folder.path().join("device");
    assert!(Device::create(&path, 1 << 60).is_err());
    assert!(!path.exists());
    assert!(Device::create(&path, 4097).is_err());
    assert!(!path.exists());
}

#[test]
fn a_full_disk_is_named_with_the_bytes_needed_and_free() {
    let folder = scratch();
    let path = folder.path().join("device");
    let status = rustix::fs::statvfs(folder.path()).unwrap();
    let needed = (status.f_blocks + 1) * status.f_frsize;
    let needed = needed.next_multiple_of(4096);
    let refused = Device::create(&path, needed).unwrap_err();
    let OpenError::NoSpace { needed_bytes, free_bytes, .. } = refused else { panic!("{refused}") };
    assert_eq!(needed_bytes, needed);
    assert!(free_bytes > 0 && free_bytes < needed, "{free_bytes} bytes free of {needed}");
}

#[test]
fn one_writer_owns_a_device_and_readers_may_join() {
    let folder = scratch();
    let (path, owner) = patterned(&folder, 1 << 20);
    let second = Device::open(&path, Access::ReadWrite).unwrap_err();
    assert!(matches!(&second, OpenError::InUse { path: named } if *named == path), "{second}");
    let reader = Device::open(&path, Access::ReadOnly).unwrap();
    assert_eq!((reader.bytes(), reader.access()), (1 << 20, Access::ReadOnly));
    drop(owner);
    Device::open(&path, Access::ReadWrite).unwrap();
}

#[test]
fn what_is_not_a_device_is_named() {
    let folder = scratch();
    let folder_error = Device::open(folder.path(), Access::ReadOnly).unwrap_err().to_string();
    assert!(folder_error.contains("directory"), "{folder_error}");
    let null = Device::open("/dev/null", Access::ReadOnly).unwrap_err().to_string();
    assert!(null.contains("character device"), "{null}");
    let missing = Device::open(folder.path().join("missing"), Access::ReadOnly).unwrap_err();
    assert!(matches!(missing, OpenError::Os { source: rustix::io::Errno::NOENT, .. }), "{missing}");
    let empty = folder.path().join("empty");
    std::fs::write(&empty, []).unwrap();
    let empty = Device::open(&empty, Access::ReadOnly).unwrap_err();
    assert!(matches!(empty, OpenError::BadSize { bytes: 0, .. }), "{empty}");
}

#[test]
fn an_existing_file_is_never_overwritten_by_create() {
    let folder = scratch();
    let path = folder.path().join("precious");
    std::fs::write(&path, b"precious").unwrap();
    let refused = Device::create(&path, 4096).unwrap_err();
    assert!(matches!(refused, OpenError::Exists { .. }), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_ragged_tail_is_not_part_of_the_device() {
    let folder = scratch();
    let path = folder.path().join("ragged");
    std::fs::write(&path, vec![1; 8192 + 100]).unwrap();
    let device = Device::open(&path, Access::ReadOnly).unwrap();
    assert_eq!(device.bytes(), 8192);
}

#[test]
fn a_sparse_device_takes_blocks_only_where_it_was_written() {
    let folder = scratch();
    let path = folder.path().join("device");
    let device = Device::create_sparse(&path, 1 << 40).unwrap();
    assert_eq!(device.bytes(), 1 << 40);
    let taken_bytes = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap()) * 512;
    assert!(taken_bytes < 1 << 20, "{taken_bytes} bytes taken by an empty device");
    drop(device);
    let reserved = Device::create(folder.path().join("reserved"), 1 << 20).unwrap();
    let taken = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(reserved.path()).unwrap()) * 512;
    assert!(taken >= 1 << 20, "{taken} bytes reserved of 1 MiB");
    reserved.discard(64 << 10, (1 << 20) - (64 << 10)).unwrap();
    let left = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(reserved.path()).unwrap()) * 512;
    assert!(left <= 64 << 10, "{left} bytes left of 64 KiB");
}
