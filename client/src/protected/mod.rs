//! Parity: protects tables against the loss of nodes, reconstructs lost and corrupt pages, and
//! rebuilds nodes.
//!
//! ```text
//! load     appended segments -> streams -> parity -> map to every node -> prepare, commit                       (protect, parity)
//!          the nodes compute the parity and relay cells to each other                                           (relays); or the client computes it
//! catalog  the parts of unavailable nodes come from maps                                                        (map)
//! fetch    pages of a lost node: the same ranges of surviving cells, XORed, then verified like pages that were read  (reconstruct, together)
//!          ranges that several pages need are read with few requests, as for repairs                            (intervals, plans, gather)
//! corrupt  a page that is corrupt, or whose node has lost its part, is reconstructed like one of a lost node, and repaired  (corruption, page_repair)
//! scrub    every node verifies its own places; corrupt ones are repaired from other nodes, many at a time       (scrub, corrupt, repair, pace)
//! rebuild  a node without its part reserves the same extents again; others relay its cells to it; the remainder is repaired  (rebuild, stripe_rebuild)
//! ```
//!
//! `layout` and `stripes` compute where each cell lies; they do no IO.

mod background_repairs;
mod corrupt;
mod corruption;
mod gather;
mod intervals;
mod known_maps;
mod layout;
mod load_stripes;
mod lost_bytes;
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

pub(crate) use background_repairs::BackgroundRepairs;
pub(crate) use known_maps::KnownMaps;
pub(crate) use load_stripes::LoadStripes;

pub use background_repairs::CorruptPages;
pub use pace::{RepairListener, RepairProgress};
pub use rebuild::{RebuildReport, RebuiltTable};
pub use scrub::{Findings, ScrubOptions, ScrubReport};
