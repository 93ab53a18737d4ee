//! What does the home do in a turn of its reactor?
//!
//! Invariants
//! - A batch is under way at most once: what is asked for meanwhile gathers in the next one.
//! - While the log is exchanged nothing is added to it: what would add waits, reads go on.
//! - Whoever follows the feed can see what a reply tells of before the reply leaves.
//! - Nothing new is prepared while the disk, or what the configuration allows the log, is full;
//!   what is prepared still ends.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use rackscan_fabric::{WallClock, host_name};
use rackscan_format::message::LogGeneration;
use rackscan_ramp::{
    home::{Home, Peer},
    limits::PART_BYTES_MAX,
    message::{HomeId, Refusal, Reply, Request},
};

use super::{
    access::{Asked, Caller},
    clients::Clients,
    durability::{Durability, Generation, Rule},
    endings::Endings,
    shared::{Gauges, HomeShared},
    slots::RegionSlots,
    writer::{Command, LogThread, Report},
};
use crate::{
    lifecycle::Lifecycle,
    limits::{
        COLLECTED_PER_TURN, LOG_AHEAD_BYTES, LOG_COMPACT_BYTES, LOG_COMPACT_FACTOR, LOG_COMPACT_RETRY,
        LOG_ENDS_BYTES,
    },
    metrics::add,
    peers::{CopyRoom, PeerWay},
    store::ConnectionId,
};

/// What becomes of the log at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogStage {
    /// It grows.
    Grows,
    /// It grows, and a shorter one is being written.
    Shortening,
    /// The shorter one is ready, and is copied to other nodes since then; the other one grows.
    Copying(Instant),
    /// Nothing is added until all is durable.
    Settling,
    /// The thread of the log puts the shorter one in its place.
    Switching,
}

/// The home and what is around it in the first reactor.
#[derive(Debug)]
pub(crate) struct HomeService {
    pub(super) home: Home<RegionSlots>,
    pub(super) shared: Arc<HomeShared>,
    pub(super) lifecycle: Arc<Lifecycle>,
    pub(super) log: LogThread,
    pub(super) durability: Durability,
    /// The number of the shorter log that was last ready.
    pub(super) new_version: u32,
    clients: Clients,
    pub(super) id: HomeId,
    /// The way to other nodes, if this one is told of any.
    pub(super) peers: Option<PeerWay>,
    pub(super) endings: Endings,
    stage: LogStage,
    /// Bytes that the log may take.
    log_bytes_max: u64,
    /// Replicas that must have a record before it is acknowledged.
    pub(super) log_replicas_min: usize,
    /// Why the disk takes no more of the log.
    disk_full: Option<String>,
    /// Why replicas take nothing, by their numbers: their disks are full.
    pub(super) replica_faults: BTreeMap<usize, String>,
    /// Up to where the disk has room for the log, whatever happens.
    ahead_bytes: u64,
    /// What is known of the room of replicas, by their numbers.
    pub(super) rooms: BTreeMap<usize, CopyRoom>,
    /// The number of the present log.
    pub(super) log_number: u32,
    /// Batches that are not durable here yet.
    under_way: usize,
    /// What waits until the log may grow again.
    pub(super) stalled: VecDeque<Asked>,
    /// Before then the log is not replaced.
    shorten_after: Instant,
    /// Whether anything happened since the last turn.
    pub(super) touched: bool,
    /// With which the clocks of clients are compared.
    wall: WallClock,
}

impl HomeService {
    /// A home, new or recovered, of the node with this id.
    pub(super) fn new(
        home: Home<RegionSlots>,
        shared: Arc<HomeShared>,
        lifecycle: Arc<Lifecycle>,
        log: LogThread,
        (log_bytes_max, log_replicas_min): (u64, usize),
        (id, peers): (HomeId, Option<PeerWay>),
        generation: Option<&LogGeneration>,
    ) -> Self {
        let home = home.on_host(&host_name());
        let replica_nodes = peers.as_ref().map_or(&[][..], |peers| peers.replica_nodes());
        let (copies, others) = (replica_nodes.len(), peers.as_ref().map_or(0, |peers| peers.others().len()));
        let mut home = if copies == 0 { home } else { home.unacknowledged() };
        let (rule, known) = (Rule::new(log_replicas_min, others), generation);
        let known = known.map(|known| Generation::of(known, replica_nodes));
        let durability =
            Durability::new(home.log_mut().sequence(), (copies, others), rule, known, Instant::now());
        let gauges = &shared.gauges;
        gauges.log_replicas.store(copies as u64, Relaxed);
        gauges.log_replicas_min.store(log_replicas_min as u64, Relaxed);
        let mut endings = Endings::new(id, Instant::now());
        for (timestamp, transaction) in home.store().unsettled() {
            // Their coordinators may live: whoever ends them asks the other homes first.
            endings.add(timestamp, transaction.homes.clone(), |_| true);
        }
        Self {
            home,
            shared,
            lifecycle,
            log,
            durability,
            new_version: 0,
            clients: Clients::default(),
            id,
            peers,
            endings,
            stage: LogStage::Grows,
            log_bytes_max,
            log_replicas_min,
            disk_full: None,
            replica_faults: BTreeMap::new(),
            ahead_bytes: 0,
            rooms: BTreeMap::new(),
            log_number: 0,
            under_way: 0,
            stalled: VecDeque::new(),
            shorten_after: Instant::now(),
            touched: true,
            wall: WallClock::default(),
        }
    }

