//! Finds the replicas of a log that contain every acknowledged record, when the node that owns the
//! log cannot provide it.
//!
//! ```text
//! the reports of all other nodes -> the highest generation -> its members that know it -> the longest of their replicas
//!                              \-> too few nodes have reported: a later generation may exist, so no replica is certain (doubt)
//! ```
//!
//! Invariants
//! - A replica is used only if it contains every acknowledged record: its node is a member of a
//!   generation, and no later generation can have acknowledged anything.
//! - A node that has lost its folder reports that it knows nothing, and so proves nothing.

use std::{cmp::Reverse, fmt};

use rackscan_format::{
    ids::NodeId,
    message::{CopyHeld, LogGeneration},
};

/// A node's report about another node's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaReport {
    /// The reporting node.
    pub node: NodeId,
    /// Its replica, if it has one.
    pub held: Option<CopyHeld>,
    /// The newest generation that it knows.
    pub generation: Option<LogGeneration>,
}

impl ReplicaReport {
    fn number(&self) -> u64 {
        self.generation.as_ref().map_or(0, |generation| generation.number)
    }

    /// Whether its replica has everything that was acknowledged up to this generation, which is the
    /// highest one. A node that is a member of this generation and of the one before was waited for
    /// all the time.
    fn is_member(&self, highest: &LogGeneration) -> bool {
        let Some(known) = &self.generation else { return false };
        let is_in = |of: &LogGeneration| of.members.contains(&self.node);
        known.number == highest.number && is_in(highest)
            || known.number.checked_add(1) == Some(highest.number) && is_in(known) && is_in(highest)
    }

    fn knows_nothing(&self) -> bool {
        self.held.is_none() && self.generation.is_none()
    }
}

/// Why no replica is known to have every acknowledged record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaDoubt {
    /// The node whose log it is.
    pub origin: NodeId,
    /// The replica that would be used if an operator accepts the loss, and the generation that its
    /// node knows.
    pub best: Option<(NodeId, CopyHeld, u64)>,
    /// The highest generation that any node reported.
    pub highest: Option<LogGeneration>,
    /// Nodes that did not answer.
    pub silent: Vec<NodeId>,
    /// Nodes that answered that they know nothing of the log.
    pub ignorant: Vec<NodeId>,
}

/// The replicas that have every acknowledged record, the longest one first. Empty if the log never
/// had a replica, because its node is new. `replica_nodes` are the nodes that have replicas. The
/// origin itself may report which generation it knows: it knows the highest one.
///
/// # Errors
/// [`ReplicaDoubt`] if the reports do not prove that.
pub fn newest_replicas(
    origin: NodeId,
    replica_nodes: &[NodeId],
    reports: &[ReplicaReport],
    silent: &[NodeId],
) -> Result<Vec<(NodeId, CopyHeld)>, Box<ReplicaDoubt>> {
    let highest = reports.iter().filter_map(|report| report.generation.as_ref()).max_by_key(|of| of.number);
    let doubt = || Box::new(doubt(origin, reports, silent));
    let others = reports.len() + silent.len();
    let Some(highest) = highest else {
        // Logs from before generations existed have replicas that know none: then the longest one
        // counts, if all replica nodes have reported.
        let all = longest(reports.iter());
        let have_answered = replica_nodes.iter().all(|replica_node| !silent.contains(replica_node));
        let is_known = silent.len() <= if all.is_empty() { spare(others) } else { 0 };
        let most = all.first().map(|(_, held)| held.end.sequence);
        let best = all.into_iter().filter(|(_, held)| Some(held.end.sequence) == most).collect();
        return if have_answered && is_known { Ok(best) } else { Err(doubt()) };
    };
    // Every set of `quorum` nodes that could know a later generation includes one that has
    // answered.
    let answered = reports.iter().filter(|report| report.generation.is_some()).count();
    let is_proved = answered + usize::from(highest.quorum) > others;
    let is_proved = is_proved || reports.iter().any(|report| report.node == origin);
    let members = longest(reports.iter().filter(|report| report.is_member(highest)));
    if is_proved && !members.is_empty() { Ok(members) } else { Err(doubt()) }
}

