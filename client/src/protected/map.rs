//! Reads the maps of protected tables from nodes, and adds the parts of unavailable nodes to
//! catalogs. A *map* describes all parts of a table and its stripe sets; every node of the table
//! stores it.
//!
//! Invariants
//! - A map is used only after all of it was verified, and compared with the layout of its sets.
//! - A part of an unavailable node is taken from a map only if the table's parity survives the loss
//!   of all of its unavailable nodes; else the table counts as broken.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rackscan_format::{
    ids::{NodeId, SegmentId, TableId},
    message::{Answer, NodeCatalog, NodeTable, ReadMap, Request},
    schema::TableDefinition,
    stripe_set::TableMap,
};

use super::{known_maps::KnownMap, stripes::Stripes};
use crate::{ClientError, Cluster, message_names::unexpected_answer};

const READ: &str = "read map";

impl Cluster {
    /// The map of a table, or of a newer version with segments of it, from any node that has a
    /// whole map; `None` if no node has one.
    ///
    /// # Errors
    /// If every node failed, the first failure.
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

    async fn map_bytes(&self, node: NodeId, table: TableId) -> Result<Vec<u8>, ClientError> {
        let wanted = |from_bytes, target| Request::ReadMap(ReadMap { table, from_bytes, target });
        let bytes = self.encoded_bytes(node, READ, wanted).await?;
        bytes.ok_or(ClientError::CatalogUnstable { node, attempts: 1 })
    }

    async fn map_of(&self, node: NodeId, table: TableId) -> Result<Arc<KnownMap>, ClientError> {
        let during = READ;
        let bytes = self.map_bytes(node, table).await?;
        let wrong = |found: String| ClientError::BadAnswer {
            node,
            during,
            found,
            expected: "a map whose stripes are those of its parity".to_owned(),
        };
        let map = TableMap::decode_envelope(&bytes).map_err(|error| wrong(error.to_string()))?;
        let map = Arc::new(KnownMap::new(map).map_err(wrong)?);
        self.shared.maps.learn(&map);
        Ok(map)
    }

    /// The table whose map a node returns when it is asked for this table's map: this one, or a
    /// newer version.
    async fn map_named(&self, node: NodeId, table: TableId) -> Result<u64, ClientError> {
        let span = self.shared.memory.take(1, "the name of a map").await?;
        let request = Request::ReadMap(ReadMap { table, from_bytes: 0, target: span.as_target() });
        let mut reply = self.ask(node, request, Some(span)).await?;
        match reply.take_answer(node, READ)? {
            Answer::Catalog { generation, .. } => Ok(generation),
            other => Err(unexpected_answer(node, READ, &other, "a part of a map")),
        }
    }

