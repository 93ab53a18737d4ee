//! What do a client and a storage node say to each other?
//!
//! A request is one message of the fabric; its bulk answer (pages, rows, a catalog) is written
//! one-sidedly into the memory named by its [`Target`], and a reply, again one message, follows.
//! Requests are stateless, but for those of transactions (leases, locks, what is prepared): the
//! node remembers nothing of a client between them, so a lost client leaves nothing behind, and an
//! answer that does not fit the target ends early and says where to go on.
//!
//! Invariants
//! - A reply carries the request's number; replies may come in any order.
//! - A message in a box is the one that would have been sent, and speaks of no bytes that lie
//!   elsewhere: only what is sent comes behind them.
//! - When a reply arrives, every byte it speaks of is already in the target.
//! - The node checks each count, offset and length before use; so does the client with the reply's.

mod answer;
mod bounds;
mod bridge;
mod cache;
mod copies;
mod cost;
mod hold;
mod identity;
mod page_read;
mod protect;
mod raw;
mod refusal;
mod relay;
mod repair;
mod status;
mod transact;

pub use answer::Answer;
pub use bridge::{BridgeKind, BridgeStatus, IoKind};
pub use cache::{CachePlace, CacheRegion, CacheStatus};
pub use copies::{CopyHeld, CopyOfLog, KeepLog, LogGeneration, LogKept, LogPoint};
pub use cost::{Cost, LoadReport};
pub use hold::HoldTables;
pub use identity::{FolderIdentity, STARTS_KEPT, SeenStart, Start, StartHistory};
pub use page_read::PageRead;
pub use protect::{AppendParity, KeepMap, LoadHeld, ReadMap, ReserveParity};
pub use raw::{RawRead, RawWrite, ScratchArea};
pub use refusal::{BounceReason, Refusal, RefusalCode};
pub use relay::{RelayStatus, RelayedTo};
pub use repair::{Adopt, Repair, Verified, Verify};
pub use status::{DeviceStatus, NodeCounters, NodeStatus};
pub use transact::{HomeRegion, HomeStatus, Payload};

use crate::{
    codec::{self, CodecError},
    ids::{ColumnId, NodeId, PageNumber, RequestId, SegmentId, TableId},
    limits::MESSAGE_BYTES_MAX,
    program::ScanProgram,
    schema::TableDefinition,
    segment::SegmentDirectory,
    stripe_set::NodeSet,
    withheld::WithheldRows,
};
use serde::{Deserialize, Serialize};

/// The version of everything in this file and of the programs and directories inside. It stands in
/// front of each message, so a peer of another one is told apart from one that speaks garbage,
/// before anything is parsed.
pub const PROTOCOL_VERSION: u16 = 18;

/// Registered memory of the requester, named as the fabric names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The region's key.
    pub key: u64,
    /// Bytes from the region's beginning.
    pub offset_bytes: u64,
    /// Bytes that may be used from there.
    pub length_bytes: u64,
}

