//! Finds pages without a request to their node: in this process's own cache, or in the node's
//! cache, which this process reads one-sidedly.
//!
//! ```text
//! own       pages in memory of this process, already verified          off unless a memory budget is configured
//! remote    pages in a node's memory: earlier replies of the node named their slots in its cache
//! take      reads them one-sidedly and verifies them; a page that cannot be used is requested from the node
//! ```
//!
//! Invariants
//! - A page that was read one-sidedly is used only after its private copy has passed verification;
//!   otherwise the page is requested.
//! - Knowledge about a node's cache is dropped with the connection over which it was learned.

mod own;
mod remote;
#[cfg(test)]
mod stored;
mod take;

pub(crate) use own::OwnPages;
pub(crate) use remote::{CachedPage, Opened, RemoteCache};
