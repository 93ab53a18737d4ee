//! How is a message written into a peer's box?
//!
//! Invariants
//! - One message is one write, of the whole image. Nothing is allocated for it: images are made in
//!   memory that is used again, a place for each box.
//! - A message whose write was not accepted has used no number.

use super::{IMMEDIATE, PostBoxError, PostShape, layout};
use crate::{
    address::Wire,
    connection::Connection,
    operation::Operation,
    region::{Region, RemoteRegion},
};

/// Writes into the boxes that a peer keeps for us. There must be only one for the life of those
/// boxes: it counts their messages.
#[derive(Debug)]
pub struct PostSender {
    remote: RemoteRegion,
    shape: PostShape,
    /// Images, where the peer has its boxes.
    images: Region,
    /// The number that each box's next message has.
    next: Vec<u64>,
}

impl PostSender {
    /// A sender for boxes that the peer has just made: `remote` and `shape` are what it says of
    /// them.
    ///
    /// # Errors
    /// When they cannot lie there, or there is no memory for images.
    pub fn new(remote: RemoteRegion, shape: PostShape) -> Result<Self, PostBoxError> {
        let needed_bytes = shape.region_bytes();
        if remote.length < needed_bytes as u64 {
            return Err(PostBoxError::RemoteTooShort { bytes: remote.length, needed_bytes });
        }
        let images = Region::allocate(needed_bytes)?;
        Ok(Self { remote, shape, images, next: vec![layout::FIRST_SEQUENCE; shape.boxes()] })
    }

    /// Their shape.
    #[must_use]
    pub fn shape(&self) -> PostShape {
        self.shape
    }

    /// Writes a message into a box whose last message the peer has taken, which its answer says.
    /// `connection` is the one that the boxes are registered with; it will report the write's
    /// completion under `id`. A peer that sleeps is woken.
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
        if connection.wire() == Wire::Verbs {
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
