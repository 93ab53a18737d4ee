//! Serves requests that arrive in boxes (memory for one request each, into which a client writes
//! one-sidedly), in order with requests that arrive as messages.
//!
//! The order is that in which the client sent them. A message arrives after every write that was
//! posted before it, so the reactor empties the boxes of a connection before it serves a message of
//! that connection. A client writes into no box while one of its messages is unanswered.
//!
//! Invariants
//! - A turn of the reactor takes at most as many requests out of boxes as there can be boxes, so a
//!   client that writes all the time delays no other client.

use super::Reactor;
use crate::{limits::POSTS_MAX, metrics::add};

impl Reactor {
    /// Takes the requests in the boxes of a connection. Returns whether there were any.
    pub(super) fn take_posts(&mut self, index: usize) -> bool {
        let mut bytes = std::mem::take(&mut self.posted);
        let mut happened = false;
        for _ in 0..POSTS_MAX {
            let link = self.core.links.get_mut(index);
            let Some(post) = link.and_then(|link| link.next_post(&mut bytes)) else { break };
            happened = true;
            add(&self.core.node.metrics.posted_messages, 1);
            self.request(index, Some(post), &bytes);
        }
        self.posted = bytes;
        happened
    }
}
