//! How does one thread keep many transfers in flight?
//!
//! `queue` is the interface, `uring` the part that talks to the kernel and owns memory in flight,
//! `watches` the table of foreign descriptors, `locked` the limit of locked memory.

mod locked;
mod queue;
mod uring;
mod watches;

pub use queue::{BufferRegistration, HandOver, Ring, RingConfig, RingReport};
