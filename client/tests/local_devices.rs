//! Tests that local devices are read only if they are the node's devices, and that reading
//! continues when callers hold all memory.

use std::{path::Path, sync::Arc};

use rackscan_client::{LocalDevices, LocalError, limits::LOCAL_POOL_BYTES};
use rackscan_device::{
    Access, BufferPool, Device, DeviceIndex, DeviceIo, IoMemory, Ring, RingConfig, Token, Wait, Write,
};
use rackscan_format::{
    ids::{DeviceId, NodeId},
    label::DeviceLabel,
    message::{BridgeStatus, CacheStatus, DeviceStatus, NodeCounters, NodeStatus},
    segment::Extent,
};

const NODE: NodeId = NodeId(3);
const CLUSTER: u64 = 0x11;
const LABEL: u64 = 0x22;
const PAGE_BYTES: u32 = 1 << 20;
const PAGES: u8 = 4;

/// A device file whose page `n` is filled with byte `n`, but for the label in its first sector.
fn make_device(path: &Path, label: u64) {
    let capacity_bytes = u64::from(PAGES) * u64::from(PAGE_BYTES);
    let device = Arc::new(Device::create(path, capacity_bytes).expect("direct IO works here"));
    assert_eq!(device.access(), Access::ReadWrite);
    let mut ring =
        Ring::new(RingConfig { depth: 4, devices: vec![device], ..RingConfig::default() }).expect("a ring");
    let pool = BufferPool::new(PAGE_BYTES as usize, PAGE_BYTES as usize).expect("memory");
    for page in 0..PAGES {
        let mut buffer = pool.take(PAGE_BYTES as usize).expect("it came back");
        buffer.fill(page);
        if page == 0 {
            let label =
                DeviceLabel { cluster: CLUSTER, node: NODE, device: DeviceId(0), label, capacity_bytes };
            buffer[..4096].copy_from_slice(&label.to_sector());
        }
        let write = Write {
            device: DeviceIndex(0),
            offset_bytes: u64::from(page) * u64::from(PAGE_BYTES),
            length_bytes: PAGE_BYTES,
            from: IoMemory::Buffer(buffer),
            token: Token(0),
        };
        ring.submit_write(write).expect("it is within the device");
        ring.reap(Wait::ForOne, &mut drop).expect("it is written");
    }
}

fn status(path: &Path, host: &str) -> NodeStatus {
    NodeStatus {
        node: NODE,
        cluster: CLUSTER,
        version: "test".to_owned(),
        host: host.to_owned(),
        process_id: 1,
        uptime_s: 0,
        devices: vec![DeviceStatus {
            device: DeviceId(0),
            path: path.display().to_string(),
            label: LABEL,
            capacity_bytes: 0,
            used_bytes: 0,
            align_bytes: 512,
            memory_align_bytes: 512,
            scratch: None,
        }],
        reactors: 1,
        bridge: BridgeStatus::default(),
        scan_workers: 1,
        memory_budget_bytes: 0,
        registered_buffers: Ok(()),
        counters: NodeCounters::default(),
        cache: CacheStatus::default(),
        participant: Default::default(),
        relays: Vec::new(),
        participant_refuses: None,
        identity: rackscan_format::message::FolderIdentity::default(),
    }
}

fn this_host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux has a boot id")
}

fn page(number: u8) -> Extent {
    let offset_bytes = u64::from(number) * u64::from(PAGE_BYTES);
    Extent { device: DeviceId(0), offset_bytes, length_bytes: PAGE_BYTES }
}

/// Not the system's folder for temporary files: that may be in memory, where there is no direct IO.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

fn not_attached(local: &LocalDevices) -> String {
    match local.attached(NODE) {
        Err(error @ LocalError::NotAttached { .. }) => error.to_string(),
        other => panic!("expected that the devices are not attached, found {other:?}"),
    }
}

