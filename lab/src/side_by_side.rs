//! Measures how long reading and writing files takes if the bytes of all files move in parallel and
//! nothing else is done.
//!
//! This time is the lower limit for any operation that moves the same bytes. Each file has a
//! thread, which keeps [`DEPTH`] direct transfers of [`TRANSFER_BYTES`] in flight, and flushes the
//! file after writing.

use rackscan_device::{
    Access, BufferPool, Completion, Device, DeviceIo, Fsync, IoMemory, Read, Ring, RingConfig, Token, Wait,
    Write,
};
use std::{
    path::PathBuf,
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

/// Transfers in flight per file.
const DEPTH: u32 = 8;
/// Bytes of a transfer.
const TRANSFER_BYTES: u32 = 1 << 20;

/// The work on one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Reads this many bytes, starting again at the beginning of the part if it is shorter.
    Read {
        /// The file.
        path: PathBuf,
        /// Start of the part in bytes.
        from: u64,
        /// Length of the part in bytes.
        part: u64,
        /// Bytes to read, rounded up to whole transfers.
        bytes: u64,
    },
    /// Writes this many bytes to a file that is created for it and removed afterwards.
    Write {
        /// The file, which must not exist.
        path: PathBuf,
        /// Bytes to write, rounded up to whole transfers.
        bytes: u64,
    },
}

/// Why the streams could not be measured.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}", path = path.display())]
pub struct StreamError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

/// Moves the bytes of all streams in parallel. Returns the time that it took.
///
/// # Errors
/// The first file that failed.
pub fn move_bytes(streams: &[Stream]) -> Result<Duration, StreamError> {
    // All threads start together after they have opened their files, which is not measured.
    let start = Barrier::new(streams.len());
    let ended: Vec<Result<(Instant, Instant), StreamError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = streams.iter().map(|stream| scope.spawn(|| one(stream, &start))).collect();
        let ended = threads.into_iter().zip(streams);
        ended.map(|(thread, stream)| thread.join().unwrap_or_else(|_| Err(panicked(stream)))).collect()
    });
    let (mut first, mut last): (Option<Instant>, Option<Instant>) = (None, None);
    for outcome in ended {
        let (from, to) = outcome?;
        first = Some(first.map_or(from, |first| first.min(from)));
        last = Some(last.map_or(to, |last| last.max(to)));
    }
    Ok(first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first))
}

fn panicked(stream: &Stream) -> StreamError {
    StreamError {
        path: path_of(stream).clone(),
        problem: "the thread of a file has panicked; please report this".to_owned(),
    }
}

fn path_of(stream: &Stream) -> &PathBuf {
    match stream {
        Stream::Read { path, .. } | Stream::Write { path, .. } => path,
    }
}

fn one(stream: &Stream, start: &Barrier) -> Result<(Instant, Instant), StreamError> {
    let at = |problem: String| StreamError { path: path_of(stream).clone(), problem };
    let opened = open(stream).map_err(at);
    // A thread that fails must still release the others.
    start.wait();
    let (mut ring, buffers) = opened?;
    let from = Instant::now();
    let moved = run(stream, &mut ring, buffers).map_err(at);
    let to = Instant::now();
    if let Stream::Write { path, .. } = stream {
        std::fs::remove_file(path).map_err(|error| at(error.to_string()))?;
    }
    moved.map(|()| (from, to))
}

fn open(stream: &Stream) -> Result<(Ring, Vec<IoMemory>), String> {
    let said = |error: &dyn std::error::Error| error.to_string();
    let device = match stream {
        Stream::Read { path, .. } => Device::open(path, Access::ReadOnly).map_err(|error| said(&error))?,
        Stream::Write { path, bytes } => {
            Device::create_sparse(path, whole(*bytes)).map_err(|error| said(&error))?
        }
    };
    let pool = BufferPool::new((DEPTH * TRANSFER_BYTES) as usize, TRANSFER_BYTES as usize)
        .map_err(|error| said(&error))?;
    let buffers =
        (0..DEPTH).map(|_| pool.take(TRANSFER_BYTES as usize).map(IoMemory::from)).collect::<Result<_, _>>();
    let config = RingConfig { depth: DEPTH, devices: vec![Arc::new(device)], ..RingConfig::default() };
    Ok((Ring::new(config).map_err(|error| said(&error))?, buffers.map_err(|error| said(&error))?))
}

/// Bytes rounded up to whole transfers.
fn whole(bytes: u64) -> u64 {
    bytes.next_multiple_of(TRANSFER_BYTES.into())
}

fn run(stream: &Stream, ring: &mut Ring, mut idle: Vec<IoMemory>) -> Result<(), String> {
    let device = rackscan_device::DeviceIndex(0);
    let (bytes, part, begin) = match stream {
        Stream::Read { bytes, part, from, .. } => (*bytes, (*part / u64::from(TRANSFER_BYTES)).max(1), *from),
        Stream::Write { bytes, .. } => (*bytes, u64::MAX, 0),
    };
    let transfers = whole(bytes) / u64::from(TRANSFER_BYTES);
    let (mut next, mut under_way) = (0, 0);
    while next < transfers || under_way > 0 {
        while next < transfers
            && let Some(memory) = idle.pop()
        {
            let offset_bytes = begin + (next % part) * u64::from(TRANSFER_BYTES);
            let (length_bytes, token) = (TRANSFER_BYTES, Token(next));
            let refused = match stream {
                Stream::Read { .. } => {
                    let read = Read { device, offset_bytes, length_bytes, into: memory, token };
                    ring.submit_read(read).err().map(|refused| refused.reason.to_string())
                }
                Stream::Write { .. } => {
                    let write = Write { device, offset_bytes, length_bytes, from: memory, token };
                    ring.submit_write(write).err().map(|refused| refused.reason.to_string())
                }
            };
            if let Some(reason) = refused {
                return Err(reason);
            }
            (next, under_way) = (next + 1, under_way + 1);
        }
        under_way -= reaped(ring, &mut idle)?;
    }
    if matches!(stream, Stream::Write { .. }) {
        ring.submit_fsync(Fsync { device, token: Token(0) }).map_err(|refused| refused.reason.to_string())?;
        reaped(ring, &mut idle)?;
    }
    Ok(())
}

/// Waits for transfers to end and makes their memory idle again. Returns how many ended.
fn reaped(ring: &mut Ring, idle: &mut Vec<IoMemory>) -> Result<u64, String> {
    let (mut ended, mut failed) = (0, None);
    let reaped = ring.reap(Wait::ForOne, &mut |completion| {
        let outcome = match completion {
            Completion::Read { memory, outcome, .. } | Completion::Write { memory, outcome, .. } => {
                idle.push(memory);
                ended += 1;
                outcome
            }
            Completion::Fsync { outcome, .. } => outcome,
            Completion::Ready { .. } => Ok(()),
        };
        if let Err(fault) = outcome {
            failed.get_or_insert(fault.to_string());
        }
    });
    reaped.map_err(|error| error.to_string())?;
    failed.map_or(Ok(ended), Err)
}
