//! What has a peer written into our boxes?
//!
//! Invariants
//! - Looking at a box takes a load if it is empty, and nothing that the peer may have written can
//!   make it more than a copy and a checksum of one box.
//! - A message is handed out once, from private memory.
//! - Boxes take turns, so that one that is always full keeps no other waiting.

use super::{PostBoxError, PostShape, layout};
use crate::{
    connection::Connection,
    error::RegisterError,
    region::{Region, RemoteRegion},
};

/// The boxes that one peer writes: memory that is registered with its connection and no other.
#[derive(Debug)]
pub struct PostBoxes {
    region: Region,
    shape: PostShape,
    /// The number that each box's next message has.
    expected: Vec<u64>,
    /// The box that is looked at first.
    turn: usize,
    /// The message that was looked at last, and which box holds it if it was not handed out yet.
    body: Vec<u8>,
    seen: Option<Seen>,
}

/// A message that is in `body` and was not handed out.
#[derive(Debug, Clone, Copy)]
struct Seen {
    index: usize,
    length: usize,
}

impl PostBoxes {
    /// Empty boxes in memory of their own, which is fresh: what is left in other memory might have
    /// the number that is expected.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn new(shape: PostShape) -> Result<Self, PostBoxError> {
        Ok(Self {
            region: Region::allocate(shape.region_bytes())?,
            shape,
            expected: vec![layout::FIRST_SEQUENCE; shape.boxes()],
            turn: 0,
            body: vec![0; shape.body_bytes_max()],
            seen: None,
        })
    }

    /// Lets the peer of a connection write the boxes, and names them for it. From then on a write
    /// there wakes the connection's owner.
    ///
    /// # Errors
    /// As [`Connection::register`].
    pub fn register(&self, connection: &mut Connection) -> Result<RemoteRegion, RegisterError> {
        connection.register_to_wake(&self.region)
    }

    /// Their shape.
    #[must_use]
    pub fn shape(&self) -> PostShape {
        self.shape
    }

    /// Whether some box holds a message, which [`PostBoxes::next`] then hands out. To be asked
    /// between `arm` and sleep.
    pub fn look(&mut self) -> bool {
        if self.seen.is_some() {
            return true;
        }
        let boxes = self.shape.boxes();
        (0..boxes).any(|step| {
            let index = self.turn + step;
            self.see(if index < boxes { index } else { index - boxes })
        })
    }

    /// As [`PostBoxes::look`], for one box: for a receiver that takes them one behind the other
    /// ([`PostBoxes::poll`]), whom what lies in another box does not concern.
    pub fn look_at(&mut self, index: usize) -> bool {
        self.seen.is_some_and(|seen| seen.index == index) || self.see(index)
    }

    /// The next message in any box, and which box that is. Never waits.
    #[expect(
        clippy::should_implement_trait,
        reason = "what is handed out is borrowed, which no iterator allows"
    )]
    pub fn next(&mut self) -> Option<(usize, &[u8])> {
        if !self.look() {
            return None;
        }
        self.hand_out()
    }

    /// The next message in one box. Never waits. A box that does not exist holds none.
    pub fn poll(&mut self, index: usize) -> Option<&[u8]> {
        if !self.look_at(index) {
            return None;
        }
        self.hand_out().map(|(_, body)| body)
    }

    /// Copies the message of a box to `body`, if all of it is there.
    fn see(&mut self, index: usize) -> bool {
        let Some(sequence) = self.expected.get(index) else { return false };
        let at = self.shape.offset_of(index);
        // What was seen before is still in its box, so it may be overwritten.
        let length = layout::take(&self.region, at, *sequence, &mut self.body);
        self.seen = length.map(|length| Seen { index, length });
        length.is_some()
    }

    fn hand_out(&mut self) -> Option<(usize, &[u8])> {
        let Seen { index, length } = self.seen.take()?;
        let sequence = self.expected.get_mut(index)?;
        *sequence = layout::next(*sequence);
        self.turn = if index + 1 < self.shape.boxes() { index + 1 } else { 0 };
        self.body.get(..length).map(|body| (index, body))
    }
}
