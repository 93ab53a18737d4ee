//! How do processes of one machine share memory?
//!
//! - [`connect`]: the Unix socket, who may use it, and the exchange of rings and doorbells.
//! - [`control`]: what is said over that socket afterwards: grants (with a descriptor), revocations, goodbye.
//! - [`region`]: regions that the peer has granted, mapped here.
//! - [`ring`]: messages, a single-producer single-consumer ring per direction.
//! - [`queue`]: the connection: operations are executed by whoever posts them.

mod connect;
mod control;
#[cfg(test)]
mod hostile;
mod queue;
mod region;
mod ring;

pub(crate) use connect::{SocketFile, answer, bind, call};
