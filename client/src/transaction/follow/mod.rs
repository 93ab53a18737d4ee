//! How does a program learn of everything that transactions write under a prefix, in the order of
//! each home, without asking for it?
//!
//! ```text
//! first, and when it cannot go on:   every home is opened, leased, marked; then scanned, page by page    -> begin_anew, scanned
//! catch_up:                          rounds: every feed is read to its end                               -> record, round_ended
//! a home that may be away:           the copy of its log that others keep, from its beginning            -> record   (copies)
//! ```
//!
//! A session whose transactions are questions: connections, homes, leases and long answers are
//! those of [`super`].
//!
//! Invariants
//! - When a call succeeds, everything that was acknowledged before it began was told, and every
//!   feed was read to an end that was looked at after the call began.
//! - All homes are followed or none: where one was lost, is back, was started anew or has
//!   overwritten what was not read, everything begins anew.
//! - Nothing of a dead node's memory makes a call succeed: the nodes whose memory is mapped here
//!   are looked at after it was copied.
//! - A part of a connection's memory has one user at a time: what ends without its reads having
//!   ended waits for them, or hangs up.

mod copies;
mod feeds;

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use rackscan_fabric::RemoteRegion;
use rackscan_format::{ids::NodeId, message::Target};
use rackscan_ramp::{
    feed::{Behind, FeedReader, Follow},
    item::{Key, SYSTEM_PREFIX},
    limits::SCAN_KEYS_MAX,
    log::Tail,
    message::{HomeId, KeyRange, Refusal, Reply, Request},
};

use super::{
    Session, SessionOptions, TransactionError,
    home::{Parts, Purpose},
};
use crate::{
    ClientError, Cluster, LinesOptions,
    limits::{FOLLOW_ATTEMPTS_MAX, FOLLOW_RETURN_TIME, KEEPALIVE_TIME_MAX},
};
use copies::AwayHome;
use feeds::Followed;

/// What a follower is opened with.
#[derive(Debug, Clone)]
pub struct FollowerOptions {
    /// All nodes of the cluster, and how to reach them.
    pub lines: LinesOptions,
    /// What the keys begin with that are told of when everything begins anew; it begins with
    /// [`SYSTEM_PREFIX`]. Of a transaction that writes any key of the system, records tell
    /// everything.
    pub prefix: Vec<u8>,
    /// How long catching up may take.
    pub timeout: Duration,
    /// A cluster that may do without some nodes ([`crate::ClusterOptions::away_max`]): of as many
    /// homes that are away, the copies of their logs are told of. `None` if all homes are needed.
    pub copies: Option<Cluster>,
}

/// What it took to catch up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CaughtUp {
    /// How often all feeds were read to their ends.
    pub rounds: u32,
    /// Records that were told.
    pub records: u64,
    /// Whether all that was told before is void.
    pub began_anew: bool,
}

/// Why there is nothing read-atomic to look at. The next call begins anew.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FollowError<F> {
    /// A home is away, refuses, or does not answer.
    #[error("not all homes could be followed: {0}")]
    Home(#[from] TransactionError),
    /// The home has no feed.
    #[error("{home} has no feed to follow: give its node more memory for transactions")]
    NoFeed {
        /// The home.
        home: HomeId,
    },
    /// What was to be read next was gone whenever everything had begun anew.
    #[error(
        "{home} could not be followed though all began anew {attempts} times: {why}; give its node more memory for transactions"
    )]
    Behind {
        /// The home.
        home: HomeId,
        /// How often everything began anew.
        attempts: u32,
        /// Why it could not be followed the last time.
        why: Behind,
    },
    /// Transactions were committed all the time.
    #[error(
        "after {rounds} rounds in {waited:?} there was still a transaction that was not read to its end: give more time"
    )]
    Unsettled {
        /// How often all feeds were read.
        rounds: u32,
        /// For how long.
        waited: Duration,
    },
    /// What follows makes no sense of what homes say.
    #[error("what homes say is not understood: {0}")]
    Fault(F),
}

/// What has come for a follower.
#[derive(Debug)]
pub(super) enum News {
    Reply { at: usize, attempt: u64, reply: Reply },
    Failed { attempt: u64, error: TransactionError },
    Read { at: usize, is_done: bool },
}

/// Why an attempt has ended.
#[derive(Debug)]
enum Stop {
    /// Everything is to begin anew.
    Lost(HomeId),
    /// Likewise.
    Behind(HomeId, Behind),
    Home(TransactionError),
    NoFeed(HomeId),
    Unsettled {
        rounds: u32,
        waited: Duration,
    },
}

