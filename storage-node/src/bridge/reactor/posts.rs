//! Serves requests that arrive in boxes, in order with those that arrive as messages.
//!
//! The order is that in which they were sent. A message arrives after every write that was posted
//! before it, so before a message is served, the boxes of its connection are emptied. A client
//! writes into no box while a message of its own is unanswered.
//!
//! Invariants
//! - A turn takes at most as many requests out of boxes as there can be boxes, so a client that
//!   keeps writing delays nobody.

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
