//! Decides when a record of the log is durable enough to be acknowledged.
//!
//! A generation is a numbered set of log replicas that must have a record before it is
//! acknowledged.
//!
//! ```text
//! the set changes -> a new generation is proposed -> it is durable on this node
//!     -> its members and enough other nodes know it -> it is in force ("counts")
//! ```
//!
//! A record is acknowledged when it is on this node's disk, in every replica of the generation in
//! force, and in every replica of each generation proposed since. A replica that lacks a record for
//! too long is excluded by a new generation, and is included again when it has caught up. No
//! replica is excluded below the minimum number of replicas: then nothing is acknowledged, and new
//! records are refused.
//!
//! Invariants
//! - The acknowledged position never decreases.
//! - A replica is in a generation only if it has all records that were acknowledged before the
//!   generation was proposed.
//! - A record is acknowledged only under a generation in force. So a node that has lost its disk
//!   either finds a member of the highest generation, or cannot prove that a replica is complete.
//! - Other nodes learn of a generation only when it is durable on this node, so a number never
//!   stands for two different sets.

use std::time::Instant;

use az::SaturatingAs;
use rackscan_format::{ids::NodeId, message::LogGeneration};

use crate::limits::{COPY_PATIENCE, FIRST_COPY_PATIENCE, GENERATION_PATIENCE};

/// The required numbers of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// The minimum number of replicas, beside this node's disk, that a record is in before it is
    /// acknowledged.
    pub(crate) replicas_min: usize,
    /// The number of other nodes that know a generation before it counts.
    pub(crate) quorum: usize,
}

impl Rule {
    /// The rule for a node with `others` other nodes, of which `replicas_min` replicas must have
    /// every record.
    ///
    /// Where there are three other nodes or more, two know each generation: then the loss or
    /// silence of one node beside this one leaves no doubt. Where this node may go on alone
    /// (`replicas_min` is 0) there is always doubt, and no other node has to know.
    pub(crate) fn new(replicas_min: usize, others: usize) -> Self {
        let quorum = if replicas_min == 0 { 0 } else { replicas_min.max(others.saturating_sub(1).min(2)) };
        Self { replicas_min, quorum }
    }
}

/// A set of replicas: one bit each, in the order in which they are numbered.
pub(crate) type Members = u32;

/// A numbered set of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) number: u64,
    pub(crate) members: Members,
    pub(crate) quorum: usize,
    pub(crate) began_after: u64,
}

/// The bit of a member that the configuration no longer lists as a replica node. It makes the next
/// proposal differ.
const FORMER: Members = 1 << 31;

impl Generation {
    /// Converts a generation of the wire, for the replica nodes in their order.
    pub(crate) fn of(known: &LogGeneration, replica_nodes: &[NodeId]) -> Self {
        let place = |member: &NodeId| replica_nodes.iter().position(|replica_node| replica_node == member);
        let members = known.members.iter().map(|member| place(member).map_or(FORMER, bit));
        Self {
            number: known.number,
            members: members.fold(0, |all, member| all | member),
            quorum: known.quorum.into(),
            began_after: known.began_after,
        }
    }

    /// Converts it to the form of the wire.
    pub(crate) fn to_log(self, replica_nodes: &[NodeId]) -> LogGeneration {
        let members = replica_nodes.iter().enumerate().filter(|(number, _)| has(self.members, *number));
        let mut members: Vec<NodeId> = members.map(|(_, replica_node)| *replica_node).collect();
        members.sort_unstable();
        LogGeneration {
            number: self.number,
            members,
            quorum: self.quorum.saturating_as::<u16>(),
            began_after: self.began_after,
        }
    }
}

