//! How does a process use another's memory when nothing but a byte stream joins them?
//!
//! A thread per connection, the *responder*, plays the network card: it serves the peer's reads,
//! writes and atomics against registered memory without the application, and takes in answers and
//! messages. While the application polls or sleeps on the connection, it does that itself, and the
//! responder stands by.
//!
//! - [`connect`]: the socket and its options.
//! - [`frame`]: what is on the stream.
//! - [`region`]: registered regions, looked up for every frame that names one.
//! - [`inbox`]: lets a stream's messages go into an inbox.
//! - [`link`]: what the application's side and the responder share.
//! - [`request`]: an operation as it goes over the stream.
//! - [`outbox`]: what waits to be sent.
//! - [`answers`]: what the peer's answers mean for our requests.
//! - [`receive`]: takes the stream apart and executes it.
//! - [`drive`]: who takes in what arrives.
//! - [`responder`]: the thread's loop.
//! - [`queue`]: the application's side.
//! - [`sys`]: socket calls on memory that a peer may be changing.

mod answers;
mod connect;
mod drive;
mod frame;
mod inbox;
mod link;
mod outbox;
mod queue;
mod receive;
mod region;
mod request;
mod responder;
mod sys;

pub(crate) use connect::{bind, call, identify, set_up};
#[cfg(feature = "verbs")]
pub(crate) use connect::{new_socket, prepare};
