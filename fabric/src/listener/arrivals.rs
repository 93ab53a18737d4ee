//! Keeps the state that the accepting threads and the owner of a listener share.
//!
//! Invariants
//! - At most `ACCEPT_QUEUE_MAX` connections and `REFUSALS_TOLD_MAX` refusals wait for `accept`.

use std::{collections::VecDeque, os::fd::OwnedFd, sync::atomic::AtomicBool, time::Instant};

use super::complaints::Complaints;
use crate::{
    address::Wire,
    connection::Connection,
    doorbell::Doorbell,
    error::ConnectError,
    guarded::Guarded,
    inbox::Inboxes,
    key::ClusterKey,
    limits::{ACCEPT_QUEUE_MAX, REFUSALS_TOLD_MAX},
};

/// The state that the accepting threads and the owner of a listener share.
#[derive(Debug)]
pub(super) struct Arrivals {
    pub(super) wire: Wire,
    // The RDMA device, which only an address of the wire `verbs` may name.
    pub(super) device: Option<String>,
    pub(super) key: ClusterKey,
    pub(super) inboxes: Inboxes,
    pub(super) finished: Guarded<Finished>,
    pub(super) arrived: Doorbell,
    pub(super) stop: Doorbell,
    pub(super) stopping: AtomicBool,
    pub(super) setups: Guarded<Setups>,
    pub(super) complaints: Guarded<Complaints>,
}

/// Connections and refusals that `accept` has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Finished {
    pub(super) arrivals: VecDeque<Result<Connection, ConnectError>>,
    /// How many of them are refusals.
    pub(super) refusals: usize,
}

/// Callers that wait to be set up, and the threads that do it.
#[derive(Debug, Default)]
pub(super) struct Setups {
    pub(super) waiting: VecDeque<(OwnedFd, String)>,
    pub(super) threads: usize,
}

impl Arrivals {
    /// Hands a connection to `accept`.
    pub(super) fn deliver(&self, connection: Connection) {
        let mut finished = self.finished.lock();
        let waiting = finished.arrivals.len() - finished.refusals;
        if waiting < ACCEPT_QUEUE_MAX {
            finished.arrivals.push_back(Ok(connection));
            self.arrived.ring();
            return;
        }
        drop(finished);
        self.refuse(ConnectError::CrowdedOut { peer: connection.peer().to_owned(), waiting });
    }

    /// Reports why a caller was turned away, to the log and to `accept`, each with a limit on the
    /// number of reports.
    pub(super) fn refuse(&self, error: ConnectError) {
        self.complaints.lock().log(&error, Instant::now());
        let mut finished = self.finished.lock();
        if finished.refusals < REFUSALS_TOLD_MAX {
            finished.arrivals.push_back(Err(error));
            finished.refusals += 1;
            self.arrived.ring();
        }
    }
}
