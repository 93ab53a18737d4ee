//! Promise: with `HandOver::EachAtOnce`, a transfer is handed to the kernel as soon as it is
//! submitted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rackscan_device::{
    DeviceIndex, DeviceIo, ExternalMemory, HandOver, IoMemory, Read, Ring, RingConfig, Token, Wait,
};

use crate::support::{pattern, patterned, scratch};

const SECTOR: u32 = 4096;
/// Far longer than a device takes, and than a busy machine keeps a thread waiting.
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(100);

/// Memory at a multiple of 4 KiB, the alignment that a device needs.
struct Sector(Vec<AtomicU8>);

impl Sector {
    fn new() -> Self {
        Self((0..2 * SECTOR).map(|_| AtomicU8::new(0)).collect())
    }

    fn last(&self) -> u8 {
        self.as_ref()[SECTOR as usize - 1].load(Ordering::Acquire)
    }
}

impl AsRef<[AtomicU8]> for Sector {
    fn as_ref(&self) -> &[AtomicU8] {
        let skip = self.0.as_ptr().align_offset(SECTOR as usize);
        &self.0[skip..skip + SECTOR as usize]
    }
}

/// Submits one read and does nothing more. Returns whether the bytes arrived within `patience`.
fn come_by_themselves(hand_over: HandOver, patience: Duration) -> bool {
    let folder = scratch();
    let (_path, device) = patterned(&folder, 1 << 20);
    // An offset at which the last byte of the sector is not zero.
    let offset_bytes = (0..).step_by(SECTOR as usize).find(|at| pattern(at + u64::from(SECTOR) - 1) != 0);
    let offset_bytes = offset_bytes.expect("the pattern is not all zeroes");
    let mut ring =
        Ring::new(RingConfig { depth: 4, devices: vec![device], hand_over, ..RingConfig::default() })
            .expect("io_uring is allowed");
    let sector = Arc::new(Sector::new());
    let into = IoMemory::External(ExternalMemory::of_bytes(Arc::clone(&sector)));
    let read = Read { device: DeviceIndex(0), offset_bytes, length_bytes: SECTOR, into, token: Token(1) };
    ring.submit_read(read).expect("the read is possible");
    let begun = Instant::now();
    while sector.last() == 0 && begun.elapsed() < patience {
        std::thread::yield_now();
    }
    let came = sector.last() != 0;
    let ended = ring.reap(Wait::ForOne, &mut |_| ()).expect("the ring works");
    assert_eq!((ended, sector.last()), (1, pattern(offset_bytes + u64::from(SECTOR) - 1)));
    came
}

#[test]
fn a_transfer_that_is_handed_over_at_once_needs_nobody_who_waits() {
    assert!(come_by_themselves(HandOver::EachAtOnce, LONG));
}

#[test]
fn transfers_that_are_handed_over_together_wait_for_the_flush() {
    assert!(!come_by_themselves(HandOver::Together, SHORT));
}
