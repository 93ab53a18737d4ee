//! The requests and replies between clients and storage nodes.
//!
//! A request is one message of the fabric. Its bulk answer (pages, rows, a catalog) is written
//! one-sidedly into the memory that the request's [`Target`] names; then a reply follows, which is
//! again one message. Requests are stateless, except those of transactions (leases, locks, prepared
//! writes): the node keeps no state of a client between requests, so a lost client leaves nothing
//! behind. An answer that does not fit the target ends early and says where to continue.
//!
//! `request` and `answer` are the two central enums, `exchange` encodes and decodes them, `bounds`
//! checks the limits of decoded requests, and `target` and `catalog` hold what several requests
//! share. The other files hold the payloads of one kind of request each.
//!
//! Invariants
//! - A reply carries the request's number; replies may come in any order.
//! - A message in a box (`rackscan_fabric::post`) has the bytes of the message that would otherwise
//!   be sent, and it refers to no bytes outside itself: only sent messages are ordered after
//!   one-sided writes.
//! - When a reply arrives, every byte that it reports is already in the target.
//! - The node checks each count, offset and length of a request before use; so does the client with
//!   those of a reply.

mod answer;
mod bounds;
mod bridge;
mod cache;
mod catalog;
mod copies;
mod cost;
mod exchange;
mod hold;
mod identity;
mod page_read;
mod protect;
mod raw;
mod refusal;
mod relay;
mod repair;
mod request;
mod status;
mod target;
mod transact;

pub use crate::segment::NodeSegment;
pub use answer::Answer;
pub use bridge::{BridgeKind, BridgeStatus, IoKind};
pub use cache::{CachePlace, CacheRegion, CacheStatus};
pub use catalog::{NodeCatalog, NodeTable};
pub use copies::{CopyHeld, CopyOfLog, KeepLog, LogGeneration, LogKept, LogPoint};
pub use cost::{Cost, LoadReport};
pub use exchange::{PROTOCOL_VERSION, ReplyMessage, RequestMessage};
pub use hold::HoldTables;
pub use identity::{FolderIdentity, STARTS_KEPT, SeenStart, Start, StartHistory};
pub use page_read::PageRead;
pub use protect::{AppendParity, KeepMap, LoadHeld, ReadMap, ReserveParity};
pub use raw::{RawRead, RawWrite, ScratchArea};
pub use refusal::{BounceReason, Refusal, RefusalCode};
pub use relay::{RelayStatus, RelayedTo};
pub use repair::{Adopt, Repair, Verified, Verify};
pub use request::{PageWanted, Request};
pub use status::{DeviceStatus, NodeCounters, NodeStatus};
pub use target::Target;
pub use transact::{ParticipantRegion, ParticipantStatus, Payload};
