//! Slots: memory that contains the newest committed version of each key, and that clients read
//! one-sidedly.
//!
//! - `layout`: the bytes of a slot, and the checks of a reader.
//! - `area`: allocates slots, and orders the writes to them.

mod area;
mod layout;

pub(crate) use area::Slot;
pub use area::{Place, SlotArea, SlotMemory, SlotVector};
pub use layout::{SlotFault, decode, image_bytes};

#[cfg(test)]
mod tests;
