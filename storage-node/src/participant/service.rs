//! Runs the participant in the first reactor: serves requests, hands batches of records to the
//! log's thread, and decides when the log is replaced by a shorter one.
//!
//! Invariants
//! - At most one batch is in flight; records that are added meanwhile form the next one.
//! - While the log is being replaced, nothing is added to it: requests that would add a record
//!   wait, reads continue.
//! - What a reply reports is in the feed (`slots`) before the reply is sent.
//! - While the disk is full, or the log has its configured maximum length, no transaction is
//!   prepared. Prepared transactions still end.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use rackscan_fabric::{WallClock, host_name};
use rackscan_format::message::LogGeneration;
use rackscan_ramp::{
    limits::PART_BYTES_MAX,
    message::{ParticipantId, Refusal, Reply, Request},
    participant::{Participant, Peer},
};

use super::{
    caller::{Caller, ParticipantRequest},
    clients::Clients,
    durability::{Durability, Generation, Rule},
    endings::Endings,
    report::Report,
    shared::{Gauges, ParticipantShared},
    slots::RegionSlots,
    writer::{Command, LogThread},
};
use crate::{
    ids::ConnectionId,
    lifecycle::Lifecycle,
    limits::{
        COLLECTED_PER_TURN, LOG_AHEAD_BYTES, LOG_COMPACT_BYTES, LOG_COMPACT_FACTOR, LOG_COMPACT_RETRY,
        LOG_ENDS_BYTES,
    },
    metrics::add,
    peers::{PeersHandle, ReplicaSpace},
};

/// The stage of the log's replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogStage {
    /// It grows.
    Grows,
    /// It grows, and a shorter one is being written.
    Shortening,
    /// The shorter log is ready, and has been sent to other nodes since this time; the old one
    /// grows.
    Copying(Instant),
    /// Nothing is added until all records are durable.
    Settling,
    /// The thread of the log puts the shorter log in its place.
    Switching,
}

/// The participant, with what it needs in the first reactor.
#[derive(Debug)]
pub(crate) struct ParticipantService {
    pub(super) participant: Participant<RegionSlots>,
    pub(super) shared: Arc<ParticipantShared>,
    pub(super) lifecycle: Arc<Lifecycle>,
    pub(super) log: LogThread,
    pub(super) durability: Durability,
    /// The number of the shorter log that was last ready.
    pub(super) new_version: u32,
    clients: Clients,
    pub(super) id: ParticipantId,
    /// The handle on the thread that talks to other nodes, if the configuration names any.
    pub(super) peers: Option<PeersHandle>,
    pub(super) endings: Endings,
    stage: LogStage,
    /// The maximum length of the log.
    log_bytes_max: u64,
    /// Replicas that must have a record before it is acknowledged.
    pub(super) log_replicas_min: usize,
    /// Why the disk has no space for the log; `None` if it has.
    disk_full: Option<String>,
    /// Why replicas accept nothing, by their numbers: their disks are full.
    pub(super) replica_faults: BTreeMap<usize, String>,
    /// The position up to which disk space is reserved for the log.
    ahead_bytes: u64,
    /// The disk space of replicas, by their numbers.
    pub(super) rooms: BTreeMap<usize, ReplicaSpace>,
    /// The number of the present log.
    pub(super) log_number: u32,
    /// The number of batches that are not durable here yet.
    under_way: usize,
    /// Requests that wait until the log may grow again.
    pub(super) stalled: VecDeque<ParticipantRequest>,
    /// The log is not replaced before this time.
    shorten_after: Instant,
    /// Whether anything happened since the last turn.
    pub(super) touched: bool,
    /// The clock to which the clocks of clients are compared.
    wall: WallClock,
}

