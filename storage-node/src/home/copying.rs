//! What does the home do so that other nodes have copies of its log?
//!
//! It hands them what it hands to its own disk, and waits for both; for a copy not longer than is bearable.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use rackscan_ramp::log::{Batch, Tail};

use super::service::HomeService;
use crate::{limits::COPY_AHEAD_TIME, peers::Copied};

impl HomeService {
    /// The log ends with this batch now.
    pub(super) fn copy(&mut self, batch: &Arc<Batch>) {
        let end = self.home.log_mut().tail();
        if let Some(peers) = &self.peers {
            peers.copy(batch, end);
        }
    }

    /// All records up to this one are on this node's disk.
    pub(super) fn filed(&mut self, sequence: u64) {
        if let Some(peers) = &self.peers {
            peers.filed(sequence);
        }
        self.durability.here(sequence);
        self.look_at_copies();
    }

    /// The log is another one now.
    pub(super) fn log_replaced(&mut self, number: u32) {
        let end = self.home.log_mut().tail();
        if let Some(peers) = &self.peers {
            peers.log_begins(number, end);
        }
    }

    /// A copy has come further.
    pub(super) fn copied(&mut self, copied: Copied) {
        match copied {
            Copied::Through { copy, sequence } => {
                if self.durability.copied(copy, sequence) {
                    tracing::info!(node = %self.keeper(copy), "a copy of the log of transactions has caught up");
                }
                self.acknowledge();
            }
            Copied::Ahead { copy, log } if log == self.successor => self.durability.ahead(copy),
            Copied::Ahead { .. } => {}
        }
    }

    /// A shorter log is ready: the copies are to have it before it takes the place of this one, so that they do not have to be waited for then.
    pub(super) fn copy_ahead(&mut self, number: u32, end: Tail) {
        self.successor = number;
        self.durability.begin_ahead();
        if let Some(peers) = &self.peers {
            peers.log_succeeds(Some((number, end)));
        }
    }

    /// There is no shorter log.
    pub(super) fn log_stays(&self) {
        if let Some(peers) = &self.peers {
            peers.log_succeeds(None);
        }
    }

    /// Whether the copies have what was ready at that time, or have had time enough.
    pub(super) fn is_copied_ahead(&self, since: Instant) -> bool {
        self.durability.all_ahead() || since.elapsed() >= COPY_AHEAD_TIME
    }

    /// Leaves out copies that lack something for too long, and tells what is durable.
    pub(super) fn look_at_copies(&mut self) {
        for copy in self.durability.look(Instant::now()) {
            tracing::warn!(
                node = %self.keeper(copy),
                "writes are acknowledged without this node's copy of the log of transactions, until it has caught up: it does not answer, or is too slow"
            );
        }
        self.acknowledge();
    }

    fn acknowledge(&mut self) {
        self.home.durable(self.durability.acknowledged());
        let copies = self.durability.whole_copies() as u64;
        self.shared.gauges.log_copies.store(copies, Relaxed);
    }

    fn keeper(&self, copy: usize) -> String {
        let keepers = self.peers.as_ref().map_or(&[][..], |peers| peers.keepers());
        keepers.get(copy).map_or_else(String::new, ToString::to_string)
    }
}
