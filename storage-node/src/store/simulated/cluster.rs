//! Simulates a cluster as a client uses it, including the completion of catalog changes that a
//! crash has interrupted.
//!
//! It does the same as `client/catalog` and `client/forget`, but sends one request after the other,
//! in an order that the seed determines.
//!
//! Invariants
//! - A request of a client without power reaches no node, and no answer reaches the client.

use std::{collections::BTreeSet, sync::Arc};

use rackscan_format::{
    ids::TableId,
    message::NodeCatalog,
    schema::{Protection, TableDefinition},
};

use super::{
    folder::{Image, StorageDefect},
    node::{Failure, Media, SimNode, id},
    power::{Cut, Party, Power},
};

/// The shape of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) nodes: usize,
    pub(super) protection: Protection,
    pub(super) scratch_bytes: u64,
    pub(super) lies: StorageDefect,
}

/// The fault of a run.
#[derive(Clone, Debug)]
pub(super) struct Crash {
    pub(super) cuts: Vec<Cut>,
    /// The kinds of crashes, the next one first; the last one repeats.
    pub(super) images: Vec<Image>,
    /// Which parts survive.
    pub(super) seed: u64,
}

impl Crash {
    /// No fault.
    pub(super) fn none() -> Self {
        Self { cuts: Vec::new(), images: vec![Image::OnlySynced], seed: 0 }
    }
}

/// All nodes, and a client.
pub(super) struct Cluster {
    pub(super) setting: Setting,
    pub(super) power: Arc<Power>,
    pub(super) nodes: Vec<SimNode>,
    /// The order of requests.
    pub(super) random: fastrand::Rng,
    /// What survives crashes.
    chance: fastrand::Rng,
    /// The kinds of crashes, the next one first; the last one repeats.
    pub(super) images: Vec<Image>,
    /// The number of restarts of nodes.
    pub(super) restarts: u64,
}

impl Cluster {
    /// Nodes over these media, not started.
    pub(super) fn over(setting: &Setting, media: &[Media], seed: u64) -> Self {
        let power = Arc::new(Power::new(setting.nodes + 1));
        let node = |(place, media): (Party, &Media)| {
            let Setting { lies, scratch_bytes, .. } = *setting;
            SimNode::new(place, Arc::clone(&power), lies, media.clone(), scratch_bytes)
        };
        let nodes = media.iter().enumerate().map(node).collect();
        let (setting, random) = (setting.clone(), fastrand::Rng::with_seed(seed));
        let (chance, images) = (fastrand::Rng::with_seed(seed), vec![Image::OnlySynced]);
        Self { setting, power, nodes, random, chance, images, restarts: 0 }
    }

    /// Counts steps from now on, and lets this fault happen.
    pub(super) fn begin(&mut self, crash: &Crash) {
        self.power.count_anew(crash.cuts.clone());
        (self.images, self.chance) = (crash.images.clone(), fastrand::Rng::with_seed(crash.seed));
    }

    /// The client's index among the parties.
    pub(super) fn client(&self) -> Party {
        self.nodes.len()
    }

    /// All nodes, in an order that the seed chooses.
    pub(super) fn in_any_order(&mut self) -> Vec<Party> {
        let mut places: Vec<Party> = (0..self.nodes.len()).collect();
        self.random.shuffle(&mut places);
        places
    }

    pub(super) fn ask<T>(
        &mut self,
        node: Party,
        what: impl FnOnce(&mut SimNode) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if !self.power.step(self.client()) {
            return Err(Failure::Lost);
        }
        let answer = what(&mut self.nodes[node]);
        if self.power.is_on(self.client()) { answer } else { Err(Failure::Lost) }
    }

    /// Nodes that have lost power, or were never started.
    pub(super) fn down(&self) -> Vec<Party> {
        (0..self.nodes.len()).filter(|node| !self.nodes[*node].is_running()).collect()
    }

    fn next_image(&mut self) -> Image {
        if self.images.len() > 1 { self.images.remove(0) } else { self.images[0] }
    }