impl Stop {
    fn into_error<F>(self, attempts: u32) -> FollowError<F> {
        match self {
            Self::Lost(home) => {
                let reason = format!("it was lost in each of {attempts} attempts");
                FollowError::Home(TransactionError::NodeDown { home, reason })
            }
            Self::Behind(home, why) => FollowError::Behind { home, attempts, why },
            Self::Home(error) => FollowError::Home(error),
            Self::NoFeed(home) => FollowError::NoFeed { home },
            Self::Unsettled { rounds, waited } => FollowError::Unsettled { rounds, waited },
        }
    }
}

impl From<TransactionError> for Stop {
    fn from(error: TransactionError) -> Self {
        Self::Home(error)
    }
}

/// The same, or what follows makes no sense of what it was told.
enum Ended<F> {
    Stop(Stop),
    Fault(F),
}

impl<F> From<Stop> for Ended<F> {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// Who reads the feeds of all homes. A value of one thread, which does nothing between two calls.
#[derive(Debug)]
pub struct Follower {
    session: Session,
    prefix: Vec<u8>,
    /// By the home's place among all of them; empty if all begins anew.
    feeds: BTreeMap<usize, Followed>,
    /// Homes whose memory is mapped here.
    mapped: Vec<usize>,
    /// How copies of logs are read.
    copies: Option<Cluster>,
    /// Homes that are away.
    away: Vec<AwayHome>,
    attempt: u64,
    /// Where bytes of feeds are judged.
    bytes: Vec<u8>,
}

impl Follower {
    /// Connects to all nodes. Those that are down are connected to later.
    ///
    /// # Errors
    /// Options that cannot work, and what the system refuses.
    pub fn open(options: FollowerOptions) -> Result<Self, ClientError> {
        let FollowerOptions { lines, prefix, timeout, copies } = options;
        if !prefix.starts_with(SYSTEM_PREFIX) {
            return Err(ClientError::Options(format!(
                "the prefix '{}', expected one that begins with '{}': homes tell of other keys only where such a one is written with them",
                prefix.escape_ascii(),
                SYSTEM_PREFIX.escape_ascii()
            )));
        }
        let parts = Parts::of_follower(lines.memory_bytes);
        let silent = |cluster: &Cluster| {
            let nodes = cluster.nodes().filter(|node| cluster.unresponsive_for(*node).is_some());
            nodes.collect::<Vec<_>>()
        };
        let unresponsive = copies.as_ref().map(silent).unwrap_or_default();
        let options = SessionOptions { timeout, places_max: 0, ..SessionOptions::new(lines) };
        let mut session = Session::open_without(options, &unresponsive)?;
        session.parts = parts;
        session.news = Some(VecDeque::new());
        let copies = copies.filter(|cluster| cluster.away_max() > 0);
        if copies.is_some() {
            // Others have copies of what a node has that does not answer.
            session.awaits_first = false;
            session.lines.set_keepalive_time(KEEPALIVE_TIME_MAX);
        }
        let (feeds, mapped, away, bytes) = (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
        Ok(Self { session, prefix, feeds, mapped, copies, away, attempt: 0, bytes })
    }

    /// The homes that it follows, ascending.
    #[must_use]
    pub fn homes(&self) -> &[HomeId] {
        self.session.homes()
    }

    /// Lets the next call begin anew: who was told something is gone, or another one is to be told.
    pub fn begin_anew(&mut self) {
        self.feeds.clear();
    }

    /// Homes that are away, and of which the copies of their logs were told of.
    #[must_use]
    pub fn away(&self) -> Vec<HomeId> {
        self.away.iter().map(AwayHome::id).collect()
    }

    /// Tells everything that was acknowledged before this was called, always to the same `follow`.
    /// When it succeeds, what was told is read-atomic. Without news it costs a copy of each feed's
    /// header and one system call where memory is mapped, and one small read for each other node.
    ///
    /// # Errors
    /// [`FollowError`]; what was told is void then, and the next call begins anew. A home that is
    /// away is named, or its copy read, after half a second, in which it may come back.
    ///
    /// # Panics
    /// On a thread that runs asynchronous tasks, if homes may be away: it waits for copies of their
    /// logs.
    pub fn catch_up<F: Follow>(&mut self, follow: &mut F) -> Result<CaughtUp, FollowError<F::Fault>> {
        let deadline = Instant::now() + self.session.timeout;
        let mut caught = CaughtUp::default();
        let mut attempts = 0;
        let result = loop {
            attempts += 1;
            let Err(ended) = self.attempt(follow, deadline, &mut caught) else { break Ok(caught) };
            self.wait_for_reads(deadline);
            self.tell_who_is_unresponsive();
            self.feeds.clear();
            match ended {
                Ended::Fault(fault) => break Err(FollowError::Fault(fault)),
                Ended::Stop(stop @ (Stop::Lost(_) | Stop::Behind(..))) if attempts < FOLLOW_ATTEMPTS_MAX => {
                    tracing::debug!(?stop, "feeds cannot be read on: all begins anew");
                }
                Ended::Stop(stop) => break Err(stop.into_error(attempts)),
            }
        };
        self.give_leases_back();
        result
    }

    fn attempt<F: Follow>(
        &mut self,
        follow: &mut F,
        deadline: Instant,
        caught: &mut CaughtUp,
    ) -> Result<(), Ended<F::Fault>> {
        if self.feeds.is_empty() || self.lost().is_some() || self.is_back() {
            caught.began_anew = true;
            follow.begin_anew();
            self.begin(deadline)?;
            self.scan(follow, deadline)?;
        }
        loop {
            self.round(follow, deadline, caught)?;
            caught.rounds = caught.rounds.saturating_add(1);
            if follow.round_ended().map_err(Ended::Fault)? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let (rounds, waited) = (caught.rounds, self.session.timeout);
                return Err(Stop::Unsettled { rounds, waited }.into());
            }
        }
    }

