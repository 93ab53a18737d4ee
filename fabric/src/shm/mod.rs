//! How do processes of one machine share memory?
//!
//! - [`connect`]: the Unix socket, who may use it, and the exchange of rings and doorbells.
//! - [`control`]: what is said over that socket afterwards: grants (with a descriptor),
//!   revocations, goodbye.
//! - [`region`]: regions that the peer has granted, mapped here.
//! - [`ring`]: messages, a single-producer single-consumer ring per direction.
//! - [`ends`]: where a connection's messages come from and go to: such a ring, or an inbox.
//! - [`queue`]: the connection: what is in flight, what has ended.
//! - [`execute`]: operations, executed by whoever posts them.

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