/// How far the log is durable, here and in replicas. All positions are numbers of records.
#[derive(Debug)]
pub(crate) struct Durability {
    rule: Rule,
    local: u64,
    /// The last record on this node's disk when it started.
    recovered: u64,
    acknowledged: u64,
    copies: Vec<ReplicaState>,
    /// The highest generation that each other node knows; the replica nodes come first.
    known: Vec<u64>,
    /// The last generation that was proposed, and whether it is durable here.
    last: Option<Generation>,
    is_written: bool,
    /// Whether the last generation counts.
    counts: bool,
    /// Whether any generation has counted since this node started.
    has_counted: bool,
    /// How many other nodes must know the last generation.
    needed: usize,
    /// Members of the generation that counted last, and of all proposed since.
    waited_for: Members,
    /// Since when the last generation has not counted.
    open_since: Instant,
}

/// The state of one replica.
#[derive(Clone, Copy, Debug)]
struct ReplicaState {
    through: u64,
    standing: Standing,
    /// Whether it has all of the log's new version.
    ahead: bool,
}

/// Whether acknowledgements wait for a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// They do, and it has everything.
    Counts,
    /// They do; since this time it has lacked this record, or an earlier one, or does not know this
    /// generation.
    Lacks(Instant, u64, u64),
    /// They do not, until it has this record: the last one here when it last reported.
    Left(u64),
}

impl Durability {
    /// The state at start. All records up to `sequence` are on this node's disk; nothing is known
    /// yet of the `copies` replicas. Nothing counts as acknowledged where there are replicas: the
    /// last recovered records may be on no other disk, and a client that asks again must not be
    /// told that they are safe. `last` is the generation that this disk knows.
    pub(crate) fn new(
        sequence: u64,
        (copies, others): (usize, usize),
        rule: Rule,
        last: Option<Generation>,
        now: Instant,
    ) -> Self {
        let copy = ReplicaState { through: 0, standing: Standing::Counts, ahead: false };
        let is_alone = copies == 0;
        Self {
            rule,
            local: sequence,
            recovered: sequence,
            acknowledged: if is_alone { sequence } else { 0 },
            copies: vec![copy; copies],
            known: vec![0; others],
            last: last.filter(|_| !is_alone),
            is_written: last.is_some(),
            counts: is_alone,
            has_counted: is_alone,
            needed: last.map_or(rule.quorum, |last| last.quorum.max(rule.quorum)).min(others),
            waited_for: last.map_or(0, |last| last.members),
            open_since: now,
        }
    }

    /// Records that all up to `sequence` is on this node's disk.
    pub(crate) fn record_local(&mut self, sequence: u64) {
        self.local = self.local.max(sequence);
    }

    /// Records that all up to `sequence` is in the replica with this number. Returns whether
    /// acknowledgements wait for it again from now on.
    pub(crate) fn record_copied(&mut self, copy: usize, sequence: u64) -> bool {
        let local = self.local;
        let Some(copy) = self.copies.get_mut(copy) else { return false };
        copy.through = copy.through.max(sequence);
        let Standing::Left(goal) = copy.standing else { return false };
        // Records that were added while its answer was in flight are already on their way to it.
        let is_back = copy.through >= goal.min(local);
        copy.standing = if is_back { Standing::Counts } else { Standing::Left(local) };
        is_back
    }

    /// Records that the connection to this node has ended. Acknowledgements do not wait for its
    /// replica until it has caught up. Returns whether they did so far. Its state is asked for
    /// again: it may come back without what it had.
    pub(crate) fn record_lost(&mut self, other: usize) -> bool {
        let local = self.local;
        if let Some(known) = self.known.get_mut(other) {
            *known = 0;
        }
        let Some(copy) = self.copies.get_mut(other) else { return false };
        let was_there = copy.counts();
        // Its next report is evaluated afresh.
        (copy.standing, copy.through) = (Standing::Left(local), 0);
        was_there
    }

    /// Records that the node with this number knows this generation.
    pub(crate) fn record_known(&mut self, other: usize, number: u64) {
        if let Some(known) = self.known.get_mut(other) {
            *known = (*known).max(number);
        }
    }

    /// The highest generation that this node has proposed.
    pub(crate) fn proposed(&self) -> u64 {
        self.last.map_or(0, |last| last.number)
    }

