//! Runs the thread that writes and reads log replicas, so that no reactor waits for the disk.
//!
//! Invariants
//! - One flush serves all requests that arrived since the flush before.
//! - The number and the bytes of waiting requests are bounded; a further request is refused.
//! - The number of the current start of an origin's data folder is durable here before a part of
//!   its log is acknowledged.
//! - If the disk fails, the node stops, as it does when the disk of its own log fails.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
};

use rackscan_format::{
    ids::NodeId,
    message::{LogGeneration, LogKept, LogPoint, Refusal, RefusalCode, Start},
};

use super::{
    kept::Kept,
    replica_nodes,
    shelf::{Part, Shelves, Trouble},
};
use crate::{
    config::Config,
    error::StartError,
    identity::Identity,
    lifecycle::{self, Lifecycle},
    limits::KEEPING_QUEUE_MAX,
    message_queue::ReplyTo,
};

/// The folder of all copies, in the node's data folder.
const FOLDER: &str = "copies";

type Outcome = Result<Kept, Refusal>;

/// A budget of memory for bytes in transit between wires and copies.
#[derive(Debug)]
pub(crate) struct Room {
    most_bytes: u64,
    taken_bytes: AtomicU64,
}

/// A part of the budget, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct RoomTaken {
    room: Arc<Room>,
    bytes: u64,
}

impl Room {
    pub(crate) fn new(most_bytes: u64) -> Arc<Self> {
        Arc::new(Self { most_bytes, taken_bytes: AtomicU64::new(0) })
    }

    /// Takes `bytes` of the budget, or refuses. A single request always fits.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Result<RoomTaken, Refusal> {
        let fits = |taken: u64| taken.checked_add(bytes).filter(|all| taken == 0 || *all <= self.most_bytes);
        match self.taken_bytes.fetch_update(SeqCst, SeqCst, fits) {
            Ok(_) => Ok(RoomTaken { room: Arc::clone(self), bytes }),
            Err(taken) => {
                let text = format!(
                    "{taken} bytes of copies of logs are in transit, expected at most {}; ask again",
                    self.most_bytes
                );
                Err(Refusal::new(RefusalCode::Busy, text))
            }
        }
    }
}

impl Drop for RoomTaken {
    fn drop(&mut self) {
        self.room.taken_bytes.fetch_sub(self.bytes, SeqCst);
    }
}

/// A request to the thread.
#[derive(Debug)]
enum Job {
    Keep {
        origin: NodeId,
        start: Start,
        log: u32,
        offset_bytes: u64,
        cut: Option<LogPoint>,
        is_whole: bool,
        bytes: Vec<u8>,
        generation: Option<LogGeneration>,
        room: RoomTaken,
        reply_to: ReplyTo<Outcome>,
    },
    Read {
        origin: NodeId,
        from_bytes: u64,
        most: usize,
        reply_to: ReplyTo<Outcome>,
    },
}

/// Access to the thread.
#[derive(Debug)]
pub(crate) struct Keeping {
    jobs: SyncSender<Job>,
    pub(crate) room: Arc<Room>,
    /// The nodes whose logs are copied here.
    origins: Vec<NodeId>,
    /// The nodes whose generations are recorded here: all other nodes.
    known: Vec<NodeId>,
}

impl Keeping {
    /// Starts the thread, if this node keeps copies of other nodes' logs. The thread ends when this
    /// is dropped.
    pub(crate) fn start(
        config: &Config,
        room_bytes: u64,
        lifecycle: &Arc<Lifecycle>,
        identity: Arc<Identity>,
    ) -> Result<Option<(Self, JoinHandle<()>)>, StartError> {
        let all = || config.peers.iter().map(|peer| peer.node).chain([config.node]);
        let is_origin = |node: &NodeId| replica_nodes(*node, all()).contains(&config.node);
        let mut origins: Vec<NodeId> = all().filter(is_origin).collect();
        origins.dedup();
        let known = all().filter(|node| *node != config.node).collect();
        if origins.is_empty() {
            return Ok(None);
        }
        let (jobs, orders) = sync_channel(KEEPING_QUEUE_MAX);
        let (folder, guarded): (PathBuf, _) = (config.data_dir.join(FOLDER), Arc::clone(lifecycle));
        let nice = config.transactions_nice;
        let run = move || {
            let _guard = guarded.guard("the thread of copies of logs");
            lifecycle::be_nice(nice);
            let starts = Starts { identity, known: BTreeMap::new() };
            work(Shelves::new(folder), starts, &orders, &guarded);
        };
        let thread = std::thread::Builder::new().name(format!("n{}-copies", config.node)).spawn(run);
        let thread = thread
            .map_err(|source| StartError::Os { action: "start the thread of copies of logs", source })?;
        Ok(Some((Self { jobs, room: Room::new(room_bytes), origins, known }, thread)))
    }

    /// Checks that this node keeps copies of the origin's log; for a request without bytes, that it
    /// records its generation.
    pub(crate) fn check(&self, origin: NodeId, has_bytes: bool) -> Result<(), Refusal> {
        if self.origins.contains(&origin) || !has_bytes && self.known.contains(&origin) {
            return Ok(());
        }
        let text = format!(
            "the log of node {origin} is not kept here, expected one of {:?}: the nodes' lists of `peers` differ",
            self.origins.iter().map(|node| node.0).collect::<Vec<_>>()
        );
        Err(Refusal::new(RefusalCode::NotFound, text))
    }

