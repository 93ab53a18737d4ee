//! How does a table survive the loss of nodes?
//!
//! ```text
//! load     what was appended -> streams -> parity -> map to every node -> prepare, commit                      (protect, parity)
//!          parity is computed by the nodes as they relay what they have to each other                          (relays); or by the client
//! catalog  parts of nodes that are away come from maps                                                        (map)
//! fetch    pages of a lost node: the same ranges of the survivors' cells, XORed, checked as if they were read  (reconstruct, together)
//!          what many of them need is read with few requests, as for repairs                                    (intervals, plans, gather)
//! corrupt  a page that is corrupt, or whose node has lost its part: reconstructed like one of a lost node, and repaired              (corruption, page_repair)
//! scrub    every node checks what it has; what is corrupt comes back from others, many places at a time                        (scrub, corrupt, repair, pace)
//! rebuild  a node without its part takes the extents again; others relay to it what it had, and what is left is repaired (rebuild, stripe_rebuild)
//! ```
//!
//! Where which cell lies is pure code (`layout`, `stripes`).

mod beyond;
mod corrupt;
mod corruption;
mod gather;
mod intervals;
mod layout;
mod map;
mod pace;
mod page_repair;
mod parity;
mod plans;
mod protect;
mod read;
mod rebuild;
mod reconstruct;
mod relays;
mod repair;
mod scrub;
mod stripe_rebuild;
mod stripes;
mod together;

pub(crate) use map::KnownMaps;
pub(crate) use page_repair::Repairing;
pub(crate) use protect::Sets;

pub use pace::{RepairListener, RepairProgress};
pub use page_repair::CorruptPages;
pub use rebuild::{RebuildReport, RebuiltTable};
pub use scrub::{Findings, ScrubOptions, ScrubReport};
