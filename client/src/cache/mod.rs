//! Pages that need no request: from this process' own cache, or one-sidedly from a node's cache.
//!
//! ```text
//! own       pages in our own memory, verified                                     (off unless a budget is given)
//! remote    pages in a node's memory, at places that its replies named  -> read one-sidedly and verified, else requested
//! ```
//!
//! Invariants
//! - A page that was read one-sidedly counts only when its private copy has passed verification;
//!   otherwise the page is requested.
//! - What is known of a node's cache is dropped with the connection over which it was learned.

mod own;
mod remote;
#[cfg(test)]
mod stored;
mod take;

pub(crate) use own::OwnPages;
pub(crate) use remote::{CachedPage, Opened, RemoteCache};