    /// Opens, leases and marks all homes that are there.
    fn begin(&mut self, deadline: Instant) -> Result<(), Stop> {
        self.attempt += 1;
        self.feeds.clear();
        self.away.clear();
        self.news().clear();
        let mut ids = self.session.ids.clone();
        while let Err(error) = self.make_ready(&ids, deadline) {
            let home = self.take_for_away(error)?;
            ids.retain(|id| *id != home);
        }
        while let Some(home) = self.lost() {
            // A lease may come before the memory does.
            let is_leased = self.session.homes.iter().any(|of| of.id == home && of.lease.is_some());
            if !is_leased {
                return Err(Stop::Lost(home));
            }
            self.check_time(deadline)?;
            self.session.wait(deadline);
        }
        let places: Vec<usize> = ids.iter().filter_map(|id| self.session.position(*id)).collect();
        for at in &places {
            self.session.ask(*at, Purpose::Follow(self.attempt), Request::Mark);
        }
        let mut marks: BTreeMap<usize, Tail> = BTreeMap::new();
        while marks.len() < places.len() {
            match self.next_reply(deadline)? {
                (at, Reply::Marked { tail }) => drop(marks.insert(at, tail)),
                (at, Reply::Refused { why: Refusal::NoFeed }) => return Err(self.no_feed(at)),
                (at, reply) => return Err(self.nonsense(at, &reply)),
            }
        }
        self.mapped.clear();
        for (at, mark) in marks {
            let feed = self.followed(at, mark).ok_or_else(|| self.no_feed(at))?;
            if feed.is_mapped() {
                self.mapped.push(at);
            }
            self.feeds.insert(at, feed);
        }
        Ok(())
    }

    /// Takes leases at all homes. A node that was lost may be back already: it is waited for as
    /// long as connecting takes.
    fn make_ready(&mut self, ids: &[HomeId], deadline: Instant) -> Result<(), TransactionError> {
        let until = deadline.min(Instant::now() + FOLLOW_RETURN_TIME);
        loop {
            match self.session.make_homes_ready(ids, deadline) {
                Err(TransactionError::NodeDown { home, .. } | TransactionError::NodeFull { home, .. })
                    if Instant::now() < until && !self.is_unresponsive(home) =>
                {
                    self.session.wait(until);
                }
                ready => return ready,
            }
        }
    }

    /// Whether a home is away because it does not answer.
    fn is_unresponsive(&self, home: HomeId) -> bool {
        self.session.position(home).is_some_and(|at| self.session.lines.is_unresponsive(at))
    }

    /// Tells the cluster that has copies which nodes do not answer, so that nobody waits for them
    /// there.
    fn tell_who_is_unresponsive(&self) {
        let Some(cluster) = &self.copies else { return };
        let silent = self.session.ids.iter().filter(|home| self.is_unresponsive(**home));
        silent.for_each(|home| cluster.suspect(NodeId(home.0)));
    }

