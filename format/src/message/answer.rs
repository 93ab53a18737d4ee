//! Defines the answers of a node to requests.

use super::{
    CachePlace, CacheRegion, CopyHeld, Cost, LogGeneration, LogKept, NodeStatus, PageRead, ParticipantRegion,
    Payload, Target, Verified,
};
#[cfg(doc)]
use crate::segment::NodeSegment;
use crate::{ids::SegmentId, segment::Extent};
use serde::{Deserialize, Serialize};

/// The answer to a request that was carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Request::Status`](super::Request::Status).
    Status(Box<NodeStatus>),
    /// To [`Request::Catalog`](super::Request::Catalog) and
    /// [`Request::ReadMap`](super::Request::ReadMap).
    Catalog {
        /// Bytes written into the target.
        written_bytes: u64,
        /// Bytes of the whole encoded catalog.
        total_bytes: u64,
        /// Changes whenever the catalog changes; parts of different generations must not be
        /// combined.
        generation: u64,
    },
    /// To [`Request::Fetch`](super::Request::Fetch): every page is in the target.
    Fetched {
        /// The resources that the request used.
        cost: Cost,
        /// Where each page is in the node's cache now, in the order of the request; empty if none
        /// is.
        places: Vec<Option<CachePlace>>,
        /// Positions, in the order of the request, of the pages that came from the cache and not
        /// from a device.
        cached: Vec<u16>,
    },
    /// To [`Request::OpenCache`](super::Request::OpenCache): the memory of the cache, if there is
    /// one.
    Cache(Option<CacheRegion>),
    /// To [`Request::Process`](super::Request::Process).
    Processed {
        /// Bytes of the encoded batches in the target, one after the other.
        written_bytes: u64,
        /// The number of batches.
        batches: u32,
        /// Rows (or groups) in the batches.
        rows: u64,
        /// The first block that was not scanned because the target was full; `None` if the
        /// segment's end was reached.
        next_block: Option<u32>,
        /// The resources that the request used.
        cost: Cost,
        /// The pages that were read, in the order of the reads, at most `PAGE_READS_MAX`; empty
        /// unless the request asked for them.
        reads: Vec<PageRead>,
    },
    /// To [`Request::Append`](super::Request::Append).
    Appended {
        /// Stored bytes.
        stored_bytes: u64,
    },
    /// To [`Request::AppendParity`](super::Request::AppendParity) and
    /// [`Request::ReserveParity`](super::Request::ReserveParity): where the cells are stored, in
    /// order.
    ParityPlaced {
        /// One extent for each cell.
        extents: Vec<Extent>,
    },
    /// To [`Request::Verify`](super::Request::Verify).
    Verified(Verified),
    /// To [`Request::LoadHeld`](super::Request::LoadHeld).
    LoadHeld {
        /// Bytes written into the target: segments, encoded, as a list of [`NodeSegment`].
        written_bytes: u64,
        /// The last segment of the list, if there may be more after it.
        next: Option<SegmentId>,
    },
    /// To [`Request::OpenParticipant`](super::Request::OpenParticipant): the memory of the node's
    /// participant, if it keeps keys.
    Participant(Option<ParticipantRegion>),
    /// To [`Request::Transact`](super::Request::Transact): the answering messages, or none if no
    /// message needs an answer.
    Transacted {
        /// The messages.
        messages: Payload,
    },
    /// To [`Request::OpenPosts`](super::Request::OpenPosts).
    Posts {
        /// The memory of the node's boxes, which have the same number and size.
        requests: Target,
    },
    /// To [`Request::KeepLog`](super::Request::KeepLog), after the bytes are durable.
    LogKept(LogKept),
    /// To [`Request::CopyOfLog`](super::Request::CopyOfLog).
    CopyOfLog {
        /// The copy that the node keeps, if it has a complete one.
        held: Option<CopyHeld>,
        /// Bytes written into the target.
        written_bytes: u64,
        /// The newest generation of the log that the node knows.
        generation: Option<LogGeneration>,
    },
    /// To requests that only succeed or fail.
    Done,
    /// To [`Request::ReadRaw`](super::Request::ReadRaw) and
    /// [`Request::WriteRaw`](super::Request::WriteRaw): every part was moved.
    Transferred {
        /// The resources that the request used; parts count as pages, also written ones.
        cost: Cost,
        /// For a read: where each part is in the node's cache now, as in [`Answer::Fetched`].
        places: Vec<Option<CachePlace>>,
    },
}
