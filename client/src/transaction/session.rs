//! Defines the session: its state, how it is opened and closed, and how it reads keys.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use rackscan_fabric::WallClock;
use rackscan_format::ids::NodeId;
use rackscan_ramp::{
    algorithm::{Algorithm, Cluster, Event as CoordinatorEvent, Interruption, Outcome},
    item::{Key, Version},
    message::{LeaseId, ParticipantId, participant_of},
    termination::Termination,
    timestamp::{ClientId, Clock, Timestamp},
};

use super::{
    Operations, SessionOptions, TransactionError,
    follower_event::FollowerEvent,
    participant::{MemoryParts, Participant},
    places::Places,
    running::RunningTransaction,
};
use crate::{
    ClientError, LineEvent, Lines,
    limits::{SESSION_ATTEMPTS_MAX, SESSION_ENDINGS_MAX, SESSION_MEMORY_BYTES_MIN, SESSION_REST_TIME_MAX},
    retry::Retry,
};

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOutcome {
    /// The versions of the keys, in the order in which they were asked for. A key that was never
    /// written has [`Version::first`].
    pub items: Vec<(Key, Version)>,
    /// Number of rounds of messages or one-sided reads.
    pub rounds: u32,
    /// Number of keys that were read one-sidedly.
    pub one_sided: usize,
}

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The timestamp of the transaction, which is committed.
    pub timestamp: Timestamp,
    /// Participants that have not confirmed the commit: there the transaction may be invisible to
    /// others until they do. The session goes on telling them.
    pub untold: Vec<ParticipantId>,
}

/// A client of transactions, owned by one thread.
#[derive(Debug)]
pub struct Session {
    pub(super) lines: Lines,
    /// Ascending by id; their positions are the numbers of their nodes in `lines`.
    pub(super) participants: Vec<Participant>,
    pub(super) ids: Vec<ParticipantId>,
    pub(super) parts: MemoryParts,
    pub(super) clock: Clock,
    pub(super) wall: WallClock,
    pub(super) algorithm: Algorithm,
    pub(super) operations: Operations,
    pub(super) reads: bool,
    pub(super) timeout: Duration,
    /// Whether to wait for a node that is being connected to for the first time.
    pub(super) awaits_first: bool,
    pub(super) places: Places,
    pub(super) tags: u64,
    pub(super) runs: u64,
    pub(super) run: Option<RunningTransaction>,
    /// Events that the coordinator of the present transaction has not been told yet.
    pub(super) coordinator_events: VecDeque<CoordinatorEvent>,
    /// Committed transactions that some participants do not know of yet.
    pub(super) endings: BTreeMap<Timestamp, Termination>,
    pub(super) events: Vec<LineEvent>,
    /// Whether a connection may have ended that the lines have not reported yet.
    pub(super) missed_an_end: bool,
    /// Private memory in which slots are verified.
    pub(super) slot: Vec<u8>,
    /// Events for the follower, if the session belongs to one.
    pub(super) follower_events: Option<VecDeque<FollowerEvent>>,
}

impl Session {
    /// Connects to all nodes. Unavailable nodes are connected to later.
    ///
    /// # Errors
    /// Options that cannot work, or a failure of the operating system.
    pub fn open(options: SessionOptions) -> Result<Self, ClientError> {
        Self::open_without(options, &[])
    }

    /// Like [`Session::open`], without waiting for nodes that are known to be unresponsive.
    pub(super) fn open_without(
        options: SessionOptions,
        unresponsive: &[NodeId],
    ) -> Result<Self, ClientError> {
        let SessionOptions { mut lines, algorithm, operations, reads, timeout, places_max, wall } = options;
        if lines.memory_bytes < SESSION_MEMORY_BYTES_MIN {
            let found = lines.memory_bytes;
            return Err(ClientError::Options(format!(
                "{found} bytes of memory for each node, expected at least {SESSION_MEMORY_BYTES_MIN}: the largest value must fit"
            )));
        }
        lines.nodes.sort_by_key(|node| node.id);
        lines.posts = operations != Operations::Messages;
        if algorithm == Algorithm::Locking {
            // A session that waits for a lock hears nothing meanwhile.
            lines.patience = lines.patience.max(2 * timeout);
        }
        let ids: Vec<ParticipantId> = lines.nodes.iter().map(|node| ParticipantId(node.id.0)).collect();
        let client = getrandom::u32().map_err(|error| ClientError::Os {
            action: "draw a random id",
            source: Arc::new(std::io::Error::other(error.to_string())),
        })?;
        let parts = MemoryParts::of(lines.memory_bytes);
        Ok(Self {
            participants: ids.iter().map(|id| Participant::new(*id)).collect(),
            lines: Lines::connect_without(lines, unresponsive)?,
            ids,
            parts,
            clock: Clock::after(ClientId(client), Timestamp::FIRST),
            wall,
            algorithm,
            operations,
            reads,
            timeout,
            awaits_first: true,
            places: Places::new(places_max),
            tags: 0,
            runs: 0,
            run: None,
            coordinator_events: VecDeque::new(),
            endings: BTreeMap::new(),
            events: Vec::new(),
            missed_an_end: false,
            slot: Vec::new(),
            follower_events: None,
        })
    }

