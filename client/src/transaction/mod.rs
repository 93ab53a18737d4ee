//! How does a program read and write keys of several nodes, wholly or not at all?
//!
//! ```text
//!   read, write
//!      |  leases at all homes that are concerned          once; renewed when a home was started anew
//!      v
//!   the algorithm's coordinator (rackscan-ramp)  <------- replies, losses, returns
//!      |  messages: one payload for each home              in front of them: leases moved on, what has settled
//!      |  GET: out of slots, where places are known       copied, then checked, then: is the node still there?
//!      v
//!   lines to all nodes
//! ```
//!
//! One thread, no other: a transaction costs its messages and what the coordinator takes.
//!
//! Invariants
//! - A session runs one transaction at a time. What an earlier one has left on its way changes
//!   nothing in a later one.
//! - What a session wrote it reads: on each connection messages keep their order, and what is
//!   committed and not known everywhere is told to a home that is back before anything is asked
//!   there.
//! - What was copied out of a node's memory counts only if the node was there after the copy.

mod answers;
mod error;
mod follow;
mod home;
mod places;
mod run;
mod scan;
mod send;
mod slots;
mod write;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use rackscan_fabric::WallClock;
use rackscan_format::ids::NodeId;
use rackscan_ramp::{
    algorithm::{Algorithm, Cluster, Event as Happening, Interruption, Outcome},
    item::{Key, Version},
    message::{HomeId, LeaseId, home_of},
    termination::Termination,
    timestamp::{ClientId, Clock, Timestamp},
};

use crate::{
    ClientError, LineEvent, Lines, LinesOptions,
    limits::{
        PLACES_MAX_DEFAULT, SESSION_ATTEMPTS_MAX, SESSION_ENDINGS_MAX, SESSION_MEMORY_BYTES_MIN,
        SESSION_REST_TIME_MAX,
    },
};
pub use error::TransactionError;
use follow::News;
pub use follow::{CaughtUp, FollowError, Follower, FollowerOptions};
use home::{Home, Parts};
use places::Places;
use run::Run;
pub use scan::ScanOutcome;

/// How keys are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operations {
    /// Both by messages.
    Messages,
    /// Both by requests that are written into memory which the home polls, and answered likewise,
    /// where they fit; else by messages.
    Posted,
    /// Reads by looking into the home's memory, where it is known where; else, and writes, as
    /// [`Operations::Posted`].
    OneSided,
}

impl Operations {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Messages, Self::Posted, Self::OneSided];

    /// The name by which they are chosen.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Messages => "get/put",
            Self::Posted => "get+/put+",
            Self::OneSided => "get*/put+",
        }
    }
}

impl fmt::Display for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No operations have this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operations '{found}' do not exist, expected one of {}", Operations::ALL.map(Operations::name).join(", "))]
pub struct NoSuchOperations {
    /// The name.
    pub found: String,
}

impl FromStr for Operations {
    type Err = NoSuchOperations;

    fn from_str(text: &str) -> Result<Self, NoSuchOperations> {
        let found = Self::ALL.into_iter().find(|operations| operations.name() == text);
        found.ok_or_else(|| NoSuchOperations { found: text.to_owned() })
    }
}

/// What a session is opened with.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// All nodes of the cluster, and how to reach them. With locks the patience is never shorter
    /// than the timeout, and boxes are as the operations are.
    pub lines: LinesOptions,
    /// How transactions are kept apart.
    pub algorithm: Algorithm,
    /// How keys are read and written.
    pub operations: Operations,
    /// Whether it will read. One that only writes needs no old versions, and holds no leases at
    /// homes however long it says nothing: its reads find none, and time out.
    pub reads: bool,
    /// How long a transaction may take.
    pub timeout: Duration,
    /// Places of keys that are remembered.
    pub places_max: usize,
    /// The clock that timestamps are made with.
    pub wall: WallClock,
}

