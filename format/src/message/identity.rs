//! Defines the identity of a node's data folder: the cluster that it belongs to, and a history of
//! the node's starts, by which peers recognize an outdated folder.
//!
//! A data folder counts the starts of its node and gives each start a random id. Peers remember the
//! last start that they have seen of each node. A folder that was restored from an older snapshot
//! has either fewer starts than its peers have seen, or another id for the same start.
//!
//! Invariants
//! - A folder's history is compared only with starts of the same lineage: all starts of one folder
//!   since it was created or rebuilt.

use az::SaturatingAs;
use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// The number of its last starts whose ids a node remembers.
pub const STARTS_KEPT: usize = 16;

/// One start of a node over its data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Start {
    /// The random number of the folder's lineage.
    pub lineage: u64,
    /// The number of starts in this lineage, including this one.
    pub number: u64,
    /// The random number of this start.
    pub id: u64,
}

/// The starts of a node over its data folder.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StartHistory {
    /// The random number of the folder's lineage; 0 if the node keeps no history.
    pub lineage: u64,
    /// The number of starts in this lineage.
    pub number: u64,
    /// The ids of the last starts, at most [`STARTS_KEPT`], the current one last.
    pub recent: Vec<u64>,
}

impl StartHistory {
    /// The current start.
    #[must_use]
    pub fn last(&self) -> Option<Start> {
        self.recent.last().map(|id| Start { lineage: self.lineage, number: self.number, id: *id })
    }

    /// Adds a start.
    pub fn begin(&mut self, id: u64) {
        self.number = self.number.saturating_add(1);
        self.recent.push(id);
        let extra = self.recent.len().saturating_sub(STARTS_KEPT);
        self.recent.drain(..extra);
    }

    /// Whether this history lacks a start that a peer has seen. A start that is older than the
    /// remembered ids counts as known.
    #[must_use]
    pub fn lacks(&self, seen: &Start) -> bool {
        if self.lineage == 0 || self.lineage != seen.lineage {
            return false;
        }
        let Some(back) = self.number.checked_sub(seen.number) else { return true };
        // A distance beyond usize is beyond the remembered ids.
        let back = back.saturating_as::<usize>();
        let place = self.recent.len().checked_sub(1).and_then(|last| last.checked_sub(back));
        place.is_some_and(|place| self.recent[place] != seen.id)
    }
}

/// The last start that a node has seen of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenStart {
    /// The peer.
    pub node: NodeId,
    /// Its last start.
    pub start: Start,
}

/// What a node's data folder records about the cluster and about itself.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FolderIdentity {
    /// The ids of all nodes of the cluster, ascending. Empty if the node does not know them.
    pub members: Vec<NodeId>,
    /// The random number of the data folder; a copy of the folder gets another one. 0 if there is
    /// none.
    pub folder: u64,
    /// The node's starts.
    pub history: StartHistory,
    /// The last starts that it has seen of its peers.
    pub seen: Vec<SeenStart>,
}

impl FolderIdentity {
    /// The last start of a peer that this node has seen.
    #[must_use]
    pub fn seen_of(&self, node: NodeId) -> Option<Start> {
        self.seen.iter().find(|seen| seen.node == node).map(|seen| seen.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(starts: impl Iterator<Item = u64>) -> StartHistory {
        let mut history = StartHistory { lineage: 7, ..StartHistory::default() };
        starts.for_each(|id| history.begin(id));
        history
    }

    #[test]
    fn a_restored_folder_lacks_what_peers_have_seen_and_a_current_one_does_not() {
        let snapshot = history(1..=3);
        let mut original = snapshot.clone();
        original.begin(40);
        let seen = original.last().unwrap();
        assert!(!original.lacks(&seen));
        assert!(snapshot.lacks(&seen), "it has fewer starts");
        let mut restored = snapshot;
        restored.begin(50);
        assert!(restored.lacks(&seen), "the same number of starts, with another id");
        restored.begin(51);
        assert!(restored.lacks(&seen), "more starts, and another one in that place");
        original.begin(41);
        assert!(!original.lacks(&seen), "peers may know less than the newest start");
    }

    #[test]
    fn other_lineages_and_starts_that_are_too_old_are_not_held_against_a_folder() {
        let long = history(1..=40);
        assert_eq!(long.recent.len(), STARTS_KEPT);
        assert!(!long.lacks(&Start { lineage: 8, number: 99, id: 1 }));
        assert!(!long.lacks(&Start { lineage: 7, number: 3, id: 77 }), "its id is not kept any more");
        assert!(long.lacks(&Start { lineage: 7, number: 25, id: 77 }));
        assert!(!StartHistory::default().lacks(&Start { lineage: 0, number: 1, id: 1 }));
    }
}
