//! How does a node keep its part of transactions?
//!
//! ```text
//! request/transact -> access --(first reactor)--> service: ramp's Home --batches--> log thread (writer) --> transactions.log
//!                        \---(others, by mail)---/    \--> slots in registered memory           |
//!                     replies <-- those that may go <-- durability <-- what is on the disk <----+
//! ```
//!
//! - `access`: how a request of any reactor reaches the home, and its replies the request.
//! - `service`: the home in the first reactor. `clients`: what clients leave there. `endings`,
//!   `orphans`: how it is ended; `ask`: how others are asked for that. `slots`: where peers read by
//!   themselves.
//! - `writer`: the thread of the log. `compaction`: how it makes a shorter one. `log_file`: the
//!   file below it. `durability`: what counts as durable.
//! - `copying`: how other nodes come to have copies of the log. `recovery`: how the log comes back
//!   from them if it is lost, or its end damaged (`lost_end`), and `arrival` how its home then
//!   comes to the first reactor.
//! - `files`: which files there are, and what a start makes of them. `reader`: a log, piece by
//!   piece. `cut_file`: what was cut off it.
//! - `shared`: what all reactors know of the home.
//!
//! Invariants
//! - The home belongs to the first reactor's thread, the log's file to the log's thread; they talk
//!   by a bounded queue and mail.
//! - Nothing is acknowledged that is not durable ([`durability`]); nothing that is on the disk is
//!   changed but what was never acknowledged.

mod access;
mod arrival;
mod ask;
mod clients;
mod compaction;
mod copying;
mod cut_file;
mod durability;
mod endings;
mod files;
mod log_file;
mod lost_end;
#[cfg(test)]
mod memory_disk;
mod orphans;
mod reader;
mod recovery;
mod service;
mod shared;
mod slots;
mod writer;

pub(crate) use access::{Asked, Caller, FirstHome, HomeAccess, is_answered};
pub(crate) use cut_file::keep_in as keep_cut;
pub use files::HomeFileError;
pub(crate) use files::{Opened, log_files, open};
pub(crate) use log_file::{LogFile, is_full};
pub(crate) use shared::{Charge, HomeShared};
pub(crate) use writer::Report;
