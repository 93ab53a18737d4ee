//! Promise: reading and writing a device leaves nothing of it in the page cache.
//!
//! The test also shows that the measurement can fail: an ordinary read of the same file makes it
//! resident.

use crate::support::{patterned, pool, ring, scratch};
use rackscan_device::{DeviceIndex, Read, Token, read_all, resident_bytes};

const DEVICE_BYTES: u32 = 4 << 20;

#[test]
fn direct_reads_and_writes_leave_no_resident_page_and_buffered_reads_do() {
    let folder = scratch();
    let (path, device) = patterned(&folder, DEVICE_BYTES);
    assert_eq!(resident_bytes(&path).unwrap(), 0, "after direct writes");
    let pool = pool();
    let mut ring = ring(16, &device, Some(&pool));
    let reads = (0..u64::from(DEVICE_BYTES))
        .step_by(65_536)
        .map(|offset_bytes| {
            let into = pool.take(65_536).unwrap().into();
            Read { device: DeviceIndex(0), offset_bytes, length_bytes: 65_536, into, token: Token(0) }
        })
        .collect();
    drop(read_all(&mut ring, reads).unwrap());
    assert_eq!(resident_bytes(&path).unwrap(), 0, "after direct reads");

    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len(), DEVICE_BYTES as usize);
    assert_eq!(resident_bytes(&path).unwrap(), u64::from(DEVICE_BYTES), "after a buffered read");
}

#[test]
fn a_file_that_is_not_there_is_an_error_that_names_it() {
    let failed = resident_bytes("/nowhere/at/all").unwrap_err().to_string();
    assert!(failed.contains("/nowhere/at/all") && failed.contains("opening"), "{failed}");
}
