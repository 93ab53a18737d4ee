//! Applies the faults of a round to a cluster (kills nodes, flips bytes, ...), and repairs the
//! cluster.
//!
//! Invariants
//! - At most two nodes are harmed at a time, which parity and log replicas tolerate. A power cut
//!   harms all nodes but loses no data. After a power cut the data of only one node is deleted,
//!   because a log may have a single replica then.
//! - Data is deleted only if it was intact: when the round began, no transaction was in doubt, and
//!   all log replicas were complete.

use super::{cluster::Cluster, kinds::Fault, workload::SKEWS, world::World};
use std::{os::unix::fs::FileExt, time::Duration};

/// Maximum milliseconds for which a node is stopped briefly.
const PAUSE_MAX_MS: u64 = 1500;
const HANG_MAX_MS: u64 = 12_000;
/// Longer than nodes wait for log replicas, and than clients take to connect while nodes are
/// stopped.
const ALONE_MAX_MS: u64 = 9_000;
/// Maximum free bytes of a full disk.
const LEFT_BYTES_MAX: u64 = 256 << 10;
const LABEL_BYTES: u64 = 64 << 10;
const SECTOR_BYTES: u64 = 4096;
const FLIPS: usize = 20;

/// The faults of a round, and the nodes they harm.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) faults: Vec<Fault>,
    victims: Vec<usize>,
}

impl Plan {
    /// Draws nodes, and faults that are possible in this cluster.
    pub(crate) fn draw(possible: &[Fault], nodes: usize, random: &mut fastrand::Rng) -> Self {
        let count = [0, 1, 1, 2, 2, 3][random.usize(0..6)];
        let mut faults: Vec<Fault> = random.choose_multiple(possible.iter().copied(), count);
        // Flipped bytes, lost folders and old folders each use up what parity tolerates.
        let harms = |fault: &Fault| {
            matches!(
                fault,
                Fault::Wipe
                    | Fault::Unrebuilt
                    | Fault::Alone
                    | Fault::Flip
                    | Fault::Stale
                    | Fault::Full
                    | Fault::Members
            )
        };
        if let Some(first) = faults.iter().position(harms) {
            let mut position = 0;
            faults.retain(|fault| {
                position += 1;
                position - 1 <= first || !harms(fault)
            });
        }
        faults.sort_unstable();
        let victims = if random.bool() { 1 } else { 2 };
        let mut victims = random.choose_multiple(0..nodes, victims);
        // Nodes of a power cut die one after the other: the last writes of a node may be on its own
        // disk and that of one replica alone, and must not be wiped on both.
        let is_wiped = |fault: &Fault| matches!(fault, Fault::Wipe | Fault::Unrebuilt);
        if faults.contains(&Fault::Power) && faults.iter().any(is_wiped) {
            victims.truncate(1);
        }
        Self { faults, victims }
    }
}

/// The faults of a round while they last.
pub(crate) struct Running<'a> {
    pub(crate) world: &'a World,
    pub(crate) cluster: &'a mut Cluster,
    pub(crate) plan: &'a Plan,
    /// Nodes to rebuild when all are available again.
    pub(crate) to_rebuild: Vec<usize>,
    pub(crate) to_scrub: bool,
}

