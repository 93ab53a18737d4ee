//! Contains the connections of a reactor, and the lists of those that must be polled.
//!
//! Invariants
//! - An idle connection costs a turn of the reactor nothing: it is in no list until its watch fires
//!   or something is posted to it.
//! - A connection that is in no list is armed and watched, so anything that arrives on it fires its
//!   watch.
//! - Posted operations are held back until the next release of their connection. Code that posts
//!   therefore gets the connection by [`Links::use_at`], which puts it on the list of connections
//!   to release.

use std::collections::HashMap;

use super::io::BridgeIo;
use crate::{ids::ConnectionId, link::Link};

/// The connections of a reactor, by index.
#[derive(Debug, Default)]
pub(crate) struct Links {
    all: Vec<Option<Link>>,
    places: HashMap<ConnectionId, usize>,
    /// Connections used since the last release, which may hold back posted operations.
    used: Vec<usize>,
    /// Connections that are polled in each turn: all without a watch, and those that were used.
    awake: Vec<usize>,
}

impl Links {
    /// Adds a connection and returns its index.
    pub(crate) fn add(&mut self, link: Link) -> usize {
        let id = link.id();
        let index = match self.all.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.all.push(None);
                self.all.len() - 1
            }
        };
        self.all[index] = Some(link);
        self.places.insert(id, index);
        self.awaken(index);
        index
    }

    /// The number of connections.
    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// A connection, without marking it as used.
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Link> {
        self.all.get_mut(index)?.as_mut()
    }

    /// A connection, marked as used: operations may be posted to it.
    pub(crate) fn use_at(&mut self, index: usize) -> Option<&mut Link> {
        let link = self.all.get_mut(index)?.as_mut()?;
        if !std::mem::replace(&mut link.is_used, true) {
            self.used.push(index);
        }
        if !std::mem::replace(&mut link.is_awake, true) {
            self.awake.push(index);
        }
        Some(link)
    }

    /// Adds a connection to those that are polled.
    fn awaken(&mut self, index: usize) {
        if let Some(link) = self.get_mut(index)
            && !std::mem::replace(&mut link.is_awake, true)
        {
            self.awake.push(index);
        }
    }

    /// Handles the firing of a connection's watch.
    pub(crate) fn fired(&mut self, id: ConnectionId) {
        if let Some(index) = self.places.get(&id).copied() {
            if let Some(link) = self.get_mut(index) {
                link.unwatched();
            }
            self.awaken(index);
        }
    }

    /// Removes a connection.
    pub(crate) fn take(&mut self, index: usize) -> Option<Link> {
        let link = self.all.get_mut(index)?.take()?;
        self.places.remove(&link.id());
        self.used.retain(|used| *used != index);
        self.awake.retain(|awake| *awake != index);
        Some(link)
    }

    /// Removes all connections.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Link> + '_ {
        self.places.clear();
        self.all.iter_mut().filter_map(Option::take)
    }

    /// The index of the connection at position `at` of those that are polled; `None` after the
    /// last.
    pub(crate) fn awake_at(&self, at: usize) -> Option<usize> {
        self.awake.get(at).copied()
    }

    /// Hands over what was posted and held back.
    pub(super) fn release(&mut self) {
        let Self { all, used, .. } = self;
        for index in used.drain(..) {
            if let Some(link) = all.get_mut(index).and_then(Option::as_mut) {
                link.is_used = false;
                link.release();
            }
        }
    }

    /// The same for wires on which announcing takes no system call while the peer is awake.
    pub(super) fn release_mapped(&mut self) {
        let all = &mut self.all;
        self.used.retain(|index| match all.get_mut(*index).and_then(Option::as_mut) {
            Some(link) if link.maps_memory() => {
                link.is_used = false;
                link.release();
                false
            }
            Some(_) => true,
            None => false,
        });
    }

    /// Arms watches on the connections that `are` accepts, and stops polling them. Returns false if
    /// one of them has something to poll.
    pub(crate) fn arm(&mut self, io: &mut BridgeIo, are: impl Fn(&Link) -> bool) -> bool {
        let (all, mut all_armed) = (&mut self.all, true);
        self.awake.retain(|index| {
            let Some(link) = all.get_mut(*index).and_then(Option::as_mut) else { return false };
            if !are(link) {
                return true;
            }
            link.is_awake = !link.arm(io);
            all_armed &= !link.is_awake;
            link.is_awake
        });
        all_armed
    }
}
