//! Devices with known contents, shared by the test files.

use std::path::PathBuf;
use std::sync::Arc;

use rackscan_device::{
    Access, BufferPool, Completion, Device, DeviceIndex, DeviceIo, IoMemory, PreadPool, Ring, RingConfig,
    ThreadPerRequest, ThreadedConfig, Token, Wait, Write,
};
use tempfile::TempDir;

/// A folder on the filesystem of the build directory; /tmp may be a tmpfs, where direct IO is
/// refused.
pub(crate) fn scratch() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory is writable")
}

/// The byte that [`patterned`] devices hold at `offset_bytes`: differs between neighbouring
/// sectors, pages and files.
pub(crate) fn pattern(offset_bytes: u64) -> u8 {
    let mixed = (offset_bytes / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (8 * (offset_bytes % 8));
    u8::try_from(mixed & 0xff).expect("masked")
}

/// Checks `bytes` against the pattern from `offset_bytes` on.
pub(crate) fn check_pattern(bytes: &[u8], offset_bytes: u64) {
    for (at, byte) in (offset_bytes..).zip(bytes) {
        assert_eq!(*byte, pattern(at), "byte {at} is wrong");
    }
}

pub(crate) fn pool() -> BufferPool {
    BufferPool::new(8 << 20, 1 << 20).expect("8 MiB are there")
}

pub(crate) fn ring(depth: u32, device: &Arc<Device>, pool: Option<&BufferPool>) -> Ring {
    let devices = vec![Arc::clone(device)];
    Ring::new(RingConfig { depth, devices, buffers: pool.cloned(), ..RingConfig::default() })
        .expect("io_uring is allowed")
}

/// All implementations of `DeviceIo`: rings with and without registered buffers, few and many
/// threads, a thread for each request.
pub(crate) fn each(
    depth: u32,
    device: &Arc<Device>,
    pool: &BufferPool,
    mut promise: impl FnMut(&str, Box<dyn DeviceIo>),
) {
    let config = || ThreadedConfig {
        depth,
        devices: vec![Arc::clone(device)],
        cores: Vec::new(),
        name: "promise".to_owned(),
    };
    promise("a registered ring", Box::new(ring(depth, device, Some(pool))));
    promise("a ring", Box::new(ring(depth, device, None)));
    for threads in [1, 5] {
        let io = PreadPool::new(config(), threads).expect("threads can be made");
        promise(&format!("{threads} threads"), Box::new(io));
    }
    let io = ThreadPerRequest::new(config()).expect("threads can be made");
    promise("a thread for each request", Box::new(io));
}

/// Creates a device of `bytes` and fills it with the pattern through direct writes.
pub(crate) fn patterned(folder: &TempDir, bytes: u32) -> (PathBuf, Arc<Device>) {
    let path = folder.path().join("device");
    let device =
        Arc::new(Device::create(&path, u64::from(bytes)).expect("there is space for a small device"));
    let pool = pool();
    let mut ring = ring(4, &device, Some(&pool));
    let step = 1 << 20;
    for offset_bytes in (0..u64::from(bytes)).step_by(step) {
        let length_bytes = (u64::from(bytes) - offset_bytes).min(step as u64);
        let mut buffer = pool.take(step).expect("one at a time");
        for (at, byte) in (offset_bytes..).zip(buffer.iter_mut()) {
            *byte = pattern(at);
        }
        let write = Write {
            device: DeviceIndex(0),
            offset_bytes,
            length_bytes: u32::try_from(length_bytes).expect("at most a step"),
            from: IoMemory::Buffer(buffer),
            token: Token(offset_bytes),
        };
        ring.submit_write(write).expect("the write is well formed");
        wait_for_one(&mut ring);
    }
    (path, device)
}

/// Reaps exactly one completion and asserts its success.
pub(crate) fn wait_for_one(io: &mut dyn DeviceIo) -> Option<IoMemory> {
    let mut found = Vec::new();
    let reaped = io.reap(Wait::ForOne, &mut |completion| found.push(completion)).expect("waiting works");
    assert_eq!((reaped, found.len()), (1, 1));
    match found.pop() {
        Some(Completion::Read { outcome, memory, .. } | Completion::Write { outcome, memory, .. }) => {
            outcome.expect("the transfer succeeds");
            Some(memory)
        }
        Some(Completion::Fsync { outcome, .. }) => {
            outcome.expect("the flush succeeds");
            None
        }
        other => panic!("a transfer was expected, not {other:?}"),
    }
}

/// Opens the same device once more, for reading.
pub(crate) fn reopened(path: &PathBuf) -> Arc<Device> {
    Arc::new(Device::open(path, Access::ReadOnly).expect("readers take no lock"))
}
