//! The participant's access to the thread that talks to other nodes.
//!
//! Invariants
//! - No call waits. A message to another participant is dropped if the queue has no room.
//! - The thread ends when the handle is dropped.

use std::sync::{Arc, Mutex, PoisonError, mpsc::SyncSender};

use rackscan_client::LineBell;
use rackscan_format::{ids::NodeId, message::LogGeneration};
use rackscan_ramp::log::{Batch, Tail};

use super::{messages::Errand, outlet::Outlet};

/// The bell that wakes the thread. `None` until the thread has connections.
pub(super) type SharedBell = Arc<Mutex<Option<LineBell>>>;

/// The participant's handle on the thread.
#[derive(Debug)]
pub(crate) struct PeersHandle {
    /// `None` only while this is dropped.
    pub(super) errands: Option<SyncSender<Errand>>,
    /// `None` until the thread has connections.
    pub(super) bell: SharedBell,
    pub(super) outlet: Arc<Outlet>,
    /// The nodes that have replicas of the log, in the order in which replicas are numbered.
    pub(super) replica_nodes: Vec<NodeId>,
    /// All other nodes; the replica nodes come first.
    pub(super) others: Vec<NodeId>,
}

impl PeersHandle {
    /// Sends a message, if the queue has room.
    pub(crate) fn send(&self, errand: Errand) {
        if let Some(errands) = &self.errands
            && errands.try_send(errand).is_ok()
        {
            self.ring();
        }
    }

    /// The nodes that have replicas of the log: replicas are numbered in this order.
    pub(crate) fn replica_nodes(&self) -> &[NodeId] {
        &self.replica_nodes
    }

    /// All other nodes; the replica nodes come first.
    pub(crate) fn others(&self) -> &[NodeId] {
        &self.others
    }

    /// Tells all other nodes the log's generation, which is durable here.
    pub(crate) fn tell_generation(&self, generation: LogGeneration) {
        self.outlet.set_generation(generation);
        self.ring();
    }

    /// Sets the log: all of it is in its file.
    pub(crate) fn log_begins(&self, number: u32, end: Tail) {
        self.outlet.begin(number, end);
        self.ring();
    }

    /// Sets the shorter log that will replace the present one, as far as it is in its file; `None`
    /// if it was given up.
    pub(crate) fn log_succeeds(&self, new_version: Option<(u32, Tail)>) {
        self.outlet.succeed(new_version);
        self.ring();
    }

    /// Sends a batch, with which the log now ends, to the replicas.
    pub(crate) fn copy(&self, batch: &Arc<Batch>, end: Tail) {
        self.outlet.add(batch, end);
        self.ring();
    }

    /// Records that all records up to this one are in the log's file.
    pub(crate) fn filed(&self, sequence: u64) {
        self.outlet.filed(sequence);
    }

    fn ring(&self) {
        if let Some(bell) = &*self.bell.lock().unwrap_or_else(PoisonError::into_inner) {
            bell.ring();
        }
    }
}

impl Drop for PeersHandle {
    /// Ends the thread.
    fn drop(&mut self) {
        self.errands = None;
        self.ring();
    }
}
