//! Read-atomic multi-partition (RAMP) transactions: what a transaction writes becomes visible to
//! every other transaction completely or not at all, without locks.
//!
//! The algorithms are those of Bailis et al. (2014), with reads by RDMA as in Murata, Kawashima and
//! Tatebe (2017). This crate contains only the logic of the protocol: it opens no connections and
//! no files, starts no threads and reads no clocks. Its users deliver the messages, write the log
//! and pass the time.
//!
//! ```text
//! client                                    participant (the node that keeps a key and its versions)
//! algorithm  -- message::Request -->        participant --> store      versions of keys; the newest ones also in slots
//!            <-- message::Reply --            |  --> locks      only for two-phase locking
//! slot       -- one-sided read -->            |  --> log        records that survive a crash
//! feed       -- one-sided read -->            \----> feed       the same records, for readers that follow all writes
//! ```
//!
//! A *part* is what a transaction writes at one participant. A *slot* is memory with the newest
//! committed version of one key, which clients read one-sidedly. A *life* is the time from one
//! start of a participant to the next; each life has its own number. A *lease* protects the
//! superseded versions that a reader may still need.
//!
//! - [`timestamp`]: orders transactions by hybrid logical clocks.
//! - [`item`]: keys, values and versions. [`bloom`]: filters of keys.
//! - [`message`]: requests and replies between clients and participants.
//! - [`algorithm`]: coordinates one transaction: which messages it sends, how it ends, and which
//!   metadata its versions carry (`choice`).
//! - [`participant`]: serves requests at a participant. [`store`]: its versions. [`locks`]: its
//!   locks.
//! - [`slot`]: the byte layout of slots.
//! - [`log`]: the records that a participant writes, and its recovery from them.
//! - [`termination`]: ends a transaction whose coordinator has failed.
//! - [`closing`]: closes a key prefix permanently, before its items are moved elsewhere.
//! - [`feed`]: lets readers follow what a participant writes, without sending it requests.
//! - [`history`]: checks recorded histories of transactions for violations of atomicity.
//! - [`limits`]: all bounds. [`utc`]: prints clock readings.
//!
//! An example: a transaction wrote two keys. A read that finds one of its versions and an older
//! version of the other key asks for the missing one.
//!
//! ```
//! use rackscan_ramp::algorithm::{Algorithm, Cluster, Event, Message, Step};
//! use rackscan_ramp::item::{Key, Value, Version};
//! use rackscan_ramp::message::{Epoch, Found, LeaseId, ParticipantId, Reply, Request};
//! use rackscan_ramp::timestamp::{ClientId, Timestamp};
//!
//! struct OneKeyEach;
//! impl Cluster for OneKeyEach {
//!     fn participant(&self, key: &Key) -> ParticipantId { ParticipantId(key.bytes()[0].into()) }
//!     fn lease(&self, at: ParticipantId) -> LeaseId { LeaseId { life: 1, number: at.0.into() } }
//! }
//! let keys = [Key::new(b"a")?, Key::new(b"b")?];
//! let [old, new] = [3, 5].map(|time| Timestamp { time, client: ClientId(1) });
//! let (mut read, messages) = Algorithm::Fast.begin_read(new, &keys, &OneKeyEach)?;
//! let mut step = Step::default();
//! for ((message, key), timestamp) in messages.iter().zip(&keys).zip([new, old]) {
//!     let metadata = Algorithm::Fast.metadata(&keys);
//!     let version = Version { timestamp, metadata, value: Value::DELETED };
//!     let items = vec![(key.clone(), Found { version, beside: Vec::new(), place: None })];
//!     let reply = Reply::Found { items, epoch: Epoch(0) };
//!     step = read.step(Event::Reply { from: message.to, reply });
//! }
//! let Message { to, request } = step.messages.pop().ok_or("no second round")?;
//! assert_eq!(to, ParticipantId(b'b'.into()));
//! assert!(matches!(request, Request::Among { timestamps, .. } if timestamps == [new]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod algorithm;
pub mod bloom;
mod bytes;
pub mod closing;
pub mod feed;
mod fingerprint;
pub mod history;
pub mod item;
pub mod limits;
mod list;
pub mod locks;
pub mod log;
pub mod message;
pub mod participant;
pub mod slot;
pub mod store;
pub mod termination;
pub mod timestamp;
pub mod utc;