    /// Appends a part of a log. Everything in `request` except its bytes is used.
    pub(crate) fn keep(
        &self,
        request: &rackscan_format::message::KeepLog,
        bytes: Vec<u8>,
        room: RoomTaken,
        reply_to: ReplyTo<Outcome>,
    ) -> Result<(), Refusal> {
        let rackscan_format::message::KeepLog { origin, start, log, offset_bytes, cut, is_whole, .. } =
            *request;
        let generation = request.generation.clone();
        self.ask(Job::Keep {
            origin,
            start,
            log,
            offset_bytes,
            cut,
            is_whole,
            bytes,
            generation,
            room,
            reply_to,
        })
    }

    /// Reads a part of a copy.
    pub(crate) fn read(
        &self,
        origin: NodeId,
        from_bytes: u64,
        most: usize,
        reply_to: ReplyTo<Outcome>,
    ) -> Result<(), Refusal> {
        self.ask(Job::Read { origin, from_bytes, most, reply_to })
    }

    fn ask(&self, job: Job) -> Result<(), Refusal> {
        self.jobs.try_send(job).map_err(|refused| match refused {
            TrySendError::Full(_) => {
                let text = format!(
                    "{KEEPING_QUEUE_MAX} parts of copies of logs are waiting, the maximum; ask again"
                );
                Refusal::new(RefusalCode::Busy, text)
            }
            TrySendError::Disconnected(_) => Refusal::new(RefusalCode::Stopping, "the node is stopping"),
        })
    }
}

/// Executes requests until all senders are dropped.
fn work(mut shelves: Shelves, mut starts: Starts, jobs: &Receiver<Job>, lifecycle: &Lifecycle) {
    let mut kept: Vec<(ReplyTo<Outcome>, Outcome)> = Vec::new();
    while let Ok(first) = jobs.recv() {
        let more = jobs.try_iter().take(KEEPING_QUEUE_MAX);
        for job in std::iter::once(first).chain(more) {
            match job {
                Job::Keep {
                    origin,
                    start,
                    log,
                    offset_bytes,
                    cut,
                    is_whole,
                    bytes,
                    generation,
                    room,
                    reply_to,
                } => {
                    let part = Part { log, offset_bytes, cut, is_whole, bytes: &bytes };
                    let outcome = starts
                        .remember(origin, start)
                        .and_then(|()| keep(&mut shelves, origin, &part, generation.as_ref()))
                        .map(Kept::Log);
                    kept.push((reply_to, outcome.map_err(|trouble| refusal(trouble, lifecycle))));
                    drop(room);
                }
                Job::Read { origin, from_bytes, most, reply_to } => {
                    let known = shelves.generation(origin);
                    let outcome = known.and_then(|known| {
                        let (held, bytes) = shelves.part(origin, from_bytes, most)?;
                        Ok(Kept::Copy(held, bytes, known))
                    });
                    reply_to.send(outcome.map_err(|trouble| refusal(trouble, lifecycle)));
                }
            }
        }
        let synced = shelves.sync().map_err(|trouble| refusal(trouble, lifecycle));
        for (reply_to, outcome) in kept.drain(..) {
            reply_to.send(synced.clone().and(outcome));
        }
    }
}

/// For each other node, the start of its data folder with which it writes here.
struct Starts {
    identity: Arc<Identity>,
    /// The starts that are recorded durably.
    known: BTreeMap<NodeId, Start>,
}

impl Starts {
    /// Records the start of an origin, before anything of its log is kept.
    fn remember(&mut self, origin: NodeId, start: Start) -> Result<(), Trouble> {
        if self.known.get(&origin) != Some(&start) {
            self.identity.record_served(origin, start).map_err(Trouble::Refused)?;
            self.known.insert(origin, start);
        }
        Ok(())
    }
}

/// Appends a part of a log. Appends nothing for an origin that does not know the newest generation
/// of its own log, because its log is older than the replicas.
fn keep(
    shelves: &mut Shelves,
    origin: NodeId,
    part: &Part<'_>,
    told: Option<&LogGeneration>,
) -> Result<LogKept, Trouble> {
    let generation = shelves.know(origin, told)?;
    if told.is_some_and(|told| told.number < generation) {
        return Ok(LogKept { generation, ..LogKept::default() });
    }
    Ok(LogKept { generation, ..shelves.keep(origin, part)? })
}

/// The refusal that answers the request. A fault that leaves the state of the disk unknown stops
/// the node.
fn refusal(trouble: Trouble, lifecycle: &Lifecycle) -> Refusal {
    match trouble {
        Trouble::Refused(refusal) => refusal,
        Trouble::Broken(why) => {
            lifecycle.fail(&why);
            Refusal::new(RefusalCode::Storage, why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_its_way_is_bounded_but_one_request_always_goes() {
        let room = Room::new(100);
        let large = room.take(1000).unwrap();
        let refused = room.take(1).unwrap_err();
        assert!(refused.code == RefusalCode::Busy && refused.text.contains("1000 bytes"), "{refused:?}");
        drop(large);
        let (_first, _second) = (room.take(60).unwrap(), room.take(40).unwrap());
        assert!(room.take(1).is_err() && room.take(u64::MAX).is_err());
    }
}
