//! Implements the queue of a `sim` connection.
//!
//! `post` gives an operation to the network. Steps of the network carry it to the peer, execute it
//! there and bring its completion back, all in virtual time. Polls take steps, and so does the test
//! itself.
//!
//! Invariants
//! - A poll hands out the events of its own end. If there are none, it takes one step of the
//!   network first.
//! - A thread sleeps only while the network is idle. An event that is entered for a link afterwards
//!   wakes both ends of that link.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use super::{agenda::EndNumber, config::Threads, registry::SimShared};
use crate::{
    access::Access,
    completion::Event,
    doorbell::Doorbell,
    error::{Ending, PostError, RegisterError},
    memory::RawSlice,
    operation::{Operation, RemoteSpan},
    region::{Region, RemoteRegion},
    wire::Queue,
};

/// One end of a `sim` connection.
pub(super) struct SimQueue {
    shared: Arc<SimShared>,
    link: u64,
    end: EndNumber,
    bell: Arc<Doorbell>,
}

impl SimQueue {
    /// The queue of an end, if the link exists.
    pub(super) fn new(shared: &Arc<SimShared>, link: u64, end: EndNumber) -> Option<Self> {
        let bell = shared.world.lock().bell(link, end)?;
        Some(Self { shared: Arc::clone(shared), link, end, bell })
    }
}

impl Queue for SimQueue {
    /// Draws the key from the network's random numbers, because the given key differs in every run.
    fn grant(&mut self, _key: u64, region: &Region, access: Access) -> Result<RemoteRegion, RegisterError> {
        let mut world = self.shared.world.lock();
        let world = &mut *world;
        let Some(link) = world.links.get_mut(&self.link) else {
            return Err(RegisterError::Closed(Ending::Orderly));
        };
        let end = &mut link.ends[self.end];
        if let Some(ending) = &end.ending {
            return Err(RegisterError::Closed(ending.clone()));
        }
        let mut key = world.random.next_u64();
        while key == 0 || end.grants.has(key) {
            key = world.random.next_u64();
        }
        end.grants.grant(key, region, access);
        Ok(RemoteRegion { key, address: 0, length: region.bytes() as u64 })
    }

    fn revoke(&mut self, key: u64) -> Result<(), RegisterError> {
        if let Some(link) = self.shared.world.lock().links.get_mut(&self.link) {
            link.ends[self.end].grants.revoke(key);
        }
        Ok(())
    }

    fn post(&mut self, id: u64, operation: Operation<'_>) -> Result<(), PostError> {
        self.shared.world.lock().post(self.link, self.end, id, operation)
    }

    fn poll(&mut self, events: &mut Vec<Event>) {
        let mut world = self.shared.world.lock();
        let Some(link) = world.links.get_mut(&self.link) else { return };
        let end = &mut link.ends[self.end];
        if std::mem::take(&mut end.armed) {
            self.bell.drain();
        }
        if end.arrived.is_empty() {
            world.step();
        }
        world.take(self.link, self.end, events);
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn arm(&mut self) -> bool {
        let mut world = self.shared.world.lock();
        let idle = world.is_idle();
        let Some(link) = world.links.get_mut(&self.link) else { return true };
        let end = &mut link.ends[self.end];
        let sleep = idle && end.arrived.is_empty();
        end.armed = sleep;
        sleep
    }

    fn nothing_will_come(&mut self) -> bool {
        let mut world = self.shared.world.lock();
        world.config.threads == Threads::One
            && world.is_idle()
            && world.links.get(&self.link).is_none_or(|link| link.ends[self.end].arrived.is_empty())
    }

    fn map_remote(&mut self, _span: RemoteSpan, _access: Access) -> Option<RawSlice> {
        None
    }

    fn spin_us(&self) -> u64 {
        0
    }

    fn close(&mut self) {
        self.shared.world.lock().close(self.link, self.end);
    }
}
