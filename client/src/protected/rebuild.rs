//! Rebuilds a node that has lost its folder or its devices: restores its parts of protected tables.
//!
//! ```text
//! first, for all tables    the map is copied to the node from another one; then the node adopts the table: it reserves
//!                          the same extents for the table again, all of which count as corrupt
//! then, table by table     other nodes relay the node's cells to it, stripe by stripe (`stripe_rebuild`);
//!                          what they could not relay is repaired place by place (a place: a page or a parity cell)
//!                          a table that the node had already adopted is scrubbed
//! ```
//!
//! If a rebuild was interrupted, the next call continues it: places that were repaired before pass
//! verification.
//!
//! Invariant: a table is adopted only if enough other nodes have published it with the same
//! definition, as many as its parity needs to reconstruct cells. So a table that was dropped or
//! replaced does not come back.

use rackscan_format::{
    ids::{NodeId, TableId},
    message::{Adopt, NodeCatalog, NodeTable, Request},
    schema::TableDefinition,
};

use super::{
    known_maps::KnownMap,
    pace::{Pace, RepairListener},
    scrub::{ScrubOptions, ScrubReport, ScrubScope},
    stripe_rebuild::StripeRebuild,
};
use crate::{
    ClientError, Cluster,
    limits::{CATALOG_ATTEMPTS_MAX, LOST_PART_PAUSE},
    retry::Retry,
};

/// The result of a rebuild for one table.
#[derive(Debug, Clone)]
pub struct RebuiltTable {
    /// Its name.
    pub name: String,
    /// Whether the node had nothing of the table before.
    pub adopted: bool,
    /// What was verified and repaired at the node.
    pub report: ScrubReport,
}

/// The result of a rebuild.
#[derive(Debug, Clone, Default)]
pub struct RebuildReport {
    /// The tables of which the node has its part now.
    pub tables: Vec<RebuiltTable>,
    /// The names of tables whose parts could not be rebuilt, and why.
    pub left: Vec<(String, String)>,
    /// The names of tables of which only this node had an old version, which the other nodes have
    /// dropped or replaced. It was dropped here, too.
    pub dropped: Vec<String>,
}

impl RebuildReport {
    /// Bytes that were rebuilt.
    #[must_use]
    pub fn rebuilt_bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.report.repaired_bytes).sum()
    }

    /// Bytes that other nodes read for these.
    #[must_use]
    pub fn survivor_bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.report.survivor_bytes).sum()
    }

    /// Bytes read for each rebuilt byte; 0 if there is none.
    #[must_use]
    pub fn read_per_byte(&self) -> f64 {
        let (read, rebuilt) = (self.survivor_bytes() as f64, self.rebuilt_bytes() as f64);
        if rebuilt > 0.0 { read / rebuilt } else { 0.0 }
    }
}

/// A table of which the node should have a part.
struct Candidate {
    definition: TableDefinition,
    /// Whether it has its part.
    is_here: bool,
    /// Why the part cannot be rebuilt.
    problem: Option<String>,
}

impl Cluster {
    /// Rebuilds an available node: it gets its parts of all protected tables back. Of the options,
    /// only the pace counts. `listener` receives the progress, with the bytes of all tables as the
    /// total.
    ///
    /// # Errors
    /// If the node is lost; what was rebuilt until then stays. Tables that cannot be rebuilt are no
    /// error: see [`RebuildReport::left`].
    pub async fn rebuild(
        &self,
        node: NodeId,
        options: &ScrubOptions,
        listener: RepairListener<'_>,
    ) -> Result<RebuildReport, ClientError> {
        self.position(node)?;
        let pace = Pace::new(options.bytes_per_second, listener);
        let mut report =
            RebuildReport { dropped: self.drop_outdated(node).await?, ..RebuildReport::default() };
        let mut maps = Vec::new();
        for candidate in self.candidates(node).await? {
            let name = candidate.definition.name.clone();
            if let Some(problem) = candidate.problem {
                report.left.push((name, problem));
                continue;
            }
            let map = match self.map_to_repair(candidate.definition.id).await {
                Ok(map) => map,
                Err(error) => {
                    report.left.push((name, error.to_string()));
                    continue;
                }
            };
            // All tables are adopted before any is repaired: from here on the node does not
            // allocate their extents to others.
            if !candidate.is_here
                && let Err(error) = self.adopt(node, map.definition.id).await
            {
                record_problem(node, name, error, &mut report)?;
                continue;
            }
            for stripes in &map.sets {
                let place = stripes.set.streams.iter().position(|stream| stream.node == node);
                pace.expect(place.map_or(0, |place| stripes.held_bytes(place)));
            }
            maps.push((name, candidate.is_here, map));
        }
        for (name, is_here, map) in maps {
            match self.rebuild_part(node, (&map, is_here), options, &pace).await {
                Ok(report_of) => {
                    report.tables.push(RebuiltTable { name, adopted: !is_here, report: report_of })
                }
                Err(error) => record_problem(node, name, error, &mut report)?,
            }
        }
        Ok(report)
    }