    /// Records that the generation with this number is durable here: other nodes may be told.
    pub(crate) fn record_written(&mut self, number: u64) {
        self.is_written |= self.proposed() == number;
    }

    /// Returns a new generation if the set of replicas to wait for has changed. It must be made
    /// durable here, and then known to other nodes.
    pub(crate) fn propose(&mut self, now: Instant) -> Option<Generation> {
        // Only one generation is being written at a time.
        if self.copies.is_empty() || self.last.is_some() && !self.is_written {
            return None;
        }
        let before = self.last.map_or(0, |last| last.members);
        let has_all = |copy: &ReplicaState| copy.through >= self.acknowledged.max(self.recovered);
        let is_first = self.last.is_none();
        let joins = |number: usize, copy: &ReplicaState| is_first || has(before, number) || has_all(copy);
        let wanted =
            self.copies.iter().enumerate().filter(|(number, copy)| copy.counts() && joins(*number, copy));
        let members = wanted.fold(0, |members, (number, _)| members | bit(number));
        let quorum_differs = self.counts && self.last.is_some_and(|last| last.quorum != self.rule.quorum);
        let is_enough = members.count_ones() as usize >= self.rule.replicas_min;
        if !is_first && (members == before || !is_enough) && !quorum_differs {
            return None;
        }
        let members = if is_enough || is_first { members } else { before };
        let earlier = self.last.map_or(0, |last| last.quorum);
        let quorum = if self.counts { self.rule.quorum } else { self.rule.quorum.max(earlier) };
        // Whichever generation is the highest that some node knows, the next one that counts is
        // known to at least the quorum of that one.
        self.needed = quorum.max(earlier).min(self.known.len());
        let generation = Generation {
            number: self.proposed() + 1,
            members,
            quorum,
            began_after: self.acknowledged.max(if self.has_counted { 0 } else { self.recovered }),
        };
        if std::mem::take(&mut self.counts) || is_first {
            self.open_since = now;
        }
        self.waited_for |= members;
        (self.last, self.is_written) = (Some(generation), false);
        Some(generation)
    }

    /// Marks the last generation as counting if enough nodes know it.
    fn look_at_generation(&mut self) {
        let Some(last) = self.last.filter(|_| self.is_written && !self.counts) else { return };
        let knows = |known: &&u64| **known >= last.number;
        let members = (0..self.copies.len()).filter(|number| has(last.members, *number));
        let all_know =
            members.clone().all(|number| self.known.get(number).is_some_and(|known| knows(&known)));
        // A node that has just started acknowledges nothing before all recovered records are in the
        // replicas.
        let all_have = members.clone().all(|number| self.copies[number].through >= self.recovered);
        let is_known = self.known.iter().filter(knows).count() >= self.needed;
        if all_know && all_have && is_known && members.count() >= self.rule.replicas_min {
            (self.counts, self.has_counted, self.waited_for) = (true, true, last.members);
        }
    }

    /// The position up to which records may be acknowledged.
    pub(crate) fn acknowledged(&mut self) -> u64 {
        self.look_at_generation();
        if self.has_counted {
            let is_waited_for =
                |number: usize, copy: &ReplicaState| has(self.waited_for, number) || copy.counts();
            let counted =
                self.copies.iter().enumerate().filter(|(number, copy)| is_waited_for(*number, copy));
            let through = counted.map(|(_, copy)| copy.through).min().unwrap_or(u64::MAX);
            self.acknowledged = self.acknowledged.max(through.min(self.local));
        }
        self.acknowledged
    }

