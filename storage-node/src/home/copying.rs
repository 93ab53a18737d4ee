//! What does the home do so that other nodes have copies of its log?
//!
//! It hands them what it hands to its own disk, and waits for both; for a copy not longer than is bearable.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use rackscan_ramp::log::Batch;

use super::service::HomeService;

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

    /// The copy with this number has all records up to there.
    pub(super) fn copied(&mut self, copy: usize, sequence: u64) {
        if self.durability.copied(copy, sequence) {
            tracing::info!(node = %self.keeper(copy), "a copy of the log of transactions has caught up");
        }
        self.acknowledge();
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