    /// The same, with another clock than this host's.
    pub(super) fn with_clock(self, wall: WallClock) -> Self {
        Self { wall, ..self }
    }

    /// Does what a request asks for, or keeps it until it may.
    pub(super) fn ask(&mut self, asked: Asked) {
        self.touched = true;
        add(&self.shared.gauges.requests, 1);
        let is_still = self.is_still() && asked.messages.iter().any(may_record);
        if is_still || !self.has_room(&asked.messages) {
            self.stalled.push_back(asked);
        } else {
            self.serve(asked);
        }
    }

    /// Whether what is asked for fits on this disk and on those of replicas, or is refused because
    /// nothing does.
    fn has_room(&mut self, messages: &[Request]) -> bool {
        let recorded = messages
            .iter()
            .filter(|message| matches!(message, Request::Prepare { .. } | Request::Put { .. }));
        // An honest request has one part. What asks for more takes its chance that the disk is full
        // meanwhile.
        let bytes = recorded.map(Request::memory_bytes).sum::<usize>().min(PART_BYTES_MAX);
        let end = self.home.log_mut().tail().offset_bytes + bytes as u64 + LOG_ENDS_BYTES;
        let has_room = bytes == 0 || end <= self.ahead_bytes && self.replicas_have_room(end);
        has_room || self.home.refuses_new()
    }

    /// There is room, or there is none: what waited for that is done, or refused.
    fn look_at_stalled(&mut self) {
        if self.is_still() {
            return;
        }
        for asked in std::mem::take(&mut self.stalled) {
            if self.has_room(&asked.messages) {
                self.serve(asked);
                self.touched = true;
            } else {
                self.stalled.push_back(asked);
            }
        }
    }

    /// Whether nothing may be added to the log.
    fn is_still(&self) -> bool {
        matches!(self.stage, LogStage::Settling | LogStage::Switching)
    }

    fn serve(&mut self, asked: Asked) {
        let Asked { caller, connection, messages } = asked;
        self.home.set_wall_ms(self.wall.now_ms());
        for mut message in messages {
            if let Request::Prepare { part, .. } = &mut message
                && !part.homes.contains(&self.id)
            {
                // Who leaves this home out is not believed: others may have a vote.
                part.homes.push(self.id);
            }
            match &message {
                Request::Lease { client } if !self.clients.leases(*client, connection) => {
                    // As where the home has too many leases.
                    self.home.request(
                        Peer(caller.0),
                        Request::Get { lease: Default::default(), keys: Vec::new() },
                    );
                    continue;
                }
                Request::Prepare { part, .. } => self.clients.acts(part.timestamp.client, connection),
                Request::Lock { owner, .. } => self.clients.acts(owner.client, connection),
                _ => {}
            }
            self.home.request(Peer(caller.0), message);
        }
    }

    /// A connection is gone, and with it its clients.
    pub(super) fn left(&mut self, connection: ConnectionId) {
        self.touched = true;
        // Nobody waits for it, and nobody would see to what it leaves.
        self.stalled.retain(|asked| asked.connection != connection);
        for client in self.clients.ended(connection) {
            self.home.client_lost(client);
            self.end_those_of(client);
        }
    }

