//! The delta store: the changed rows of a table that are in no segment yet.
//!
//! Segments never change. Rows that are inserted, updated or deleted are items of read-atomic
//! transactions (`rackscan_ramp`), each under a key that identifies its row. A reader that scans a
//! table follows the writes of all participants, and so has, for each point in time, a consistent
//! set of rows. This crate contains only computations: it opens no connections and no files, reads
//! no clocks, and does not scan rows.
//!
//! ```text
//! statement -> rows with their identities -> items of one transaction -> participants     [identity], [row]
//! participants -> their feeds -> [replica]: a copy of all changed rows -> the delta store of a table
//! delta store -> [layer]: rows withheld from segments, and [run]s: segments in memory -> scans
//! delta store -> [flushed]: segments of a new table version, and rows withheld from the segments that it takes over
//! changed rows -> entries of indexes, foreign keys and sums, in the same transaction, visible with them or not at all     [derived]
//! ```
//!
//! `table_rows` contains the changed rows of one table; [`limits`] has the bounds of this crate.
//!
//! An example: two participants have prepared a transaction. As soon as one of them reports its
//! commit, the rows of both are visible.
//!
//! ```
//! use rackscan_delta::{identity::RowIdentity, replica::Replica};
//! use rackscan_format::ids::{SegmentId, TableId};
//! use rackscan_ramp::item::{Metadata, Value};
//! use rackscan_ramp::log::Record;
//! use rackscan_ramp::message::{Guard, Part, ParticipantId};
//! use rackscan_ramp::timestamp::{ClientId, Timestamp};
//!
//! let (table, timestamp) = (TableId(7), Timestamp { time: 1, client: ClientId(1) });
//! let participants = vec![ParticipantId(0), ParticipantId(1)];
//! let mut replica = Replica::new();
//! for participant in participants.clone() {
//!     let row = RowIdentity::Stored { segment: SegmentId(participant.0.into()), row: 3 };
//!     let items = vec![(row.key(table).ok_or("too long")?, Value::DELETED)];
//!     let (guard, metadata) = (Guard::Open, Metadata::Timestamp);
//!     let part = Part { timestamp, participants: participants.clone(), guard, metadata, items };
//!     replica.record(participant, Record::Prepare(part))?;
//! }
//! assert!(replica.round_ended()? && replica.is_open(table));
//! assert!(replica.table(table).is_none());
//!
//! replica.record(ParticipantId(1), Record::Commit(timestamp))?;
//! assert!(replica.round_ended()? && !replica.is_open(table));
//! assert_eq!(replica.take_changed(table).len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod derived;
pub mod flushed;
pub mod identity;
pub mod layer;
pub mod limits;
pub mod replica;
pub mod row;
pub mod run;
mod table_rows;
