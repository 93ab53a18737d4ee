//! How does a process use another's memory when nothing but a byte stream joins them?
//!
//! A thread per connection, the *responder*, plays the network card: it serves the peer's reads, writes and atomics
//! against registered memory without the application, and takes in answers and messages.
//!
//! - [`connect`]: the socket and its options.
//! - [`frame`]: what is on the stream.
//! - [`region`]: registered regions, looked up for every frame that names one.
//! - [`link`]: what the application's side and the responder share.
//! - [`outbox`]: what waits to be sent.
//! - [`receive`]: takes the stream apart and executes it.
//! - [`responder`]: the thread's loop.
//! - [`queue`]: the application's side.
//! - [`sys`]: socket calls on memory that a peer may be changing.

mod connect;
mod frame;
mod link;
mod outbox;
mod queue;
mod receive;
mod region;
mod responder;
mod sys;

pub(crate) use connect::{answer, bind, call};
