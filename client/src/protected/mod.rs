//! Protects tables by parity against the loss of nodes: computes the parity, reconstructs lost and
//! corrupt pages, and rebuilds nodes.
//!
//! ```text
//! load     appended segments -> streams -> parity -> map to every node -> prepare, commit               (protect, parity)
//!          the nodes compute the parity and relay cells to each other (relays), or the client computes it
//! catalog  the parts of unavailable nodes are taken from maps                                           (map)
//! fetch    pages of a lost node: the same ranges of surviving cells are XORed, and the result verified  (reconstruct, together)
//!          ranges that several pages need are read with few requests, as for repairs                    (intervals, plans, gather)
//! corrupt  a page that is corrupt, or that its node has lost, is reconstructed and repaired             (corruption, page_repair)
//! scrub    every node verifies its own places; corrupt ones are repaired from other nodes               (scrub, corrupt, repair, pace)
//! rebuild  a node that lost its part reserves the same extents again; other nodes relay its cells to it;
//!          what they cannot relay is repaired place by place                                            (rebuild, stripe_rebuild, pace)
//! ```
//!
//! Words: a *stream* is all pages that a load wrote on one node; a *stripe set* is the streams of
//! all nodes with the parity over them; a *map* describes a table and its sets; a *place* is a page
//! or a parity cell of a node; a *survivor* is a node whose cells are still there.
//!
//! `streams` and `stripes` compute where each cell lies; they do no IO.

mod background_repairs;
mod corrupt;
mod corruption;
mod gather;
mod intervals;
mod known_maps;
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
mod streams;
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