    /// Leaves out replicas that have lacked something for too long. Returns their numbers.
    pub(crate) fn look(&mut self, now: Instant) -> Vec<usize> {
        let mut left = Vec::new();
        let (local, proposed) = (self.local, if self.is_written { self.proposed() } else { 0 });
        let patience = if self.has_counted { COPY_PATIENCE } else { FIRST_COPY_PATIENCE };
        for (number, copy) in self.copies.iter_mut().enumerate().filter(|(_, copy)| copy.counts()) {
            let known = self.known.get(number).copied().unwrap_or(0);
            let lacks = |sequence: u64, generation: u64| copy.through < sequence || known < generation;
            copy.standing = match copy.standing {
                _ if !lacks(local, proposed) => Standing::Counts,
                Standing::Lacks(since, sequence, generation) if lacks(sequence, generation) => {
                    if now.saturating_duration_since(since) < patience {
                        continue;
                    }
                    left.push(number);
                    Standing::Left(local)
                }
                _ => Standing::Lacks(now, local, proposed),
            };
        }
        left
    }

    /// Whether the passing of time, or an answer of another node, may change anything.
    pub(crate) fn waits(&self) -> bool {
        !self.counts || self.copies.iter().any(|copy| copy.counts() && copy.through < self.local)
    }

    /// Begins a new version of the log, of which no replica has anything yet.
    pub(crate) fn begin_ahead(&mut self) {
        self.copies.iter_mut().for_each(|copy| copy.ahead = false);
    }

    /// Records that the replica with this number has the log's new version.
    pub(crate) fn record_ahead(&mut self, copy: usize) {
        if let Some(copy) = self.copies.get_mut(copy) {
            copy.ahead = true;
        }
    }

    /// Whether acknowledgements wait for the replica with this number.
    pub(crate) fn counts(&self, copy: usize) -> bool {
        self.copies.get(copy).is_some_and(ReplicaState::counts)
    }

    /// Whether every replica that counts has the new version.
    pub(crate) fn all_ahead(&self) -> bool {
        self.copies.iter().all(|copy| copy.ahead || !copy.counts())
    }

    /// The number of replicas that have everything that was acknowledged, in this life of the node
    /// or before.
    pub(crate) fn whole_copies(&self) -> usize {
        let whole = self.acknowledged.max(self.recovered);
        self.copies.iter().filter(|copy| copy.counts() && copy.through >= whole).count()
    }

    /// The number of the generation that counts; 0 if none does.
    pub(crate) fn counting(&self) -> u64 {
        self.last.filter(|_| self.counts).map_or(0, |last| last.number)
    }

    /// The number of other nodes that do not know the last generation, as far as this node has
    /// heard.
    pub(crate) fn unaware(&self) -> usize {
        self.known.iter().filter(|known| **known < self.proposed()).count()
    }

    /// Why nothing new may be recorded: it would not be acknowledged in time.
    pub(crate) fn shortage(&self, now: Instant) -> Option<Shortage> {
        let unavailable: Vec<usize> =
            (0..self.copies.len()).filter(|number| !self.copies[*number].counts()).collect();
        if self.copies.len() - unavailable.len() < self.rule.replicas_min {
            return Some(Shortage::Replicas { unavailable });
        }
        let is_late = now.saturating_duration_since(self.open_since) >= GENERATION_PATIENCE;
        let last = self.last.filter(|_| !self.counts && is_late)?;
        let knows = |number: &usize| self.known[*number] >= last.number;
        let unaware = (0..self.known.len()).filter(|number| !knows(number)).collect();
        Some(Shortage::Generation { number: last.number, unaware, needed: self.needed })
    }
}

/// The shortage that keeps new records out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// These replicas are unavailable, and too few are left.
    Replicas { unavailable: Vec<usize> },
    /// Too few other nodes know the generation: these do not.
    Generation { number: u64, unaware: Vec<usize>, needed: usize },
}

fn bit(number: usize) -> Members {
    1_u32.checked_shl(number.saturating_as::<u32>()).unwrap_or(0) & !FORMER
}

fn has(members: Members, number: usize) -> bool {
    members & bit(number) != 0
}

impl ReplicaState {
    fn counts(&self) -> bool {
        !matches!(self.standing, Standing::Left(_))
    }
}

#[cfg(test)]
mod tests;
