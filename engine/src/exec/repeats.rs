//! Remembers which pages the engine reads repeatedly while bypassing the caches of nodes, so that a
//! node caches them.
//!
//! A hash identifies pages that are read together: columns of one segment.
//!
//! Invariants
//! - At most `REPEATS_MAX` hashes are remembered. At the limit all are forgotten, which costs only
//!   time.
//! - After pages were read once past the cache, the next read goes through the cache. If the cache
//!   did not keep them, the read after `KEEP_AGAIN_AFTER` goes through it again.

use crate::limits::REPEATS_MAX;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// For how long pages that a cache did not keep are read past it again.
const KEEP_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// How pages were read last: past their node's cache, or through it and when.
#[derive(Clone, Copy, Debug)]
enum Read {
    Past,
    Through(Instant),
}

/// The remembered pages and how they were read.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    reads: HashMap<u64, Read>,
}

impl Repeats {
    /// Whether these pages were read past the cache and should be read through it now.
    pub(super) fn is_due(&self, pages: u64, now: Instant) -> bool {
        match self.reads.get(&pages) {
            None => false,
            Some(Read::Past) => true,
            Some(Read::Through(at)) => now.saturating_duration_since(*at) >= KEEP_AGAIN_AFTER,
        }
    }

    /// Notes that the pages are read now.
    pub(super) fn note(&mut self, pages: u64, is_past: bool, now: Instant) {
        if self.reads.len() >= REPEATS_MAX && !self.reads.contains_key(&pages) {
            self.reads.clear();
        }
        if !is_past {
            self.reads.insert(pages, Read::Through(now));
        } else {
            self.reads.entry(pages).or_insert(Read::Past);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_due_when_they_are_read_past_the_cache_a_second_time_and_then_once() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        assert!(!repeats.is_due(7, now));
        repeats.note(7, true, now);
        assert!(repeats.is_due(7, now) && !repeats.is_due(8, now));
        repeats.note(7, false, now);
        repeats.note(7, true, now);
        assert!(!repeats.is_due(7, now + KEEP_AGAIN_AFTER / 2), "the cache did not keep them");
        assert!(repeats.is_due(7, now + KEEP_AGAIN_AFTER), "it may now");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        for pages in 0..3 * REPEATS_MAX as u64 {
            repeats.note(pages, true, now);
            assert!(repeats.reads.len() <= REPEATS_MAX && repeats.is_due(pages, now));
        }
    }
}
