//! How are devices read by threads that wait, beside a thread that does not?
//!
//! `io` is the interface, the same as the ring's; `workers` are the threads, a fixed number of them
//! or one for each request; `system_call` moves the bytes; `done` carries what has ended back and
//! wakes who sleeps; `watches` are the foreign descriptors, in an epoll.

mod done;
mod io;
mod system_call;
mod watches;
mod workers;

pub use io::{PreadPool, ThreadPerRequest, ThreadedConfig, ThreadedIo};