    /// Whether a node has the map of a table.
    pub(super) async fn has_map(&self, node: NodeId, table: TableId) -> Result<bool, ClientError> {
        match self.map_named(node, table).await {
            Ok(named) => Ok(named == u64::from(table.0)),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a node must have a segment, as another node says now. If so, a refusal because the
    /// segment is not there does not mean that the table was dropped.
    pub(super) async fn must_have(
        &self,
        node: NodeId,
        table: TableId,
        segment: SegmentId,
    ) -> Result<bool, ClientError> {
        let Some((map, _)) = self.stripes_of(table, segment).await? else { return Ok(false) };
        let part = map.parts.iter().find(|part| part.node == node);
        let mut directories = part.into_iter().flat_map(|part| &part.segments).map(|known| &known.directory);
        if !directories.any(|known| (known.table, known.segment) == (table, segment)) {
            return Ok(false);
        }
        let id = map.definition.id;
        for other in map.definition.nodes.iter().filter(|other| **other != node) {
            match self.has_map(*other, id).await {
                Ok(true) => return Ok(true),
                // That node has dropped the table, or has a newer version.
                Ok(false) => {}
                Err(error) => tracing::debug!(node = %other, table = %id, %error, "no map from this node"),
            }
        }
        self.shared.maps.forget(table, segment);
        Ok(false)
    }

    /// Copies the map of a table from another node to this one.
    pub(super) async fn give_map(&self, node: NodeId, table: TableId) -> Result<(), ClientError> {
        let wrong = |problem: String| ClientError::NotProtected { table, problem };
        let mut failed = None;
        for other in self.nodes().filter(|other| *other != node) {
            let bytes = match self.map_bytes(other, table).await {
                Ok(bytes) => bytes,
                Err(error) => {
                    failed.get_or_insert(error);
                    continue;
                }
            };
            match TableMap::decode_envelope(&bytes) {
                Ok(map) if map.definition.id == table => return self.send_map(node, table, &bytes).await,
                Ok(_) => {}
                // Another node may have a whole map.
                Err(error) => {
                    failed.get_or_insert(wrong(format!("the map of node {other}: {error}")));
                }
            }
        }
        Err(failed.unwrap_or_else(|| wrong("no other node has its map".to_owned())))
    }

    /// The stripe set in which a segment lies, and the map that says so; `None` if it is not
    /// protected.
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

    /// Adds to the catalogs the parts that unavailable nodes have of protected tables. Returns, for
    /// each table whose part could not be added, why.
    ///
    /// If `also_lost`, also adds the parts of available nodes that have lost theirs: those with
    /// nothing of a published table, not even prepared.
    pub(crate) async fn add_unavailable_parts(
        &self,
        catalogs: &mut Vec<NodeCatalog>,
        unavailable: &[NodeId],
        also_lost: bool,
    ) -> Result<BTreeMap<TableId, ClientError>, ClientError> {
        let mut missing: BTreeMap<TableId, TableDefinition> = BTreeMap::new();
        let here: BTreeSet<(NodeId, TableId)> = catalogs
            .iter()
            .flat_map(|catalog| catalog.tables.iter().map(|table| (catalog.node, table.definition.id)))
            .collect();
        let there: BTreeSet<NodeId> = catalogs.iter().map(|catalog| catalog.node).collect();
        let has_lost = |definition: &TableDefinition, node: &NodeId| {
            let has_nothing = there.contains(node) && !here.contains(&(*node, definition.id));
            also_lost && definition.protection.is_some() && has_nothing
        };
        let lacks = |definition: &TableDefinition, node: &NodeId| {
            unavailable.contains(node) || has_lost(definition, node)
        };
        let committed = catalogs.iter().flat_map(|catalog| &catalog.tables).filter(|table| table.committed);
        for definition in committed.map(|table| &table.definition) {
            if definition.nodes.iter().any(|node| lacks(definition, node)) {
                missing.entry(definition.id).or_insert_with(|| definition.clone());
            }
        }
        let mut errors = BTreeMap::new();
        for (id, definition) in missing {
            let lost: Vec<NodeId> =
                definition.nodes.iter().copied().filter(|node| lacks(&definition, node)).collect();
            let bears = definition.protection.map_or(0, |protection| protection.lost_max());
            let map = if lost.len() > bears { None } else { self.table_map(id).await? };
            match map.filter(|map| map.definition == definition) {
                Some(map) => add_parts(catalogs, &map, &lost),
                // For available nodes, assembling the catalog reports what is missing.
                None if !lost.iter().any(|node| unavailable.contains(node)) => {}
                None => {
                    errors.insert(id, parts_unavailable(&definition, &lost, bears));
                }
            }
        }
        // Segments are listed in the order of nodes, wherever their description came from.
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

fn parts_unavailable(definition: &TableDefinition, lost: &[NodeId], bears: usize) -> ClientError {
    let nodes = lost.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let protection = match definition.protection {
        None => "it is not protected".to_owned(),
        Some(protection) if lost.len() > bears => {
            format!("its parity {protection} bears the loss of {bears}")
        }
        Some(_) => "none of its other nodes has its map".to_owned(),
    };
    ClientError::PartsUnavailable { table: definition.name.clone(), nodes, protection }
}
