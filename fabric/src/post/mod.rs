//! Sends messages as plain one-sided writes into boxes that the receiver polls.
//!
//! A *box* is a part of the receiver's registered memory that one peer writes and that the receiver
//! polls (the message buffers of GET+/PUT+, RAMP with RDMA, section 3.1). A message is one write,
//! and the receiver only polls for it. Replies go the same way into boxes of the requester.
//! `layout` describes the contents of a box.
//!
//! # Use
//!
//! 1. The receiver makes [`PostBoxes`] for one peer, registers them ([`PostBoxes::register`]) and
//!    sends their name and shape in a message.
//! 2. The peer makes a [`PostSender`] from them and writes: [`PostSender::send`].
//! 3. The receiver polls in each turn of its loop ([`PostBoxes::next`], one load for each empty
//!    box) and answers through its own [`PostSender`] into the box of the same index at the other
//!    side.
//!
//! # Guarantees
//!
//! - **One at a time.** A box holds one message. Its sender writes the next one when it knows that
//!   the previous one was taken, for example from its answer; several boxes serve several requests
//!   at once. A sender that writes too early damages its own messages and nobody else's.
//! - **Whole or not yet.** The fabric promises no order within a write: the last bytes may be seen
//!   first, or mixed with those of the message before. So the indicators only say when a closer
//!   look is worthwhile. A CRC-32C of a private copy, over sequence number, length and body,
//!   decides whether the message is complete. One that does not match is not complete yet and is
//!   looked at again. An incomplete message passes with a chance of 1 in 2^32, and only where a
//!   wire reorders.
//! - **Hostile contents.** The peer may write anything: a length beyond the box, an indicator
//!   without a message, changes while the receiver looks. A box without a valid message counts as
//!   empty. A peer can make its own boxes useless, and nothing else.
//! - **Endings.** A box does not show that a sender died within a write; the connection reports it.
//!
//! # Sleep
//!
//! Sending to a receiver that is awake takes no system call. A receiver that sleeps is always
//! woken, if it does three things in this order: [`crate::Connection::arm`], poll its boxes once
//! more, sleep. [`crate::Connection::wait_or`] does that. Depending on the wire it is woken by:
//!
//! | wire | woken by | cost while the receiver is awake |
//! |---|---|---|
//! | `shm` | the sender, after its write, if the receiver has announced that it sleeps (in the word that messages use, too) | a fence and a load |
//! | `tcp` | the receiver's own responder, after a write to registered boxes; an owner that drives sleeps on the socket anyway | a load |
//! | `verbs` | the adapter: the write carries an immediate, [`IMMEDIATE`], which the receiver ignores | a receive request |
//! | `sim` | the network, which wakes sleepers at every post | nothing |
//!
//! A flag in the sender's memory, which a receiver writes one-sidedly before it sleeps, would save
//! the immediate on `verbs`. But the receiver cannot know when the sender has seen the flag, and
//! would have to wait a round trip before each sleep.

mod layout;
mod receive;
mod send;

pub use self::{receive::PostBoxes, send::PostSender};
use crate::{
    error::{OutOfBounds, PostError, RegionError},
    limits::{POST_BODY_BYTES_MAX, POST_BOXES_MAX, REGION_ALIGNMENT_BYTES},
};

/// The immediate that a receiver's `poll` (or inbox) reports for each message in a box, on wires
/// where nothing else wakes the receiver. It carries no other information.
pub const IMMEDIATE: u32 = u32::from_le_bytes(*b"POST");

/// Boxes begin at multiples of this, so that the word that is polled shares its cache line with the
/// bytes that are read next.
const BOX_ALIGNMENT_BYTES: usize = 64;

/// The number of boxes, and the longest message that each holds. Both ends must use the same shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostShape {
    boxes: usize,
    body_bytes_max: usize,
}

impl PostShape {
    /// `boxes` boxes for messages of at most `body_bytes_max` bytes.
    ///
    /// # Errors
    /// [`PostBoxError::Shape`] if one of the two is 0, or more than [`POST_BOXES_MAX`] or
    /// [`POST_BODY_BYTES_MAX`].
    pub fn new(boxes: usize, body_bytes_max: usize) -> Result<Self, PostBoxError> {
        let possible = |found: usize, most: usize| (1..=most).contains(&found);
        if possible(boxes, POST_BOXES_MAX) && possible(body_bytes_max, POST_BODY_BYTES_MAX) {
            Ok(Self { boxes, body_bytes_max })
        } else {
            Err(PostBoxError::Shape { boxes, body_bytes_max })
        }
    }

    /// Number of boxes.
    #[must_use]
    pub fn boxes(&self) -> usize {
        self.boxes
    }

    /// The longest message, in bytes.
    #[must_use]
    pub fn body_bytes_max(&self) -> usize {
        self.body_bytes_max
    }

    /// The registered memory that one end needs, in bytes.
    #[must_use]
    pub fn region_bytes(&self) -> usize {
        (self.boxes * self.box_bytes()).next_multiple_of(REGION_ALIGNMENT_BYTES)
    }

    fn box_bytes(&self) -> usize {
        layout::image_bytes(self.body_bytes_max).next_multiple_of(BOX_ALIGNMENT_BYTES)
    }

    /// Where a box begins.
    fn offset_of(&self, index: usize) -> usize {
        index * self.box_bytes()
    }
}

/// Why boxes cannot be made or written.
#[derive(Debug, thiserror::Error)]
pub enum PostBoxError {
    /// The shape is outside of the limits.
    #[error(
        "cannot create {boxes} post boxes for messages of {body_bytes_max} bytes: expected 1 to {POST_BOXES_MAX} boxes for 1 to {POST_BODY_BYTES_MAX} bytes"
    )]
    Shape {
        /// Number of boxes.
        boxes: usize,
        /// Bytes for each.
        body_bytes_max: usize,
    },
    /// The peer's memory is shorter than its boxes.
    #[error(
        "the peer's memory for post boxes has {bytes} bytes, expected at least {needed_bytes}: configure the same boxes at both ends"
    )]
    RemoteTooShort {
        /// Its length.
        bytes: u64,
        /// What the boxes need.
        needed_bytes: usize,
    },
    /// There is no such box.
    #[error("there is no post box {index}, expected an index below {boxes}")]
    NoSuchBox {
        /// Which.
        index: usize,
        /// How many there are.
        boxes: usize,
    },
    /// The message does not fit in a box.
    #[error(
        "the message has {bytes} bytes, but a post box contains at most {bytes_max}: send it as a message of the connection"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
        /// What a box holds.
        bytes_max: usize,
    },
    /// Their memory could not be allocated.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The image lies outside of its memory.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// The write was not accepted; nothing has happened.
    #[error(transparent)]
    Post(#[from] PostError),
}
