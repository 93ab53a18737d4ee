//! Defines the requests that a client sends to a node, and their names.

use serde::{Deserialize, Serialize};

use super::{
    Adopt, AppendParity, CachePlace, CopyOfLog, HoldTables, KeepLog, KeepMap, LoadHeld, Payload, RawRead,
    RawWrite, ReadMap, Repair, ReserveParity, Target, Verify,
};
#[cfg(doc)]
use super::{Answer, NodeCatalog, RefusalCode, RelayedTo};
use crate::{
    ids::{ColumnId, PageNumber, SegmentId, TableId},
    program::ScanProgram,
    schema::TableDefinition,
};
#[cfg(doc)]
use crate::{segment::SegmentDirectory, withheld::WithheldRows};

/// One page that a fetch asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageWanted {
    /// Its column.
    pub column: ColumnId,
    /// Its number in the column's chunk.
    pub page: PageNumber,
    /// The offset in the target to write it to, a multiple of `SECTOR_BYTES`.
    pub target_offset_bytes: u64,
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Asks for identity, load and counters of the node. [`Answer::Status`].
    Status,
    /// Reads the catalog, a [`NodeCatalog`] in an envelope, from byte `from_bytes` on into the
    /// target. [`Answer::Catalog`].
    Catalog {
        /// Bytes already read; 0 the first time. The generation in the answer shows whether the
        /// catalog has changed since.
        from_bytes: u64,
        /// The memory to write it to.
        target: Target,
    },
    /// Reads raw pages of one segment into the target. [`Answer::Fetched`].
    ///
    /// A segment is identified as in its pages, by the table version that wrote it
    /// ([`SegmentDirectory::table`]) and its number. So a reader can continue when a later version
    /// of the table holds the segment now.
    Fetch {
        /// The table version that wrote the segment.
        table: TableId,
        /// The segment.
        segment: SegmentId,
        /// The pages to read, at most `FETCH_PAGES_MAX`.
        pages: Vec<PageWanted>,
        /// The memory to write them to.
        target: Target,
    },
    /// Runs a program over one segment and writes the result batches into the target.
    /// [`Answer::Processed`].
    Process {
        /// The program, the same for all segments of a table. The node checks its columns against
        /// those of a table that holds the segment; it does not use the table id in the program.
        program: ScanProgram,
        /// The memory that holds the bytes of each key filter of the program, for nodes that do not
        /// have the filter yet.
        key_filters: Vec<Target>,
        /// The table version that wrote the segment, as in [`Request::Fetch`].
        table: TableId,
        /// The segment.
        segment: SegmentId,
        /// The rows of the segment that do not exist for this scan, as [`WithheldRows::as_bytes`];
        /// absent if there are none. At most `WITHHELD_HERE_BYTES_MAX` bytes travel in the message;
        /// longer ones lie in the requester's memory, in a target of exactly their length.
        withheld: Option<Payload>,
        /// The first block of 1,024 rows to scan: 0, or the block at which the last answer ended.
        first_block: u32,
        /// The memory for the result.
        target: Target,
        /// Whether the answer should list the pages that were read.
        report_reads: bool,
    },
    /// Stores one segment of a load that is not published yet. The source holds the encoded
    /// [`SegmentDirectory`], zero-padded to a sector, followed by the pages in the directory's
    /// order (chunk by chunk). Only the lengths of the directory's extents count: the node chooses
    /// devices and offsets. [`Answer::Appended`].
    Append {
        /// The load.
        load: TableId,
        /// Bytes of the encoded directory, without its padding.
        directory_bytes: u32,
        /// The requester's memory that holds directory and pages.
        source: Target,
    },
    /// Adds a segment of a published table to a load of a new version of that table, with the same
    /// pages and new withheld rows. [`Answer::Done`].
    Keep {
        /// The load.
        load: TableId,
        /// The published table version that holds the segment, which is not necessarily the version
        /// that wrote it. Or the load itself, for a segment that was appended to this load: then
        /// the request only sets its withheld rows.
        of: TableId,
        /// The segment.
        segment: SegmentId,
        /// Bytes of the withheld rows in the source, as [`WithheldRows::as_bytes`]; 0 if there are
        /// none. They include the rows that the published table withholds already.
        withheld_bytes: u32,
        /// The requester's memory that holds them.
        source: Target,
    },
    /// Stores parity cells of a load that is not published yet. [`Answer::ParityPlaced`].
    AppendParity(AppendParity),
    /// Allocates space for parity cells of such a load, which relayed stripes write later
    /// ([`RelayedTo::Parity`]). [`Answer::ParityPlaced`].
    ReserveParity(ReserveParity),
    /// Asks which segments of a load the node holds. [`Answer::LoadHeld`].
    LoadHeld(LoadHeld),
    /// Stores a piece of the map of a load's table; the last piece makes the map durable.
    /// [`Answer::Done`].
    KeepMap(KeepMap),
    /// Reads the map of a protected table, in pieces. [`Answer::Catalog`]; its generation
    /// distinguishes maps.
    ReadMap(ReadMap),
    /// Checks the bytes at places of a stripe set; the node reads them from the devices, not from
    /// the cache. [`Answer::Verified`].
    Verify(Verify),
    /// Writes bytes to places of a stripe set that have lost theirs. Bytes that differ from the
    /// lost ones are refused and not written. [`Answer::Done`], when durable.
    Repair(Repair),
    /// Lets the node adopt its part of a published table, as stated in the table's map, which must
    /// have been stored before as the map of a load with this id. The extents stay the same; their
    /// bytes are repaired later. [`Answer::Done`], when durable, also if the node has the table
    /// already.
    Adopt(Adopt),
    /// Makes a load's segments durable and its table ready to publish. [`Answer::Done`]. The map of
    /// a protected table must have been stored here before.
    PreparePublish {
        /// The table; its id is that of the load.
        definition: TableDefinition,
        /// The number of segments that this node must hold by now.
        segments: u32,
    },
    /// Publishes a prepared table; it replaces the table with the same name. [`Answer::Done`], also
    /// when done before. For a new version of a table, the first node of the table refuses with
    /// [`RefusalCode::Replaced`] if the old version is not published there any more.
    CommitPublish {
        /// The load.
        load: TableId,
    },
    /// Removes a load that was not committed and frees its extents. [`Answer::Done`], also when the
    /// load is unknown.
    AbortLoad {
        /// The load.
        load: TableId,
    },
    /// Removes a published table and frees its extents. [`Answer::Done`], also when the table is
    /// unknown.
    Drop {
        /// The table.
        table: TableId,
    },
    /// Measures the wire alone: the node writes `bytes` bytes of arbitrary content into the target
    /// without IO. [`Answer::Done`].
    Echo {
        /// How many bytes, at most the target's length.
        bytes: u64,
        /// The memory to write them to.
        target: Target,
    },
    /// Reads parts of devices into the target, each with a separate read, whatever they hold.
    /// [`Answer::Transferred`].
    ReadRaw {
        /// The parts, at most `RAW_TRANSFERS_MAX`.
        reads: Vec<RawRead>,
        /// The memory to write them to.
        target: Target,
    },
    /// Writes bytes of the source into the node's scratch area, each part with a separate write;
    /// they are not made durable. [`Answer::Transferred`].
    WriteRaw {
        /// The parts, at most `RAW_TRANSFERS_MAX`, all inside the scratch area.
        writes: Vec<RawWrite>,
        /// The memory that holds the bytes.
        source: Target,
    },
    /// Registers the node's page cache for one-sided reads on this connection and asks where it is.
    /// [`Answer::Cache`].
    OpenCache,
    /// Reports pages of the node's cache that the client read one-sidedly. [`Answer::Done`].
    CacheUsed {
        /// The places of the pages, at most `CACHE_USED_MAX`; a page that was read twice is listed
        /// twice.
        places: Vec<CachePlace>,
    },
    /// Registers the slots of the node's participant for one-sided reads on this connection and
    /// asks where they are. [`Answer::Participant`].
    OpenParticipant,
    /// Delivers messages of transactions, in order; at most one of them is answered.
    /// [`Answer::Transacted`].
    Transact {
        /// The messages.
        messages: Payload,
        /// Where the node writes an answer that is too long for a message.
        target: Target,
    },
    /// Opens boxes for transactions on this connection (`rackscan_fabric::post`): from now on the
    /// client writes requests into the node's boxes, and the node writes answers into the client's.
    /// Once per connection. [`Answer::Posts`].
    OpenPosts {
        /// The number of boxes at each end.
        boxes: u16,
        /// The maximum number of bytes of a message in a box.
        body_bytes_max: u32,
        /// The memory of the requester's boxes.
        replies: Target,
    },
    /// Stores a part of another node's transaction log and asks what the node has of this log.
    /// [`Answer::LogKept`].
    KeepLog(KeepLog),
    /// Asks what the node keeps of another node's log. [`Answer::CopyOfLog`].
    CopyOfLog(CopyOfLog),
    /// Shuts the node down. [`Answer::Done`] is sent first.
    Stop,
    /// As [`Request::CommitPublish`] of a table that is not a new version of another one, sent to
    /// the first of its nodes. Refused with [`RefusalCode::Replaced`] unless the table `of` is the
    /// one that is published there under this name, so that no table is replaced that still takes
    /// writes. [`Answer::Done`], also when done before.
    CommitInPlace {
        /// The load.
        load: TableId,
        /// The table that it replaces; absent if no table has its name.
        of: Option<TableId>,
    },
    /// An operator lets the node continue with the newest reachable replica of its log, whatever is
    /// missing there. [`Answer::Done`], or [`RefusalCode::NotFound`].
    AcceptLoss,
    /// Keeps the segments of these tables until the hold is released or this connection ends, even
    /// if the tables are replaced or dropped. [`Answer::Done`], or [`RefusalCode::Replaced`] if one
    /// of the tables is not published here.
    HoldTables(HoldTables),
    /// Releases the hold with this number. [`Answer::Done`], also when the hold is unknown.
    ReleaseTables(u64),
}

