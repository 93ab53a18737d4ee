//! Defines the follower: its state, how it catches up with the participants, and how it begins
//! anew.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use rackscan_fabric::RemoteRegion;
use rackscan_format::{ids::NodeId, message::Target};
use rackscan_ramp::{
    feed::{FeedReader, Follow},
    item::{Key, SYSTEM_PREFIX},
    limits::SCAN_KEYS_MAX,
    log::Tail,
    message::{KeyRange, ParticipantId, Refusal, Reply, Request},
};

use super::{
    CaughtUp, FollowError,
    feed::Feed,
    outcome::{AttemptError, StopReason},
    unavailable_participant::UnavailableParticipant,
};
use crate::{
    ClientError, Cluster, LinesOptions, Session, SessionOptions, TransactionError,
    limits::{FOLLOW_ATTEMPTS_MAX, FOLLOW_RETURN_TIME, KEEPALIVE_TIME_MAX},
    retry::Retry,
    transaction::{
        follower_event::FollowerEvent,
        participant::{MemoryParts, Purpose},
    },
};

/// Options of a follower.
#[derive(Debug, Clone)]
pub struct FollowerOptions {
    /// All nodes of the cluster, and how to reach them.
    pub lines: LinesOptions,
    /// The prefix of the keys that are told when everything begins anew; it begins with
    /// [`SYSTEM_PREFIX`]. Records tell all keys of a transaction that writes any key under
    /// [`SYSTEM_PREFIX`].
    pub prefix: Vec<u8>,
    /// How long catching up may take.
    pub timeout: Duration,
    /// A cluster that may go without some nodes ([`crate::ClusterOptions::unavailable_max`]): for
    /// as many unavailable participants, replicas of their logs are read. `None` if all
    /// participants are needed.
    pub copies: Option<Cluster>,
}

/// Reads the feeds of all participants. It belongs to one thread and does nothing between two
/// calls.
#[derive(Debug)]
pub struct Follower {
    pub(super) session: Session,
    pub(super) prefix: Vec<u8>,
    /// The feeds, by position of the participant; empty if everything begins anew.
    pub(super) feeds: BTreeMap<usize, Feed>,
    /// Positions of participants whose memory is mapped here.
    pub(super) mapped: Vec<usize>,
    /// The cluster over which replicas of logs are read.
    pub(super) copies: Option<Cluster>,
    /// Unavailable participants, whose log replicas are read.
    pub(super) unavailable: Vec<UnavailableParticipant>,
    pub(super) attempt: u64,
    /// Private memory in which bytes of feeds are verified.
    pub(super) bytes: Vec<u8>,
}

