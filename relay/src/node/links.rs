//! Stores the connections of a node and the role of each: its peer is a client, a node that sends
//! to this one, or a node that this one sends to.
//!
//! Invariants
//! - The number of connections that belong to no session has a bound of its own. The memory of all
//!   others counts in their session's memory.
//! - The index of a connection is not reused while anything refers to it: sessions end before their
//!   connections are removed.

use std::time::Instant;

use rackscan_device::{DeviceIo, Interest, Repeat, SubmitError, Token, Watch, WatchId};
use rackscan_fabric::Connection;

use super::disk::WATCH;
use crate::{limits::LINKS_MAX, link::Link, message::Join};

/// The role of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Its peer has not said what it is for.
    New,
    /// A node will forward over it, in a session that does not exist here yet.
    Early(Join),
    /// The client of a session.
    Client(u64),
    /// A member of a session forwards to us over it.
    From(u64, usize),
    /// We forward to a member of a session over it.
    To(u64, usize),
}

impl Role {
    /// The session, and the member at the other end; `None` for the client.
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
    /// The maximum number of links that belong to no session.
    early_max: usize,
}

impl Links {
    /// No links. At most `early_max` may belong to no session.
    pub(super) fn new(early_max: usize) -> Self {
        Self { entries: Vec::new(), early_max }
    }

    /// Adds a connection, if there is room.
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

    /// The number of indices, used or not.
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
            // It may still wake this node, without effect.
            tracing::debug!(%error, "the relay of this node cannot stop watching a connection");
        }
        Some(entry.link.into_connection())
    }

    /// The links whose role matches.
    pub(super) fn with(&self, wanted: impl Fn(&Role) -> bool) -> Vec<usize> {
        let like = |(index, entry): (usize, &Option<Entry>)| {
            entry.as_ref().is_some_and(|entry| wanted(&entry.role)).then_some(index)
        };
        self.entries.iter().enumerate().filter_map(like).collect()
    }

    /// Links that belong to no session, and were added before this time.
    pub(super) fn idle_since(&self, before: Instant) -> Vec<usize> {
        let idle = |(index, entry): (usize, &Option<Entry>)| {
            let is_idle = |entry: &Entry| entry.role.session().is_none() && entry.since < before;
            entry.as_ref().is_some_and(is_idle).then_some(index)
        };
        self.entries.iter().enumerate().filter_map(idle).collect()
    }

    /// Bytes written and messages sent on all links.
    pub(super) fn counted(&self) -> (u64, u64) {
        let counters = self.entries.iter().flatten().map(|entry| entry.link.get().counters());
        counters.fold((0, 0), |(written, sends), counters| {
            (written + counters.written_bytes, sends + counters.sends)
        })
    }

    /// Prepares all links for sleep, and watches them. False if there is an event to handle first.
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

    /// Takes note that a link's watch has fired, which ends it.
    pub(super) fn fired(&mut self, index: u64) {
        let Ok(index) = usize::try_from(index) else { return };
        if let Some(entry) = self.entries.get_mut(index).and_then(Option::as_mut) {
            entry.watch = None;
        }
    }
}