    /// The thread of the log has done something.
    pub(super) fn report(&mut self, report: Report) {
        self.touched = true;
        match report {
            Report::Logged(sequence) => {
                self.under_way = self.under_way.saturating_sub(1);
                add(&self.shared.gauges.log_batches, 1);
                self.filed(sequence);
            }
            Report::Full(reason) => {
                if self.disk_full.is_none() {
                    tracing::warn!(
                        reason,
                        "the log of transactions is full: nothing new is prepared until there is room"
                    );
                }
                self.disk_full = Some(reason);
                self.tell();
                self.look_at_stalled();
            }
            Report::Ahead(bytes) => {
                self.ahead_bytes = bytes;
                if self.disk_full.take().is_some() {
                    tracing::info!("the log of transactions has room again");
                    self.tell();
                }
                self.look_at_stalled();
            }
            Report::Generation(generation) => self.generation_written(generation),
            Report::Shortened(number, end) => {
                self.copy_ahead(number, end);
                self.stage = LogStage::Copying(Instant::now());
            }
            Report::NotShortened => {
                self.log_stays();
                self.shorten_after = Instant::now() + LOG_COMPACT_RETRY;
                self.go_on();
            }
            Report::Switched(log, number) => {
                let sequence = log.sequence();
                if let Err(waiting) = self.home.replace_log(log) {
                    let why = format!(
                        "the log was replaced while {waiting} records were not durable; this is a bug"
                    );
                    self.lifecycle.fail(&why);
                }
                self.durability.here(sequence);
                self.log_replaced(number);
                // Of the new file, which is heard of next.
                self.ahead_bytes = 0;
                self.go_on();
            }
        }
    }

    /// The log grows again; what waited for that is done.
    fn go_on(&mut self) {
        self.stage = LogStage::Grows;
        self.look_at_stalled();
    }

    /// Replies that may go, each with all others to the same request.
    pub(super) fn take_answers(&mut self) -> Vec<(Caller, Vec<Reply>)> {
        let mut answers: Vec<(Caller, Vec<Reply>)> = Vec::new();
        loop {
            // Before anybody is told. A record that waits to be durable is there, too: whoever
            // follows counts what is committed somewhere, and that is what all homes have prepared
            // durably.
            self.home.publish_feed();
            let replies = self.home.take_replies();
            if replies.is_empty() {
                return answers;
            }
            for (Peer(peer), reply) in replies {
                if let Some(ending) = Caller(peer).ending() {
                    // What it says then may be answered at once.
                    self.heard_here(ending, &reply);
                    continue;
                }
                self.count(&reply);
                match answers.last_mut() {
                    // All replies to one request come one after the other.
                    Some((caller, replies)) if caller.0 == peer => replies.push(reply),
                    _ => answers.push((Caller(peer), vec![reply])),
                }
            }
        }
    }

    fn count(&self, reply: &Reply) {
        let Gauges { prepared, committed, refused, .. } = &self.shared.gauges;
        match reply {
            Reply::Prepared => add(prepared, 1),
            Reply::Committed => add(committed, 1),
            Reply::Refused { .. } => add(refused, 1),
            _ => {}
        }
    }

    /// Gives the log what has gathered, lets old versions go, sees to the log's length. Whether
    /// there is more to do at once.
    pub(super) fn turn(&mut self) -> bool {
        if !std::mem::take(&mut self.touched) {
            return false;
        }
        self.begin_endings();
        if self.under_way == 0 {
            self.write();
        }
        let is_short = self.shortage().is_some();
        if matches!(self.stage, LogStage::Copying(since) if self.is_copied_ahead(since)) && !is_short {
            self.stage = LogStage::Settling;
        }
        if self.stage == LogStage::Settling && is_short {
            // Nothing would settle, and what waits for that would wait for ever.
            self.go_on();
            self.stage = LogStage::Copying(Instant::now());
        }
        if self.stage == LogStage::Settling && self.all_is_durable() {
            self.stage = LogStage::Switching;
            self.log.ask(Command::Switch);
        }
        if self.stage == LogStage::Grows && self.is_long() && self.shorten_after <= Instant::now() {
            self.shorten();
        }
        let more = self.home.store_mut().collect(COLLECTED_PER_TURN) == COLLECTED_PER_TURN;
        self.touched = more;
        self.tell();
        self.look_at_stalled();
        more
    }

    /// Whether time may bring the log's exchange further.
    pub(super) fn is_copying(&self) -> bool {
        matches!(self.stage, LogStage::Copying(_))
    }

    /// Whether a turn would do anything.
    pub(super) fn is_touched(&self) -> bool {
        self.touched
    }

