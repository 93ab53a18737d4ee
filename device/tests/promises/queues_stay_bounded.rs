//! Promise: every implementation accepts as many requests as its depth and refuses more with an
//! error that states both numbers, malformed requests never reach the kernel, and no memory is ever
//! lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{each, patterned, pool, reopened, ring, scratch};
use rackscan_device::{
    Access, Buffer, Device, DeviceIndex, DeviceIo, Fsync, IoMemory, PreadPool, Read, ReadAllError, Ring,
    RingConfig, RingError, SubmitError, ThreadPerRequest, ThreadedConfig, Token, Wait, Write, allowed_cores,
    read_all,
};

fn read(offset_bytes: u64, length_bytes: u32, into: IoMemory) -> Read {
    Read { device: DeviceIndex(0), offset_bytes, length_bytes, into, token: Token(0) }
}

#[test]
fn a_full_queue_is_an_error_with_numbers_and_gives_the_request_back() {
    let folder = scratch();
    let (_, device) = patterned(&folder, 1 << 20);
    let pool = pool();
    each(5, &device, &pool, |name, mut io| {
        for index in 0..5 {
            io.submit_read(read(index * 4096, 4096, pool.take(4096).unwrap().into())).unwrap();
        }
        let refused = io.submit_read(read(8192, 4096, pool.take(4096).unwrap().into())).unwrap_err();
        assert_eq!(refused.reason, SubmitError::QueueFull { in_flight: 5, depth_max: 5 }, "{name}");
        assert_eq!(refused.request.offset_bytes, 8192);
        let fsync = io.submit_fsync(Fsync { device: DeviceIndex(0), token: Token(9) }).unwrap_err();
        assert_eq!(fsync.reason, refused.reason);
        let mut reaped = 0;
        while reaped < 5 {
            reaped += io.reap(Wait::ForOne, &mut |_| ()).unwrap();
        }
        assert_eq!(io.in_flight(), 0, "{name}");
        io.submit_read(refused.request).unwrap();
    });
}

#[test]
fn requests_that_are_misaligned_or_outside_never_reach_the_kernel() {
    let folder = scratch();
    let (_, device) = patterned(&folder, 1 << 20);
    let pool = pool();
    let bad = [
        (1, 4096, "multiples"),
        (0, 4095, "multiples"),
        (0, 0, "1 to"),
        (1 << 20, 4096, "pass the end"),
        ((1 << 20) - 4096, 8192, "pass the end"),
        (u64::MAX - 4095, 4096, "pass the end"),
        (0, 16_384, "were given"),
    ];
    each(4, &device, &pool, |name, mut io| {
        for (offset_bytes, length_bytes, expected) in bad {
            let refused = io.submit_read(read(offset_bytes, length_bytes, pool.take(8192).unwrap().into()));
            let message = refused.unwrap_err().to_string();
            assert!(message.contains(expected), "{name}: {offset_bytes}+{length_bytes}: {message}");
        }
        let nowhere = Fsync { device: DeviceIndex(2), token: Token(0) };
        let unknown = SubmitError::UnknownDevice { device: DeviceIndex(2), devices: 1 };
        assert_eq!(io.submit_fsync(nowhere).unwrap_err().reason, unknown, "{name}");
        assert_eq!((io.in_flight(), pool.free_bytes()), (0, pool.total_bytes()), "{name}");
    });
}

#[test]
fn a_device_opened_for_reading_is_not_written() {
    let folder = scratch();
    let (path, device) = patterned(&folder, 1 << 20);
    drop(device);
    let (reader, pool) = (reopened(&path), pool());
    each(4, &reader, &pool, |name, mut io| {
        let from = pool.take(4096).unwrap().into();
        let write =
            Write { device: DeviceIndex(0), offset_bytes: 0, length_bytes: 4096, from, token: Token(0) };
        let refused = SubmitError::ReadOnlyDevice { device: DeviceIndex(0) };
        assert_eq!(io.submit_write(write).unwrap_err().reason, refused, "{name}");
        let fsync = Fsync { device: DeviceIndex(0), token: Token(0) };
        assert_eq!(io.submit_fsync(fsync).unwrap_err().reason, refused, "{name}");
    });
}

#[test]
fn dropping_the_interface_waits_for_its_transfers_and_returns_every_buffer() {
    let folder = scratch();
    let (_, device) = patterned(&folder, 4 << 20);
    let pool = pool();
    for handed_over in [true, false] {
        each(64, &device, &pool, |name, mut io| {
            for index in 0..60 {
                io.submit_read(read(index * 65_536, 65_536, pool.take(65_536).unwrap().into())).unwrap();
            }
            if handed_over {
                io.flush().unwrap();
            }
            assert_eq!(pool.total_bytes() - pool.free_bytes(), 60 * 65_536, "{name}: in flight is not free");
            drop(io);
            assert_eq!(pool.free_bytes(), pool.total_bytes(), "{name}");
            // A transfer that was still in flight would now write into buffers of another owner.
            let mut reused: Vec<Buffer> = (0..8).map(|_| pool.take(1 << 20).unwrap()).collect();
            reused.iter_mut().for_each(|buffer| buffer.fill(0xee));
            std::thread::sleep(Duration::from_millis(30));
            assert!(
                reused.iter().all(|buffer| buffer.iter().all(|byte| *byte == 0xee)),
                "{name}: written after the drop"
            );
        });
    }
}

