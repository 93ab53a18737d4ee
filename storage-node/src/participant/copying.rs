//! Replicates the participant's log to other nodes.
//!
//! The participant sends each batch to its own disk and to the replicas at the same time. It waits
//! for all of them before it acknowledges, but for a slow replica no longer than
//! [`COPY_PATIENCE`](crate::limits::COPY_PATIENCE).

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use rackscan_format::{ids::NodeId, message::LogGeneration};
use rackscan_ramp::{
    log::{Batch, Tail},
    message::Refusal,
};

use super::{durability::Shortage, service::ParticipantService, writer::Command};
use crate::{
    limits::{COPY_AHEAD_TIME, LOG_AHEAD_BYTES},
    peers::{Copied, ReplicaSpace},
};

impl ParticipantService {
    /// Sends a batch, with which the log now ends, to the replicas.
    pub(super) fn copy(&mut self, batch: &Arc<Batch>) {
        let end = self.participant.log_mut().tail();
        if let Some(peers) = &self.peers {
            peers.copy(batch, end);
        }
    }

    /// Records that all records up to this one are on this node's disk.
    pub(super) fn filed(&mut self, sequence: u64) {
        if let Some(peers) = &self.peers {
            peers.filed(sequence);
        }
        self.durability.record_local(sequence);
        self.look_at_copies();
    }

    /// Records that the log was replaced by the one with this number.
    pub(super) fn log_replaced(&mut self, number: u32) {
        let end = self.participant.log_mut().tail();
        if let Some(peers) = &self.peers {
            peers.log_begins(number, end);
        }
        self.log_number = number;
        self.log.ask(Command::Look);
        self.acknowledge();
    }

    /// Handles a report on a replica.
    pub(super) fn copied(&mut self, copied: Copied) {
        self.touched = true;
        match copied {
            Copied::Through { copy, sequence, room } => {
                self.replica_faults.remove(&copy);
                self.rooms.insert(copy, room);
                if self.durability.record_copied(copy, sequence) {
                    tracing::info!(node = %self.replica_node(copy), "a replica of the log of transactions has caught up");
                }
                self.acknowledge();
            }
            Copied::Ahead { copy, log } if log == self.new_version => self.durability.record_ahead(copy),
            Copied::Ahead { .. } => {}
            Copied::NoRoomAhead { copy, log } => {
                if log == self.new_version {
                    let node = self.replica_node(copy);
                    self.log
                        .ask(Command::GiveUp(format!("the disk of node {node} has no room for its replica")));
                }
            }
            Copied::Knows { other, generation } => {
                self.durability.record_known(other, generation);
                self.acknowledge();
            }
            Copied::Newer { other, generation } => {
                let (node, known) = (self.other(other), self.durability.proposed());
                self.lifecycle.fail(&format!(
                    "transactions: the log here is of generation {known}, and node {node} knows generation {generation} of it: the log, or \
                     transactions.generation beside it, is older than its replicas; move both out of the node's folder, and the node starts with its \
                     newest replica"
                ));
            }
            Copied::Full { other, reason } => {
                self.durability.record_lost(other);
                self.rooms.remove(&other);
                self.replica_faults.insert(other, reason);
                self.acknowledge();
            }
            Copied::Lost { other } => {
                self.replica_faults.remove(&other);
                self.rooms.remove(&other);
                if self.durability.record_lost(other) {
                    tracing::warn!(node = %self.other(other), "a node that has a replica of the log of transactions is unavailable");
                }
                self.acknowledge();
            }
        }
    }

    /// A shorter log is ready. The replicas get it before it replaces the present one, so that the
    /// switch need not wait for them.
    pub(super) fn copy_ahead(&mut self, number: u32, end: Tail) {
        self.new_version = number;
        self.durability.begin_ahead();
        if let Some(peers) = &self.peers {
            peers.log_succeeds(Some((number, end)));
        }
    }

    /// Tells the replicas that there is no shorter log.
    pub(super) fn log_stays(&self) {
        if let Some(peers) = &self.peers {
            peers.log_succeeds(None);
        }
    }

    /// Whether the replicas have the shorter log that was ready at `since`, or have had enough
    /// time.
    pub(super) fn is_copied_ahead(&self, since: Instant) -> bool {
        self.durability.all_ahead() || since.elapsed() >= COPY_AHEAD_TIME
    }

    /// Leaves out replicas that have lagged for too long, and acknowledges what is durable.
    pub(super) fn look_at_copies(&mut self) {
        // Requests that wait for space may be refused by now.
        self.touched |= !self.stalled.is_empty();
        for copy in self.durability.look(Instant::now()) {
            tracing::warn!(
                node = %self.replica_node(copy),
                "writes are acknowledged without this node's replica of the log of transactions, until it has caught up: it does not answer, or is too slow"
            );
        }
        self.acknowledge();
    }

