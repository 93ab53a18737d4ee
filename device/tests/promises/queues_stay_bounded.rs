//! Promise: a ring accepts as much as its depth and refuses the rest with numbers, malformed requests never reach the
//! kernel, and no memory is lost whatever happens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{patterned, pool, reopened, ring, scratch};
use rackscan_device::{
    Access, Buffer, Device, DeviceIndex, DeviceIo, Fsync, IoMemory, Read, ReadAllError, Ring, RingConfig,
    RingError, SubmitError, Token, Wait, Write, read_all,
};

fn read(offset_bytes: u64, length_bytes: u32, into: IoMemory) -> Read {
    Read { device: DeviceIndex(0), offset_bytes, length_bytes, into, token: Token(0) }
}

#[test]
fn a_full_queue_is_an_error_with_numbers_and_gives_the_request_back() {
    let folder = scratch();
    let (_, device) = patterned(&folder, 1 << 20);
    let pool = pool();
    let mut ring = ring(5, &device, Some(&pool));
    for index in 0..5 {
        ring.submit_read(read(index * 4096, 4096, pool.take(4096).unwrap().into())).unwrap();
    }
    let refused = ring.submit_read(read(8192, 4096, pool.take(4096).unwrap().into())).unwrap_err();
    assert_eq!(refused.reason, SubmitError::QueueFull { in_flight: 5, depth_max: 5 });
    assert_eq!(refused.request.offset_bytes, 8192);
    let fsync = ring.submit_fsync(Fsync { device: DeviceIndex(0), token: Token(9) }).unwrap_err();
    assert_eq!(fsync.reason, refused.reason);
    let mut reaped = 0;
    while reaped < 5 {
        reaped += ring.reap(Wait::ForOne, &mut |_| ()).unwrap();
    }
    assert_eq!(ring.in_flight(), 0);
    ring.submit_read(refused.request).unwrap();
}

#[test]
fn requests_that_are_misaligned_or_outside_never_reach_the_kernel() {
    let folder = scratch();
    let (path, device) = patterned(&folder, 1 << 20);
    let pool = pool();
    let mut ring = ring(4, &device, Some(&pool));
    let bad = [
        (1, 4096, "multiples"),
        (0, 4095, "multiples"),
        (0, 0, "1 to"),
        (1 << 20, 4096, "pass the end"),
        ((1 << 20) - 4096, 8192, "pass the end"),
        (u64::MAX - 4095, 4096, "pass the end"),
        (0, 16_384, "were given"),
    ];
    for (offset_bytes, length_bytes, expected) in bad {
        let refused = ring.submit_read(read(offset_bytes, length_bytes, pool.take(8192).unwrap().into()));
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(expected), "{offset_bytes}+{length_bytes}: {message}");
    }
    let reader = ring.attach(reopened(&path)).unwrap();
    let from = pool.take(4096).unwrap().into();
    let write = Write { device: reader, offset_bytes: 0, length_bytes: 4096, from, token: Token(0) };
    assert_eq!(ring.submit_write(write).unwrap_err().reason, SubmitError::ReadOnlyDevice { device: reader });
    let nowhere = Fsync { device: DeviceIndex(2), token: Token(0) };
    let unknown = SubmitError::UnknownDevice { device: DeviceIndex(2), devices: 2 };
    assert_eq!(ring.submit_fsync(nowhere).unwrap_err().reason, unknown);
    assert_eq!((ring.in_flight(), pool.free_bytes()), (0, pool.total_bytes()));
}

#[test]
fn dropping_a_ring_waits_for_its_transfers_and_returns_every_buffer() {
    let folder = scratch();
    let (_, device) = patterned(&folder, 4 << 20);
    let pool = pool();
    for handed_over in [true, false] {
        let mut ring = ring(64, &device, Some(&pool));
        for index in 0..60 {
            ring.submit_read(read(index * 65_536, 65_536, pool.take(65_536).unwrap().into())).unwrap();
        }
        if handed_over {
            ring.flush().unwrap();
        }
        assert_eq!(pool.total_bytes() - pool.free_bytes(), 60 * 65_536, "buffers in flight are not free");
        drop(ring);
        assert_eq!(pool.free_bytes(), pool.total_bytes());
        // A transfer that was still going on would now write into buffers of somebody else.
        let mut reused: Vec<Buffer> = (0..8).map(|_| pool.take(1 << 20).unwrap()).collect();
        reused.iter_mut().for_each(|buffer| buffer.fill(0xee));
        std::thread::sleep(Duration::from_millis(30));
        assert!(
            reused.iter().all(|buffer| buffer.iter().all(|byte| *byte == 0xee)),
            "written after the drop"
        );
    }
}

#[test]
fn waiting_ends_at_the_instant_and_never_hangs_when_nothing_is_outstanding() {
    let folder = scratch();
    let (_, device) = patterned(&folder, 1 << 20);
    let mut ring = ring(4, &device, None);
    assert_eq!(ring.reap(Wait::ForOne, &mut |_| ()).unwrap(), 0);
    assert_eq!(ring.reap(Wait::Now, &mut |_| ()).unwrap(), 0);
    let start = Instant::now();
    assert_eq!(ring.reap(Wait::Until(start + Duration::from_millis(30)), &mut |_| ()).unwrap(), 0);
    assert!(start.elapsed() >= Duration::from_millis(30), "woke up early: {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(5), "woke up late: {:?}", start.elapsed());
}

#[test]
fn polling_without_blocking_makes_progress() {
    let folder = scratch();
    let (_, device) = patterned(&folder, 1 << 20);
    let pool = pool();
    let mut ring = ring(4, &device, Some(&pool));
    ring.submit_read(read(0, 4096, pool.take(4096).unwrap().into())).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while ring.reap(Wait::Now, &mut |_| ()).unwrap() == 0 {
        assert!(Instant::now() < deadline, "a read was never completed by polling");
    }
}

#[test]
fn a_batch_read_refuses_a_ring_in_use() {
    let folder = scratch();
    let (_, device) = patterned(&folder, 1 << 20);
    let pool = pool();
    let mut ring = ring(4, &device, Some(&pool));
    ring.submit_read(read(0, 4096, pool.take(4096).unwrap().into())).unwrap();
    let busy = read_all(&mut ring, Vec::new()).unwrap_err();
    assert!(matches!(busy, ReadAllError::RingBusy { in_flight: 1, watches: 0 }), "{busy}");
}

#[test]
fn impossible_rings_are_refused() {
    let folder = scratch();
    let (path, device) = patterned(&folder, 1 << 20);
    for depth in [0, 4097] {
        let refused = Ring::new(RingConfig { depth, ..RingConfig::default() }).unwrap_err();
        assert!(matches!(refused, RingError::BadDepth { .. }), "{refused}");
    }
    let mut ring = ring(1, &device, None);
    let reader = Arc::new(Device::open(&path, Access::ReadOnly).unwrap());
    for _ in 1..64 {
        ring.attach(Arc::clone(&reader)).unwrap();
    }
    let refused = ring.attach(reader).unwrap_err();
    assert!(matches!(refused, RingError::TooManyDevices { devices: 65 }), "{refused}");
}