impl ParticipantService {
    /// A participant, new or recovered, of the node with this id.
    pub(super) fn new(
        participant: Participant<RegionSlots>,
        shared: Arc<ParticipantShared>,
        lifecycle: Arc<Lifecycle>,
        log: LogThread,
        (log_bytes_max, log_replicas_min): (u64, usize),
        (id, peers): (ParticipantId, Option<PeersHandle>),
        generation: Option<&LogGeneration>,
    ) -> Self {
        let participant = participant.on_host(&host_name());
        let replica_nodes = peers.as_ref().map_or(&[][..], |peers| peers.replica_nodes());
        let (copies, others) = (replica_nodes.len(), peers.as_ref().map_or(0, |peers| peers.others().len()));
        let mut participant = if copies == 0 { participant } else { participant.unacknowledged() };
        let (rule, known) = (Rule::new(log_replicas_min, others), generation);
        let known = known.map(|known| Generation::of(known, replica_nodes));
        let durability =
            Durability::new(participant.log_mut().sequence(), (copies, others), rule, known, Instant::now());
        let gauges = &shared.gauges;
        gauges.log_replicas.store(copies as u64, Relaxed);
        gauges.log_replicas_min.store(log_replicas_min as u64, Relaxed);
        let mut endings = Endings::new(id, Instant::now());
        for (timestamp, transaction) in participant.store().unsettled() {
            // Their coordinators may be alive: whoever ends a transaction asks the other
            // participants first.
            endings.add(timestamp, transaction.participants.clone(), |_| true);
        }
        Self {
            participant,
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

    /// Replaces the clock of this host by another one.
    pub(super) fn with_clock(self, wall: WallClock) -> Self {
        Self { wall, ..self }
    }

    /// Serves a request, or keeps it until it may be served.
    pub(super) fn ask(&mut self, asked: ParticipantRequest) {
        self.touched = true;
        add(&self.shared.gauges.requests, 1);
        let is_still = self.is_still() && asked.messages.iter().any(may_record);
        if is_still || !self.has_room(&asked.messages) {
            self.stalled.push_back(asked);
        } else {
            self.serve(asked);
        }
    }

    /// Whether the records of these messages fit on this disk and on those of replicas, or are
    /// refused because nothing fits.
    fn has_room(&mut self, messages: &[Request]) -> bool {
        let recorded = messages
            .iter()
            .filter(|message| matches!(message, Request::Prepare { .. } | Request::Put { .. }));
        // An honest request has one part. One with more parts risks that the disk becomes full
        // meanwhile.
        let bytes = recorded.map(Request::memory_bytes).sum::<usize>().min(PART_BYTES_MAX);
        let end = self.participant.log_mut().tail().offset_bytes + bytes as u64 + LOG_ENDS_BYTES;
        let has_room = bytes == 0 || end <= self.ahead_bytes && self.replicas_have_room(end);
        has_room || self.participant.refuses_new()
    }

    /// Serves the waiting requests for which there is space now, or which are refused now.
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

    /// Whether nothing may be added to the log now.
    fn is_still(&self) -> bool {
        matches!(self.stage, LogStage::Settling | LogStage::Switching)
    }

    fn serve(&mut self, asked: ParticipantRequest) {
        let ParticipantRequest { caller, connection, messages } = asked;
        self.participant.set_wall_ms(self.wall.now_ms());
        for mut message in messages {
            if let Request::Prepare { part, .. } = &mut message
                && !part.participants.contains(&self.id)
            {
                // This participant is a participant even if the client did not list it: the others
                // must ask for its vote.
                part.participants.push(self.id);
            }
            match &message {
                Request::Lease { client } if !self.clients.leases(*client, connection) => {
                    // Answered as if the participant had too many leases.
                    self.participant.request(
                        Peer(caller.0),
                        Request::Get { lease: Default::default(), keys: Vec::new() },
                    );
                    continue;
                }
                Request::Prepare { part, .. } => self.clients.acts(part.timestamp.client, connection),
                Request::Lock { owner, .. } => self.clients.acts(owner.client, connection),
                _ => {}
            }
            self.participant.request(Peer(caller.0), message);
        }
    }

    /// Handles the end of a connection, and of its clients.
    pub(super) fn connection_closed(&mut self, connection: ConnectionId) {
        self.touched = true;
        // Nobody waits for the answers, and nobody would clean up what such a request leaves.
        self.stalled.retain(|asked| asked.connection != connection);
        for client in self.clients.ended(connection) {
            self.participant.client_lost(client);
            self.end_those_of(client);
        }
    }

    /// Handles a report of the log's thread.
    pub(super) fn on_log_report(&mut self, report: Report) {
        self.touched = true;
        match report {
            Report::Logged(sequence) => {
                self.under_way = self.under_way.checked_sub(1).expect("each batch is reported once");
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
                self.publish_state();
                self.look_at_stalled();
            }
            Report::Ahead(bytes) => {
                self.ahead_bytes = bytes;
                if self.disk_full.take().is_some() {
                    tracing::info!("the log of transactions has room again");
                    self.publish_state();
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
                if let Err(waiting) = self.participant.replace_log(log) {
                    let why = format!(
                        "the log was replaced while {waiting} records were not durable; this is a bug, please report it"
                    );
                    self.lifecycle.fail(&why);
                }
                self.durability.record_local(sequence);
                self.log_replaced(number);
                // The space ahead in the new file is reported next.
                self.ahead_bytes = 0;
                self.go_on();
            }
        }
    }

    /// Lets the log grow again, and serves the requests that waited for that.
    fn go_on(&mut self) {
        self.stage = LogStage::Grows;
        self.look_at_stalled();
    }

    /// Takes the replies that may be sent, grouped by request.
    pub(super) fn take_answers(&mut self) -> Vec<(Caller, Vec<Reply>)> {
        let mut answers: Vec<(Caller, Vec<Reply>)> = Vec::new();
        loop {
            // Publish to the feed before a reply is sent. The feed also contains records that are
            // not durable yet: its followers count what is committed at some participant, and that
            // is what all participants have prepared durably.
            self.participant.publish_feed();
            let replies = self.participant.take_replies();
            if replies.is_empty() {
                return answers;
            }
            for (Peer(peer), reply) in replies {
                if let Some(ending) = Caller(peer).ending() {
                    // The messages that follow may be answered at once.
                    self.on_own_answer(ending, &reply);
                    continue;
                }
                self.count(&reply);
                match answers.last_mut() {
                    // All replies to one request are consecutive.
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

    /// One turn: hands the gathered batch to the log, frees old versions, and manages the log's
    /// length. Returns whether there is more to do at once.
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
            // With a shortage nothing becomes durable, and requests would wait for ever.
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
        let more = self.participant.store_mut().collect(COLLECTED_PER_TURN) == COLLECTED_PER_TURN;
        self.touched = more;
        self.publish_state();
        self.look_at_stalled();
        more
    }

    /// Whether the passing of time may let the log's replacement proceed.
    pub(super) fn is_copying(&self) -> bool {
        matches!(self.stage, LogStage::Copying(_))
    }

    /// Whether a turn would do anything.
    pub(super) fn is_touched(&self) -> bool {
        self.touched
    }

    /// Hands the open batch to the thread of the log.
    fn write(&mut self) {
        if let Some(batch) = self.participant.log_mut().take_batch() {
            self.under_way += 1;
            let batch = Arc::new(batch);
            self.copy(&batch);
            self.log.ask(Command::Write(batch));
        }
    }

    fn all_is_durable(&mut self) -> bool {
        self.under_way == 0 && self.durability.acknowledged() >= self.participant.log_mut().sequence()
    }

    /// The approximate length of a new log.
    fn new_log_bytes(&self) -> u64 {
        let status = self.participant.store().status();
        status.used_bytes.saturating_sub(status.superseded_bytes) as u64
    }

    fn is_long(&mut self) -> bool {
        let log_bytes = self.participant.log_mut().tail().offset_bytes;
        // During the replacement both logs take space, here and at each replica.
        let is_tight = self.rooms.values().any(|room| room.is_tight);
        let has_room = self.disk_full.is_none() && self.replica_faults.is_empty() && !is_tight;
        has_room && log_bytes >= long_bytes(self.new_log_bytes(), self.log_bytes_max)
    }

    /// Begins to replace the log. The reactor only pays for taking the snapshot.
    fn shorten(&mut self) {
        let began = Instant::now();
        // The thread gets all batches before the snapshot.
        self.write();
        let tail = self.participant.log_mut().tail();
        let snapshot = self.participant.store().snapshot();
        let (us, keys) = (began.elapsed().as_micros(), self.participant.store().status().keys);
        tracing::info!(us, keys, log_bytes = tail.offset_bytes, "a shorter log of transactions is begun");
        self.stage = LogStage::Shortening;
        self.log.ask(Command::Shorten(Box::new(snapshot), tail));
    }

    /// Publishes the state of the participant to the other reactors, and tells the participant
    /// whether its log is full.
    fn publish_state(&mut self) {
        let log_bytes = self.participant.log_mut().tail().offset_bytes;
        let full = self.disk_full.is_some() || log_bytes >= self.log_bytes_max;
        let shortage = self.shortage();
        let disk = || {
            let reason = self.disk_full.as_ref()?;
            Some(Refusal::DiskFull { why: disk_is_full(self.id, reason) })
        };
        let refusal = shortage.or_else(disk);
        self.shared.set_write_refusal(refusal.as_ref().map(ToString::to_string));
        self.participant.refuse_new(refusal.or_else(|| full.then_some(Refusal::LogFull)));
        let status = self.participant.store().status();
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

/// The refusal of a write while the disk is full.
fn disk_is_full(id: ParticipantId, reason: &str) -> String {
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

/// The length at which a log is replaced by one of about `new_bytes`, if it may have
/// `bytes_max`: rarely, and before it is full if that at least halves it.
fn long_bytes(new_bytes: u64, bytes_max: u64) -> u64 {
    let usual = (new_bytes.saturating_mul(LOG_COMPACT_FACTOR)).max(LOG_COMPACT_BYTES);
    usual.min((bytes_max / 2).max(new_bytes.saturating_mul(2)))
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