    /// Records that the log's generation that was given to the log's thread is durable.
    pub(super) fn generation_written(&mut self, generation: LogGeneration) {
        self.durability.record_written(generation.number);
        if let Some(peers) = &self.peers {
            peers.tell_generation(generation);
        }
        self.acknowledge();
    }

    /// Acknowledges what is durable, and proposes a new generation where the set of replicas has
    /// changed.
    pub(super) fn acknowledge(&mut self) {
        // Acknowledge first, so that a replica that has all of it may join.
        let acknowledged = self.durability.acknowledged();
        if let Some(generation) = self.durability.propose(Instant::now()) {
            let generation = generation.to_log(self.replica_nodes());
            tracing::info!(
                number = generation.number,
                members = ?generation.members.iter().map(|node| node.0).collect::<Vec<_>>(),
                after = generation.began_after,
                "the set of log replicas that must have each record is being changed"
            );
            self.log.ask(Command::Generation(generation));
        }
        self.participant.durable(acknowledged);
        let gauges = &self.shared.gauges;
        gauges.log_copies.store(self.durability.whole_copies() as u64, Relaxed);
        gauges.log_generation.store(self.durability.counting(), Relaxed);
        gauges.log_generation_unaware.store(self.durability.unaware() as u64, Relaxed);
    }

    /// Whether enough replicas have disk space for the log up to `end_bytes`.
    pub(super) fn replicas_have_room(&self, end_bytes: u64) -> bool {
        let has_room = |room: &ReplicaSpace| room.log == self.log_number && end_bytes <= room.end_bytes;
        let counting = self.rooms.iter().filter(|(copy, _)| self.durability.counts(**copy));
        counting.filter(|(_, room)| has_room(room)).count() >= self.log_replicas_min
    }

    /// The replicas that are unavailable or whose disks are full, if too few others are left.
    fn full_replicas(&self) -> Option<Shortage> {
        let is_tight = |copy: &usize| {
            self.rooms.get(copy).is_some_and(|room| room.log == self.log_number && room.is_tight)
        };
        let is_unavailable = |copy: &usize| is_tight(copy) || !self.durability.counts(*copy);
        let unavailable: Vec<usize> = (0..self.replica_nodes().len()).filter(is_unavailable).collect();
        let is_short = self.replica_nodes().len() - unavailable.len() < self.log_replicas_min;
        (is_short && unavailable.iter().any(is_tight)).then_some(Shortage::Replicas { unavailable })
    }

    /// The message about the disk of a replica that has no space.
    fn full_disk(&self, copy: usize) -> Option<String> {
        let is_tight = self.rooms.get(&copy).is_some_and(|room| room.is_tight);
        let tight = || {
            let (needed, id) = (LOG_AHEAD_BYTES / 2, self.id.0);
            format!("expected {needed} bytes free for a replica of the log of node {id}")
        };
        self.replica_faults.get(&copy).cloned().or_else(|| is_tight.then(tight))
    }

    /// Why nothing new may be recorded: it would not be acknowledged in time.
    pub(super) fn shortage(&self) -> Option<Refusal> {
        let shortage = self.durability.shortage(Instant::now()).or_else(|| self.full_replicas())?;
        let named =
            |others: &[usize]| others.iter().map(|other| self.other(*other)).collect::<Vec<_>>().join(" or ");
        let (id, replica_nodes) = (self.id.0, self.replica_nodes().len());
        Some(match shortage {
            Shortage::Replicas { unavailable } => {
                let lost: Vec<usize> =
                    unavailable.iter().copied().filter(|other| self.full_disk(*other).is_none()).collect();
                let start = (!lost.is_empty()).then(|| format!("start node {}", named(&lost)));
                let free = unavailable.iter().filter_map(|other| {
                    let (node, fault) = (self.other(*other), self.full_disk(*other)?);
                    Some(format!("the disk of node {node} is full, free some space there ({fault})"))
                });
                let advice: Vec<String> = start.into_iter().chain(free).collect();
                let is_full = lost.len() < unavailable.len();
                let why = format!(
                    "{} of {replica_nodes} log replicas of node {id} are unavailable; expected at least {} available (log_replicas_min): {}",
                    unavailable.len(),
                    self.log_replicas_min,
                    advice.join("; ")
                );
                if is_full { Refusal::DiskFull { why } } else { Refusal::Unrecorded { why } }
            }
            Shortage::Generation { number, unaware, needed } => Refusal::Unrecorded {
                why: format!(
                    "too few nodes know which log replicas of node {id} count (generation {number}); expected {needed} other nodes and all of these \
                 replicas to know it: start node {}",
                    named(&unaware)
                ),
            },
        })
    }

    fn replica_nodes(&self) -> &[NodeId] {
        self.peers.as_ref().map_or(&[], |peers| peers.replica_nodes())
    }

    fn other(&self, other: usize) -> String {
        let others = self.peers.as_ref().map_or(&[][..], |peers| peers.others());
        others.get(other).map_or_else(String::new, ToString::to_string)
    }

    fn replica_node(&self, copy: usize) -> String {
        self.other(copy)
    }
}
