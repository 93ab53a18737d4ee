//! Slots: the newest committed versions in registered memory, where clients read them one-sidedly.
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
