//! Where does the committed version of a key lie for readers who do not ask, and is what they read
//! whole?
//!
//! - `layout`: the bytes of a slot, and what a reader checks.
//! - `area`: which slots there are, and in which order their bytes change.

mod area;
mod layout;

pub(crate) use area::Slot;
pub use area::{Place, SlotArea, SlotMemory, SlotVector};
pub use layout::{SlotFault, decode, image_bytes};

#[cfg(test)]
mod tests;