    /// Hands the open batch to the thread of the log.
    fn write(&mut self) {
        if let Some(batch) = self.home.log_mut().take_batch() {
            self.under_way += 1;
            let batch = Arc::new(batch);
            self.copy(&batch);
            self.log.ask(Command::Write(batch));
        }
    }

    fn all_is_durable(&mut self) -> bool {
        self.under_way == 0 && self.durability.acknowledged() >= self.home.log_mut().sequence()
    }

    /// About how many bytes a new log would have.
    fn least_log_bytes(&self) -> u64 {
        let status = self.home.store().status();
        status.used_bytes.saturating_sub(status.superseded_bytes) as u64
    }

    fn is_long(&mut self) -> bool {
        let log_bytes = self.home.log_mut().tail().offset_bytes;
        // While it is exchanged there are two of it, here and at each replica.
        let is_tight = self.rooms.values().any(|room| room.is_tight);
        let has_room = self.disk_full.is_none() && self.replica_faults.is_empty() && !is_tight;
        has_room && log_bytes >= long_bytes(self.least_log_bytes(), self.log_bytes_max)
    }

    /// Begins to replace the log: what the store holds now is all that this costs the reactor.
    fn shorten(&mut self) {
        let began = Instant::now();
        // The thread has the snapshot's predecessors before it.
        self.write();
        let tail = self.home.log_mut().tail();
        let snapshot = self.home.store().snapshot();
        let (us, keys) = (began.elapsed().as_micros(), self.home.store().status().keys);
        tracing::info!(us, keys, log_bytes = tail.offset_bytes, "a shorter log of transactions is begun");
        self.stage = LogStage::Shortening;
        self.log.ask(Command::Shorten(Box::new(snapshot), tail));
    }

    /// Tells the other reactors how the home does, and the home whether its log is full.
    fn tell(&mut self) {
        let log_bytes = self.home.log_mut().tail().offset_bytes;
        let full = self.disk_full.is_some() || log_bytes >= self.log_bytes_max;
        let shortage = self.shortage();
        let disk = || {
            let reason = self.disk_full.as_ref()?;
            Some(Refusal::DiskFull { why: disk_is_full(self.id, reason) })
        };
        let refusal = shortage.or_else(disk);
        self.shared.refuses_writes(refusal.as_ref().map(ToString::to_string));
        self.home.refuse_new(refusal.or_else(|| full.then_some(Refusal::LogFull)));
        let status = self.home.store().status();
        let gauges = &self.shared.gauges;
        gauges.log_full.store(full, Relaxed);
        let values = [
            (&gauges.log_bytes, log_bytes),
            (&gauges.used_bytes, status.used_bytes as u64),
            (&gauges.held_bytes, status.superseded_bytes as u64),
            (&gauges.keys, status.keys as u64),
            (&gauges.in_doubt, status.in_doubt as u64),
        ];
        values.iter().for_each(|(gauge, value)| gauge.store(*value, Relaxed));
        self.ask_for_tick();
    }
}

/// What is said to who writes.
fn disk_is_full(id: HomeId, reason: &str) -> String {
    format!(
        "the disk of node {} is full: {reason}; expected {} bytes free there for the log: free some space, and writes go on by themselves",
        id.0,
        LOG_AHEAD_BYTES / 2
    )
}

/// Whether a message may add a record to the log.
fn may_record(message: &Request) -> bool {
    !matches!(
        message,
        Request::Lease { .. }
            | Request::Advance { .. }
            | Request::Close { .. }
            | Request::Get { .. }
            | Request::Timestamps { .. }
            | Request::Among { .. }
            | Request::Scan { .. }
            | Request::Mark
            | Request::Lock { .. }
            | Request::Unlock { .. }
    )
}

/// The length at which a log is replaced by one of about `least_bytes`, if it may have
/// `most_bytes`: seldom, and before it is full if that makes it half as long at least.
fn long_bytes(least_bytes: u64, most_bytes: u64) -> u64 {
    let usual = (least_bytes.saturating_mul(LOG_COMPACT_FACTOR)).max(LOG_COMPACT_BYTES);
    usual.min((most_bytes / 2).max(least_bytes.saturating_mul(2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_replaced_when_that_makes_it_much_shorter() {
        assert_eq!(long_bytes(0, u64::MAX), 64 << 20);
        assert_eq!(long_bytes(1 << 30, u64::MAX), 4 << 30);
        assert_eq!(long_bytes(0, 1 << 20), 1 << 19, "before it is full");
        assert_eq!(long_bytes(3 << 20, 4 << 20), 6 << 20, "not where that gains nothing");
    }
}