/// One page wanted by a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageWanted {
    /// Its column.
    pub column: ColumnId,
    /// Its number in the column's chunk.
    pub page: PageNumber,
    /// Where it goes, in bytes from the target's beginning; a multiple of `SECTOR_BYTES`.
    pub target_offset_bytes: u64,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Who are you, how busy, what have you done? Answered by [`Answer::Status`].
    Status,
    /// The catalog from byte `from_bytes` on, as a sealed [`NodeCatalog`], into the target.
    /// [`Answer::Catalog`].
    Catalog {
        /// Bytes already read; 0 the first time. A catalog that changed since is reported by its
        /// generation.
        from_bytes: u64,
        /// Where it goes.
        target: Target,
    },
    /// Raw pages of one segment into the target. [`Answer::Fetched`].
    ///
    /// A segment is named as its pages name it, by the table under which it was written
    /// ([`SegmentDirectory::table`]) and its number: a table that succeeds that one may have it
    /// now, and who began to read before goes on.
    Fetch {
        /// The table under which the segment was written.
        table: TableId,
        /// The segment.
        segment: SegmentId,
        /// The pages, at most `FETCH_PAGES_MAX`.
        pages: Vec<PageWanted>,
        /// Where they go.
        target: Target,
    },
    /// Run a program over one segment, its result batches into the target. [`Answer::Processed`].
    Process {
        /// The program, the same for all segments of a table. Its columns are held against those of
        /// a table that has the segment; the table that the program names is for who wrote it.
        program: ScanProgram,
        /// Where the bytes of each of its key filters are, for nodes that do not have them yet.
        key_filters: Vec<Target>,
        /// The table under which the segment was written, as in [`Request::Fetch`].
        table: TableId,
        /// The segment.
        segment: SegmentId,
        /// The rows of the segment that are not there for this scan, as [`WithheldRows::as_bytes`];
        /// absent if all are. At most `WITHHELD_HERE_BYTES_MAX` bytes travel in the message; more
        /// lie in the requester's memory, exactly so many bytes there.
        withheld: Option<Payload>,
        /// The first block of 1,024 rows to scan: 0, or where the last answer ended.
        first_block: u32,
        /// Where the result goes.
        target: Target,
        /// Whether the answer is to say which pages were read.
        report_reads: bool,
    },
    /// Store one segment of a load that is not published yet. The source holds the sealed
    /// [`SegmentDirectory`], zero-padded to a sector, and then the pages one behind the other in
    /// the directory's order (chunk by chunk). The directory's extents say only lengths: the node
    /// chooses devices and offsets. [`Answer::Appended`].
    Append {
        /// The load.
        load: TableId,
        /// Bytes of the sealed directory, without its padding.
        directory_bytes: u32,
        /// The requester's memory that holds directory and pages.
        source: Target,
    },
    /// Take a segment of a published table over into a load whose table succeeds that one: the same
    /// pages, and the rows of it that are not there any more. [`Answer::Done`].
    Keep {
        /// The load.
        load: TableId,
        /// The published table that has the segment. Not the one under which the segment was
        /// written, if that is an earlier one. Or the load itself, of a segment that was appended
        /// to it: then only its rows are withheld.
        of: TableId,
        /// The segment.
        segment: SegmentId,
        /// Bytes of the source, as [`WithheldRows::as_bytes`]; 0 if all rows are there. Rows
        /// that the published table withholds already are among them.
        withheld_bytes: u32,
        /// The requester's memory that holds them.
        source: Target,
    },
    /// Store cells of parity of a load that is not published yet. [`Answer::ParityPlaced`].
    AppendParity(AppendParity),
    /// Take room for cells of parity of such a load, which stripes that are relayed bring
    /// ([`RelayedTo::Parity`]). [`Answer::ParityPlaced`].
    ReserveParity(ReserveParity),
    /// What do you hold of this load? [`Answer::LoadHeld`].
    LoadHeld(LoadHeld),
    /// Keep this piece of the map of a load's table; with the last one the map is made durable.
    /// [`Answer::Done`].
    KeepMap(KeepMap),
    /// The map of a protected table, in pieces. [`Answer::Catalog`]; its generation tells maps
    /// apart.
    ReadMap(ReadMap),
    /// Are these places of a stripe set what they were? Read from the devices, past the cache.
    /// [`Answer::Verified`].
    Verify(Verify),
    /// Take these bytes for places of a stripe set that have lost theirs; what is not what was
    /// there is refused and not written. [`Answer::Done`], when durable.
    Repair(Repair),
    /// Take your part of a published table, as its map says, which was kept before as that of a
    /// load of this id: the same extents, whose bytes are yet to be repaired. [`Answer::Done`],
    /// when durable, also if the table is here.
    Adopt(Adopt),
    /// Make a load's segments durable and its table ready to publish. [`Answer::Done`]. A protected
    /// table needs its map here before that.
    PreparePublish {
        /// The table, whose id is the load's.
        definition: TableDefinition,
        /// The segments this node must hold by now.
        segments: u32,
    },
    /// Publish a prepared table, in place of the one that has its name. [`Answer::Done`], also when
    /// done before. Of a table that succeeds another one, the first of its nodes refuses it as
    /// [`RefusalCode::Replaced`] if the other one is not published there any more.
    CommitPublish {
        /// The load.
        load: TableId,
    },
    /// Forget a load that was not committed and free its extents. [`Answer::Done`], also when
    /// unknown.
    AbortLoad {
        /// The load.
        load: TableId,
    },
    /// Forget a published table and free its extents. [`Answer::Done`], also when unknown.
    Drop {
        /// The table.
        table: TableId,
    },
    /// Answer at once with `bytes` of arbitrary content in the target, no IO: the wire alone.
    /// [`Answer::Done`].
    Echo {
        /// How many, at most the target's length.
        bytes: u64,
        /// Where they go.
        target: Target,
    },
    /// Parts of devices as they are, whatever lies there, into the target, each by a read of its
    /// own. [`Answer::Transferred`].
    ReadRaw {
        /// The parts, at most `RAW_TRANSFERS_MAX`.
        reads: Vec<RawRead>,
        /// Where they go.
        target: Target,
    },
    /// Bytes of the source into the node's scratch area, each part by a write of its own; nothing
    /// makes them durable. [`Answer::Transferred`].
    WriteRaw {
        /// The parts, at most `RAW_TRANSFERS_MAX`, all inside the scratch area.
        writes: Vec<RawWrite>,
        /// Where the bytes come from.
        source: Target,
    },
    /// Where is your page cache? Registers it for reading on this connection. [`Answer::Cache`].
    OpenCache,
    /// These pages of your cache were read one-sidedly. [`Answer::Done`].
    CacheUsed {
        /// Where they lay, at most `CACHE_USED_MAX`; one that was read twice is named twice.
        places: Vec<CachePlace>,
    },
    /// Where are your slots? Registers them for reading on this connection. [`Answer::Home`].
    OpenHome,
    /// Messages of transactions, in order; at most one of them is answered. [`Answer::Transacted`].
    Transact {
        /// The messages.
        messages: Payload,
        /// Where an answer goes that is too long for a message.
        target: Target,
    },
    /// Make boxes that I write requests about transactions into, and write answers into mine
    /// (`rackscan_fabric::post`), from now on and on this connection; once for each.
    /// [`Answer::Posts`].
    OpenPosts {
        /// How many, at either end.
        boxes: u16,
        /// The longest message of a box, in bytes.
        body_bytes_max: u32,
        /// The requester's boxes.
        replies: Target,
    },
    /// Keep this part of a node's log of transactions, and tell what you have of it.
    /// [`Answer::LogKept`].
    KeepLog(KeepLog),
    /// What do you keep of this node's log? [`Answer::CopyOfLog`].
    CopyOfLog(CopyOfLog),
    /// Stop in good order. [`Answer::Done`] is sent first.
    Stop,
    /// As [`Request::CommitPublish`] of a table that succeeds no other one, to the first of its
    /// nodes: refused as [`RefusalCode::Replaced`] unless exactly this table is published there
    /// under its name. So nothing is replaced that still takes writes. [`Answer::Done`], also when
    /// done before.
    CommitInPlace {
        /// The load.
        load: TableId,
        /// The table whose place it takes; absent if there is none of its name.
        of: Option<TableId>,
    },
    /// A person lets the node go on with its log's newest replica that can be reached, whatever is
    /// missing. [`Answer::Done`]; else [`RefusalCode::NotFound`].
    AcceptLoss,
    /// Keep what these tables have here until the hold is released or this connection ends, also if
    /// they are replaced or dropped. [`Answer::Done`]; [`RefusalCode::Replaced`] if one is not
    /// published here.
    HoldTables(HoldTables),
    /// The hold of this number is not needed any more. [`Answer::Done`], also when unknown.
    ReleaseTables(u64),
}

