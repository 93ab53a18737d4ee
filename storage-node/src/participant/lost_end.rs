//! Chooses the log replicas that can restore the damaged end of this node's log, and limits how
//! long to wait for the nodes that store them.
//!
//! Logs that replace one another (each a shorter version of the one before) form a row, which their
//! numbers show.
//!
//! Invariants
//! - A replica is fetched only if it has records that the log lacks, and is a replica of the same
//!   log or of another log in its row.
//! - If some replica of the same log ends where the intact part of the log ends, no record is
//!   missing before that point. Then only longer replicas of the same log are used.
//! - The wait always ends, because the node can continue with the intact part of its log.

use std::{cmp::Reverse, time::Instant};

use rackscan_format::message::CopyHeld;
use rackscan_ramp::log::Tail;

use crate::{
    config::LogPatience,
    copies::{is_new_version, tail},
};

/// A replica, and the number of the node that has it.
pub(super) type Offer = (usize, CopyHeld);

/// A log whose end is damaged: what is intact of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DamagedLog {
    /// The log's number.
    pub(super) number: u32,
    /// The position behind its last whole record.
    pub(super) tail: Tail,
    /// The number of bytes from there to the last one that is not zero.
    pub(super) cut_bytes: u64,
}

impl DamagedLog {
    /// The replicas that have more records, the best one first.
    pub(super) fn more(&self, offers: &[Offer]) -> Vec<Offer> {
        let is_own = |held: &CopyHeld| held.log == self.number;
        // In that case records of an earlier log, whose numbers may be higher, are in this log as a
        // snapshot.
        let is_known = offers.iter().any(|(_, held)| is_own(held) && tail(held.end) == self.tail);
        let has_more = |held: &CopyHeld| {
            let of_row = if is_own(held) {
                held.end.offset_bytes > self.tail.offset_bytes
            } else {
                !is_known && is_new_version(held.log, self.number)
            };
            of_row && held.end.sequence > self.tail.sequence
        };
        let mut more: Vec<Offer> = offers.iter().filter(|(_, held)| has_more(held)).copied().collect();
        more.sort_by_key(|(_, held)| (!is_own(held), Reverse(held.end.sequence)));
        more
    }

    /// The position up to which a replica must have the same records: behind the last whole one.
    /// `None` for a replica of another log, whose bytes differ.
    pub(super) fn joint(&self, held: &CopyHeld) -> Option<Tail> {
        (held.log == self.number).then_some(self.tail)
    }

    /// The number of bytes of the damaged end that this replica does not restore: all of them if it
    /// is of another log.
    pub(super) fn missing_bytes(&self, held: &CopyHeld) -> u64 {
        match self.joint(held) {
            Some(tail) => {
                self.cut_bytes.saturating_sub(held.end.offset_bytes.saturating_sub(tail.offset_bytes))
            }
            None => self.cut_bytes,
        }
    }
}

/// Measures how long silent nodes are waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    patience: LogPatience,
    began: Instant,
    /// When the first node had answered.
    heard: Option<Instant>,
}

impl Waiting {
    pub(super) fn new(patience: LogPatience, now: Instant) -> Self {
        Self { patience, began: now, heard: None }
    }

    /// Whether the wait for silent nodes is over. `has_heard`: whether any node has answered.
    pub(super) fn is_over(&mut self, has_heard: bool, now: Instant) -> bool {
        if has_heard {
            let heard = *self.heard.get_or_insert(now);
            return now.saturating_duration_since(heard) >= self.patience.others;
        }
        now.saturating_duration_since(self.began) >= self.patience.first
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rackscan_format::message::LogPoint;

    use super::*;

    const NUMBER: u32 = 0x0007_0001;
    const TAIL: Tail = Tail { offset_bytes: 1000, sequence: 50, checksum: 7 };
    const LEFT: DamagedLog = DamagedLog { number: NUMBER, tail: TAIL, cut_bytes: 300 };

    fn held(log: u32, offset_bytes: u64, sequence: u64) -> CopyHeld {
        let checksum = if sequence == TAIL.sequence { TAIL.checksum } else { 9 };
        CopyHeld { log, end: LogPoint { offset_bytes, sequence, checksum } }
    }

    fn more(offers: &[CopyHeld]) -> Vec<usize> {
        let offers: Vec<Offer> = offers.iter().copied().enumerate().collect();
        LEFT.more(&offers).into_iter().map(|(node, _)| node).collect()
    }

    #[test]
    fn only_copies_with_more_of_the_same_row_are_fetched_the_longest_of_the_same_log_first() {
        let (longer, longest) = (held(NUMBER, 1200, 52), held(NUMBER, 1300, 53));
        let (of_row, stranger) = (held(NUMBER + 1, 400, 99), held(NUMBER + 0x1_0000, 5000, 99));
        assert_eq!((more(&[longer, longest]), more(&[longest, longer])), (vec![1, 0], vec![0, 1]));
        assert_eq!((more(&[of_row, longer, stranger]), more(&[longer, of_row])), (vec![1, 0], vec![0, 1]));
        assert!(more(&[held(NUMBER, 1000, 50), held(NUMBER, 900, 49), stranger]).is_empty());
        assert!(more(&[held(NUMBER, 900, 51)]).is_empty(), "more records in fewer bytes are none");
        assert!(more(&[held(NUMBER + 1, 4000, 50)]).is_empty());
        assert!(more(&[of_row, held(NUMBER, 1000, 50)]).is_empty(), "what is left is known to be all");
    }

    #[test]
    fn what_did_not_come_back_is_counted() {
        assert_eq!(LEFT.missing_bytes(&held(NUMBER, 1100, 51)), 200);
        assert_eq!(LEFT.missing_bytes(&held(NUMBER, 1300, 52)), 0);
        assert_eq!(LEFT.missing_bytes(&held(NUMBER, 9000, 99)), 0);
        assert_eq!(LEFT.missing_bytes(&held(NUMBER + 1, 9000, 99)), 300);
    }

    #[test]
    fn waiting_ends_some_time_after_the_first_answer_and_also_if_there_is_none() {
        let began = Instant::now();
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let patience = LogPatience { others: Duration::from_secs(10), first: Duration::from_secs(30) };
        let mut waiting = Waiting::new(patience, began);
        assert!(!waiting.is_over(false, at(29)) && waiting.is_over(false, at(30)));
        let mut waiting = Waiting::new(patience, began);
        assert!(!waiting.is_over(true, at(25)) && !waiting.is_over(true, at(34)));
        assert!(waiting.is_over(true, at(35)));
    }
}
