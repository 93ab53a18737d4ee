//! How does a request reach a peer's thread by one-sided writes alone?
//!
//! The receiver keeps *boxes*: parts of registered memory that one peer writes and that it looks at
//! itself (the message buffers of GET+/PUT+, RAMP with RDMA, section 3.1). A message is one write;
//! nothing of the receiver's takes part in it but the eye that looks. Replies go the same way into
//! boxes of the requester. What lies in a box: `layout`.
//!
//! # Use
//!
//! 1. The receiver makes [`PostBoxes`] for one peer, registers them ([`PostBoxes::register`]) and
//!    sends name and shape in a message.
//! 2. The peer makes a [`PostSender`] from them and writes: [`PostSender::send`].
//! 3. The receiver looks at every turn ([`PostBoxes::next`], which is one load for each box that is
//!    empty) and answers through its own [`PostSender`] into the box of the same index at the other
//!    side.
//!
//! # What holds
//!
//! - **One at a time.** A box holds one message. Its sender writes the next when it knows that the
//!   last was taken, which an answer says; several boxes are for several requests at once. Who
//!   writes earlier spoils its own messages and nobody else's.
//! - **Whole or not yet.** The fabric promises no order within a write: bytes may be seen from the
//!   back, or in pieces beside those of the message before. So indicators only say when it is worth
//!   to look closer, and a CRC-32C over sequence number, length and body, of a private copy, says
//!   that all of it is there. What does not match is not all here yet and is looked at again. Part
//!   of a message is taken for all of it with a chance of 1 in 2^32, and only where a wire
//!   reorders.
//! - **Anything may be written.** A length beyond the box, an indicator without a message, changes
//!   while we look: the box is empty as long as it holds no message. A peer can keep its own boxes
//!   from ever holding one, and nothing else.
//! - **Endings.** Of a sender that dies within a write, the box shows nothing: it is the connection
//!   that ends.
//!
//! # Sleep
//!
//! A receiver that is awake costs its sender no system call, and one that sleeps is always woken,
//! if it does three things in this order: [`crate::Connection::arm`], look at its boxes once more,
//! sleep. [`crate::Connection::wait_or`] does. Who wakes it:
//!
//! | wire | who | what that costs while the receiver is awake |
//! |---|---|---|
//! | `shm` | the sender, behind its write, if the receiver has said that it sleeps: the word that messages look at too | a fence and a load |
//! | `tcp` | the receiver's own responder, behind a write to registered boxes; an owner that drives sleeps on the socket anyway | a load |
//! | `verbs` | the adapter: there the write carries an immediate, [`IMMEDIATE`], to be ignored | a receive request |
//! | `sim` | the network, which wakes whoever sleeps at every post | nothing |
//!
//! A flag in the sender's memory, written one-sidedly by a receiver that is about to sleep, would
//! save the immediate on `verbs`; but a receiver cannot know when the sender has seen it, and would
//! have to wait a round trip before each sleep.

mod layout;
mod receive;
mod send;

pub use self::{receive::PostBoxes, send::PostSender};
use crate::{
    error::{OutOfBounds, PostError, RegionError},
    limits::{POST_BODY_BYTES_MAX, POST_BOXES_MAX, REGION_ALIGNMENT_BYTES},
};

/// What a receiver's `poll` (or inbox) reports beside a message in a box on wires where nothing
/// else wakes it. It says nothing more.
pub const IMMEDIATE: u32 = u32::from_le_bytes(*b"POST");

/// Boxes begin at multiples of this, so that the word which is looked at shares its cache line with
/// what is read next.
const BOX_ALIGNMENT_BYTES: usize = 64;

/// How many boxes, and for how long messages. Both ends must have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostShape {
    boxes: usize,
    body_bytes_max: usize,
}

impl PostShape {
    /// `boxes` boxes for messages of at most `body_bytes_max` bytes.
    ///
    /// # Errors
    /// [`PostBoxError::Shape`] if it has none, or more than [`POST_BOXES_MAX`] and
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

    /// Registered memory of one end, in bytes.
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
    /// A shape that cannot be.
    #[error(
        "{boxes} boxes for {body_bytes_max} bytes each, expected 1 to {POST_BOXES_MAX} for 1 to {POST_BODY_BYTES_MAX}"
    )]
    Shape {
        /// Number of boxes.
        boxes: usize,
        /// Bytes for each.
        body_bytes_max: usize,
    },
    /// The peer's memory is shorter than its boxes.
    #[error(
        "the peer names {bytes} bytes of boxes, expected at least {needed_bytes}: both ends need the same shape"
    )]
    RemoteTooShort {
        /// Its length.
        bytes: u64,
        /// What the boxes take.
        needed_bytes: usize,
    },
    /// There is no such box.
    #[error("box {index} of {boxes}")]
    NoSuchBox {
        /// Which.
        index: usize,
        /// How many there are.
        boxes: usize,
    },
    /// A message that fits in no box.
    #[error("a message of {bytes} bytes, a box takes {bytes_max}: send it as a message of the connection")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// What a box takes.
        bytes_max: usize,
    },
    /// There is no memory for them.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The image lies outside of its memory.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// The write was not accepted; nothing has happened.
    #[error(transparent)]
    Post(#[from] PostError),
}
