//! Which pages need not be asked for?
//!
//! ```text
//! own       pages of our own memory, verified                        (off unless a budget is given)
//! remote    pages in a node's memory, whose places its replies told  -> taken one-sidedly, verified, or asked for after all
//! ```
//!
//! Invariants
//! - A page that was taken counts only when its private copy has passed verification; otherwise it
//!   is asked for.
//! - What is known of a node's cache ends with the connection over which it was heard.

mod own;
mod remote;
#[cfg(test)]
mod stored;
mod take;

pub(crate) use own::OwnPages;
pub(crate) use remote::{Opened, RemoteCache};
pub(crate) use take::Taking;