impl Request {
    /// Its name in error messages and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Catalog { .. } => "catalog",
            Self::Fetch { .. } => "fetch",
            Self::Process { .. } => "process",
            Self::Append { .. } => "append",
            Self::Keep { .. } => "keep",
            Self::ReadRaw { .. } => "raw read",
            Self::WriteRaw { .. } => "raw write",
            Self::AppendParity(_) => "append parity",
            Self::ReserveParity(_) => "reserve parity",
            Self::LoadHeld(_) => "load held",
            Self::KeepMap(_) => "keep map",
            Self::ReadMap(_) => "read map",
            Self::Verify(_) => "verify",
            Self::Repair(_) => "repair",
            Self::Adopt(_) => "adopt",
            Self::PreparePublish { .. } => "prepare",
            Self::CommitPublish { .. } | Self::CommitInPlace { .. } => "commit",
            Self::AbortLoad { .. } => "abort",
            Self::Drop { .. } => "drop",
            Self::Echo { .. } => "echo",
            Self::OpenCache => "open cache",
            Self::CacheUsed { .. } => "cache used",
            Self::OpenParticipant => "open participant",
            Self::OpenPosts { .. } => "open posts",
            Self::Transact { .. } => "transact",
            Self::KeepLog(_) => "keep log",
            Self::AcceptLoss => "accept loss",
            Self::HoldTables(_) => "hold tables",
            Self::ReleaseTables(_) => "release tables",
            Self::CopyOfLog(_) => "copy of log",
            Self::Stop => "stop",
        }
    }
}