#[test]
fn waiting_ends_at_the_instant_and_never_hangs_when_nothing_is_outstanding() {
    let folder = scratch();
    let (_, device) = patterned(&folder, 1 << 20);
    each(4, &device, &pool(), |name, mut io| {
        assert_eq!(io.reap(Wait::ForOne, &mut |_| ()).unwrap(), 0);
        assert_eq!(io.reap(Wait::Now, &mut |_| ()).unwrap(), 0);
        let start = Instant::now();
        assert_eq!(io.reap(Wait::Until(start + Duration::from_millis(30)), &mut |_| ()).unwrap(), 0);
        assert!(start.elapsed() >= Duration::from_millis(30), "{name} woke up early: {:?}", start.elapsed());
        assert!(start.elapsed() < Duration::from_secs(5), "{name} woke up late: {:?}", start.elapsed());
    });
}

#[test]
fn polling_without_blocking_makes_progress() {
    let folder = scratch();
    let (_, device) = patterned(&folder, 1 << 20);
    let pool = pool();
    each(4, &device, &pool, |name, mut io| {
        io.submit_read(read(0, 4096, pool.take(4096).unwrap().into())).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while io.reap(Wait::Now, &mut |_| ()).unwrap() == 0 {
            assert!(Instant::now() < deadline, "{name}: a read was never completed by polling");
        }
    });
}

#[test]
fn waits_one_behind_the_other_neither_miss_an_end_nor_return_for_nothing() {
    let folder = scratch();
    let (_, device) = patterned(&folder, 1 << 20);
    let pool = pool();
    each(4, &device, &pool, |name, mut io| {
        for round in 0..300 {
            let deep = 1 + round % 4;
            for index in 0..deep {
                io.submit_read(read(index * 4096, 4096, pool.take(4096).unwrap().into())).unwrap();
            }
            let mut reaped = 0;
            while reaped < deep {
                let ended = io.reap(Wait::ForOne, &mut |_| ()).unwrap();
                assert!(ended > 0, "{name}: round {round} returned for nothing");
                reaped += ended as u64;
            }
        }
        let slept = Instant::now();
        assert_eq!(io.reap(Wait::Until(slept + Duration::from_millis(20)), &mut |_| ()).unwrap(), 0);
    });
}

#[test]
fn impossible_threads_are_refused() {
    let folder = scratch();
    let (_, device) = patterned(&folder, 1 << 20);
    let config = |depth, cores| ThreadedConfig {
        depth,
        devices: vec![Arc::clone(&device)],
        cores,
        name: "promise".to_owned(),
    };
    for depth in [0, 4097] {
        let refused = ThreadPerRequest::new(config(depth, vec![])).unwrap_err();
        assert!(matches!(refused, RingError::BadDepth { .. }), "{refused}");
    }
    for threads in [0, 513] {
        let refused = PreadPool::new(config(4, vec![]), threads).unwrap_err();
        assert!(refused.to_string().contains("1 to 512"), "{refused}");
    }
    let nowhere = vec![allowed_cores()[0], usize::MAX];
    let refused = PreadPool::new(config(4, nowhere.clone()), 3).unwrap_err();
    assert!(matches!(refused, RingError::Pin(_)), "{refused}");
    let refused = ThreadPerRequest::new(config(4, nowhere)).unwrap_err();
    assert!(matches!(refused, RingError::Pin(_)), "{refused}");
    // A core that may be used.
    let last = allowed_cores().pop().unwrap();
    let pool = pool();
    let mut io = PreadPool::new(config(4, vec![last]), 3).unwrap();
    io.submit_read(read(0, 4096, pool.take(4096).unwrap().into())).unwrap();
    assert_eq!(io.reap(Wait::ForOne, &mut |_| ()).unwrap(), 1);
}

#[test]
fn a_batch_read_refuses_an_interface_in_use() {
    let folder = scratch();
    let (_, device) = patterned(&folder, 1 << 20);
    let pool = pool();
    each(4, &device, &pool, |name, mut io| {
        io.submit_read(read(0, 4096, pool.take(4096).unwrap().into())).unwrap();
        let busy = read_all(&mut *io, Vec::new()).unwrap_err();
        assert!(matches!(busy, ReadAllError::RingBusy { in_flight: 1, watches: 0 }), "{name}: {busy}");
    });
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
