//! A node's part in transactions: the participant keeps keys, their versions and the log, and
//! answers clients and other participants.
//!
//! ```text
//! request/transact -> access --(first reactor)--> service: ramp's Participant --batches--> log thread (writer) --> transactions.log
//!                        \---(others, by mail)---/    \--> slots in registered memory           |
//!                     replies <-- acknowledged <-- durability <-- position that is on the disk <-+
//! ```
//!
//! - `access`: passes requests of any reactor to the participant, and its replies back. `caller`:
//!   names them.
//! - `service`: the participant in the first reactor. `clients`: the connection of each client,
//!   whose end is the client's. `endings`, `in_doubt`: end transactions without a coordinator;
//!   `ask`: asks the other participants for that. `slots`: memory that peers read directly.
//! - `writer`: the thread of the log; it sends a `report`. `compaction`: makes a shorter log.
//!   `log_file`: the file below it. `durability`: decides what counts as durable.
//! - `copying`: keeps log replicas in other nodes. `recovery`: recovers a lost log from them, or
//!   its damaged end (`lost_end`); `arrival` then hands the participant to the first reactor.
//! - `files`: the files of a participant, and what a start makes of them. `reader`: reads a log
//!   piece by piece. `cut_file`: keeps what was cut off it.
//! - `shared`: the state of the participant that all reactors see.
//!
//! Invariants
//! - The participant belongs to the first reactor's thread, and the log's file to the log's thread.
//!   They communicate by a bounded queue and mail.
//! - Nothing is acknowledged before it is durable ([`durability`]). Nothing on the disk is changed
//!   except records that were never acknowledged.

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
