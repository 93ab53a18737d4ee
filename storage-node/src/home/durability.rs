//! When is a record durable enough to tell of it?
//!
//! ```text
//! replicas that are waited for --change--> a generation is proposed -> written here -> known to its members and enough others -> it counts
//! ```
//!
//! When it is on this node's disk and in every replica of the generation that counts, and of each
//! one that was proposed since. A replica that lacks a record for too long is left out by a new
//! generation, and comes back by another one when it has caught up. Below the least number of
//! replicas none is left out: nothing is acknowledged then, and nothing new is taken.
//!
//! Invariants
//! - What is acknowledged never goes back.
//! - A replica is in a generation only if it has all that was acknowledged before the generation
//!   was proposed.
//! - A record is acknowledged only under a generation that counts; so whoever has lost this node's
//!   disk finds a member of the highest generation, or no proof.
//! - A generation is told to others when it is durable here: no number ever means two sets.

use std::time::Instant;

use rackscan_format::{ids::NodeId, message::LogGeneration};

use crate::limits::{COPY_PATIENCE, FIRST_COPY_PATIENCE, GENERATION_PATIENCE};

/// How many replicas there have to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Beside this node's disk, that a record is in before it is acknowledged.
    pub(crate) least: usize,
    /// Other nodes that know a generation before it counts.
    pub(crate) quorum: usize,
}

impl Rule {
    /// Of a node with so many others, of which so many replicas must have everything.
    ///
    /// Two know of each generation where there are three others or more: then one lost or silent
    /// node beside this one leaves no doubt. Where this node may go on alone there is always doubt,
    /// and nobody else has to know.
    pub(crate) fn new(least: usize, others: usize) -> Self {
        let quorum = if least == 0 { 0 } else { least.max(others.saturating_sub(1).min(2)) };
        Self { least, quorum }
    }
}

/// Which replicas are waited for: bit by bit, in the order in which they are numbered.
pub(crate) type Members = u32;

/// A set of replicas with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) number: u64,
    pub(crate) members: Members,
    pub(crate) quorum: usize,
    pub(crate) began_after: u64,
}

/// That of a member which is no replica node any more, because the configuration has changed: so
/// the next proposal differs.
const FORMER: Members = 1 << 31;

impl Generation {
    /// One that nodes know, for the replica nodes in their order.
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

    /// As nodes know it.
    pub(crate) fn to_log(self, replica_nodes: &[NodeId]) -> LogGeneration {
        let members = replica_nodes.iter().enumerate().filter(|(number, _)| has(self.members, *number));
        let mut members: Vec<NodeId> = members.map(|(_, replica_node)| *replica_node).collect();
        members.sort_unstable();
        LogGeneration {
            number: self.number,
            members,
            quorum: u16::try_from(self.quorum).unwrap_or(u16::MAX),
            began_after: self.began_after,
        }
    }
}

/// How far the log is durable, here and elsewhere. All are numbers of records.
#[derive(Debug)]
pub(crate) struct Durability {
    rule: Rule,
    local: u64,
    /// What this node's disk had when it began.
    recovered: u64,
    acknowledged: u64,
    copies: Vec<Copied>,
    /// The highest generation that each other node knows; the first ones have the copies.
    known: Vec<u64>,
    /// The last generation that was proposed, and whether it is durable here.
    last: Option<Generation>,
    is_written: bool,
    /// Whether it counts.
    counts: bool,
    /// Whether any has counted in this life.
    has_counted: bool,
    /// How many others must know the last one.
    needed: usize,
    /// Members of the generation that counted last, and of all that were proposed since.
    waited_for: Members,
    /// Since when the last generation does not count.
    open_since: Instant,
}

/// What another node has.
#[derive(Clone, Copy, Debug)]
struct Copied {
    through: u64,
    standing: Standing,
    /// Whether it has the log's new version.
    ahead: bool,
}

/// Whether an acknowledgement waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It does, and it has everything.
    Counts,
    /// It does; since then it lacks this record, or one before, or does not know this generation.
    Lacks(Instant, u64, u64),
    /// It does not, until it has this one: what was here when it last said what it has.
    Left(u64),
}

