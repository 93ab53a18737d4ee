//! Tests the measurement that rebuilds are compared with: it reads and writes files in parallel,
//! and does nothing else.

use rackscan_device::Device;
use rackscan_lab::{Stream, move_bytes};
use std::time::Duration;

#[test]
fn bytes_are_given_and_taken_side_by_side_and_what_was_made_is_gone() {
    let folder = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (given, taken) = (folder.path().join("given"), folder.path().join("taken"));
    Device::create(&given, 3 << 20).unwrap();
    let streams = [
        Stream::Read { path: given.clone(), from: 1 << 20, part: 2 << 20, bytes: 20 << 20 },
        Stream::Write { path: taken.clone(), bytes: 5 << 20 },
    ];
    assert!(move_bytes(&streams).unwrap() > Duration::ZERO);
    assert!(given.exists() && !taken.exists());
    assert_eq!(move_bytes(&[]).unwrap(), Duration::ZERO);
}

#[test]
fn a_file_that_does_not_give_or_take_its_bytes_is_named() {
    let folder = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (given, taken) = (folder.path().join("given"), folder.path().join("taken"));
    Device::create(&given, 3 << 20).unwrap();
    let behind = Stream::Read { path: given.clone(), from: 2 << 20, part: 2 << 20, bytes: 4 << 20 };
    assert!(move_bytes(&[behind]).unwrap_err().to_string().contains("given"), "its end");
    let nowhere = Stream::Read { path: folder.path().join("nowhere"), from: 0, part: 1 << 20, bytes: 1 };
    let write = Stream::Write { path: taken, bytes: 1 };
    let error = move_bytes(&[nowhere, write]).unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
    let again = Stream::Write { path: given.clone(), bytes: 1 };
    assert!(move_bytes(&[again]).is_err(), "what is there is not written over");
    assert!(given.exists());
}
