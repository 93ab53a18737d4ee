//! Adopts what a node has lost of protected tables: records its part of a table, or only the map,
//! again.
//!
//! ```text
//! folder lost   the map arrives like that of a load -> adopt: allocate the same extents, make the catalog
//!               durable with the table as committed; the bytes are repaired later
//! map lost      the map of a table that is here arrives -> check it against the table, make it durable
//! ```
//!
//! The client that asks is trusted about two facts, which it has read from the other nodes and
//! which a node without its data cannot know: that the table is published, and which map is its
//! map. From then on, the map defines the content of the table, and bytes are checked against it.

use std::{collections::BTreeSet, sync::Arc};

use rackscan_format::{
    ids::TableId,
    message::{NodeTable, Refusal, RefusalCode},
    segment::SegmentDirectory,
    stripe_set::{NodeSet, NodeStream, StripeSet, TableMap, TablePart},
};

use super::{Publishing, is_published};
use crate::store::{
    Published,
    maps::is_map_of,
    protected::{KeptMap, TableMapState},
    recover,
    table::Table,
};

fn malformed(text: String) -> Refusal {
    Refusal::new(RefusalCode::Malformed, text)
}

impl Publishing {
    /// Takes over the lost part of a published table, at the same extents as before.
    pub(super) fn adopt(&self, id: TableId) -> Result<(), Refusal> {
        let published = self.store.published();
        if published.tables.get(&id).is_some_and(|table| table.committed) {
            return Ok(());
        }
        let (kept, parity) = self.store.loads().protection(id)?;
        let map = TableMap::decode_envelope(&kept.bytes).map_err(|error| malformed(error.to_string()))?;
        let name = &map.definition.name;
        if published.tables.contains_key(&id) || !parity.is_empty() {
            return Err(malformed(format!("table {id} is being loaded here; it was not lost")));
        }
        if let Some(other) = published.tables.keys().find(|other| is_published(&published, **other, name)) {
            return Err(malformed(format!(
                "table {other} is published here as {name:?}, so table {id} was not lost; drop one of them"
            )));
        }
        let table = self.part(&map)?;
        let taken = recover::table_anew(table, &self.store.space);
        let mut table = taken.map_err(|fault| {
            let text = format!(
                "table {id} cannot be adopted at its former extents: it {fault}; drop the table that has them"
            );
            Refusal::new(RefusalCode::Full, text)
        })?;
        table.map = TableMapState::Kept(kept);
        for set in &table.sets {
            // Without memory for that, places are repaired one by one.
            if let Err(full) = set.mark_adopted(&self.store.space) {
                tracing::warn!(set = %set.id(), reason = %full, "a set is adopted, but stripes cannot be relayed into it");
            }
        }
        let mut tables = published.tables.clone();
        tables.insert(id, Arc::new(table));
        self.replace(tables)?;
        self.store.loads().published(id);
        Ok(())
    }

    /// This node's part according to a map, as the catalog would list it.
    fn part(&self, map: &TableMap) -> Result<NodeTable, Refusal> {
        let part = map.part(self.node).ok_or_else(|| {
            malformed(format!("the map of table {} has no part of node {}", map.definition.id, self.node))
        })?;
        let sets = map.streams(self.node).map(|(set, stream)| set_of(part, set, stream)).collect();
        let (definition, segments) = (map.definition.clone(), part.segments.clone());
        Ok(NodeTable { definition, committed: true, segments, sets })
    }

    /// Keeps the map of a table whose map was lost here.
    pub(super) fn keep_lost_map(&self, table: &Arc<Table>, map: KeptMap) -> Result<(), Refusal> {
        let id = table.definition.id;
        let parsed = TableMap::decode_envelope(&map.bytes).map_err(|error| malformed(error.to_string()))?;
        is_map_of(&parsed, table, self.node).map_err(malformed)?;
        let written = self.files.maps.write(id, &map.bytes);
        written.map_err(|error| {
            Refusal::new(RefusalCode::Storage, format!("a map could not be stored: {error}"))
        })?;
        let before = self.store.published();
        let mut tables = before.tables.clone();
        if let Some(known) = tables.get_mut(&id) {
            Arc::make_mut(known).map = TableMapState::Kept(Arc::new(map));
        }
        let published = Published::new(self.node, tables, before.generation.wrapping_add(1));
        self.store.publish(published.map_err(|error| Refusal::new(RefusalCode::Storage, error.to_string()))?);
        self.store.loads().published(id);
        Ok(())
    }
}

/// This node's part of a set, with the directories of segments that the table no longer has.
fn set_of(part: &TablePart, set: &StripeSet, stream: &NodeStream) -> NodeSet {
    let segments = stream.segments.iter().map(|named| (named.table, named.segment));
    let names: BTreeSet<_> = segments.clone().collect();
    let has = |directory: &&SegmentDirectory| names.contains(&(directory.table, directory.segment));
    let beside = part.beside.iter().filter(has).cloned().collect();
    NodeSet { id: set.id, segments: segments.collect(), beside, parity: stream.parity.clone() }
}
