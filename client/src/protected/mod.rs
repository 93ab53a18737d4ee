//! How does a table survive the loss of nodes?
//!
//! ```text
//! load     what was appended -> streams -> parity computed, appended -> map to every node -> prepare, commit   (protect, parity)
//! catalog  parts of nodes that are away come from maps                                                        (map)
//! fetch    pages of a lost node: the same ranges of the survivors' cells, XORed, checked as if they were read  (reconstruct)
//! ```
//!
//! Where which cell lies is pure code (`layout`, `stripes`).

mod layout;
mod map;
mod parity;
mod protect;
mod read;
mod reconstruct;
mod stripes;

pub(crate) use map::KnownMaps;
pub(crate) use protect::Sets;
