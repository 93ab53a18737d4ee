//! Implements the wire `shm`: connections between processes of one machine, through shared memory.
//!
//! - [`connect`]: the Unix socket, who may use it, and the exchange of rings and doorbells.
//! - [`control`]: control messages over that socket afterwards: grants (with a descriptor),
//!   revocations, goodbye.
//! - [`region`]: maps the regions that the peer has granted.
//! - [`ring`]: a single-producer single-consumer ring of messages per direction.
//! - [`ends`]: the message path in each direction: such a ring, or an inbox.
//! - [`queue`]: the connection's queue of operations and events.
//! - [`execute`]: executes operations on the thread that posts them.

mod connect;
mod control;
mod ends;
mod execute;
#[cfg(test)]
mod hostile;
mod queue;
mod region;
mod ring;

pub(crate) use connect::{SocketFile, bind, call, identify, set_up};
