//! Sends requests through post boxes: memory of the node that the client writes one-sidedly and the
//! node polls, so that no message is sent.
//!
//! Only requests about transactions go into boxes, and only if they contain all of their bytes: a
//! request that refers to bytes elsewhere, which the node might not observe yet, is sent as a
//! message. So is a request that is too long for a box or finds no free box.
//!
//! Requests must not overtake each other, whichever way they go:
//!
//! - The client writes the boxes in turn, and the node reads them in the same turn. If the next box
//!   is not free, the request is sent as a message, even if other boxes are free.
//! - A message does not overtake a box: it arrives after every write that was posted before it, and
//!   the node reads the boxes before it serves the message.
//! - A box does not overtake a message: while a request that was sent as a message has no reply,
//!   the next requests are sent as messages, too.
//!
//! Invariants
//! - A box is free once its request is answered, in a box or by a message, even if nobody waits for
//!   the answer any more.
//! - Boxes belong to one connection.

use rackscan_fabric::{
    Connection,
    post::{PostBoxError, PostBoxes, PostSender, PostShape},
};
use rackscan_format::message::{Payload, Request};

use crate::limits::{POST_BODY_BYTES, POSTS};

/// Post boxes for replies here, and for requests at the node.
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

    /// The box that the next posted request goes into.
    pub(super) fn turn(&self) -> usize {
        self.turn
    }

    /// Whether a body is short enough for a box.
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

/// Whether a request is self-contained, and of the kind that nodes expect in post boxes.
pub(super) fn may_be_posted(request: &Request) -> bool {
    matches!(request, Request::Transact { messages: Payload::Here(_), .. })
}