#[tokio::test]
async fn pages_come_in_the_order_asked_for_and_unchanged() {
    let folder = folder();
    let path = folder.path().join("device");
    make_device(&path, LABEL);
    let local = LocalDevices::attach(&[status(&path, &this_host())]);
    local.attached(NODE).unwrap();
    let mut half = page(2);
    half.length_bytes /= 2;
    let pages = local.read(NODE, &[page(3), page(1), half]).await.unwrap();
    let lengths: Vec<usize> = pages.iter().map(|page| page.len()).collect();
    assert_eq!(lengths, [1 << 20, 1 << 20, 1 << 19]);
    for (page, byte) in pages.iter().zip([3, 1, 2]) {
        assert!(page.iter().all(|found| *found == byte) && page.as_ptr().addr().is_multiple_of(4096));
    }
}

#[tokio::test]
async fn reading_gets_on_while_callers_hold_more_than_the_pool() {
    let folder = folder();
    let path = folder.path().join("device");
    make_device(&path, LABEL);
    let local = LocalDevices::attach(&[status(&path, &this_host())]);
    let count = LOCAL_POOL_BYTES / PAGE_BYTES as usize + 16;
    let extents: Vec<Extent> = (0..count).map(|at| page(1 + u8::try_from(at % 3).unwrap())).collect();
    let held = local.read(NODE, &extents).await.unwrap();
    let more = local.read(NODE, &extents[..16]).await.unwrap();
    for (at, page) in held.iter().chain(&more).enumerate() {
        assert_eq!(usize::from(page[at]), 1 + (at % count) % 3);
    }
}

#[tokio::test]
async fn many_callers_are_served_at_once() {
    let folder = folder();
    let path = folder.path().join("device");
    make_device(&path, LABEL);
    let local = LocalDevices::attach(&[status(&path, &this_host())]);
    let callers: Vec<_> = (0..64_u8)
        .map(|caller| {
            let local = local.clone();
            tokio::spawn(async move {
                let number = 1 + caller % 3;
                let pages = local.read(NODE, &[page(number); 5]).await.unwrap();
                pages.len() == 5 && pages.iter().all(|page| page[77] == number)
            })
        })
        .collect();
    for caller in callers {
        assert!(caller.await.unwrap());
    }
}

#[tokio::test]
async fn a_device_of_another_host_or_with_another_label_is_not_attached() {
    let folder = folder();
    let (path, other) = (folder.path().join("device"), folder.path().join("other"));
    make_device(&path, LABEL);
    make_device(&other, LABEL + 1);
    assert!(not_attached(&LocalDevices::attach(&[status(&path, "elsewhere")])).contains("another host"));
    let wrong = not_attached(&LocalDevices::attach(&[status(&other, &this_host())]));
    assert!(wrong.contains("another device") && wrong.contains("0x0000000000000023"), "{wrong}");
    let missing = LocalDevices::attach(&[status(&folder.path().join("missing"), &this_host())]);
    assert!(not_attached(&missing).contains("missing"));
    let refused = missing.read(NODE, &[page(1)]).await.unwrap_err();
    assert!(refused.to_string().contains("remote-fetch"), "{refused}");
}

#[tokio::test]
async fn an_extent_outside_of_the_device_is_an_error_and_reading_goes_on() {
    let folder = folder();
    let path = folder.path().join("device");
    make_device(&path, LABEL);
    let local = LocalDevices::attach(&[status(&path, &this_host())]);
    let mut other_device = page(1);
    other_device.device = DeviceId(1);
    let mut unaligned = page(1);
    unaligned.offset_bytes += 1;
    let mut empty = page(1);
    empty.length_bytes = 0;
    for wrong in [page(PAGES), other_device, unaligned, empty] {
        let error = local.read(NODE, &[page(1), wrong, page(2)]).await.unwrap_err();
        assert!(matches!(error, LocalError::BadExtent { .. }), "{error}");
    }
    assert_eq!(local.read(NODE, &[page(2)]).await.unwrap()[0][0], 2);
    assert!(local.read(NODE, &[]).await.unwrap().is_empty());
}
