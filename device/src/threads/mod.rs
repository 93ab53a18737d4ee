//! Implements [`DeviceIo`](crate::DeviceIo) by threads that block in system calls, for a thread
//! that must not block.
//!
//! `io` is the interface, the same as that of the ring. `workers` are the threads, a fixed number
//! of them, one for each request, or that of the caller. `system_call` moves the bytes.
//! `completion_queue` returns finished transfers and wakes the submitting thread. `watches`
//! contains the watched descriptors, in an epoll instance.

mod completion_queue;
mod io;
mod system_call;
mod watches;
mod workers;

pub use io::{BlockingIo, PreadPool, ThreadPerRequest, ThreadedConfig, ThreadedIo};