impl Follower {
    /// Connects to all nodes. Unavailable nodes are connected to later.
    ///
    /// # Errors
    /// Options that cannot work, or a failure of the operating system.
    pub fn open(options: FollowerOptions) -> Result<Self, ClientError> {
        let FollowerOptions { lines, prefix, timeout, copies } = options;
        if !prefix.starts_with(SYSTEM_PREFIX) {
            return Err(ClientError::Options(format!(
                "the prefix '{}', expected one that begins with '{}': participants tell of other keys only where such a one is written with them",
                prefix.escape_ascii(),
                SYSTEM_PREFIX.escape_ascii()
            )));
        }
        let silent = |cluster: &Cluster| {
            let nodes = cluster.nodes().filter(|node| cluster.unresponsive_for(*node).is_some());
            nodes.collect::<Vec<_>>()
        };
        let unresponsive = copies.as_ref().map(silent).unwrap_or_default();
        let memory_bytes = lines.memory_bytes;
        let options = SessionOptions { timeout, places_max: 0, ..SessionOptions::new(lines) };
        let mut session = Session::open_without(options, &unresponsive)?;
        // The session has checked that there is enough.
        session.parts = MemoryParts::of_follower(memory_bytes);
        session.follower_events = Some(VecDeque::new());
        let copies = copies.filter(|cluster| cluster.unavailable_max() > 0);
        if copies.is_some() {
            // Other nodes have replicas of the log of an unresponsive node.
            session.awaits_first = false;
            session.lines.set_keepalive_time(KEEPALIVE_TIME_MAX);
        }
        let (feeds, mapped, unavailable, bytes) = (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
        Ok(Self { session, prefix, feeds, mapped, copies, unavailable, attempt: 0, bytes })
    }

    /// The participants that it follows, ascending.
    #[must_use]
    pub fn participants(&self) -> &[ParticipantId] {
        self.session.participants()
    }

    /// Lets the next call begin anew, because the `follow` value was lost or is replaced by
    /// another.
    pub fn begin_anew(&mut self) {
        self.feeds.clear();
    }

    /// Unavailable participants whose log replicas are read.
    #[must_use]
    pub fn unavailable(&self) -> Vec<ParticipantId> {
        self.unavailable.iter().map(UnavailableParticipant::id).collect()
    }

    /// Tells `follow` everything that was acknowledged before this call. Every call must pass the
    /// same `follow`. After success, everything told so far is a read-atomic state. If there is
    /// nothing new, it costs a copy of each feed's header and one system call where memory is
    /// mapped, and one small read for each other node.
    ///
    /// # Errors
    /// [`FollowError`]; everything told so far is void then, and the next call begins anew. An
    /// unavailable participant may come back within half a second; after that the error names it,
    /// or a replica of its log is read.
    ///
    /// # Panics
    /// On a thread that runs asynchronous tasks, if participants may be unavailable: it blocks on
    /// reads of their log replicas.
    pub fn catch_up<F: Follow>(&mut self, follow: &mut F) -> Result<CaughtUp, FollowError<F::Fault>> {
        let deadline = Instant::now() + self.session.timeout;
        let mut caught = CaughtUp::default();
        let mut retry = Retry::new(FOLLOW_ATTEMPTS_MAX);
        let result = loop {
            let Err(ended) = self.attempt(follow, deadline, &mut caught) else { break Ok(caught) };
            self.wait_for_reads(deadline);
            self.report_unresponsive();
            self.feeds.clear();
            match ended {
                AttemptError::Fault(fault) => break Err(FollowError::Fault(fault)),
                AttemptError::Stop(stop @ (StopReason::Lost(_) | StopReason::Behind(..)))
                    if retry.again() =>
                {
                    tracing::debug!(?stop, "feeds cannot be read on: everything begins anew");
                }
                AttemptError::Stop(stop) => break Err(stop.into_error(retry.attempts())),
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
    ) -> Result<(), AttemptError<F::Fault>> {
        if self.feeds.is_empty() || self.lost().is_some() || self.is_back() {
            caught.began_anew = true;
            follow.begin_anew();
            self.begin(deadline)?;
            self.scan(follow, deadline)?;
        }
        loop {
            self.round(follow, deadline, caught)?;
            caught.rounds = caught.rounds.saturating_add(1);
            if follow.round_ended().map_err(AttemptError::Fault)? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let (rounds, waited) = (caught.rounds, self.session.timeout);
                return Err(StopReason::Unsettled { rounds, waited }.into());
            }
        }
    }

    /// Opens all available participants, obtains leases and marks the ends of their feeds.
    fn begin(&mut self, deadline: Instant) -> Result<(), StopReason> {
        self.attempt += 1;
        self.feeds.clear();
        self.unavailable.clear();
        self.follower_events().clear();
        let mut ids = self.session.ids.clone();
        while let Err(error) = self.make_ready(&ids, deadline) {
            let participant = self.treat_as_unavailable(error)?;
            ids.retain(|id| *id != participant);
        }
        while let Some(participant) = self.lost() {
            // A lease may arrive before the memory is opened.
            let is_leased =
                self.session.participants.iter().any(|of| of.id == participant && of.lease.is_some());
            if !is_leased {
                return Err(StopReason::Lost(participant));
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
                (at, reply) => return Err(self.protocol_violation(at, &reply)),
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

    /// Obtains leases at all participants. A lost node may be back soon: the follower waits for it
    /// as long as connecting takes.
    fn make_ready(&mut self, ids: &[ParticipantId], deadline: Instant) -> Result<(), TransactionError> {
        let until = deadline.min(Instant::now() + FOLLOW_RETURN_TIME);
        loop {
            match self.session.make_participants_ready(ids, deadline) {
                Err(
                    TransactionError::NodeDown { participant, .. }
                    | TransactionError::NodeFull { participant, .. },
                ) if Instant::now() < until && !self.is_unresponsive(participant) => {
                    self.session.wait(until);
                }
                ready => return ready,
            }
        }
    }

    /// Whether a participant is unavailable because it does not answer.
    fn is_unresponsive(&self, participant: ParticipantId) -> bool {
        self.session.position(participant).is_some_and(|at| self.session.lines.is_unresponsive(at))
    }

    /// Reports unresponsive nodes to the cluster over which replicas are read, so that no request
    /// waits for them there.
    fn report_unresponsive(&self) {
        let Some(cluster) = &self.copies else { return };
        let silent = self.session.ids.iter().filter(|participant| self.is_unresponsive(**participant));
        silent.for_each(|participant| cluster.suspect(NodeId(participant.0)));
    }

    /// The feed of a participant from this mark on, if it has one.
    fn followed(&mut self, at: usize, mark: Tail) -> Option<Feed> {
        let opened = self.session.participants.get(at)?.opened.as_ref()?;
        let (life, memory) = (opened.life, opened.feed?);
        let RemoteRegion { key, address: offset_bytes, length: length_bytes } = memory;
        let mapped = self.session.lines.map(at, Target { key, offset_bytes, length_bytes });
        let reader = FeedReader::at(mark, life, usize::try_from(length_bytes).ok()?);
        Some(Feed::new(self.session.participants[at].id, memory, mapped, reader))
    }

    /// Scans all available participants and tells their keys.
    fn scan<F: Follow>(&mut self, follow: &mut F, deadline: Instant) -> Result<(), AttemptError<F::Fault>> {
        let mut left = self.feeds.len();
        let places: Vec<usize> = self.feeds.keys().copied().collect();
        places.into_iter().for_each(|at| self.ask_page(at, None));
        while left > 0 {
            match self.next_reply(deadline)? {
                (at, Reply::Scanned { items, more }) => {
                    let last = items.last().map(|(key, _)| key.clone());
                    follow.scanned(self.session.participants[at].id, items).map_err(AttemptError::Fault)?;
                    match last {
                        Some(last) if more => self.ask_page(at, Some(last)),
                        _ => left -= 1,
                    }
                }
                (at, Reply::Unleased) => {
                    return Err(StopReason::Lost(self.session.participants[at].id).into());
                }
                (at, reply) => return Err(self.protocol_violation(at, &reply).into()),
            }
        }
        self.give_leases_back();
        Ok(())
    }

    /// Requests a participant's keys behind this one, as many as fit an answer.
    fn ask_page(&mut self, at: usize, after: Option<Key>) {
        let lease = self.session.participants[at].lease.unwrap_or_default();
        let most = u32::try_from(SCAN_KEYS_MAX).expect("SCAN_KEYS_MAX: it fits 32 bits");
        let range = KeyRange { prefix: self.prefix.clone(), after, most, values: true };
        self.session.ask(at, Purpose::Follow(self.attempt), Request::Scan { lease, range });
    }

    /// The next reply to a request of this attempt.
    pub(super) fn next_reply(&mut self, deadline: Instant) -> Result<(usize, Reply), StopReason> {
        loop {
            while let Some(news) = self.follower_events().pop_front() {
                match news {
                    FollowerEvent::Reply { at, attempt, reply } if attempt == self.attempt => {
                        return Ok((at, reply));
                    }
                    FollowerEvent::Failed { attempt, error } if attempt == self.attempt => {
                        return Err(StopReason::Participant(error));
                    }
                    // The event belongs to an attempt that has ended.
                    _ => {}
                }
            }
            self.wait(deadline)?;
        }
    }

    /// Waits for events. Ends the attempt if a participant is lost, or at the deadline.
    pub(super) fn wait(&mut self, deadline: Instant) -> Result<(), StopReason> {
        self.check_time(deadline)?;
        self.session.wait(deadline);
        self.lost().map_or(Ok(()), |participant| Err(StopReason::Lost(participant)))
    }

    pub(super) fn check_time(&self, deadline: Instant) -> Result<(), StopReason> {
        if Instant::now() < deadline {
            return Ok(());
        }
        let owes = |at: &usize| self.session.lines.outstanding(*at) > 0;
        let owing = (0..self.session.participants.len()).filter(owes);
        let participants = owing.map(|at| self.session.participants[at].id).collect();
        Err(StopReason::Participant(TransactionError::TimedOut {
            waited: self.session.timeout,
            participants,
        }))
    }

    /// A participant that is not open, because its connection has ended or it was never opened, and
    /// that does not count as unavailable.
    fn lost(&self) -> Option<ParticipantId> {
        let is_lost = |participant: ParticipantId| {
            self.unavailable.iter().all(|unavailable| unavailable.id() != participant)
        };
        let mut closed = self.session.participants.iter().filter(|participant| participant.opened.is_none());
        closed.find(|participant| is_lost(participant.id)).map(|participant| participant.id)
    }

    fn no_feed(&self, at: usize) -> StopReason {
        StopReason::NoFeed(self.session.participants[at].id)
    }

    pub(super) fn protocol_violation(&mut self, at: usize, reply: &Reply) -> StopReason {
        self.session.lines.hang_up(at, &format!("it answered a follower with {reply:?}"));
        StopReason::Lost(self.session.participants[at].id)
    }

    pub(super) fn follower_events(&mut self) -> &mut VecDeque<FollowerEvent> {
        self.session.follower_events.get_or_insert_default()
    }

    /// Returns all leases: participants need not keep old versions while the follower does not
    /// scan.
    fn give_leases_back(&mut self) {
        for at in 0..self.session.participants.len() {
            if self.session.participants[at].lease.is_some() {
                self.session.give_lease_back(at);
            }
        }
        self.session.lines.release();
    }
}
