//! What do nodes know of a protected table, and what becomes of parts on nodes that are away?
//!
//! Invariants
//! - A map is believed only after it was verified whole, and held against the layout of its sets.
//! - A part on a node that is away comes from a map only if the table bears the loss of all of its nodes that are; else the table is broken.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rackscan_format::{
    ids::{NodeId, SegmentId, TableId},
    message::{NodeCatalog, NodeTable, ReadMap, Request},
    schema::TableDefinition,
    stripe_set::{TableMap, TablePart},
};

use super::stripes::Stripes;
use crate::{ClientError, Cluster, limits::MAPS_KNOWN_MAX};

/// The map of a table, in which places can be looked up. It never changes: a table that changes is another one.
#[derive(Debug)]
pub(crate) struct KnownMap {
    pub(super) definition: TableDefinition,
    parts: Vec<TablePart>,
    pub(super) sets: Vec<Arc<Stripes>>,
}

impl KnownMap {
    fn new(map: TableMap) -> Result<Self, String> {
        let TableMap { definition, parts, sets } = map;
        let sets = sets.into_iter().map(|set| Stripes::new(set).map(Arc::new));
        Ok(Self { definition, parts, sets: sets.collect::<Result<_, _>>()? })
    }

    fn stripes(&self, table: TableId, segment: SegmentId) -> Option<&Arc<Stripes>> {
        self.sets.iter().find(|set| set.has(table, segment))
    }
}

/// The maps that were read last.
#[derive(Debug, Default)]
pub(crate) struct KnownMaps(Mutex<VecDeque<Arc<KnownMap>>>);

impl KnownMaps {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<KnownMap>>> {
        // Changed by code that does not panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, table: TableId) -> Option<Arc<KnownMap>> {
        self.lock().iter().find(|map| map.definition.id == table).map(Arc::clone)
    }

    pub(super) fn find(&self, table: TableId, segment: SegmentId) -> Option<(Arc<KnownMap>, Arc<Stripes>)> {
        let maps = self.lock();
        maps.iter().find_map(|map| Some((Arc::clone(map), Arc::clone(map.stripes(table, segment)?))))
    }

    fn learn(&self, map: &Arc<KnownMap>) {
        let mut maps = self.lock();
        maps.retain(|known| known.definition.id != map.definition.id);
        maps.push_front(Arc::clone(map));
        maps.truncate(MAPS_KNOWN_MAX);
    }

    /// Forgets all maps in which a segment lies: what they say of it is not true any more.
    pub(super) fn forget(&self, table: TableId, segment: SegmentId) {
        self.lock().retain(|map| map.stripes(table, segment).is_none());
    }
}

impl Cluster {
    /// The map of a table, or of one that has taken its place with segments of it, from any node that has it whole; `None` if none has it.
    ///
    /// # Errors
    /// If nobody says that he has none, why nobody was heard.
    pub(crate) async fn table_map(&self, table: TableId) -> Result<Option<Arc<KnownMap>>, ClientError> {
        if let Some(known) = self.shared.maps.of(table) {
            return Ok(Some(known));
        }
        let (mut failed, mut is_heard) = (None, false);
        for node in self.nodes() {
            match self.map_of(node, table).await {
                Ok(map) => return Ok(Some(map)),
                Err(error) if error.is_not_found() => is_heard = true,
                Err(error) => {
                    tracing::debug!(%node, %table, %error, "no map from this node");
                    failed.get_or_insert(error);
                }
            }
        }
        failed.filter(|_| !is_heard).map_or(Ok(None), Err)
    }

    async fn map_of(&self, node: NodeId, table: TableId) -> Result<Arc<KnownMap>, ClientError> {
        let during = "read map";
        let wanted = |from_bytes, target| Request::ReadMap(ReadMap { table, from_bytes, target });
        let bytes = self.sealed_bytes(node, during, wanted).await?;
        let bytes = bytes.ok_or(ClientError::CatalogUnstable { node, attempts: 1 })?;
        let wrong = |found: String| ClientError::BadAnswer {
            node,
            during,
            found,
            expected: "a map whose stripes are those of its parity".to_owned(),
        };
        let map = TableMap::unseal(&bytes).map_err(|error| wrong(error.to_string()))?;
        let map = Arc::new(KnownMap::new(map).map_err(wrong)?);
        self.shared.maps.learn(&map);
        Ok(map)
    }

    /// The stripe set in which a segment lies, and the map that says so; `None` if it is not protected.
    pub(super) async fn stripes_of(
        &self,
        table: TableId,
        segment: SegmentId,
    ) -> Result<Option<(Arc<KnownMap>, Arc<Stripes>)>, ClientError> {
        if let Some(known) = self.shared.maps.find(table, segment) {
            return Ok(Some(known));
        }
        self.table_map(table).await?;
        Ok(self.shared.maps.find(table, segment))
    }

    /// Completes what nodes say by the parts that nodes which are away have of protected tables; returns why other tables miss theirs.
    pub(crate) async fn add_parts_away(
        &self,
        catalogs: &mut Vec<NodeCatalog>,
        away: &[NodeId],
    ) -> Result<BTreeMap<TableId, ClientError>, ClientError> {
        let mut missing: BTreeMap<TableId, TableDefinition> = BTreeMap::new();
        let committed = catalogs.iter().flat_map(|catalog| &catalog.tables).filter(|table| table.committed);
        for definition in committed.map(|table| &table.definition) {
            if definition.nodes.iter().any(|node| away.contains(node)) {
                missing.entry(definition.id).or_insert_with(|| definition.clone());
            }
        }
        let mut errors = BTreeMap::new();
        for (id, definition) in missing {
            let lost: Vec<NodeId> =
                definition.nodes.iter().copied().filter(|node| away.contains(node)).collect();
            let bears = definition.protection.map_or(0, |protection| protection.lost_max());
            let map = if lost.len() > bears { None } else { self.table_map(id).await? };
            match map.filter(|map| map.definition == definition) {
                Some(map) => add_parts(catalogs, &map, &lost),
                None => {
                    errors.insert(id, parts_away(&definition, &lost, bears));
                }
            }
        }
        // Segments are listed in the order of nodes, whoever spoke of them.
        catalogs.sort_by_key(|catalog| catalog.node);
        Ok(errors)
    }
}

fn add_parts(catalogs: &mut Vec<NodeCatalog>, map: &KnownMap, lost: &[NodeId]) {
    for part in map.parts.iter().filter(|part| lost.contains(&part.node)) {
        let (node, definition, segments) = (part.node, map.definition.clone(), part.segments.clone());
        let table = NodeTable { definition, committed: true, segments, sets: Vec::new() };
        match catalogs.iter_mut().find(|catalog| catalog.node == node) {
            Some(catalog) => catalog.tables.push(table),
            None => catalogs.push(NodeCatalog { node, tables: vec![table] }),
        }
    }
}

fn parts_away(definition: &TableDefinition, lost: &[NodeId], bears: usize) -> ClientError {
    let nodes = lost.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let protection = match definition.protection {
        None => "it is not protected".to_owned(),
        Some(protection) if lost.len() > bears => {
            format!("its parity {protection} bears the loss of {bears}")
        }
        Some(_) => "none of its other nodes has its map".to_owned(),
    };
    ClientError::PartsAway { table: definition.name.clone(), nodes, protection }
}
