//! Measures how many random direct reads per second a device performs through this crate.
//!
//! ```text
//! cargo run --release -p rackscan-device --example readbench -- PATH [BYTES [DEPTH [SECONDS]]]
//! cargo run --release -p rackscan-device --example readbench -- --make MIB PATH
//! fio --name=r --filename=PATH --rw=randread --bs=4k --iodepth=64 --ioengine=io_uring --direct=1 --runtime=10 \
//!     --time_based --readonly
//! ```
//!
//! The first form prints one JSON line; the second makes a file of random bytes to read (a file
//! that was only reserved reads as zeroes without touching the disk). The third is the same load by
//! fio, to compare with.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rackscan_device::{
    Access, BufferPool, BufferRegistration, Completion, Device, DeviceIndex, DeviceIo, IoMemory, Read, Ring,
    RingConfig, Token, Wait, Write,
};

const STEP_BYTES: u32 = 1 << 20;

struct Load {
    path: String,
    read_bytes: u32,
    depth: u32,
    seconds: u64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("readbench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--make", mebibytes, path] => make(path, mebibytes.parse()?),
        [path, ref rest @ ..] if rest.len() <= 3 && !path.starts_with('-') => {
            let read_bytes = rest.first().map_or(Ok(4096), |text| text.parse())?;
            let depth = rest.get(1).map_or(Ok(64), |text| text.parse())?;
            let seconds = rest.get(2).map_or(Ok(10), |text| text.parse())?;
            measure(&Load { path: path.to_owned(), read_bytes, depth, seconds })
        }
        _ => Err("usage: readbench PATH [BYTES [DEPTH [SECONDS]]] | readbench --make MIB PATH".into()),
    }
}

/// xorshift64*: cheap enough not to be measured.
fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

fn make(path: &str, mebibytes: u64) -> Result<(), Box<dyn Error>> {
    let device = Arc::new(Device::create(path, mebibytes * u64::from(STEP_BYTES))?);
    let pool = BufferPool::new(STEP_BYTES as usize, STEP_BYTES as usize)?;
    let mut ring = Ring::new(RingConfig {
        depth: 1,
        devices: vec![device],
        buffers: Some(pool.clone()),
        ..RingConfig::default()
    })?;
    let mut state = 0x5eed;
    for step in 0..mebibytes {
        let mut buffer = pool.take(STEP_BYTES as usize)?;
        for word in buffer.chunks_exact_mut(8) {
            word.copy_from_slice(&next(&mut state).to_le_bytes());
        }
        let write = Write {
            device: DeviceIndex(0),
            offset_bytes: step * u64::from(STEP_BYTES),
            length_bytes: STEP_BYTES,
            from: buffer.into(),
            token: Token(step),
        };
        ring.submit_write(write)?;
        let mut outcome = Ok(());
        ring.reap(Wait::ForOne, &mut |completion| {
            if let Completion::Write { outcome: ended, .. } = completion {
                outcome = ended;
            }
        })?;
        outcome?;
    }
    Ok(())
}

fn measure(load: &Load) -> Result<(), Box<dyn Error>> {
    let device = Arc::new(Device::open(&load.path, Access::ReadOnly)?);
    let largest = (load.read_bytes as usize).next_power_of_two().max(4096);
    let pool = BufferPool::new(largest * load.depth as usize, largest)?;
    let devices = vec![Arc::clone(&device)];
    let mut ring = Ring::new(RingConfig {
        depth: load.depth,
        devices,
        buffers: Some(pool.clone()),
        ..RingConfig::default()
    })?;
    let places = device.bytes() / u64::from(load.read_bytes);
    if places == 0 {
        return Err(format!("{} is shorter than one read", load.path).into());
    }
    let mut idle: Vec<IoMemory> = Vec::new();
    for _ in 0..load.depth {
        idle.push(pool.take(load.read_bytes as usize)?.into());
    }
    let mut state = 0x5eed;
    let start = Instant::now();
    let end = start + Duration::from_secs(load.seconds);
    let mut reads = 0_u64;
    let mut failed = Ok(());
    while Instant::now() < end && failed.is_ok() {
        for into in idle.drain(..) {
            let offset_bytes = next(&mut state) % places * u64::from(load.read_bytes);
            let length_bytes = load.read_bytes;
            ring.submit_read(Read {
                device: DeviceIndex(0),
                offset_bytes,
                length_bytes,
                into,
                token: Token(0),
            })?;
        }
        ring.reap(Wait::ForOne, &mut |completion| {
            if let Completion::Read { memory, outcome, .. } = completion {
                idle.push(memory);
                reads += 1;
                failed = std::mem::replace(&mut failed, Ok(())).and(outcome);
            }
        })?;
    }
    failed?;
    report(load, reads, start.elapsed(), ring.report().buffers);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "rates for people: 53 bits are plenty")]
fn report(load: &Load, reads: u64, elapsed: Duration, buffers: BufferRegistration) {
    let seconds = elapsed.as_secs_f64();
    let iops = reads as f64 / seconds;
    let line = serde_json::json!({
        "bench": "device_random_read",
        "path": load.path,
        "read_bytes": load.read_bytes,
        "depth": load.depth,
        "seconds": seconds,
        "reads": reads,
        "iops": iops.round(),
        "mb_per_s": (iops * f64::from(load.read_bytes) / 1e6).round(),
        "registered_buffers": matches!(buffers, BufferRegistration::Registered { .. }),
    });
    println!("{line}");
}
