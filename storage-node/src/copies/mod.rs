//! Stores replicas of other nodes' transaction logs. In this folder, a copy is such a replica, and
//! its origin is the node that owns the log.
//!
//! ```text
//! request/keep_log -- bytes, a bounded queue --> this thread: copies/<origin>.log -- one flush for all requests that waited --> message queue
//! request/copy_of_log -- reads a part --------/            \-> bytes --> message queue
//! ```
//!
//! | file in the folder `copies` of the node's data folder | content (`<origin>`: the id of the origin) |
//! |---|---|
//! | `<origin>.log` | the valid copy, which its origin fetches if it has lost its own log. Zeroes follow where disk space was reserved |
//! | `<origin>.log.new` | a copy that is being written; it replaces the valid one when it is complete |
//! | `<origin>.log.cut` | bytes that were in a copy but are not in its origin's log, one cut after the other; bounded as `transactions.log.cut` is, and the newest cut is always stored |
//! | `<origin>.log.cut.new` | a new version of that file while it is being written; never read |
//! | `<origin>.log.<number>-<record>` | a copy that was set aside because the origin's new log is not a shorter version of it |
//! | `<origin>.log.damaged` | a file that does not begin like a log |
//! | `<origin>.generation` | which replicas of that log count, as far as this node knows (`generation`); also for logs without a replica here |
//!
//! Logs that replace one another, each a shorter version of the one before, form a row, which their
//! numbers show.
//!
//! Invariants
//! - A request is answered only when its effect is on the disk.
//! - Bytes are stored only if they continue the log. Their numbers and checksums are checked,
//!   whichever node sends them.
//! - Bytes of a copy are discarded only if a shorter log of the same row replaces them, if they
//!   never formed a whole record, or if newer cuts displace them in the cut file.
//! - Only the other nodes in the configuration have copies here. Each can change only its own copy,
//!   which is found by the node's id.
//! - Copies are served even while this node's own participant is not ready, because nodes that
//!   start at the same time fetch their logs from each other.

mod copy;
mod generation;
mod kept;
mod shelf;
mod thread;

pub(crate) use generation::GenerationFile;
pub(crate) use kept::Kept;
pub(crate) use thread::{Keeping, RoomTaken};

use rackscan_format::{ids::NodeId, message::LogPoint};
use rackscan_ramp::log::Tail;

use crate::limits::LOG_COPIES;

/// The upper half of a log's number: logs of which each replaces the one before form a row, and
/// share it.
const ROW: u32 = 0xffff_0000;

/// The number of a log that replaces the one with this number.
pub(crate) fn new_version(number: u32, random: u32) -> u32 {
    let drawn = number & ROW | random & !ROW;
    // Two successive logs must have different numbers.
    if drawn == number { drawn ^ 1 } else { drawn }
}

/// Whether a log may replace another log of the same row.
pub(crate) fn is_new_version(number: u32, of: u32) -> bool {
    number != of && number & ROW == of & ROW
}

/// The nodes that keep copies of a node's log: the next ones in the ring of ids.
pub(crate) fn replica_nodes(own: NodeId, others: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
    let mut ring: Vec<NodeId> = others.filter(|node| *node != own).collect();
    ring.sort_unstable_by_key(|node| (*node < own, *node));
    ring.dedup();
    ring.truncate(LOG_COPIES);
    ring
}

pub(crate) fn point(tail: Tail) -> LogPoint {
    let Tail { offset_bytes, sequence, checksum } = tail;
    LogPoint { offset_bytes, sequence, checksum }
}

pub(crate) fn tail(point: LogPoint) -> Tail {
    let LogPoint { offset_bytes, sequence, checksum } = point;
    Tail { offset_bytes, sequence, checksum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_two_in_the_ring_keep_a_log() {
        let of = |own: u16, all: &[u16]| -> Vec<u16> {
            replica_nodes(NodeId(own), all.iter().map(|id| NodeId(*id)))
                .into_iter()
                .map(|node| node.0)
                .collect()
        };
        assert!(of(1, &[1]).is_empty());
        assert_eq!((of(1, &[1, 7]), of(7, &[1, 7])), (vec![7], vec![1]));
        assert_eq!(
            (of(1, &[3, 2, 4]), of(3, &[4, 1, 2]), of(4, &[3, 2, 1])),
            (vec![2, 3], vec![4, 1], vec![1, 2])
        );
    }

    #[test]
    fn a_shorter_log_is_told_from_the_one_before_and_from_strangers() {
        let (first, stranger) = (0xabcd_1234, 0xabce_1234);
        for random in [0, 0x1234, 0xffff_1234, u32::MAX] {
            let next = new_version(first, random);
            assert!(is_new_version(next, first) && !is_new_version(next, stranger), "{next:08x}");
        }
        assert!(!is_new_version(first, first));
    }
}
