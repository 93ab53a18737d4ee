//! Which requests go to a node in boxes instead of messages, and how?
//!
//! Requests about transactions that are whole in themselves: what names bytes elsewhere, which the
//! node might not see yet, is sent as a message, as is what is too long, and what finds no room.
//!
//! Requests must not overtake each other, whichever way they go:
//!
//! - Boxes are written in turn, and the node takes their messages in turn. If the next box is not
//!   free, the request is sent as a message, even if others are.
//! - A message does not overtake a box: it is behind every write that was posted before it, and the
//!   node empties the boxes before it serves the message.
//! - A box does not overtake a message: while a reply to a request is owed that was sent as a
//!   message, the next ones are, too.
//!
//! Invariants
//! - A box is free once its request is answered, by either way, whether or not anybody still waits
//!   for that.
//! - Boxes belong to one connection.

use rackscan_fabric::{
    Connection,
    post::{PostBoxError, PostBoxes, PostSender, PostShape},
};
use rackscan_format::message::{Payload, Request};

use crate::limits::{POST_BODY_BYTES, POSTS};

/// Boxes for replies here, and for requests at the node.
#[derive(Debug)]
pub(crate) struct Posts {
    pub(super) replies: PostBoxes,
    requests: PostSender,
    /// The box that is written next.
    turn: usize,
}

impl Posts {
    /// The shape that clients ask for.
    pub(crate) fn shape() -> Result<PostShape, PostBoxError> {
        PostShape::new(POSTS, POST_BODY_BYTES)
    }

    pub(crate) fn new(replies: PostBoxes, requests: PostSender) -> Self {
        Self { replies, requests, turn: 0 }
    }

    /// The box of the next request that goes in one.
    pub(super) fn turn(&self) -> usize {
        self.turn
    }

    /// Whether it is short enough.
    pub(super) fn takes(&self, body: &[u8]) -> bool {
        body.len() <= self.requests.shape().body_bytes_max()
    }

    /// Writes a request into the next box, which is free.
    pub(super) fn send(
        &mut self,
        connection: &mut Connection,
        id: u64,
        body: &[u8],
    ) -> Result<usize, PostBoxError> {
        let index = self.turn;
        self.requests.send(connection, id, index, body)?;
        let after = index + 1;
        self.turn = if after < self.requests.shape().boxes() { after } else { 0 };
        Ok(index)
    }
}

/// Whether it is whole in itself, and of the kind that nodes look for in boxes.
pub(super) fn may_be_posted(request: &Request) -> bool {
    matches!(request, Request::Transact { messages: Payload::Here(_), .. })
}
