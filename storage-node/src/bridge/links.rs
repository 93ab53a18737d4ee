//! Which connections does a reactor have, and which of them are to be looked at?
//!
//! Invariants
//! - A connection on which nothing happens costs a turn nothing: it is in no list until its watch
//!   fires, or somebody uses it.
//! - A connection that is in no list is armed and watched, so whatever arrives there fires its
//!   watch.
//! - What was posted and held back is handed over by the next release: who posts takes the
//!   connection by [`Links::use_at`].

use std::collections::HashMap;

use super::io::BridgeIo;
use crate::{link::Link, store::ConnectionId};

/// The connections of a reactor, by their places.
#[derive(Debug, Default)]
pub(crate) struct Links {
    all: Vec<Option<Link>>,
    places: HashMap<ConnectionId, usize>,
    /// Those that were used since the last turn and may hold back what was posted.
    used: Vec<usize>,
    /// Those that are looked at in each turn: all without a watch, and those that were used.
    awake: Vec<usize>,
}

impl Links {
    /// Gives a connection a place.
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

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// A connection, which is not used by this.
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Link> {
        self.all.get_mut(index)?.as_mut()
    }

    /// A connection that something may be posted to.
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

    /// A connection is to be looked at in the next turns.
    fn awaken(&mut self, index: usize) {
        if let Some(link) = self.get_mut(index)
            && !std::mem::replace(&mut link.is_awake, true)
        {
            self.awake.push(index);
        }
    }

    /// The watch of a connection has fired.
    pub(crate) fn fired(&mut self, id: ConnectionId) {
        if let Some(index) = self.places.get(&id).copied() {
            if let Some(link) = self.get_mut(index) {
                link.unwatched();
            }
            self.awaken(index);
        }
    }

    /// Takes a connection out.
    pub(crate) fn take(&mut self, index: usize) -> Option<Link> {
        let link = self.all.get_mut(index)?.take()?;
        self.places.remove(&link.id());
        self.used.retain(|used| *used != index);
        self.awake.retain(|awake| *awake != index);
        Some(link)
    }

    /// Takes all out.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Link> + '_ {
        self.places.clear();
        self.all.iter_mut().filter_map(Option::take)
    }

    /// The place of one of those that are to be looked at; `None` behind the last.
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

    /// The same over wires where announcing takes no system call while the peer is awake.
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

    /// Lets the kernel watch those that `are` to be watched and on which nothing waits to be looked
    /// at. False if something does somewhere.
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
