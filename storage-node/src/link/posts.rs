//! Contains the boxes of a connection: memory for one request or reply each, which the sender
//! writes one-sidedly instead of sending a message.
//!
//! Invariants
//! - Boxes are polled in turn, so requests are taken in the order in which they were written. A
//!   request is visible only if it is in the next box.
//! - Connections without boxes have no cost from them.
//! - A reply that does not fit into its box is sent as a message.

use rackscan_fabric::{
    RegisterError, RemoteRegion,
    post::{PostBoxError, PostBoxes, PostSender, PostShape},
};
use rackscan_format::message::Target;

use super::{Link, REPLY, remote};
use crate::limits::HELD_BYTES_MAX;

/// The boxes for requests here, and access to those for replies at the peer.
#[derive(Debug)]
pub(crate) struct Posts {
    requests: PostBoxes,
    replies: PostSender,
    /// The box that the peer writes next.
    turn: usize,
}

impl Posts {
    /// Boxes for a peer that has boxes for replies at `replies`.
    pub(crate) fn new(shape: PostShape, replies: &Target) -> Result<Self, PostBoxError> {
        let replies = PostSender::new(remote(replies), shape)?;
        Ok(Self { requests: PostBoxes::new(shape)?, replies, turn: 0 })
    }

    fn next(&mut self, into: &mut Vec<u8>) -> Option<usize> {
        let index = self.turn;
        let body = self.requests.poll(index)?;
        into.clear();
        into.extend_from_slice(body);
        let after = index + 1;
        self.turn = if after < self.requests.shape().boxes() { after } else { 0 };
        Some(index)
    }
}

impl Link {
    /// Whether the peer has boxes here.
    pub(crate) fn has_posts(&self) -> bool {
        self.posts.is_some()
    }

    /// Registers these boxes for writes by the peer, and returns their address.
    pub(crate) fn open_posts(&mut self, posts: Posts) -> Result<Target, RegisterError> {
        let RemoteRegion { key, address, length } = posts.requests.register(&mut self.connection)?;
        self.posts = Some(Box::new(posts));
        Ok(Target { key, offset_bytes: address, length_bytes: length })
    }

    /// Takes the request out of the next box. Its bytes replace the content of `into`.
    pub(crate) fn next_post(&mut self, into: &mut Vec<u8>) -> Option<usize> {
        self.posts.as_mut()?.next(into)
    }

    /// Whether the next box has a request. Checked between arming and sleeping.
    pub(super) fn has_post(&mut self) -> bool {
        self.posts.as_mut().is_some_and(|posts| posts.requests.look_at(posts.turn))
    }

    /// Writes a reply into the box of its request. Returns false if it must be sent as a message.
    pub(crate) fn reply_by_post(&mut self, index: usize, bytes: &[u8]) -> bool {
        // Waiting replies are older, and there is no room for them.
        if self.posts.is_none() || !self.waiting.is_empty() {
            return false;
        }
        let held_bytes = self.hold(bytes.len());
        let Some(posts) = &mut self.posts else { return false };
        let sent = posts.replies.send(&mut self.connection, REPLY, index, bytes);
        if held_bytes >= HELD_BYTES_MAX {
            self.release();
        }
        sent.is_ok()
    }
}