impl SessionOptions {
    /// With RAMP-Fast over messages, the default number of places, and this host's clock.
    #[must_use]
    pub fn new(lines: LinesOptions) -> Self {
        let (algorithm, operations) = (Algorithm::Fast, Operations::Messages);
        let (timeout, places_max) = (crate::limits::SESSION_TIMEOUT_DEFAULT, PLACES_MAX_DEFAULT);
        Self { lines, algorithm, operations, reads: true, timeout, places_max, wall: WallClock::default() }
    }
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOutcome {
    /// By key, in the order in which they were asked for. What nobody has written is
    /// [`Version::first`].
    pub items: Vec<(Key, Version)>,
    /// Rounds of messages or reads that it took.
    pub rounds: u32,
    /// Keys that were read without asking their homes.
    pub one_sided: usize,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The transaction. It is committed.
    pub timestamp: Timestamp,
    /// Homes that have not said that they know: there it may be invisible to others until they do.
    /// The session goes on telling them.
    pub untold: Vec<HomeId>,
}

/// A client of transactions.
#[derive(Debug)]
pub struct Session {
    lines: Lines,
    /// Ascending by their ids; their positions are the lines' numbers.
    homes: Vec<Home>,
    ids: Vec<HomeId>,
    parts: Parts,
    clock: Clock,
    wall: WallClock,
    algorithm: Algorithm,
    operations: Operations,
    reads: bool,
    timeout: Duration,
    /// Whether a node is waited for that is being connected to for the first time.
    awaits_first: bool,
    places: Places,
    tags: u64,
    runs: u64,
    run: Option<Run>,
    /// What the present transaction has not been told yet.
    happened: VecDeque<Happening>,
    /// Transactions that are committed, and not known everywhere.
    endings: BTreeMap<Timestamp, Termination>,
    events: Vec<LineEvent>,
    /// Whether a connection has ended of which the lines have not told yet.
    missed_an_end: bool,
    /// Where slots are judged.
    slot: Vec<u8>,
    /// What has come for who follows feeds, if that is what the session is for.
    news: Option<VecDeque<News>>,
}

impl Session {
    /// Connects to all nodes. Those that are down are connected to later.
    ///
    /// # Errors
    /// Options that cannot work, and what the system refuses.
    pub fn open(options: SessionOptions) -> Result<Self, ClientError> {
        Self::open_without(options, &[])
    }

    /// The same, but of these nodes it is known that they do not answer: nobody waits for them.
    fn open_without(options: SessionOptions, unresponsive: &[NodeId]) -> Result<Self, ClientError> {
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
            // Who waits for a lock hears nothing meanwhile.
            lines.patience = lines.patience.max(2 * timeout);
        }
        let ids: Vec<HomeId> = lines.nodes.iter().map(|node| HomeId(node.id.0)).collect();
        let client = getrandom::u32().map_err(|error| ClientError::Os {
            action: "draw a random id",
            source: Arc::new(std::io::Error::other(error.to_string())),
        })?;
        let parts = Parts::of(lines.memory_bytes);
        Ok(Self {
            homes: ids.iter().map(|id| Home::new(*id)).collect(),
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
            happened: VecDeque::new(),
            endings: BTreeMap::new(),
            events: Vec::new(),
            missed_an_end: false,
            slot: Vec::new(),
            news: None,
        })
    }

