//! Implements the wire `tcp`: one-sided operations over a byte stream.
//!
//! One thread per connection, the *responder*, does the work of a network card: it serves the
//! peer's reads, writes and atomics on registered memory without the application, and receives
//! answers and messages. While the application polls the connection or sleeps on it, the
//! application's thread does this work itself and the responder stands by.
//!
//! - [`connect`]: the socket and its options.
//! - [`frame`]: the frames on the stream.
//! - [`region`]: registered regions, looked up for every frame that names one.
//! - [`inbox`]: moves messages from the stream into an inbox.
//! - [`shared`]: the state that the application's side and the responder share.
//! - [`request`]: an operation as a frame with its payload.
//! - [`outbox`]: the frames that wait to be sent.
//! - [`answers`]: matches the peer's answers with our requests.
//! - [`receive`]: the receiving half of the stream.
//! - [`execute`]: executes the peer's frames and answers them.
//! - [`drive`]: which of the two threads receives now.
//! - [`owner`]: the application's thread as receiver.
//! - [`responder`]: the thread's loop.
//! - [`queue`]: the application's side of a connection.
//! - [`sys`]: socket calls on memory that a peer may be changing.

mod answers;
mod connect;
mod drive;
mod execute;
mod frame;
mod inbox;
mod outbox;
mod owner;
mod queue;
mod receive;
mod region;
mod request;
mod responder;
mod shared;
mod sys;

pub(crate) use connect::{bind, call, identify, set_up};
#[cfg(feature = "verbs")]
pub(crate) use connect::{new_socket, prepare};