/// The number of nodes that may be silent if none of the others knows anything: among three or more
/// other nodes, two know each generation.
fn spare(others: usize) -> usize {
    usize::from(others > 2)
}

fn longest<'r>(reports: impl Iterator<Item = &'r ReplicaReport>) -> Vec<(NodeId, CopyHeld)> {
    let mut held: Vec<_> = reports.filter_map(|report| Some((report.node, report.held?))).collect();
    held.sort_by_key(|(node, held)| (Reverse(held.end.sequence), *node));
    held
}

fn doubt(origin: NodeId, reports: &[ReplicaReport], silent: &[NodeId]) -> ReplicaDoubt {
    let best = reports.iter().filter(|report| report.held.is_some());
    let best = best.max_by_key(|report| (report.number(), report.held.map(|held| held.end.sequence)));
    let highest = reports.iter().filter_map(|report| report.generation.clone()).max_by_key(|of| of.number);
    ReplicaDoubt {
        origin,
        best: best.and_then(|report| Some((report.node, report.held?, report.number()))),
        highest,
        silent: silent.to_vec(),
        ignorant: reports.iter().filter(|report| report.knows_nothing()).map(|report| report.node).collect(),
    }
}

/// Nodes as a list in a sentence.
fn named(nodes: &[NodeId]) -> String {
    nodes.iter().map(|node| format!("node {node}")).collect::<Vec<_>>().join(" and ")
}

impl fmt::Display for ReplicaDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, best, highest, silent, ignorant } = self;
        write!(f, "no replica of the log of node {origin} is known to have every acknowledged record: ")?;
        match best {
            Some((node, held, number)) => {
                write!(f, "node {node} has records up to {} of generation {number}", held.end.sequence)?;
            }
            None => write!(f, "no node that answers has a replica")?,
        }
        let newest = highest.as_ref().map_or(0, |highest| highest.number);
        if let Some(highest) = highest.as_ref().filter(|_| best.is_none_or(|(.., number)| number < newest)) {
            write!(
                f,
                ", generation {newest} acknowledged records up to {} at least in {}",
                highest.began_after,
                if highest.members.is_empty() {
                    format!("node {origin} alone")
                } else {
                    named(&highest.members)
                }
            )?;
        }
        if !ignorant.is_empty() {
            write!(f, ", {} knows nothing of this log", named(ignorant))?;
        }
        if !silent.is_empty() {
            write!(f, ", {} does not answer", named(silent))?;
        }
        let from = best.map_or(1, |(_, held, _)| held.end.sequence + 1);
        write!(f, "; records from {from} on, of generation {} or later, may be missing", newest.max(1))
    }
}

#[cfg(test)]
mod tests {
    use rackscan_format::message::LogPoint;

    use super::*;

    const ORIGIN: NodeId = NodeId(1);

    fn generation(number: u64, members: &[u16], quorum: u16) -> LogGeneration {
        let members = members.iter().map(|id| NodeId(*id)).collect();
        LogGeneration { number, members, quorum, began_after: number * 100 }
    }

    fn said(node: u16, records: Option<u64>, generation: Option<LogGeneration>) -> ReplicaReport {
        let end = |sequence| LogPoint { offset_bytes: sequence, sequence, checksum: 0 };
        let held = records.map(|sequence| CopyHeld { log: 7, end: end(sequence) });
        ReplicaReport { node: NodeId(node), held, generation }
    }

    fn newest(reports: &[ReplicaReport], silent: &[u16]) -> Result<Option<u16>, String> {
        let silent: Vec<NodeId> = silent.iter().map(|id| NodeId(*id)).collect();
        let found = newest_replicas(ORIGIN, &[NodeId(2), NodeId(3)], reports, &silent);
        found.map(|found| found.first().map(|(node, _)| node.0)).map_err(|doubt| doubt.to_string())
    }