    /// Its id: no other session has it.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.clock.client()
    }

    /// The homes that it knows, ascending.
    #[must_use]
    pub fn homes(&self) -> &[HomeId] {
        &self.ids
    }

    /// Why the node of a home is away, if it is.
    #[must_use]
    pub fn away(&self, home: HomeId) -> Option<&str> {
        self.lines.away(self.position(home)?)
    }

    /// Transactions that are committed, and of which some homes do not know it yet.
    #[must_use]
    pub fn untold(&self) -> usize {
        self.endings.len()
    }

    /// Reads keys, as of moments that no transaction lies between: what of these keys one has
    /// written, is all there, or something newer. In the order asked for; a key may be asked for
    /// twice.
    ///
    /// # Errors
    /// [`TransactionError`]; then nothing was read.
    pub fn read(&mut self, keys: &[Key]) -> Result<ReadOutcome, TransactionError> {
        let begun = Instant::now();
        let deadline = begun + self.timeout;
        let unique = unique(keys);
        for attempt in 1.. {
            self.make_ready(unique.iter(), deadline)?;
            let timestamp = self.clock.next(self.wall.now_ms())?;
            self.begin(begun);
            let cluster = Participants { homes: &self.homes, ids: &self.ids };
            let (coordinator, messages) = self.algorithm.begin_read(timestamp, &unique, &cluster)?;
            let (outcome, run) = self.drive(coordinator, messages, deadline);
            match outcome {
                Outcome::Read { items, rounds } => {
                    let items = in_order(keys, items);
                    return Ok(ReadOutcome { items, rounds, one_sided: run.one_sided });
                }
                Outcome::Interrupted { why } => {
                    let again = matches!(why, Interruption::Unleased { .. } | Interruption::Unlocked { .. });
                    if !again || attempt >= SESSION_ATTEMPTS_MAX || Instant::now() >= deadline {
                        return Err(self.interrupted(why, run));
                    }
                }
                // Reads end in no other way.
                _ => return Err(self.interrupted(Interruption::GivenUp, run)),
            }
        }
        Err(TransactionError::TimedOut { waited: self.timeout, homes: Vec::new() })
    }

    /// A transaction begins.
    fn begin(&mut self, now: Instant) {
        self.homes.iter_mut().for_each(Home::begin);
        self.refresh(now);
    }

    /// Nothing will be read for a while: homes learn what has settled, and keep no old versions for
    /// this session. The next transaction costs a round trip more. Waits until they have heard of
    /// it, for a short time at most.
    pub fn rest(&mut self) {
        self.homes.iter_mut().for_each(Home::begin);
        for at in 0..self.homes.len() {
            self.give_lease_back(at);
        }
        let deadline = Instant::now() + SESSION_REST_TIME_MAX;
        let owes = |session: &Self| (0..session.homes.len()).any(|at| session.lines.outstanding(at) > 0);
        while owes(self) && Instant::now() < deadline {
            self.wait(deadline);
        }
    }

    /// Ends the session in good order. Dropping it leaves it to the homes to notice.
    pub fn close(mut self) {
        self.rest();
    }

    /// All homes of these keys, ascending, each once.
    fn homes_of<'k>(&self, keys: impl Iterator<Item = &'k Key>) -> Vec<HomeId> {
        let mut homes: Vec<HomeId> = keys.map(|key| home_of(key.placement(), &self.ids)).collect();
        homes.sort_unstable();
        homes.dedup();
        homes
    }

    fn position(&self, home: HomeId) -> Option<usize> {
        self.ids.binary_search(&home).ok()
    }

    fn settled(&mut self, timestamp: Timestamp, homes: &[HomeId]) {
        for home in homes {
            if let Some(at) = self.position(*home) {
                self.homes[at].settled.push(timestamp);
                self.tell_if_many(at);
            }
        }
    }

    /// Tells the homes of a committed transaction of its end, until all know. Of those beyond a
    /// bound they learn from each other.
    fn go_on_telling(&mut self, timestamp: Timestamp, homes: &[HomeId]) {
        if self.endings.len() < SESSION_ENDINGS_MAX {
            let (ending, messages) = Termination::settle(timestamp, homes);
            self.endings.insert(timestamp, ending);
            self.tell_ending(timestamp, messages);
        }
    }
}

/// Where keys are, and the leases there.
struct Participants<'s> {
    homes: &'s [Home],
    ids: &'s [HomeId],
}

impl Cluster for Participants<'_> {
    fn home(&self, key: &Key) -> HomeId {
        home_of(key.placement(), self.ids)
    }

    fn lease(&self, home: HomeId) -> LeaseId {
        let at = self.ids.binary_search(&home).ok();
        at.and_then(|at| self.homes.get(at)?.lease).unwrap_or_default()
    }
}

/// Each key once, ascending.
fn unique(keys: &[Key]) -> Vec<Key> {
    let mut unique = keys.to_vec();
    unique.sort_unstable();
    unique.dedup();
    unique
}

/// What was found, in the order asked for.
fn in_order(keys: &[Key], mut items: Vec<(Key, Version)>) -> Vec<(Key, Version)> {
    // By the coordinators it is ascending but under locks.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_chosen_by_their_names() {
        for operations in Operations::ALL {
            assert_eq!(operations.name().parse(), Ok(operations));
        }
        let error = "get".parse::<Operations>().unwrap_err().to_string();
        assert!(error.contains("'get'") && error.contains("get/put, get+/put+, get*/put+"), "{error}");
    }
}