    /// A home's feed from this mark on, if it has one.
    fn followed(&mut self, at: usize, mark: Tail) -> Option<Followed> {
        let opened = self.session.homes.get(at)?.opened.as_ref()?;
        let (life, memory) = (opened.life, opened.feed?);
        let RemoteRegion { key, address: offset_bytes, length: length_bytes } = memory;
        let mapped = self.session.lines.map(at, Target { key, offset_bytes, length_bytes });
        let reader = FeedReader::at(mark, life, usize::try_from(length_bytes).ok()?);
        Some(Followed::new(self.session.homes[at].id, memory, mapped, reader))
    }

    /// Tells what all homes have that are there.
    fn scan<F: Follow>(&mut self, follow: &mut F, deadline: Instant) -> Result<(), Ended<F::Fault>> {
        let mut left = self.feeds.len();
        let places: Vec<usize> = self.feeds.keys().copied().collect();
        places.into_iter().for_each(|at| self.ask_page(at, None));
        while left > 0 {
            match self.next_reply(deadline)? {
                (at, Reply::Scanned { items, more }) => {
                    let last = items.last().map(|(key, _)| key.clone());
                    follow.scanned(self.session.homes[at].id, items).map_err(Ended::Fault)?;
                    match last {
                        Some(last) if more => self.ask_page(at, Some(last)),
                        _ => left -= 1,
                    }
                }
                (at, Reply::Unleased) => return Err(Stop::Lost(self.session.homes[at].id).into()),
                (at, reply) => return Err(self.nonsense(at, &reply).into()),
            }
        }
        self.give_leases_back();
        Ok(())
    }

    /// Asks for what a home has behind this key, as much as fits an answer.
    fn ask_page(&mut self, at: usize, after: Option<Key>) {
        let lease = self.session.homes[at].lease.unwrap_or_default();
        let most = u32::try_from(SCAN_KEYS_MAX).unwrap_or(u32::MAX);
        let range = KeyRange { prefix: self.prefix.clone(), after, most, values: true };
        self.session.ask(at, Purpose::Follow(self.attempt), Request::Scan { lease, range });
    }

    /// The next reply to what this attempt has asked.
    fn next_reply(&mut self, deadline: Instant) -> Result<(usize, Reply), Stop> {
        loop {
            while let Some(news) = self.news().pop_front() {
                match news {
                    News::Reply { at, attempt, reply } if attempt == self.attempt => return Ok((at, reply)),
                    News::Failed { attempt, error } if attempt == self.attempt => {
                        return Err(Stop::Home(error));
                    }
                    // Of an attempt that has ended.
                    _ => {}
                }
            }
            self.wait(deadline)?;
        }
    }

    /// Waits until something has come. Ends the attempt if a home is lost, or time is over.
    fn wait(&mut self, deadline: Instant) -> Result<(), Stop> {
        self.check_time(deadline)?;
        self.session.wait(deadline);
        self.lost().map_or(Ok(()), |home| Err(Stop::Lost(home)))
    }

    fn check_time(&self, deadline: Instant) -> Result<(), Stop> {
        if Instant::now() < deadline {
            return Ok(());
        }
        let owes = |at: &usize| self.session.lines.outstanding(*at) > 0;
        let owing = (0..self.session.homes.len()).filter(owes);
        let homes = owing.map(|at| self.session.homes[at].id).collect();
        Err(Stop::Home(TransactionError::TimedOut { waited: self.session.timeout, homes }))
    }

    /// A home whose connection has ended since it was opened, or that was not opened, and is not
    /// taken for away.
    fn lost(&self) -> Option<HomeId> {
        let is_lost = |home: HomeId| self.away.iter().all(|away| away.id() != home);
        let mut closed = self.session.homes.iter().filter(|home| home.opened.is_none());
        closed.find(|home| is_lost(home.id)).map(|home| home.id)
    }

    fn no_feed(&self, at: usize) -> Stop {
        Stop::NoFeed(self.session.homes[at].id)
    }

    fn nonsense(&mut self, at: usize, reply: &Reply) -> Stop {
        self.session.lines.hang_up(at, &format!("it answered who follows its feed with {reply:?}"));
        Stop::Lost(self.session.homes[at].id)
    }

    fn news(&mut self) -> &mut VecDeque<News> {
        self.session.news.get_or_insert_default()
    }

    /// Homes need not keep old versions for what is not scanning.
    fn give_leases_back(&mut self) {
        for at in 0..self.session.homes.len() {
            if self.session.homes[at].lease.is_some() {
                self.session.give_lease_back(at);
            }
        }
        self.session.lines.release();
    }
}
