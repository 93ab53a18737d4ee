//! Lists the faults and operations that can be drawn, and counts how often each occurred.

use std::{collections::BTreeMap, fmt::Write as _};

/// The variable with a comma-separated list of the faults to draw; without it, all are drawn.
pub(crate) const FAULTS_VARIABLE: &str = "RACKSCAN_FAULTS";

/// The faults of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// One or two nodes are killed by SIGKILL and started again.
    Kill,
    /// All nodes are killed at once, as by a power cut.
    Power,
    /// One or two nodes are stopped briefly by SIGSTOP.
    Pause,
    /// One or two nodes are stopped by SIGSTOP for many seconds.
    Hang,
    /// One or two nodes are killed and their folders deleted; they are started and rebuilt when the
    /// round ends.
    Wipe,
    /// Like [`Fault::Wipe`], but the nodes are started at once and rebuilt when the round ends:
    /// tables are loaded and flushed in between.
    Unrebuilt,
    /// The nodes that keep replicas of a node's log are stopped. The node continues alone, is
    /// killed and started, then killed again, and its folder is deleted.
    Alone,
    /// A node is killed, its folder is copied elsewhere, deleted, and put back as it was.
    Restore,
    /// A node gets its folder back as it was some time before.
    Stale,
    /// Bytes are flipped in the devices of a node.
    Flip,
    /// Clients are killed in the middle of their work.
    Clients,
    /// The configuration is edited without changing its meaning, and nodes are started with it.
    Config,
    /// Nodes are removed from the list of nodes, or added to it.
    Members,
    /// Clients whose clocks are wrong.
    ClientClock,
    /// Nodes whose clocks are wrong.
    NodeClock,
    /// A node's disk is full.
    Full,
    /// Nodes cannot reach each other.
    Cut,
    /// Tables are replaced and dropped while others write to them.
    Replace,
    /// Many clients increment one number by UPDATE concurrently.
    Increments,
}

/// A fault and its name.
pub(crate) struct FaultKind {
    pub(crate) fault: Fault,
    pub(crate) name: &'static str,
}

const fn drawn(fault: Fault, name: &'static str) -> FaultKind {
    FaultKind { fault, name }
}

/// All faults.
pub(crate) const FAULTS: &[FaultKind] = &[
    drawn(Fault::Kill, "kill"),
    drawn(Fault::Power, "power"),
    drawn(Fault::Pause, "pause"),
    drawn(Fault::Hang, "hang"),
    drawn(Fault::Wipe, "wipe"),
    drawn(Fault::Unrebuilt, "unrebuilt"),
    drawn(Fault::Alone, "alone"),
    drawn(Fault::Restore, "restore"),
    drawn(Fault::Stale, "stale"),
    drawn(Fault::Flip, "flip"),
    drawn(Fault::Clients, "clients"),
    drawn(Fault::Config, "config"),
    drawn(Fault::Members, "members"),
    drawn(Fault::ClientClock, "client-clock"),
    drawn(Fault::NodeClock, "node-clock"),
    drawn(Fault::Full, "full"),
    drawn(Fault::Cut, "cut"),
    drawn(Fault::Increments, "increments"),
    drawn(Fault::Replace, "replace"),
];

/// The value of [`FAULTS_VARIABLE`].
pub(crate) fn names() -> String {
    std::env::var(FAULTS_VARIABLE).unwrap_or_else(|_| "all".to_owned())
}

/// The faults that are drawn.
pub(crate) fn chosen() -> Vec<Fault> {
    chosen_by(&names())
}

fn chosen_by(names: &str) -> Vec<Fault> {
    let mut chosen = Vec::new();
    for name in names.split(',').map(str::trim) {
        let matches = |kind: &&FaultKind| name == "all" || kind.name == name;
        let found: Vec<Fault> = FAULTS.iter().filter(matches).map(|kind| kind.fault).collect();
        let known: Vec<&str> = FAULTS.iter().map(|kind| kind.name).collect();
        assert!(
            !found.is_empty(),
            "{FAULTS_VARIABLE} names the fault '{name}', expected all, or some of {}",
            known.join(", ")
        );
        chosen.extend(found);
    }
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// Operations of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Put,
    PutSeveral,
    Delete,
    Get,
    GetSeveral,
    Scan,
    Insert,
    Update,
    DeleteRow,
    Transaction,
    Select,
    SelectRow,
    Load,
    Drop,
    Flush,
    Scrub,
    Fsck,
    Rebuild,
    Status,
    /// Drawn only with the fault of that name.
    Increment,
}

