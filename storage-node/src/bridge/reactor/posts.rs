//! In which order are the requests of a connection served that come in boxes and as messages?
//!
//! In the order in which they were sent. A message is behind every write that was posted before it,
//! so before a message is served the boxes of its connection are emptied; and a client writes into
//! no box while a message of its own is unanswered.
//!
//! Invariants
//! - A turn takes no more requests out of boxes than there may be boxes: a client that goes on
//!   writing keeps nobody waiting.

use super::Reactor;
use crate::{limits::POSTS_MAX, metrics::add};

impl Reactor {
    /// Takes what lies in the boxes of a connection. Whether there was anything.
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