    /// Rebuilds a table's part, which was adopted just now unless it was here before.
    async fn rebuild_part(
        &self,
        node: NodeId,
        (map, is_here): (&KnownMap, bool),
        options: &ScrubOptions,
        pace: &Pace<'_>,
    ) -> Result<ScrubReport, ClientError> {
        let before = pace.progress();
        let mut report = ScrubReport::default();
        let options = ScrubOptions { repair: true, equations: false, ..*options };
        let relays = self.relays(&map.definition.nodes).await;
        let rebuilding = relays.map(|relays| StripeRebuild { table: map.definition.id, relays });
        for stripes in &map.sets {
            let place = stripes.set.streams.iter().position(|stream| stream.node == node);
            if let Some(place) = place {
                let scope = if is_here { ScrubScope::One(place) } else { ScrubScope::Adopted(place) };
                let stripe_rebuild = (stripes, rebuilding.as_ref());
                self.scrub_set(stripe_rebuild, scope, &options, pace, &mut report).await?;
            }
        }
        let after = report.finished(pace);
        Ok(ScrubReport {
            repaired: after.repaired - before.repaired,
            repaired_bytes: after.repaired_bytes - before.repaired_bytes,
            survivor_bytes: after.survivor_bytes - before.survivor_bytes,
            ..after
        })
    }

    /// Refuses new data for nodes that have lost parts of protected tables. A node that has lost
    /// its folder allocates the extents of those parts to new data, and then they cannot be
    /// rebuilt.
    ///
    /// A table that is being dropped looks the same for a short time, so two reads must agree.
    ///
    /// # Errors
    /// [`ClientError::Unrebuilt`]; a lost or refusing node.
    pub(crate) async fn refuse_unrebuilt(&self, nodes: &[NodeId]) -> Result<(), ClientError> {
        let mut found = lost_part(&self.node_catalogs().await?, nodes);
        let mut retry = Retry::new(CATALOG_ATTEMPTS_MAX);
        while found.is_some() && retry.again() {
            tokio::time::sleep(LOST_PART_PAUSE).await;
            let again = lost_part(&self.node_catalogs().await?, nodes);
            if again == found {
                break;
            }
            found = again;
        }
        match found {
            Some((node, _, table)) => Err(ClientError::Unrebuilt { node, table }),
            None => Ok(()),
        }
    }

    /// The published tables of which a node should have a part, as the available nodes say.
    async fn candidates(&self, node: NodeId) -> Result<Vec<Candidate>, ClientError> {
        let (catalogs, unavailable) = self.available_catalogs().await?;
        let mut found: Vec<Candidate> = Vec::new();
        let tables = catalogs.iter().flat_map(|catalog| &catalog.tables);
        let published = tables.filter(|table| table.committed && table.definition.nodes.contains(&node));
        for definition in published.map(|table| &table.definition) {
            if found.iter().any(|known| known.definition.id == definition.id) {
                continue;
            }
            let is_here = has_published(&catalogs, node, definition);
            let problem = problem(&catalogs, &unavailable, node, definition);
            // A table that is not protected and has its part needs nothing.
            if !(is_here && definition.protection.is_none()) {
                found.push(Candidate { definition: definition.clone(), is_here, problem });
            }
        }
        Ok(found)
    }

    /// Drops the versions of tables that a node has from before they were dropped or replaced
    /// everywhere else.
    async fn drop_outdated(&self, node: NodeId) -> Result<Vec<String>, ClientError> {
        let (catalogs, unavailable) = self.available_catalogs().await?;
        let mut dropped = Vec::new();
        for definition in outdated(&catalogs, &unavailable, node) {
            tracing::warn!(%node, table = definition.name, id = %definition.id, "dropping an outdated version of a table");
            self.ask_done(node, Request::Drop { table: definition.id }).await?;
            dropped.push(definition.name);
        }
        Ok(dropped)
    }

    async fn adopt(&self, node: NodeId, table: TableId) -> Result<(), ClientError> {
        self.give_map(node, table).await?;
        self.ask_done(node, Request::Adopt(Adopt { table })).await.map(drop)
    }
}

