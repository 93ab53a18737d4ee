//! Receives the messages that a peer has written into our boxes (memory that the peer writes and we
//! poll).
//!
//! Invariants
//! - Checking an empty box takes one load. Whatever the peer has written, the check takes at most a
//!   copy and a checksum of one box.
//! - A message is handed out once, from private memory.
//! - Boxes take turns, so that a box that is always full does not starve the others.

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
    /// The sequence number of each box's next message.
    expected: Vec<u64>,
    /// The box that is polled first.
    turn: usize,
    /// The body of the message that was found last; `found` is set until it is handed out.
    body: Vec<u8>,
    found: Option<FoundMessage>,
}

/// A message in `body` that was not handed out.
#[derive(Debug, Clone, Copy)]
struct FoundMessage {
    index: usize,
    length: usize,
}

impl PostBoxes {
    /// Empty boxes in fresh memory of their own. Remains in used memory could carry the expected
    /// number.
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
            found: None,
        })
    }

    /// Lets the peer of a connection write the boxes, and returns their name for the peer. From
    /// then on a write to them wakes the connection's owner.
    ///
    /// # Errors
    /// As [`Connection::register`].
    pub fn register(&self, connection: &mut Connection) -> Result<RemoteRegion, RegisterError> {
        connection.register_to_wake(&self.region)
    }

    /// The shape of the boxes.
    #[must_use]
    pub fn shape(&self) -> PostShape {
        self.shape
    }

    /// Whether some box holds a message, which [`PostBoxes::next`] then returns. Call it between
    /// `arm` and sleep.
    pub fn look(&mut self) -> bool {
        if self.found.is_some() {
            return true;
        }
        let boxes = self.shape.boxes();
        (0..boxes).any(|step| {
            let index = self.turn + step;
            self.find_in(if index < boxes { index } else { index - boxes })
        })
    }

    /// As [`PostBoxes::look`], for one box: for a receiver that takes messages box by box
    /// ([`PostBoxes::poll`]) and must ignore the other boxes.
    pub fn look_at(&mut self, index: usize) -> bool {
        self.found.is_some_and(|found| found.index == index) || self.find_in(index)
    }

    /// The next message of any box, with the index of the box. Never waits.
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

    /// Copies the message of a box to `body`, if it is complete.
    fn find_in(&mut self, index: usize) -> bool {
        let Some(sequence) = self.expected.get(index) else { return false };
        let at = self.shape.offset_of(index);
        // A message in `body` that was not handed out is still in its box, so it may be
        // overwritten.
        let length = layout::take(&self.region, at, *sequence, &mut self.body);
        self.found = length.map(|length| FoundMessage { index, length });
        length.is_some()
    }

    fn hand_out(&mut self) -> Option<(usize, &[u8])> {
        let FoundMessage { index, length } = self.found.take()?;
        let sequence = self.expected.get_mut(index)?;
        *sequence = layout::next(*sequence);
        self.turn = if index + 1 < self.shape.boxes() { index + 1 } else { 0 };
        self.body.get(..length).map(|body| (index, body))
    }
}
