//! Promise: bytes written at an offset are read back from that offset, completely, at every
//! alignment the device allows, into registered, unregistered and external memory.
#![expect(unsafe_code, reason = "one test maps memory the way a fabric region is mapped")]

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use crate::support::{check_pattern, each, patterned, pool, reopened, ring, scratch, wait_for_one};
use rackscan_device::{
    Completion, DeviceIndex, DeviceIo, ExternalMemory, Fsync, IoFault, IoMemory, Read, Token, Wait, Write,
    read_all,
};

const DEVICE_BYTES: u32 = 4 << 20;

fn read(offset_bytes: u64, length_bytes: u32, into: IoMemory) -> Read {
    Read { device: DeviceIndex(0), offset_bytes, length_bytes, into, token: Token(0) }
}

#[test]
fn every_aligned_offset_and_length_reads_its_own_bytes() {
    let folder = scratch();
    let (_, device) = patterned(&folder, DEVICE_BYTES);
    let align = device.alignment().offset_bytes;
    let pool = pool();
    each(16, &device, &pool, |_, mut ring| {
        let ring = &mut *ring;
        for sectors in [1, 2, 3, 7, 8, 9, 64, 255] {
            let length_bytes = sectors * align;
            for start in [0, 1, 5, 8, 13] {
                let offset_bytes = u64::from(start * align);
                let buffer = pool.take(length_bytes as usize).unwrap();
                ring.submit_read(read(offset_bytes, length_bytes, buffer.into())).unwrap();
                let buffer = wait_for_one(ring).unwrap().into_buffer().unwrap();
                check_pattern(&buffer[..length_bytes as usize], offset_bytes);
            }
        }
        let last = u64::from(DEVICE_BYTES - align);
        ring.submit_read(read(last, align, pool.take(4096).unwrap().into())).unwrap();
        let buffer = wait_for_one(ring).unwrap().into_buffer().unwrap();
        check_pattern(&buffer[..align as usize], last);
    });
}

#[test]
fn a_write_changes_its_range_and_nothing_else() {
    let folder = scratch();
    let (path, device) = patterned(&folder, DEVICE_BYTES);
    let align = device.alignment().offset_bytes;
    let pool = pool();
    let (mut sector, mut written) = (3, Vec::new());
    each(4, &device, &pool, |name, mut io| {
        let mut buffer = pool.take(align as usize).unwrap();
        buffer.fill(0xa5);
        let write = Write {
            device: DeviceIndex(0),
            offset_bytes: u64::from(sector * align),
            length_bytes: align,
            from: buffer.into(),
            token: Token(1),
        };
        io.submit_write(write).unwrap();
        wait_for_one(&mut *io);
        io.submit_fsync(Fsync { device: DeviceIndex(0), token: Token(2) }).unwrap();
        assert!(wait_for_one(&mut *io).is_none(), "{name}");
        written.push(sector);
        sector += 2;
        let bytes = std::fs::read(&path).unwrap();
        for (sector, bytes) in (0..).zip(bytes.chunks(align as usize)) {
            if written.contains(&sector) {
                assert!(bytes.iter().all(|byte| *byte == 0xa5), "{name}: sector {sector}");
            } else {
                check_pattern(bytes, u64::from(sector * align));
            }
        }
    });
}

#[test]
fn a_batch_larger_than_the_ring_comes_back_in_request_order() {
    let folder = scratch();
    let (_, device) = patterned(&folder, DEVICE_BYTES);
    let pool = pool();
    each(8, &device, &pool, |_, mut io| {
        let ring = &mut *io;
        let offset_of = |index: u64| (index * 37 % 1000) * 4096;
        let reads =
            (0..500).map(|index| read(offset_of(index), 4096, pool.take(4096).unwrap().into())).collect();
        let memories = read_all(ring, reads).unwrap();
        assert_eq!(memories.len(), 500);
        for (index, memory) in (0..).zip(memories) {
            check_pattern(&memory.into_buffer().unwrap(), offset_of(index));
        }
        assert_eq!(pool.free_bytes(), pool.total_bytes());
    });
}

