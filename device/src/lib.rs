//! Reads and writes devices, bypassing the page cache.
//!
//! ```text
//!   Device (O_DIRECT file or block device)      BufferPool (one slab, allocated at start)
//!            \                                      |  take() -> Buffer (owned by the caller)
//!             \                                     v
//!              Ring::submit_read(Read { device, offset, length, into, token })
//!                   |  buffer belongs to the ring; a full queue is an error with numbers
//!                   v
//!              Ring::reap(Wait, |completion| ...)   one syscall submits, waits for devices AND watched
//!                   |                               descriptors (connections, an eventfd)
//!                   v
//!              Completion::Read { token, memory, outcome }   buffer belongs to the caller again
//! ```
//!
//! [`PreadPool`] and [`ThreadPerRequest`] keep the same promises with threads that block in system
//! calls, for comparison.
//!
//! The crate does not use pages, tables, wires or SQL. Its users are a storage node's reactors and
//! scan workers, and the engine's `local` placement.
//!
//! | file | contents |
//! |---|---|
//! | `device`, `filesystem` | opens devices; determines whether a filesystem honours O_DIRECT |
//! | `io` | the trait [`DeviceIo`], which the next four implement |
//! | `ring/` | [`Ring`]: io_uring |
//! | `threads/` | [`PreadPool`] and [`ThreadPerRequest`]: threads that block in system calls |
//! | `sim/` | [`sim::SimIo`]: seeded simulation of devices, with faults and crashes |
//! | `batch` | [`read_all`]: a batch of reads over any [`DeviceIo`] |
//! | `request`, `transfer` | requests and completions; a request while it is in flight |
//! | `check`, `settle`, `fault` | checks before submission; meaning of results; meaning of errnos |
//! | `memory/` | [`BufferPool`] and memory that other crates mapped |
//! | `residency`, `pin` | measures the page cache; pins threads to cores |
//! | `limits`, `error` | all bounds; the errors, one type for each action |
//!
//! Invariants
//! - Data never goes through the page cache: a file that cannot be read directly is not opened
//!   ([`OpenError`]).
//! - Memory in flight belongs to the ring; dropping a ring waits for what is in flight.
//! - Every queue has a fixed depth; offsets, lengths and alignments are checked before the kernel
//!   sees them.
//! - One function decides what an errno means: [`fault::verdict`].
//! - `unsafe` occurs only in `memory/`, `ring/uring.rs`, `threads/system_call.rs` and
//!   `residency.rs`.
//!
//! Needs Linux 6.1 or later with io_uring allowed.
//!
//! An example: bytes are written to a simulated device and read back. A [`Ring`] over open devices
//! takes the same requests.
//!
//! ```
//! use rackscan_device::sim::{SimConfig, SimDisk, SimIo};
//! use rackscan_device::{BufferPool, DeviceIndex, DeviceIo, Read, Token, Wait, Write, read_all};
//!
//! let mut io = SimIo::new(SimConfig::seeded(1), vec![SimDisk::zeroed(1 << 20)]);
//! let pool = BufferPool::new(64 << 10, 4096)?;
//! let (device, offset_bytes, length_bytes) = (DeviceIndex(0), 8192, 4096);
//! let mut buffer = pool.take(4096)?;
//! buffer.fill(7);
//! let (from, token) = (buffer.into(), Token(1));
//! io.submit_write(Write { device, offset_bytes, length_bytes, from, token })?;
//! let ended = io.reap(Wait::ForOne, &mut |completion| assert_eq!(completion.token(), Token(1)))?;
//! assert_eq!((ended, io.in_flight()), (1, 0));
//!
//! let read = Read { device, offset_bytes, length_bytes, into: pool.take(4096)?.into(), token };
//! let memory = read_all(&mut io, vec![read])?.pop().ok_or("nothing was read")?;
//! assert_eq!(memory.into_buffer()?[..], [7; 4096]);
//! let into = pool.take(4096)?.into();
//! let not_aligned = io.submit_read(Read { device, offset_bytes: 100, length_bytes, into, token });
//! assert!(not_aligned.is_err() && io.in_flight() == 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod check;
mod device;
mod error;
pub mod fault;
mod filesystem;
mod io;
pub mod limits;
mod memory;
mod pin;
mod request;
mod residency;
mod ring;
mod settle;
pub mod sim;
mod threads;
mod transfer;

pub use batch::read_all;
pub use device::{Access, Alignment, Device};
pub use error::{
    OpenError, PinError, ReadAllError, ReapError, Refused, ResidencyError, RingError, SubmitError,
};
pub use fault::{IoFault, Operation};
pub use filesystem::memory_filesystem;
pub use io::DeviceIo;
pub use memory::{Buffer, BufferPool, ExternalMemory, PoolError, TakeError};
pub use pin::{allowed_cores, pin_current_thread};
pub use request::{
    Completion, DeviceIndex, Fsync, Interest, IoMemory, NotABuffer, Read, Readiness, Repeat, Token, Wait,
    Watch, WatchId, Write,
};
pub use residency::resident_bytes;
pub use ring::{BufferRegistration, HandOver, Ring, RingConfig, RingMode, RingReport};
pub use threads::{BlockingIo, PreadPool, ThreadPerRequest, ThreadedConfig, ThreadedIo};