/// A request with its number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestMessage {
    /// Chosen by the client, unique among its outstanding requests on the connection.
    pub id: RequestId,
    /// The request.
    pub request: Request,
}

/// A reply with its request's number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplyMessage {
    /// The request's number.
    pub id: RequestId,
    /// The answer, or why there is none.
    pub outcome: Result<Answer, Refusal>,
    /// How busy the node is now.
    pub load: LoadReport,
}

/// A table as one node keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeTable {
    /// The table.
    pub definition: TableDefinition,
    /// Whether the node has committed it, or only prepared it. A table that some node committed is
    /// published; a reader that sees it prepared elsewhere completes the commit there.
    pub committed: bool,
    /// The node's segments.
    pub segments: Vec<NodeSegment>,
    /// What the node has of the stripe sets in which they lie; none of a table that is not
    /// protected.
    pub sets: Vec<NodeSet>,
}

/// A segment as a table has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeSegment {
    /// The segment. Its table is the one under which it was written: the table itself, or one that
    /// it succeeds.
    pub directory: SegmentDirectory,
    /// The rows of it that are not there in this table.
    pub withheld: WithheldRows,
}

/// The catalog of one node; travels sealed ([`codec::seal`]) and cut into parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeCatalog {
    /// Whose it is.
    pub node: NodeId,
    /// Published and prepared tables.
    pub tables: Vec<NodeTable>,
}

