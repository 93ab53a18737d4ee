//! What does a node answer?

use super::{
    CachePlace, CacheRegion, CopyHeld, Cost, HomeRegion, LogGeneration, LogKept, NodeStatus, PageRead,
    Payload, Target, Verified,
};
#[cfg(doc)]
use super::{NodeSegment, Request};
use crate::{ids::SegmentId, segment::Extent};
use serde::{Deserialize, Serialize};

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Request::Status`].
    Status(Box<NodeStatus>),
    /// To [`Request::Catalog`] and [`Request::ReadMap`].
    Catalog {
        /// Bytes written into the target.
        written_bytes: u64,
        /// Bytes of the whole encoded catalog.
        total_bytes: u64,
        /// Changes whenever the catalog does; parts of different generations do not fit together.
        generation: u64,
    },
    /// To [`Request::Fetch`]: every page is in the target.
    Fetched {
        /// What it took.
        cost: Cost,
        /// Where each page lies in the node's cache now, in the order they were asked for; empty if
        /// none does.
        places: Vec<Option<CachePlace>>,
        /// Positions, in the order they were asked for, of pages that no device was asked for: they
        /// lay in the cache.
        cached: Vec<u16>,
    },
    /// To [`Request::OpenCache`]: the cache's memory, if there is a cache.
    Cache(Option<CacheRegion>),
    /// To [`Request::Process`].
    Processed {
        /// Encoded batches in the target, one behind the other.
        written_bytes: u64,
        /// How many.
        batches: u32,
        /// Rows (or groups) in them.
        rows: u64,
        /// The first block that was not scanned because the target was full; `None` at the
        /// segment's end.
        next_block: Option<u32>,
        /// What it took.
        cost: Cost,
        /// The pages that were read, in their order, at most `PAGE_READS_MAX`; empty unless they
        /// were asked for.
        reads: Vec<PageRead>,
    },
    /// To [`Request::Append`].
    Appended {
        /// Stored bytes.
        stored_bytes: u64,
    },
    /// To [`Request::AppendParity`] and [`Request::ReserveParity`]: where the cells lie, in their
    /// order.
    ParityPlaced {
        /// One for each cell.
        extents: Vec<Extent>,
    },
    /// To [`Request::Verify`].
    Verified(Verified),
    /// To [`Request::LoadHeld`].
    LoadHeld {
        /// Bytes written into the target: segments, sealed, as a list of [`NodeSegment`].
        written_bytes: u64,
        /// The last segment of the list, if there may be more behind it.
        next: Option<SegmentId>,
    },
    /// To [`Request::OpenHome`]: the home's memory, if the node keeps keys.
    Home(Option<HomeRegion>),
    /// To [`Request::Transact`]: the messages that answer, or none where nothing is to be answered.
    Transacted {
        /// The messages.
        messages: Payload,
    },
    /// To [`Request::OpenPosts`].
    Posts {
        /// The node's boxes, of the same shape.
        requests: Target,
    },
    /// To [`Request::KeepLog`], when it is on the disk.
    LogKept(LogKept),
    /// To [`Request::CopyOfLog`].
    CopyOfLog {
        /// What there is, if there is anything whole.
        held: Option<CopyHeld>,
        /// Bytes written into the target.
        written_bytes: u64,
        /// The newest generation of the log that the node knows.
        generation: Option<LogGeneration>,
    },
    /// To requests that only succeed or fail.
    Done,
    /// To [`Request::ReadRaw`] and [`Request::WriteRaw`]: every part was moved.
    Transferred {
        /// What it took; parts count as pages, written ones too.
        cost: Cost,
        /// Of a read: where each part lies in the node's cache now, as in [`Answer::Fetched`].
        places: Vec<Option<CachePlace>>,
    },
}
