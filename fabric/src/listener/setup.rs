//! Sets up the connections of callers that have proved the cluster key.
//!
//! Invariants
//! - At most `SETUPS_MAX` threads set callers up, each for at most `SETUP_TIME_MAX` per caller. At
//!   most `SETUPS_WAITING_MAX` callers wait for a thread.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use super::arrivals::Arrivals;
use crate::{
    address::Wire,
    connection::Connection,
    error::ConnectError,
    limits::{SETUP_TIME_MAX, SETUPS_MAX, SETUPS_WAITING_MAX},
    shm, tcp, verbs,
};

impl Arrivals {
    /// Sets up the connection of a caller that has proved the cluster key, on another thread.
    pub(super) fn set_up(self: &Arc<Self>, socket: OwnedFd, peer: String) {
        {
            let mut setups = self.setups.lock();
            if setups.waiting.len() >= SETUPS_WAITING_MAX {
                let waiting = setups.waiting.len();
                drop(setups);
                return self.refuse(ConnectError::CrowdedOut { peer, waiting });
            }
            setups.waiting.push_back((socket, peer));
            if setups.threads >= SETUPS_MAX {
                return;
            }
            setups.threads += 1;
        }
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("fabric-hello".to_owned());
        if let Err(source) = thread.spawn(move || shared.set_up_all()) {
            let mut setups = self.setups.lock();
            setups.threads -= 1;
            // If another thread exists, it takes the caller.
            let left = if setups.threads == 0 { setups.waiting.pop_back() } else { None };
            drop(setups);
            if let Some((_, peer)) = left {
                self.refuse(ConnectError::Os { action: "start a thread", peer, source });
            }
        }
    }

    fn set_up_all(&self) {
        loop {
            let (socket, peer) = {
                let mut setups = self.setups.lock();
                let next = setups.waiting.pop_front().filter(|_| !self.stopping.load(Ordering::SeqCst));
                let Some(next) = next else {
                    setups.threads -= 1;
                    return;
                };
                next
            };
            match self.connection(socket, peer) {
                Ok(connection) => self.deliver(connection),
                Err(error) => self.refuse(error),
            }
        }
    }

    fn connection(&self, socket: OwnedFd, peer: String) -> Result<Connection, ConnectError> {
        let deadline = Instant::now() + SETUP_TIME_MAX;
        match self.wire {
            Wire::Shm => shm::set_up(socket, peer, &self.inboxes, deadline),
            // A simulated network has a listener of its own.
            Wire::Tcp | Wire::Sim => tcp::set_up(socket, peer, &self.inboxes),
            Wire::Verbs => {
                let device = self.device.as_deref();
                verbs::set_up((socket, peer), device, &self.inboxes, deadline)
            }
        }
    }
}
