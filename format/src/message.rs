//! Defines the requests and replies between clients and storage nodes.
//!
//! A request is one message of the fabric. The node writes a bulk answer (pages, rows, a catalog)
//! one-sidedly into the requester's memory, which the request describes by a [`Target`]. Then it
//! sends a reply, which is again one message. Requests are stateless, except those of transactions
//! (leases, locks, prepared writes) and of holds: the node keeps no state of a client between
//! requests, so a lost client leaves nothing behind. An answer that does not fit the target ends
//! early and says where to continue.
//!
//! | file | contents |
//! |---|---|
//! | `request`, `answer` | the two central enums |
//! | `exchange`, `bounds` | encode and decode them; check the limits of decoded requests |
//! | `target`, `catalog` | what several requests use |
//! | all others | the contents of one kind of request each |
//!
//! Invariants
//! - A reply carries the request's number; replies may come in any order.
//! - A message may also be written one-sidedly into memory that the receiver polls
//!   (`rackscan_fabric::post`). Such a message has the same bytes, and it refers to no bytes
//!   outside itself, because only sent messages are ordered after one-sided writes.
//! - When a reply arrives, every byte that it reports is already in the target.
//! - The node checks each count, offset and length of a request before it uses it; the client does
//!   the same with a reply.

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
