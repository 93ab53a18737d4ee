//! How does a node keep copies of other nodes' logs of transactions?
//!
//! ```text
//! request/keep_log -- bytes, a bounded queue --> this thread: copies/<origin>.log --one flush for all that came meanwhile--> mail
//! request/copy_of_log -- which part? ----------/            \-> bytes --> mail
//! ```
//!
//! | file, in the folder `copies` of the node's | |
//! |---|---|
//! | `<origin>.log` | the copy that counts: what its origin gets if it has lost its own. Behind it zeroes where disk space was taken ahead |
//! | `<origin>.log.new` | one that is being made; it takes the other one's place when it is whole |
//! | `<origin>.log.cut` | what a copy had and its origin's log has not, one cut behind the other; bounded as `transactions.log.cut` is, the newest cut kept |
//! | `<origin>.log.cut.new` | a new version of that being written; never read |
//! | `<origin>.log.<number>-<record>` | a copy of a log that was not replaced by a shorter one, and is not its origin's any more |
//! | `<origin>.log.damaged` | a file that began as no log does |
//! | `<origin>.generation` | which replicas of that log count, as far as this node was told (`generation`); also of logs that have no replica here |
//!
//! Invariants
//! - What is answered is on the disk.
//! - Bytes are kept only if they go on with the log: by their numbers and checksums, whoever sends
//!   them.
//! - Nothing of a copy is thrown away but what a shorter log of the same row replaces, what was
//!   never whole, and cuts for which newer ones leave no room.
//! - Only nodes that this one is told of have copies here; each takes care of its own by its id,
//!   and one cannot touch another's.
//! - It works whether or not the node's own home is there: nodes that start at the same time ask
//!   each other.

mod copy;
mod generation;
mod shelf;
mod thread;

pub(crate) use generation::GenerationFile;
pub(crate) use thread::{Keeping, Kept, RoomTaken};

use rackscan_format::{ids::NodeId, message::LogPoint};
use rackscan_ramp::log::Tail;

use crate::limits::LOG_COPIES;

/// Numbers of the logs of which each replaces the one before have this half in common.
const ROW: u32 = 0xffff_0000;

/// The number of a log that replaces the one with this number.
pub(crate) fn new_version(number: u32, random: u32) -> u32 {
    let drawn = number & ROW | random & !ROW;
    // Two logs one after the other are told apart.
    if drawn == number { drawn ^ 1 } else { drawn }
}

/// Whether a log may replace another one of the same row.
pub(crate) fn is_new_version(number: u32, of: u32) -> bool {
    number != of && number & ROW == of & ROW
}

/// Who keeps copies of a node's log: the next ones in the ring of ids.
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