impl Durability {
    /// All up to `sequence` is on this node's disk. There are so many copies, of which nothing is
    /// known yet, with so many others: the end of what was recovered may be nowhere else, and who
    /// asks for it again must not be told that it is safe. `last` is the generation that this disk
    /// knows.
    pub(crate) fn new(
        sequence: u64,
        (copies, others): (usize, usize),
        rule: Rule,
        last: Option<Generation>,
        now: Instant,
    ) -> Self {
        let copy = Copied { through: 0, standing: Standing::Counts, ahead: false };
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

    /// All up to `sequence` is on this node's disk.
    pub(crate) fn here(&mut self, sequence: u64) {
        self.local = self.local.max(sequence);
    }

    /// All up to `sequence` is in the copy with this number. Whether it is waited for from now on,
    /// and was not before.
    pub(crate) fn copied(&mut self, copy: usize, sequence: u64) -> bool {
        let local = self.local;
        let Some(copy) = self.copies.get_mut(copy) else { return false };
        copy.through = copy.through.max(sequence);
        let Standing::Left(goal) = copy.standing else { return false };
        // What came while its answer was on its way is on its way to it.
        let is_back = copy.through >= goal.min(local);
        copy.standing = if is_back { Standing::Counts } else { Standing::Left(local) };
        is_back
    }

    /// The connection to the node with this number has ended: its copy is not waited for, until it
    /// has caught up. Whether that is new. What it had and knew is asked for again: it may come
    /// back without.
    pub(crate) fn lost(&mut self, other: usize) -> bool {
        let local = self.local;
        if let Some(known) = self.known.get_mut(other) {
            *known = 0;
        }
        let Some(copy) = self.copies.get_mut(other) else { return false };
        let was_there = copy.counts();
        // What it says next is looked at anew.
        (copy.standing, copy.through) = (Standing::Left(local), 0);
        was_there
    }

    /// The node with this number knows this generation.
    pub(crate) fn knows(&mut self, other: usize, number: u64) {
        if let Some(known) = self.known.get_mut(other) {
            *known = (*known).max(number);
        }
    }

    /// The highest generation that this node has proposed.
    pub(crate) fn proposed(&self) -> u64 {
        self.last.map_or(0, |last| last.number)
    }

    /// The last proposal is durable here, if this is its number: others may be told.
    pub(crate) fn written(&mut self, number: u64) {
        self.is_written |= self.proposed() == number;
    }

    /// A generation that is to be made durable here, and known to others after that, if the
    /// replicas that are waited for have changed.
    pub(crate) fn propose(&mut self, now: Instant) -> Option<Generation> {
        // One at a time is being written.
        if self.copies.is_empty() || self.last.is_some() && !self.is_written {
            return None;
        }
        let before = self.last.map_or(0, |last| last.members);
        let has_all = |copy: &Copied| copy.through >= self.acknowledged.max(self.recovered);
        let is_first = self.last.is_none();
        let joins = |number: usize, copy: &Copied| is_first || has(before, number) || has_all(copy);
        let wanted =
            self.copies.iter().enumerate().filter(|(number, copy)| copy.counts() && joins(*number, copy));
        let members = wanted.fold(0, |members, (number, _)| members | bit(number));
        let quorum_differs = self.counts && self.last.is_some_and(|last| last.quorum != self.rule.quorum);
        let is_enough = members.count_ones() as usize >= self.rule.least;
        if !is_first && (members == before || !is_enough) && !quorum_differs {
            return None;
        }
        let members = if is_enough || is_first { members } else { before };
        let earlier = self.last.map_or(0, |last| last.quorum);
        let quorum = if self.counts { self.rule.quorum } else { self.rule.quorum.max(earlier) };
        // Whatever generation is the highest that somebody knows, the next one that counts is known
        // to as many as that one says.
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

    /// Whether the last generation counts by now.
    fn look_at_generation(&mut self) {
        let Some(last) = self.last.filter(|_| self.is_written && !self.counts) else { return };
        let knows = |known: &&u64| **known >= last.number;
        let members = (0..self.copies.len()).filter(|number| has(last.members, *number));
        let all_know =
            members.clone().all(|number| self.known.get(number).is_some_and(|known| knows(&known)));
        // One that has just started tells nobody that all is safe before it is.
        let all_have = members.clone().all(|number| self.copies[number].through >= self.recovered);
        let is_known = self.known.iter().filter(knows).count() >= self.needed;
        if all_know && all_have && is_known && members.count() >= self.rule.least {
            (self.counts, self.has_counted, self.waited_for) = (true, true, last.members);
        }
    }

    /// All up to here may be told.
    pub(crate) fn acknowledged(&mut self) -> u64 {
        self.look_at_generation();
        if self.has_counted {
            let is_waited_for = |number: usize, copy: &Copied| has(self.waited_for, number) || copy.counts();
            let counted =
                self.copies.iter().enumerate().filter(|(number, copy)| is_waited_for(*number, copy));
            let through = counted.map(|(_, copy)| copy.through).min().unwrap_or(u64::MAX);
            self.acknowledged = self.acknowledged.max(through.min(self.local));
        }
        self.acknowledged
    }

    /// Looks at the time. Copies that are not waited for from now on, because they lacked something
    /// for too long.
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

    /// Whether time, or an answer of another node, brings anything further.
    pub(crate) fn waits(&self) -> bool {
        !self.counts || self.copies.iter().any(|copy| copy.counts() && copy.through < self.local)
    }

    /// The log gets a new version, of which no copy has anything yet.
    pub(crate) fn begin_ahead(&mut self) {
        self.copies.iter_mut().for_each(|copy| copy.ahead = false);
    }

    /// The copy with this number has the log's new version.
    pub(crate) fn ahead(&mut self, copy: usize) {
        if let Some(copy) = self.copies.get_mut(copy) {
            copy.ahead = true;
        }
    }

    /// Whether the copy with this number is waited for.
    pub(crate) fn counts(&self, copy: usize) -> bool {
        self.copies.get(copy).is_some_and(Copied::counts)
    }

    /// Whether every copy that counts has it.
    pub(crate) fn all_ahead(&self) -> bool {
        self.copies.iter().all(|copy| copy.ahead || !copy.counts())
    }

    /// How many copies have everything that was acknowledged, now or before this node began.
    pub(crate) fn whole_copies(&self) -> usize {
        let whole = self.acknowledged.max(self.recovered);
        self.copies.iter().filter(|copy| copy.counts() && copy.through >= whole).count()
    }

    /// The number of the generation that counts; 0 if none does.
    pub(crate) fn counting(&self) -> u64 {
        self.last.filter(|_| self.counts).map_or(0, |last| last.number)
    }

    /// How many other nodes do not know the last generation, as far as this one has heard.
    pub(crate) fn unaware(&self) -> usize {
        self.known.iter().filter(|known| **known < self.proposed()).count()
    }

    /// Why nothing new may be recorded: it would not be acknowledged in time.
    pub(crate) fn shortage(&self, now: Instant) -> Option<Shortage> {
        let unavailable: Vec<usize> =
            (0..self.copies.len()).filter(|number| !self.copies[*number].counts()).collect();
        if self.copies.len() - unavailable.len() < self.rule.least {
            return Some(Shortage::Replicas { unavailable });
        }
        let is_late = now.saturating_duration_since(self.open_since) >= GENERATION_PATIENCE;
        let last = self.last.filter(|_| !self.counts && is_late)?;
        let knows = |number: &usize| self.known[*number] >= last.number;
        let unaware = (0..self.known.len()).filter(|number| !knows(number)).collect();
        Some(Shortage::Generation { number: last.number, unaware, needed: self.needed })
    }
}

/// What there is too little of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// These copies are not there, and too few are left.
    Replicas { unavailable: Vec<usize> },
    /// Too few other nodes know which replicas count: these do not.
    Generation { number: u64, unaware: Vec<usize>, needed: usize },
}

fn bit(number: usize) -> Members {
    u32::try_from(number).ok().and_then(|number| 1_u32.checked_shl(number)).unwrap_or(0) & !FORMER
}

fn has(members: Members, number: usize) -> bool {
    members & bit(number) != 0
}

impl Copied {
    fn counts(&self) -> bool {
        !matches!(self.standing, Standing::Left(_))
    }
}

#[cfg(test)]
mod tests;
