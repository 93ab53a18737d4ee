//! Which connections does a node have, and what is each for?
//!
//! Invariants
//! - Links that belong to no session are bounded by a bound of their own; those of sessions are
//!   part of what a session takes.
//! - A link's place is not used again before everything that names it is gone: sessions end before
//!   their links do.

use std::time::Instant;

use rackscan_device::{DeviceIo, Interest, Repeat, SubmitError, Token, Watch, WatchId};
use rackscan_fabric::Connection;

use super::disk::WATCH;
use crate::{limits::LINKS_MAX, link::Link, message::Join};

/// What a connection is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It has not said so.
    New,
    /// A node forwards over it, in a session that does not exist yet.
    Early(Join),
    /// The client of a session.
    Client(u64),
    /// A member of a session forwards to us over it.
    From(u64, usize),
    /// We forward to a member of a session over it.
    To(u64, usize),
}

impl Role {
    /// The session, and who is at the other end.
    pub(super) fn session(&self) -> Option<(u64, Option<usize>)> {
        match *self {
            Self::New | Self::Early(_) => None,
            Self::Client(session) => Some((session, None)),
            Self::From(session, member) | Self::To(session, member) => Some((session, Some(member))),
        }
    }
}

#[derive(Debug)]
struct Entry {
    link: Link,
    role: Role,
    since: Instant,
    watch: Option<WatchId>,
}

/// All connections of a node.
#[derive(Debug)]
pub(super) struct Links {
    entries: Vec<Option<Entry>>,
    /// How many may belong to no session.
    early_max: usize,
}

impl Links {
    /// None, of which so many may belong to no session.
    pub(super) fn new(early_max: usize) -> Self {
        Self { entries: Vec::new(), early_max }
    }

    /// Takes a connection in, if there is room.
    pub(super) fn add(&mut self, connection: Connection, role: Role) -> Result<usize, Box<Connection>> {
        let unclaimed = self.entries.iter().flatten().filter(|entry| entry.role.session().is_none());
        if role.session().is_none() && unclaimed.count() >= self.early_max {
            return Err(Box::new(connection));
        }
        let free = self.entries.iter().position(Option::is_none);
        if free.is_none() && self.entries.len() >= LINKS_MAX {
            return Err(Box::new(connection));
        }
        let index = free.unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        let (link, since) = (Link::new(connection), Instant::now());
        self.entries[index] = Some(Entry { link, role, since, watch: None });
        Ok(index)
    }

    /// How many places there are, used or not.
    pub(super) fn places(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Link> {
        self.entries.get_mut(index)?.as_mut().map(|entry| &mut entry.link)
    }

    pub(super) fn role(&self, index: usize) -> Option<&Role> {
        self.entries.get(index)?.as_ref().map(|entry| &entry.role)
    }

    pub(super) fn set_role(&mut self, index: usize, role: Role) {
        if let Some(entry) = self.entries.get_mut(index).and_then(Option::as_mut) {
            entry.role = role;
        }
    }

    pub(super) fn remove(&mut self, index: usize, io: &mut dyn DeviceIo) -> Option<Connection> {
        let entry = self.entries.get_mut(index)?.take()?;
        if let Some(watch) = entry.watch
            && let Err(error) = io.unwatch(watch)
        {
            // It may still wake us, for nothing.
            tracing::debug!(%error, "a watch could not be ended");
        }
        Some(entry.link.into_connection())
    }

    /// The links with a role like this.
    pub(super) fn with(&self, wanted: impl Fn(&Role) -> bool) -> Vec<usize> {
        let like = |(index, entry): (usize, &Option<Entry>)| {
            entry.as_ref().is_some_and(|entry| wanted(&entry.role)).then_some(index)
        };
        self.entries.iter().enumerate().filter_map(like).collect()
    }

    /// Links that belong to no session, and came before this.
    pub(super) fn idle_since(&self, before: Instant) -> Vec<usize> {
        let idle = |(index, entry): (usize, &Option<Entry>)| {
            let is_idle = |entry: &Entry| entry.role.session().is_none() && entry.since < before;
            entry.as_ref().is_some_and(is_idle).then_some(index)
        };
        self.entries.iter().enumerate().filter_map(idle).collect()
    }

    /// What the fabric has counted on all of them.
    pub(super) fn counted(&self) -> (u64, u64) {
        let counters = self.entries.iter().flatten().map(|entry| entry.link.get().counters());
        counters.fold((0, 0), |(written, sends), counters| {
            (written + counters.written_bytes, sends + counters.sends)
        })
    }

    /// What the fabric has counted on each of them, with the peer's name.
    pub(super) fn counters(&self) -> Vec<(String, rackscan_fabric::Counters)> {
        let of = |entry: &Entry| (entry.link.get().peer().to_owned(), entry.link.get().counters());
        self.entries.iter().flatten().map(of).collect()
    }

    /// Announces that their owner is about to sleep, and has all of them watched; false if there is
    /// something to look at first.
    pub(super) fn arm(&mut self, io: &mut dyn DeviceIo) -> Result<bool, SubmitError> {
        for (index, entry) in self.entries.iter_mut().enumerate() {
            let Some(entry) = entry else { continue };
            if !entry.link.arm() {
                return Ok(false);
            }
            if entry.watch.is_none() {
                let fd = entry.link.get().wait_fd();
                let token = Token(WATCH | index as u64);
                let watch = Watch { fd, interest: Interest::Readable, repeat: Repeat::Once, token };
                entry.watch = Some(io.watch(watch)?);
            }
        }
        Ok(true)
    }

    /// A link's watch has fired, and is gone.
    pub(super) fn fired(&mut self, index: u64) {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if let Some(entry) = self.entries.get_mut(index).and_then(Option::as_mut) {
            entry.watch = None;
        }
    }
}