impl RequestMessage {
    /// The message's bytes.
    ///
    /// # Errors
    /// When they exceed what a message of the fabric may carry.
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        let mut bytes = Vec::new();
        self.encode_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Appends the message's bytes, so that memory for them can be used again.
    ///
    /// # Errors
    /// As [`RequestMessage::encode`]; then `bytes` holds nothing of use.
    pub fn encode_into(&self, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        let before = bytes.len();
        bytes.extend_from_slice(&PROTOCOL_VERSION.to_le_bytes());
        codec::append(self, bytes)?;
        within_limit("request", bytes.len() - before)
    }

    /// Parses and bounds a message from a client.
    ///
    /// # Errors
    /// What does not parse or breaks a limit.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let message: Self = codec::decode("request", of_our_version("request", bytes)?)?;
        bounds::check(&message.request)?;
        Ok(message)
    }
}

impl ReplyMessage {
    /// The message's bytes.
    ///
    /// # Errors
    /// When they exceed what a message of the fabric may carry.
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        let mut bytes = PROTOCOL_VERSION.to_le_bytes().to_vec();
        codec::append(self, &mut bytes)?;
        within_limit("reply", bytes.len())?;
        Ok(bytes)
    }

    /// Parses and bounds a message from a node.
    ///
    /// # Errors
    /// What does not parse or breaks a limit.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let message: Self = codec::decode("reply", of_our_version("reply", bytes)?)?;
        if let Ok(Answer::Status(status)) = &message.outcome {
            let wrong = |reason| CodecError::Malformed { what: "reply", reason };
            status.check().map_err(wrong)?;
        }
        Ok(message)
    }
}

fn of_our_version<'b>(what: &'static str, bytes: &'b [u8]) -> Result<&'b [u8], CodecError> {
    let Some((version, body)) = bytes.split_first_chunk::<2>() else {
        return Err(CodecError::Short { what, found: bytes.len(), expected: 2 });
    };
    match u16::from_le_bytes(*version) {
        PROTOCOL_VERSION => Ok(body),
        found => Err(CodecError::Malformed {
            what,
            reason: format!(
                "protocol version {found}, expected {PROTOCOL_VERSION}: the peer is another version of rackscan"
            ),
        }),
    }
}

fn within_limit(what: &'static str, bytes: usize) -> Result<(), CodecError> {
    if bytes <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    let reason = format!("{bytes} bytes, expected at most {MESSAGE_BYTES_MAX}");
    Err(CodecError::Malformed { what, reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ids::DeviceId, limits::RAW_TRANSFERS_MAX};

    #[test]
    fn a_message_of_another_version_is_told_apart_from_garbage() {
        let message = RequestMessage { id: RequestId(7), request: Request::Status };
        let mut bytes = message.encode().unwrap();
        assert_eq!(RequestMessage::decode(&bytes).unwrap(), message);
        bytes[0] += 1;
        let error = RequestMessage::decode(&bytes).unwrap_err().to_string();
        let (found, expected) =
            (format!("version {}", PROTOCOL_VERSION + 1), format!("expected {PROTOCOL_VERSION}"));
        assert!(error.contains(&found) && error.contains(&expected), "{error}");
        assert!(RequestMessage::decode(&bytes[..1]).is_err());
    }

    #[test]
    fn a_raw_request_of_no_part_or_of_too_many_is_malformed() {
        let target = Target { key: 1, offset_bytes: 0, length_bytes: 512 };
        let read = RawRead {
            device: DeviceId(0),
            offset_bytes: u64::MAX,
            length_bytes: 512,
            target_offset_bytes: 0,
        };
        let message = |parts| RequestMessage {
            id: RequestId(1),
            request: Request::ReadRaw { reads: vec![read; parts], target },
        };
        for parts in [1, RAW_TRANSFERS_MAX] {
            let bytes = message(parts).encode().unwrap();
            assert_eq!(RequestMessage::decode(&bytes).unwrap(), message(parts));
        }
        for parts in [0, RAW_TRANSFERS_MAX + 1] {
            let error = RequestMessage::decode(&message(parts).encode().unwrap()).unwrap_err().to_string();
            assert!(error.contains(&format!("of {parts} parts")), "{error}");
        }
    }

    #[test]
    fn memory_for_encoded_messages_can_be_used_again() {
        let message = RequestMessage { id: RequestId(7), request: Request::Stop };
        let mut bytes = message.encode().unwrap();
        let length = bytes.len();
        message.encode_into(&mut bytes).unwrap();
        assert_eq!(RequestMessage::decode(&bytes[length..]).unwrap(), message);
    }
}