    /// Starts all nodes that are down, and the client anew if it is gone. Nodes must start whatever
    /// has happened.
    pub(super) fn start_all(&mut self) {
        if !self.power.is_on(self.client()) {
            self.power.restore(self.client());
            self.nodes.iter_mut().for_each(SimNode::connection_closed);
        }
        loop {
            let down = self.down();
            if down.is_empty() {
                return;
            }
            let image = self.next_image();
            for place in down {
                self.nodes[place].crash(image, &mut self.chance);
                self.restarts += 1;
                let seed = self.chance.u64(..);
                if let Err(error) = self.nodes[place].start(seed) {
                    assert!(!self.power.is_on(place), "node {} does not start: {error}", id(place));
                }
            }
        }
    }

    /// Starts all parties and completes what was interrupted, as often as it takes.
    pub(super) fn recover(&mut self) {
        loop {
            self.start_all();
            let places: Vec<Party> = (0..self.nodes.len()).collect();
            if self.complete(&places).is_ok() && self.down().is_empty() {
                return;
            }
        }
    }

    /// All nodes lose power now, and start again.
    pub(super) fn lose_all(&mut self, image: Image) {
        for place in 0..self.nodes.len() {
            self.nodes[place].crash(image, &mut self.chance);
            let seed = self.chance.u64(..);
            self.nodes[place]
                .start(seed)
                .unwrap_or_else(|error| panic!("node {} does not start: {error}", id(place)));
        }
    }

    /// The catalog of each of these nodes.
    pub(super) fn catalogs(&mut self, places: &[Party]) -> Result<Vec<NodeCatalog>, Failure> {
        places.iter().map(|place| self.ask(*place, SimNode::catalog)).collect()
    }

    /// Completes, on these nodes, what one of them has committed and another has only prepared.
    /// Returns their catalogs then.
    pub(super) fn complete(&mut self, places: &[Party]) -> Result<Vec<NodeCatalog>, Failure> {
        let catalogs = self.catalogs(places)?;
        let committed: BTreeSet<TableId> = tables(&catalogs)
            .filter(|(_, committed)| *committed)
            .map(|(definition, _)| definition.id)
            .collect();
        for (place, catalog) in places.iter().zip(&catalogs) {
            let prepared = catalog.tables.iter().filter(|table| !table.committed);
            for load in prepared.map(|table| table.definition.id).filter(|id| committed.contains(id)) {
                self.ask(*place, |node| node.commit(load))?;
            }
        }
        self.catalogs(places)
    }

    /// Aborts what is only prepared, first at the node that would decide for it.
    pub(super) fn forget_prepared(
        &mut self,
        is_chosen: impl Fn(&TableDefinition) -> bool,
    ) -> Result<(), Failure> {
        let places: Vec<Party> = (0..self.nodes.len()).collect();
        let catalogs = self.catalogs(&places)?;
        let prepared =
            tables(&catalogs).filter(|(definition, committed)| !committed && is_chosen(definition));
        let left: BTreeSet<TableId> = prepared.map(|(definition, _)| definition.id).collect();
        for load in left {
            // The first node of each table here is the first one.
            for place in &places {
                self.ask(*place, |node| node.abort(load))?;
            }
        }
        Ok(())
    }

    /// Does what a connecting client does: completes changes, and aborts what conflicts with a
    /// table of this name.
    pub(super) fn forget_left(&mut self, wanted: &TableDefinition) -> Result<(), Failure> {
        let places: Vec<Party> = (0..self.nodes.len()).collect();
        self.complete(&places)?;
        let (name, succeeds) = (wanted.name.clone(), wanted.succeeds.is_some());
        self.forget_prepared(move |other| other.name == name && (!succeeds || other.succeeds.is_some()))
    }

    /// Drops a table wherever it is.
    pub(super) fn drop_table(&mut self, table: TableId) -> Result<(), Failure> {
        let mut first = Ok(());
        for place in self.in_any_order() {
            first = first.and(self.ask(place, |node| node.drop_table(table)));
        }
        first
    }
}

fn tables(catalogs: &[NodeCatalog]) -> impl Iterator<Item = (&TableDefinition, bool)> {
    catalogs.iter().flat_map(|catalog| &catalog.tables).map(|table| (&table.definition, table.committed))
}
