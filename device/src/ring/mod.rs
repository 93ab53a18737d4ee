//! Implements [`DeviceIo`](crate::DeviceIo) by io_uring: one thread has many transfers in flight.
//!
//! `queue` is the interface, `uring` calls the kernel and owns the memory in flight, `watches` is
//! the table of watched descriptors, `memlock` raises the limit of locked memory.

mod memlock;
mod queue;
mod uring;
mod watches;

pub use queue::{BufferRegistration, HandOver, Ring, RingConfig, RingReport};
pub use uring::RingMode;
