//! The part of a node in transactions: the participant stores keys, their versions and the log, and
//! answers clients and other participants.
//!
//! ```text
//! request/transact -> access --(on the first reactor)----> service: ramp's Participant --batches--> log thread (writer) --> transactions.log
//!                        \----(on others, by message queue)--/   \--> slots in registered memory           |
//!                     replies <-- acknowledged <-- durability <-- position that is on the disk <----------+
//! ```
//!
//! - `access`: passes requests from any reactor to the participant, and its replies back. `caller`:
//!   identifies requests.
//! - `service`: the participant in the first reactor. `clients`: the connection of each client;
//!   when it closes, the client counts as gone. `endings`, `in_doubt`: end transactions whose
//!   coordinator is gone; `ask`: asks the other participants for outcomes. `slots`: memory that
//!   peers read one-sidedly.
//! - `writer`: the thread of the log, which sends each `report`. `compaction`: replaces the log by
//!   a shorter one. `log_file`: operations on its files. `durability`: decides what counts as
//!   durable.
//! - `copying`: replicates the log to other nodes. `recovery`: recovers a lost log, or its damaged
//!   end (`lost_end`), from replicas; `arrival` then hands the participant to the first reactor.
//! - `files`: opens the participant's files at the start. `reader`: reads a log piece by piece.
//!   `cut_file`: saves what was cut off the log.
//! - `shared`: the state of the participant that all reactors see.
//!
//! Invariants
//! - The participant belongs to the first reactor's thread, and the log's file to the log's thread.
//!   They communicate by a bounded queue and a message queue.
//! - Nothing is acknowledged before it is durable ([`durability`]). On the disk, only records that
//!   were never acknowledged are changed.

mod access;
mod arrival;
mod ask;
mod caller;
mod clients;
mod compaction;
mod copying;
mod cut_file;
mod durability;
mod endings;
mod error;
mod files;
mod in_doubt;
mod log_file;
mod lost_end;
#[cfg(test)]
mod memory_disk;
mod reader;
mod recovery;
mod report;
mod service;
mod shared;
mod slots;
mod writer;

pub(crate) use access::{FirstParticipant, ParticipantAccess};
pub(crate) use caller::{Caller, ParticipantRequest, is_answered};
pub(crate) use cut_file::keep_in as keep_cut;
pub use error::ParticipantFileError;
pub(crate) use files::{Opened, log_files, open};
pub(crate) use log_file::{LogFile, is_full};
pub(crate) use report::Report;
pub(crate) use shared::{Charge, ParticipantShared};
