//! Measures the latency of reading a page in three ways: from the device, from its node's cache by
//! a request, and from the cache one-sidedly.
//!
//!     cargo run --release -p rackscan-client --example cachebench -- [FOLDER]
//!
//! One node of this process has a scratch area in FOLDER (default: the folder for temporary files,
//! which must be on a disk). One direct line (a connection that one thread drives) reads from it
//! with one part outstanding, over `shm` and over `tcp`. The figures are medians of some thousand
//! parts each.

#![forbid(unsafe_code)]

use std::{
    error::Error,
    path::PathBuf,
    time::{Duration, Instant},
};

use rackscan_client::{DirectLine, DirectOptions};
use rackscan_device::Wait;
use rackscan_fabric::{Address, ClusterKey};
use rackscan_format::{ids::NodeId, message::RawRead};
use rackscan_storage_node::{ByteSize, ClusterId, Config, DeviceConfig, Node, NodeHandle};

const SCRATCH_BYTES: u64 = 256 << 20;
const CACHE_BYTES: u64 = 32 << 20;
const PARTS: u64 = 2000;

/// Where a part comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Device,
    Cached,
    OneSided,
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::TempDir::new_in(folder)?;
    println!("{:>9} {:>5} {:>12} {:>12} {:>12}", "bytes", "wire", "device us", "cached us", "one-sided us");
    let (without, with) = (start(&folder, "without", 0)?, start(&folder, "with", CACHE_BYTES)?);
    for length_bytes in [512, 4096, 16_384, 65_536, 131_072, 1 << 20] {
        for (wire, name) in [(0, "shm"), (1, "tcp")] {
            let device = median(&mut line(&without, wire)?, length_bytes, SCRATCH_BYTES, Way::Device)?;
            // As much as the cache holds.
            let hot_bytes = CACHE_BYTES / 2;
            let cached = median(&mut line(&with, wire)?, length_bytes, hot_bytes, Way::Cached)?;
            let one_sided = median(&mut line(&with, wire)?, length_bytes, hot_bytes, Way::OneSided)?;
            let us = |time: Duration| time.as_nanos() as f64 / 1000.0;
            println!(
                "{length_bytes:>9} {name:>5} {:>12.1} {:>12.1} {:>12.1}",
                us(device),
                us(cached),
                us(one_sided)
            );
        }
    }
    Ok(())
}

fn start(folder: &tempfile::TempDir, name: &str, cache_bytes: u64) -> Result<NodeHandle, Box<dyn Error>> {
    let path = |of: &str| folder.path().join(format!("{name}-{of}"));
    std::fs::write(path("key"), ClusterKey::from_bytes([1; 32]).to_hex())?;
    let size = Some(ByteSize(SCRATCH_BYTES + (64 << 20)));
    let device = DeviceConfig { path: path("device"), size, reserve: true };
    let mut config = Config::new(NodeId(1), ClusterId(1), path("data"), device, path("key"));
    config.listen =
        vec![Address::Shm { path: path("socket") }, Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 }];
    config.scratch = Some(ByteSize(SCRATCH_BYTES));
    config.cache = Some(ByteSize(cache_bytes));
    config.scan_workers = 1;
    Ok(Node::start(config)?)
}

fn line(node: &NodeHandle, wire: usize) -> Result<DirectLine, Box<dyn Error>> {
    let options = DirectOptions {
        node: NodeId(1),
        address: node.addresses()[wire].clone(),
        key: ClusterKey::from_bytes([1; 32]),
        memory_bytes: 4 << 20,
        patience: Duration::from_secs(10),
    };
    Ok(DirectLine::connect(&options, Instant::now() + Duration::from_secs(10))?)
}

/// The median time of one part out of `span_bytes` of the scratch area, read over and over.
fn median(
    line: &mut DirectLine,
    length_bytes: u32,
    span_bytes: u64,
    way: Way,
) -> Result<Duration, Box<dyn Error>> {
    let device = &line.status().devices[0];
    let (device, area) = (device.device, device.scratch.ok_or("no scratch area")?);
    if way == Way::OneSided {
        line.open_cache()?;
    }
    let places = span_bytes / u64::from(length_bytes).max(4096);
    // So often, so that a cache full of other sizes takes everything in and the line has heard
    // where.
    let warming = if way == Way::Device { 0 } else { 4 * places };
    let mut times = Vec::new();
    for round in 0..warming + PARTS {
        // A walk over all places without a pattern that a device could read ahead.
        let place = round.wrapping_mul(0x9E37_79B1) % places;
        let part = RawRead {
            device,
            offset_bytes: area.offset_bytes + place * u64::from(length_bytes).max(4096),
            length_bytes,
            target_offset_bytes: 0,
        };
        let (began, mut done) = (Instant::now(), Vec::new());
        line.read(round, &[part])?;
        line.reap(Wait::ForOne, &mut done)?;
        if round >= warming && done.iter().all(|done| done.is_one_sided == (way == Way::OneSided)) {
            times.push(began.elapsed());
        }
    }
    times.sort_unstable();
    times.get(times.len() / 2).copied().ok_or_else(|| "no part came the way that was to be measured".into())
}
