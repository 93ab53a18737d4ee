//! Sends messages by writing them one-sidedly into a peer's boxes, which the peer polls.
//!
//! Invariants
//! - One message is one write of its whole encoding. Nothing is allocated for a message: each box
//!   has reused memory here, in which its next message is encoded.
//! - A message whose write was not accepted uses no sequence number.

use super::{IMMEDIATE, PostBoxError, PostShape, layout};
use crate::{
    connection::Connection,
    operation::Operation,
    region::{Region, RemoteRegion},
};

/// Writes into the boxes that a peer keeps for us. There must be only one sender for the life of
/// the boxes, because it counts their messages.
#[derive(Debug)]
pub struct PostSender {
    remote: RemoteRegion,
    shape: PostShape,
    /// The images of messages, at the same offsets as the peer's boxes.
    images: Region,
    /// The sequence number of each box's next message.
    next: Vec<u64>,
}

impl PostSender {
    /// A sender for boxes that the peer has just made, with the name and shape that it has sent.
    ///
    /// # Errors
    /// When the boxes do not fit into `remote`, or there is no memory for images.
    pub fn new(remote: RemoteRegion, shape: PostShape) -> Result<Self, PostBoxError> {
        let needed_bytes = shape.region_bytes();
        if remote.length < needed_bytes as u64 {
            return Err(PostBoxError::RemoteTooShort { bytes: remote.length, needed_bytes });
        }
        let images = Region::allocate(needed_bytes)?;
        Ok(Self { remote, shape, images, next: vec![layout::FIRST_SEQUENCE; shape.boxes()] })
    }

    /// The shape of the boxes.
    #[must_use]
    pub fn shape(&self) -> PostShape {
        self.shape
    }

    /// Writes a message into a box whose previous message the peer has taken, as its answer shows.
    /// The boxes must be registered with `connection`, which will report the write's completion
    /// under `id`. A peer that sleeps is woken.
    ///
    /// # Errors
    /// When there is no such box, the message is too long for it, or the write is not accepted;
    /// then nothing has happened.
    pub fn send(
        &mut self,
        connection: &mut Connection,
        id: u64,
        index: usize,
        body: &[u8],
    ) -> Result<(), PostBoxError> {
        let (boxes, bytes_max) = (self.shape.boxes(), self.shape.body_bytes_max());
        let Some(sequence) = self.next.get_mut(index) else {
            return Err(PostBoxError::NoSuchBox { index, boxes });
        };
        if body.len() > bytes_max {
            return Err(PostBoxError::TooLong { bytes: body.len(), bytes_max });
        }
        let at = self.shape.offset_of(index);
        let length = layout::put(&self.images, at, *sequence, body)?;
        let (source, target, target_offset) = (self.images.slice(at, length)?, self.remote, at as u64);
        if connection.wire().write_wakes_nobody() {
            let immediate = IMMEDIATE;
            connection
                .post(id, Operation::WriteWithImmediate { source, target, target_offset, immediate })?;
        } else {
            connection.post(id, Operation::Write { source, target, target_offset })?;
            connection.wake();
        }
        *sequence = layout::next(*sequence);
        Ok(())
    }
}