/// Records that a table could not be rebuilt, so that the rebuild continues with the next one.
///
/// # Errors
/// The error itself, if the node is lost: then nothing can continue.
fn record_problem(
    node: NodeId,
    table: String,
    error: ClientError,
    report: &mut RebuildReport,
) -> Result<(), ClientError> {
    if error.is_node_lost() && error.node() == Some(node) {
        return Err(error);
    }
    report.left.push((table, error.to_string()));
    Ok(())
}

/// Finds a protected table that some node has published and one of these nodes has nothing of.
/// Returns that node, and the table's id and name.
fn lost_part(catalogs: &[NodeCatalog], nodes: &[NodeId]) -> Option<(NodeId, TableId, String)> {
    let committed = catalogs.iter().flat_map(|catalog| &catalog.tables).filter(|table| table.committed);
    let mut protected = committed.map(|table| &table.definition).filter(|table| table.protection.is_some());
    protected.find_map(|table| {
        let has = |catalog: &NodeCatalog| catalog.tables.iter().any(|known| known.definition.id == table.id);
        let mut theirs = catalogs
            .iter()
            .filter(|catalog| nodes.contains(&catalog.node) && table.nodes.contains(&catalog.node));
        let without = theirs.find(|catalog| !has(catalog))?;
        Some((without.node, table.id, table.name.clone()))
    })
}

/// The tables that a node has published and none of their other nodes has, not even prepared. If
/// some of those nodes cannot be asked, only tables that a newer version has replaced.
fn outdated(catalogs: &[NodeCatalog], unavailable: &[NodeId], node: NodeId) -> Vec<TableDefinition> {
    let here = catalogs.iter().filter(|catalog| catalog.node == node).flat_map(|catalog| &catalog.tables);
    let here: Vec<&NodeTable> = here.collect();
    let there = || catalogs.iter().filter(|catalog| catalog.node != node);
    let is_there = |table: &TableDefinition| {
        there().flat_map(|catalog| &catalog.tables).any(|other| other.definition.id == table.id)
    };
    let is_replaced = |table: &TableDefinition| {
        let mut newer = there().flat_map(|catalog| &catalog.tables).filter(|other| {
            other.committed && other.definition.name == table.name && other.definition.nodes.contains(&node)
        });
        newer.any(|newer| here.iter().all(|known| known.definition.id != newer.definition.id))
    };
    let published = here.iter().filter(|table| table.committed).map(|table| &table.definition);
    let alone = published.filter(|table| table.nodes.len() > 1 && !is_there(table));
    let known = |table: &&TableDefinition| {
        let others = || table.nodes.iter().filter(|other| **other != node);
        // A node that has lost everything cannot tell whether a table was dropped.
        let can_tell = |other: &NodeId| {
            !unavailable.contains(other) && there().any(|it| it.node == *other && !it.tables.is_empty())
        };
        others().all(can_tell) || (is_replaced(table) && others().any(can_tell))
    };
    alone.filter(known).cloned().collect()
}

fn has_published(catalogs: &[NodeCatalog], node: NodeId, definition: &TableDefinition) -> bool {
    let mut tables =
        catalogs.iter().filter(|catalog| catalog.node == node).flat_map(|catalog| &catalog.tables);
    tables.any(|table| table.committed && table.definition == *definition)
}

/// Why a node's part of a table cannot be rebuilt, if it cannot.
fn problem(
    catalogs: &[NodeCatalog],
    unavailable: &[NodeId],
    node: NodeId,
    definition: &TableDefinition,
) -> Option<String> {
    let Some(protection) = definition.protection else {
        return Some("it is not protected; load it again".to_owned());
    };
    if unavailable.contains(&node) {
        return Some(format!("node {node} cannot be reached; start it"));
    }
    let others = || definition.nodes.iter().filter(|other| **other != node);
    let lost = others().filter(|other| unavailable.contains(other)).count();
    if lost >= protection.lost_max() {
        return Some(format!("{lost} of its other nodes cannot be reached; start them"));
    }
    let without =
        others().find(|other| !unavailable.contains(other) && !has_published(catalogs, **other, definition));
    // Two nodes may have to be rebuilt, one after the other; if a table is being dropped or
    // replaced, more and more nodes have nothing of it.
    let missing = others()
        .filter(|other| !unavailable.contains(other) && !has_published(catalogs, **other, definition))
        .count();
    without.filter(|_| lost + missing >= protection.lost_max()).map(|other| {
        let name = &definition.name;
        let is_plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        let command = if is_plain { format!(": `rackscan drop {name}`") } else { String::new() };
        format!(
            "node {other} has not published it either: it is being dropped or replaced, or too many nodes have lost it; if a drop of it was interrupted, repeat that{command}"
        )
    })
}