impl Running<'_> {
    fn log(&self, what: &str) {
        self.world.log("fault", what);
    }

    /// Starts a fault.
    pub(crate) fn begin(&mut self, fault: Fault, random: &mut fastrand::Rng) {
        *self.world.state().counts.faults.entry(fault).or_default() += 1;
        let victims = self.plan.victims.clone();
        self.log(&format!("{fault:?} of nodes {victims:?} begins"));
        match fault {
            Fault::Kill => victims.iter().for_each(|node| self.cluster.kill(*node)),
            Fault::Power => (0..self.cluster.nodes.len()).for_each(|node| self.cluster.kill(node)),
            Fault::Pause | Fault::Hang => {
                victims.iter().for_each(|node| self.cluster.pause(*node));
                let most = if fault == Fault::Pause { PAUSE_MAX_MS } else { HANG_MAX_MS };
                std::thread::sleep(Duration::from_millis(random.u64(10..most)));
                victims.iter().for_each(|node| self.cluster.resume(*node));
                self.log("they go on");
            }
            Fault::Wipe | Fault::Unrebuilt => {
                for node in victims {
                    self.cluster.kill(node);
                    self.cluster.wipe(node);
                    self.to_rebuild.push(node);
                    if fault == Fault::Unrebuilt {
                        self.cluster.start(node);
                    }
                }
            }
            Fault::Alone => self.lose_alone(victims[0], random),
            // A deleted folder cannot be copied.
            Fault::Restore if self.to_rebuild.contains(&victims[0]) => {}
            Fault::Restore => {
                let node = victims[0];
                self.cluster.kill(node);
                self.cluster.save(node);
                self.cluster.restore(node);
            }
            Fault::Stale => self.log("its folder was copied when the round began"),
            Fault::Flip => self.flip(victims[0], random),
            Fault::Clients | Fault::ClientClock | Fault::Replace | Fault::Increments => {}
            Fault::Config => {
                self.cluster.edit_harmlessly(random);
                victims.iter().for_each(|node| self.cluster.kill(*node));
            }
            Fault::Members => self.cluster.edit_members(victims[0]),
            Fault::NodeClock => {
                let there: Vec<usize> = victims.into_iter().filter(|node| !self.is_gone(*node)).collect();
                for node in there {
                    self.cluster.kill(node);
                    self.cluster.nodes[node].skew = Some(SKEWS[random.usize(0..SKEWS.len())].to_owned());
                    self.cluster.start(node);
                }
            }
            Fault::Full => {
                let left = random.u64(0..LEFT_BYTES_MAX);
                let disks = victims.iter().filter_map(|node| self.cluster.disk(*node));
                disks.for_each(|disk| disk.fill(left));
            }
            Fault::Cut => self.cut(random),
        }
    }

    /// Loses a node's disk after the node has written while no other node kept its log: those
    /// writes are lost.
    fn lose_alone(&mut self, node: usize, random: &mut fastrand::Rng) {
        let nodes = self.cluster.nodes.len();
        let others = [(node + 1) % nodes, (node + 2) % nodes];
        others.iter().for_each(|other| self.cluster.pause(*other));
        let wait = |random: &mut fastrand::Rng| {
            std::thread::sleep(Duration::from_millis(random.u64(10..ALONE_MAX_MS)));
        };
        wait(random);
        self.cluster.kill(node);
        self.cluster.start(node);
        if let Err(problem) = self.cluster.wait_until_ready(node) {
            self.world.problem(problem);
        }
        self.log(&format!("node {node} was started again"));
        wait(random);
        self.cluster.kill(node);
        self.cluster.wipe(node);
        self.to_rebuild.push(node);
        others.iter().for_each(|other| self.cluster.resume(*other));
        self.log(&format!("node {node} has lost everything, nodes {others:?} go on"));
    }

    fn cut(&mut self, random: &mut fastrand::Rng) {
        let (nodes, first) = (self.cluster.nodes.len(), self.plan.victims[0]);
        let Some(network) = self.cluster.network() else { return };
        if random.bool() {
            network.isolate(first);
        } else {
            let other = (first + random.usize(1..nodes)) % nodes;
            network.block(first, other);
            if random.bool() {
                network.block(other, first);
            }
        }
    }

    /// Changes a bit in some sectors of a node's device that are not empty.
    fn flip(&mut self, node: usize, random: &mut fastrand::Rng) {
        self.to_scrub = true;
        let path = self.cluster.device_of(node);
        let Ok(file) = std::fs::File::options().read(true).write(true).open(&path) else {
            return self.log("it has no device now");
        };
        let mut sector = vec![0; usize::try_from(SECTOR_BYTES).expect("a small number")];
        let mut full = Vec::new();
        for at in (0..4 << 20).step_by(4096).map(|at| LABEL_BYTES + at) {
            if file.read_at(&mut sector, at).is_ok_and(|read| read == sector.len())
                && sector.iter().any(|byte| *byte != 0)
            {
                full.push(at);
            }
        }
        let chosen = random.choose_multiple(full, FLIPS);
        for at in &chosen {
            let at = at + random.u64(0..SECTOR_BYTES);
            let mut byte = [0];
            if file.read_at(&mut byte, at).is_ok() {
                file.write_all_at(&[byte[0] ^ 1 << random.u32(0..8)], at).expect("a byte");
            }
        }
        file.sync_all().expect("it is written");
        self.log(&format!("a bit was flipped in each of {} sectors of node {node}", chosen.len()));
    }

    /// Ends all faults: all nodes run, have the right clock, and reach each other.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        if let Some(network) = self.cluster.network() {
            network.heal();
        }
        self.cluster.restore_members();
        for node in 0..self.cluster.nodes.len() {
            if let Some(disk) = self.cluster.disk(node) {
                disk.empty();
            }
            self.cluster.resume(node);
            if self.cluster.nodes[node].skew.take().is_some() {
                self.cluster.kill(node);
            }
        }
        if self.plan.faults.contains(&Fault::Stale) {
            let node = self.plan.victims[0];
            self.cluster.kill(node);
            self.cluster.restore(node);
            self.log(&format!("node {node} has the folder that it had when the round began"));
            self.replace_outdated(node)?;
        }
        self.start()
    }

    /// Starts a node with an older folder. If others have seen a later start of it, it refuses;
    /// then its folder is removed, as `rackscan rebuild` does on the node's host.
    fn replace_outdated(&mut self, node: usize) -> Result<(), String> {
        let others = (0..self.cluster.nodes.len()).filter(|other| *other != node);
        others.clone().for_each(|other| self.cluster.start(other));
        others.clone().try_for_each(|other| self.cluster.wait_until_ready(other))?;
        self.cluster.start(node);
        // It may listen briefly, until another node tells it.
        let outcome = self.cluster.wait_until_ready(node).and_then(|()| self.cluster.wait_until_met(node));
        match outcome {
            Err(refusal) if refusal.contains("the folder is outdated") => {
                self.log(&refusal);
                self.cluster.wipe(node);
                self.to_rebuild.push(node);
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Runs before the round: prepares what a later fault needs.
    pub(crate) fn prepare(&mut self) -> Result<(), String> {
        if self.plan.faults.contains(&Fault::Stale) {
            let node = self.plan.victims[0];
            self.cluster.kill(node);
            self.cluster.save(node);
            return self.start();
        }
        Ok(())
    }

    /// Whether a node lost everything and does not run until the round ends.
    fn is_gone(&self, node: usize) -> bool {
        !self.plan.faults.contains(&Fault::Unrebuilt) && self.to_rebuild.contains(&node)
    }

    /// Starts nodes that do not run in the middle of the round, except those that lost everything.
    pub(crate) fn start_some(&mut self) -> Result<(), String> {
        let nodes: Vec<usize> = (0..self.cluster.nodes.len()).filter(|node| !self.is_gone(*node)).collect();
        nodes.iter().for_each(|node| self.cluster.start(*node));
        nodes.iter().try_for_each(|node| self.cluster.wait_until_ready(*node))?;
        self.log(&format!("nodes {nodes:?} run"));
        Ok(())
    }

    /// Starts all nodes that do not run.
    fn start(&mut self) -> Result<(), String> {
        let nodes = 0..self.cluster.nodes.len();
        nodes.clone().for_each(|node| self.cluster.start(node));
        nodes.clone().try_for_each(|node| self.cluster.wait_until_ready(node))?;
        self.log("all nodes run");
        Ok(())
    }
}