/// Each operation and its weight.
pub(crate) const OPERATIONS: &[(Operation, u32)] = &[
    (Operation::Put, 12),
    (Operation::PutSeveral, 10),
    (Operation::Delete, 4),
    (Operation::Get, 12),
    (Operation::GetSeveral, 6),
    (Operation::Scan, 3),
    (Operation::Insert, 5),
    (Operation::Update, 8),
    (Operation::DeleteRow, 4),
    (Operation::Transaction, 8),
    (Operation::Select, 6),
    (Operation::SelectRow, 6),
    (Operation::Load, 3),
    (Operation::Drop, 2),
    (Operation::Flush, 4),
    (Operation::Scrub, 2),
    (Operation::Fsck, 2),
    (Operation::Rebuild, 1),
    (Operation::Status, 2),
];

/// One in this many operations increments the number, if clients do so.
const INCREMENTS_ONE_IN: u32 = 3;

/// One in this many operations loads or drops a table, if tables are replaced.
const REPLACEMENTS_ONE_IN: u32 = 5;

/// Draws one by their weights.
pub(crate) fn draw(random: &mut fastrand::Rng, faults: &[Fault]) -> Operation {
    if faults.contains(&Fault::Increments) && random.u32(0..INCREMENTS_ONE_IN) == 0 {
        return Operation::Increment;
    }
    if faults.contains(&Fault::Replace) && random.u32(0..REPLACEMENTS_ONE_IN) == 0 {
        return if random.bool() { Operation::Load } else { Operation::Drop };
    }
    let all: u32 = OPERATIONS.iter().map(|(_, weight)| weight).sum();
    let mut place = random.u32(0..all);
    for (operation, weight) in OPERATIONS {
        if place < *weight {
            return *operation;
        }
        place -= weight;
    }
    unreachable!("the place is below the sum of all weights")
}

/// How operations of one kind ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ends {
    pub(crate) acknowledged: u64,
    pub(crate) refused: u64,
    pub(crate) in_doubt: u64,
}

/// Counters of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) rounds: u64,
    pub(crate) clusters: u64,
    pub(crate) faults: BTreeMap<Fault, u64>,
    pub(crate) operations: BTreeMap<Operation, Ends>,
    /// Writes in doubt that became visible later.
    pub(crate) surfaced: u64,
    /// Writes in doubt that were decided without becoming visible.
    pub(crate) decided: u64,
}

impl Counts {
    /// Adds the counters of another cluster.
    pub(crate) fn add(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.clusters += other.clusters;
        self.surfaced += other.surfaced;
        self.decided += other.decided;
        for (fault, count) in other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        for (operation, more) in other.operations {
            let ends = self.operations.entry(operation).or_default();
            ends.acknowledged += more.acknowledged;
            ends.refused += more.refused;
            ends.in_doubt += more.in_doubt;
        }
    }

    /// The summary line of a run.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("{} rounds of {} clusters; faults:", self.rounds, self.clusters);
        for kind in FAULTS {
            if let Some(count) = self.faults.get(&kind.fault) {
                let _ = write!(line, " {} {count},", kind.name);
            }
        }
        line.push_str(" operations (acknowledged/refused/in doubt):");
        for (operation, ends) in &self.operations {
            let _ = write!(line, " {operation:?} {}/{}/{},", ends.acknowledged, ends.refused, ends.in_doubt);
        }
        let _ = write!(line, " {} writes in doubt were seen later, {} were not", self.surfaced, self.decided);
        line
    }

    /// What a long run should have covered, but did not.
    pub(crate) fn missing(&self, chosen: &[Fault]) -> Vec<String> {
        let faults = FAULTS
            .iter()
            .filter(|kind| chosen.contains(&kind.fault) && !self.faults.contains_key(&kind.fault));
        let mut missing: Vec<String> = faults.map(|kind| format!("the fault {}", kind.name)).collect();
        for (operation, _) in OPERATIONS {
            if self.operations.get(operation).is_none_or(|ends| ends.acknowledged == 0) {
                missing.push(format!("an acknowledged {operation:?}"));
            }
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_chosen_by_their_names() {
        assert_eq!(chosen_by("kill, stale"), [Fault::Kill, Fault::Stale]);
        assert_eq!(chosen_by("all").len(), FAULTS.len());
        assert!(std::panic::catch_unwind(|| chosen_by("kil")).is_err());
    }

    #[test]
    fn what_was_never_met_is_named() {
        let mut counts = Counts::default();
        assert_eq!(counts.missing(&[Fault::Kill]).len(), 1 + OPERATIONS.len());
        counts.faults.insert(Fault::Kill, 1);
        counts.operations.insert(Operation::Put, Ends { acknowledged: 1, ..Ends::default() });
        assert_eq!(counts.missing(&[Fault::Kill]).len(), OPERATIONS.len() - 1);
    }
}