    /// The id of the session: no other session has it.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.clock.client()
    }

    /// The participants, ascending.
    #[must_use]
    pub fn participants(&self) -> &[ParticipantId] {
        &self.ids
    }

    /// Why a participant is unavailable, if it is.
    #[must_use]
    pub fn unavailable(&self, participant: ParticipantId) -> Option<&str> {
        self.lines.unavailable(self.position(participant)?)
    }

    /// Number of committed transactions that some participants do not know of yet.
    #[must_use]
    pub fn untold(&self) -> usize {
        self.endings.len()
    }

    /// Reads keys atomically: if the result has one write of a transaction, it has all of that
    /// transaction's writes of these keys, or newer ones. The result is in the order of `keys`,
    /// which may have duplicates.
    ///
    /// # Errors
    /// [`TransactionError`]; nothing was read then.
    pub fn read(&mut self, keys: &[Key]) -> Result<ReadOutcome, TransactionError> {
        let begun = Instant::now();
        let deadline = begun + self.timeout;
        let unique = unique(keys);
        let mut retry = Retry::new(SESSION_ATTEMPTS_MAX).until(deadline);
        loop {
            self.make_ready(unique.iter(), deadline)?;
            let timestamp = self.clock.next(self.wall.now_ms())?;
            self.begin(begun);
            let cluster = Participants { participants: &self.participants, ids: &self.ids };
            let (coordinator, messages) = self.algorithm.begin_read(timestamp, &unique, &cluster)?;
            let (outcome, run) = self.drive(coordinator, messages, deadline);
            match outcome {
                Outcome::Read { items, rounds } => {
                    let items = in_order(keys, items);
                    return Ok(ReadOutcome { items, rounds, one_sided: run.one_sided });
                }
                Outcome::Interrupted { why } => {
                    let again = matches!(why, Interruption::Unleased { .. } | Interruption::Unlocked { .. });
                    if !(again && retry.again()) {
                        return Err(self.interrupted(why, run));
                    }
                }
                // Reads have no other outcome.
                _ => return Err(self.interrupted(Interruption::GivenUp, run)),
            }
        }
    }

    /// Begins a transaction at all participants.
    pub(super) fn begin(&mut self, now: Instant) {
        self.participants.iter_mut().for_each(Participant::begin);
        self.refresh(now);
    }

    /// Prepares for a pause: participants learn what has settled, and keep no old versions for this
    /// session. The next transaction costs one more round trip. Waits a short time at most, until
    /// the participants have heard of it.
    pub fn rest(&mut self) {
        self.participants.iter_mut().for_each(Participant::begin);
        for at in 0..self.participants.len() {
            self.give_lease_back(at);
        }
        let deadline = Instant::now() + SESSION_REST_TIME_MAX;
        let owes =
            |session: &Self| (0..session.participants.len()).any(|at| session.lines.outstanding(at) > 0);
        while owes(self) && Instant::now() < deadline {
            self.wait(deadline);
        }
    }

    /// Ends the session cleanly. If it is only dropped, the participants find out themselves.
    pub fn close(mut self) {
        self.rest();
    }

    /// The participants of these keys, ascending, each once.
    pub(super) fn participants_of<'k>(&self, keys: impl Iterator<Item = &'k Key>) -> Vec<ParticipantId> {
        let mut participants: Vec<ParticipantId> =
            keys.map(|key| participant_of(key.placement(), &self.ids)).collect();
        participants.sort_unstable();
        participants.dedup();
        participants
    }

    pub(super) fn position(&self, participant: ParticipantId) -> Option<usize> {
        self.ids.binary_search(&participant).ok()
    }

    pub(super) fn settled(&mut self, timestamp: Timestamp, participants: &[ParticipantId]) {
        for participant in participants {
            if let Some(at) = self.position(*participant) {
                self.participants[at].settled.push(timestamp);
                self.tell_if_many(at);
            }
        }
    }

    /// Goes on telling the participants of a committed transaction of its end, until all know.
    /// Beyond [`SESSION_ENDINGS_MAX`] transactions, participants learn of it from each other.
    pub(super) fn go_on_telling(&mut self, timestamp: Timestamp, participants: &[ParticipantId]) {
        if self.endings.len() < SESSION_ENDINGS_MAX {
            let (ending, messages) = Termination::settle(timestamp, participants);
            self.endings.insert(timestamp, ending);
            self.tell_ending(timestamp, messages);
        }
    }
}

/// The participants of keys, and the leases there, for a coordinator.
pub(super) struct Participants<'s> {
    pub(super) participants: &'s [Participant],
    pub(super) ids: &'s [ParticipantId],
}

impl Cluster for Participants<'_> {
    fn participant(&self, key: &Key) -> ParticipantId {
        participant_of(key.placement(), self.ids)
    }

    fn lease(&self, participant: ParticipantId) -> LeaseId {
        let at = self.ids.binary_search(&participant).ok();
        at.and_then(|at| self.participants.get(at)?.lease).unwrap_or_default()
    }
}

/// The keys without duplicates, ascending.
fn unique(keys: &[Key]) -> Vec<Key> {
    let mut unique = keys.to_vec();
    unique.sort_unstable();
    unique.dedup();
    unique
}

/// The items in the order of `keys`.
fn in_order(keys: &[Key], mut items: Vec<(Key, Version)>) -> Vec<(Key, Version)> {
    // The coordinators return ascending items, except under locks.
    items.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let is_each_once = keys.len() == items.len();
    let mut find = |key: &Key| {
        let at = items.binary_search_by(|(found, _)| found.cmp(key)).ok()?;
        let (_, version) = items.get_mut(at)?;
        let version =
            if is_each_once { std::mem::replace(version, Version::first()) } else { version.clone() };
        Some((key.clone(), version))
    };
    keys.iter().filter_map(&mut find).collect()
}