    #[test]
    fn the_longest_member_of_the_highest_generation_is_taken_and_no_stale_one_however_long() {
        let (old, new) = (generation(5, &[2, 3], 1), generation(6, &[2], 1));
        let both = [said(2, Some(10), Some(old.clone())), said(3, Some(12), Some(old.clone()))];
        assert_eq!(newest(&both, &[]), Ok(Some(3)));
        let stale = [said(2, Some(10), Some(new.clone())), said(3, Some(99), Some(old.clone()))];
        assert_eq!(newest(&stale, &[]), Ok(Some(2)));
        // It is a member, and does not know that yet: it may lack what was acknowledged before.
        let unaware = [said(2, Some(10), Some(generation(7, &[2, 3], 1))), said(3, Some(99), Some(old))];
        assert_eq!(newest(&unaware, &[]), Ok(Some(2)));
    }

    #[test]
    fn a_stale_replica_alone_is_refused_with_what_may_be_missing() {
        let old = generation(5, &[2, 3], 1);
        let alone = newest(&[said(2, None, None), said(3, Some(40), Some(old.clone()))], &[]).unwrap_err();
        for part in ["node 3 has records up to 40 of generation 5", "node 2 knows nothing", "from 41 on"] {
            assert!(alone.contains(part), "{part}: {alone}");
        }
        let silent = newest(&[said(3, Some(40), Some(old.clone()))], &[2]).unwrap_err();
        assert!(silent.contains("node 2 does not answer"), "{silent}");
        let told = [said(2, None, Some(generation(6, &[2], 1))), said(3, Some(40), Some(old))];
        let known = newest(&told, &[]).unwrap_err();
        assert!(known.contains("generation 6 acknowledged records up to 600 at least in node 2"), "{known}");
    }

    #[test]
    fn where_two_others_know_each_generation_one_lost_or_silent_node_leaves_no_doubt() {
        let (old, new) = (generation(5, &[2, 3], 2), generation(6, &[2], 2));
        let witness = |of: &LogGeneration| said(4, None, Some(of.clone()));
        let third = |records| said(3, Some(records), Some(old.clone()));
        assert_eq!(newest(&[third(40), witness(&old)], &[2]), Ok(Some(3)));
        assert_eq!(newest(&[said(2, None, None), third(40), witness(&old)], &[]), Ok(Some(3)));
        assert!(newest(&[said(2, None, None), third(40), witness(&new)], &[]).is_err());
        assert!(newest(&[third(40)], &[2, 4]).is_err(), "two silent ones may know more");
        // Node 2 was waited for before and after, and was not told yet.
        assert_eq!(
            newest(&[said(2, Some(9), Some(old.clone())), third(40), witness(&new)], &[]),
            Ok(Some(2))
        );
    }

    #[test]
    fn where_the_origin_may_have_gone_on_alone_no_replica_proves_anything() {
        let alone = generation(5, &[2, 3], 0);
        let reports = [said(2, Some(40), Some(alone.clone())), said(3, Some(40), Some(alone))];
        assert!(newest(&reports, &[]).is_err());
        // Unless it says itself that it has not.
        let own = said(1, None, Some(generation(5, &[2, 3], 0)));
        assert_eq!(newest(&[own, reports[0].clone(), reports[1].clone()], &[]), Ok(Some(2)));
        let later = said(1, None, Some(generation(7, &[], 0)));
        assert!(newest(&[later, reports[0].clone(), reports[1].clone()], &[]).is_err());
    }

    #[test]
    fn a_new_node_is_told_from_one_that_has_lost_its_log() {
        let none = |node| said(node, None, None);
        assert_eq!(newest(&[none(2), none(3)], &[]), Ok(None));
        assert!(newest(&[none(2)], &[3]).is_err());
        assert_eq!(newest(&[none(2), none(3), none(4)], &[5]), Ok(None));
        assert!(newest(&[none(2), none(4), none(5)], &[3]).is_err(), "it may have a replica");
        assert!(newest(&[none(2), none(3), said(4, None, Some(generation(1, &[2, 3], 2)))], &[]).is_err());
        // Replicas of before generations.
        assert_eq!(newest(&[said(2, Some(3), None), said(3, Some(4), None)], &[]), Ok(Some(3)));
        assert!(newest(&[said(2, Some(3), None)], &[3]).is_err());
    }
}
