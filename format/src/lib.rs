//! What do our bytes mean, on disk and on the wire?
//!
//! ```text
//! table   -- split by a hash of the partition key --> nodes
//! segment    131,072 rows, wholly on one node, immutable      (segment)
//!   chunk    one column of it                                 (chunk)
//!     page   the unit of IO, checksum and zone map: 128 KiB   (page)
//!       block  1,024 rows, the unit of packing and evaluation (encoding)
//!
//! derived    what is written with rows: indexes, keys, sums   (derived)
//! key filter the keys that a join above a scan still wants    (key_filter)
//! withheld   the rows of a segment that are not there any more (withheld)
//! stripe set streams of nodes and the parity over them; map of a table (stripe_set)
//! program    what a scan computes, sent to where the pages are (program)
//! message    requests and replies between client and node      (message)
//! ```
//!
//! This crate knows no IO, no threads and no SQL. Everything that comes from a disk or a peer is
//! checked here before the rest of the project sees it. The documents behind it: `docs/formats.md`.

#![forbid(unsafe_code)]

pub mod chunk;
pub mod codec;
pub mod derived;
pub mod encoding;
pub mod home;
pub mod ids;
pub mod key_filter;
pub mod label;
pub mod limits;
pub mod message;
pub mod page;
pub mod program;
pub mod row_key;
pub mod row_place;
pub mod schema;
pub mod segment;
pub mod simd;
pub mod stripe_set;
pub mod withheld;
pub mod zone;