#[test]
fn a_batch_with_a_bad_read_names_it_and_returns_every_buffer() {
    let folder = scratch();
    let (_, device) = patterned(&folder, DEVICE_BYTES);
    let pool = pool();
    each(8, &device, &pool, |_, mut io| {
        let ring = &mut *io;
        let offset_of = |index: u64| if index == 33 { u64::from(DEVICE_BYTES) } else { index * 4096 };
        let reads =
            (0..100).map(|index| read(offset_of(index), 4096, pool.take(4096).unwrap().into())).collect();
        let failed = read_all(ring, reads).unwrap_err().to_string();
        assert!(failed.contains("read number 33") && failed.contains(&DEVICE_BYTES.to_string()), "{failed}");
        assert_eq!((ring.in_flight(), pool.free_bytes()), (0, pool.total_bytes()));
    });
}

#[test]
fn a_device_that_shrank_is_a_fault_with_the_bytes_that_were_left() {
    let folder = scratch();
    let (path, device) = patterned(&folder, DEVICE_BYTES);
    let pool = pool();
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(8192).unwrap();
    each(4, &device, &pool, |name, mut io| {
        io.submit_read(read(4096, 16_384, pool.take(16_384).unwrap().into())).unwrap();
        let mut faults = Vec::new();
        io.reap(Wait::ForOne, &mut |completion| {
            if let Completion::Read { outcome: Err(fault), .. } = completion {
                faults.push(*fault);
            }
        })
        .unwrap();
        assert!(
            matches!(faults[..], [IoFault::Short { moved_bytes: 4096, length_bytes: 16_384, .. }]),
            "{name}: {faults:?}"
        );
    });
}

#[test]
fn foreign_shared_memory_is_read_into_and_written_from() {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let folder = scratch();
    let (path, device) = patterned(&folder, DEVICE_BYTES);
    let memory = rustix::fs::memfd_create("region", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, 65_536).unwrap();
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a null hint lets the kernel choose an unused range; the mapping is never unmapped.
    let start = unsafe { mmap(std::ptr::null_mut(), 65_536, flags, MapFlags::SHARED, &memory, 0) }.unwrap();
    // SAFETY: the mapping stays for the life of the process, and nothing makes other references.
    let bytes: &'static [AtomicU8] = unsafe { std::slice::from_raw_parts(start.cast::<AtomicU8>(), 65_536) };
    let region = ExternalMemory::of_bytes(Arc::new(bytes));
    assert!(region.part(61_440, 8192).is_none());
    let pool = pool();
    each(4, &device, &pool, |name, mut io| {
        bytes.iter().for_each(|byte| byte.store(0, Ordering::Relaxed));
        let part = region.part(8192, 16_384).unwrap();
        io.submit_read(read(12_288, 16_384, part.into())).unwrap();
        let part = wait_for_one(&mut *io).unwrap();
        let mut seen = vec![0; 16_384];
        rustix::io::pread(&memory, &mut seen[..], 8192).unwrap();
        check_pattern(&seen, 12_288);

        let write = Write {
            device: DeviceIndex(0),
            offset_bytes: 0,
            length_bytes: 4096,
            from: part,
            token: Token(1),
        };
        io.submit_write(write).unwrap();
        wait_for_one(&mut *io);
        check_pattern(&std::fs::read(&path).unwrap()[..4096], 12_288);

        let odd = region.part(1, 4096).unwrap();
        let refused = io.submit_read(read(0, 4096, odd.into())).unwrap_err();
        assert!(refused.to_string().contains("begins 1 bytes after"), "{name}: {refused}");
    });
}

#[test]
fn several_devices_on_one_ring_are_not_mixed_up() {
    let (one, two) = (scratch(), scratch());
    let (_, first) = patterned(&one, 1 << 20);
    let (path, second) = patterned(&two, 1 << 20);
    let pool = pool();
    let mut ring = ring(4, &first, Some(&pool));
    drop(second);
    let index = ring.attach(reopened(&path)).unwrap();
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let request = Read { device: index, ..read(4096, 4096, pool.take(4096).unwrap().into()) };
    ring.submit_read(request).unwrap();
    assert!(wait_for_one(&mut ring).unwrap().into_buffer().unwrap().iter().all(|byte| *byte == 7));
    ring.submit_read(read(4096, 4096, pool.take(4096).unwrap().into())).unwrap();
    check_pattern(&wait_for_one(&mut ring).unwrap().into_buffer().unwrap(), 4096);
}
