//! Remembers the maps of protected tables that this client has read.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rackscan_format::{
    ids::{SegmentId, TableId},
    schema::TableDefinition,
    stripe_set::{TableMap, TablePart},
};

use super::stripes::Stripes;
use crate::limits::MAPS_KNOWN_MAX;

/// The map of a table, in which places can be looked up. It never changes: each table version has
/// its own map.
#[derive(Debug)]
pub(crate) struct KnownMap {
    pub(super) definition: TableDefinition,
    pub(super) parts: Vec<TablePart>,
    pub(super) sets: Vec<Arc<Stripes>>,
}

impl KnownMap {
    pub(super) fn new(map: TableMap) -> Result<Self, String> {
        let TableMap { definition, parts, sets } = map;
        let sets = sets.into_iter().map(|set| Stripes::new(set).map(Arc::new));
        Ok(Self { definition, parts, sets: sets.collect::<Result<_, _>>()? })
    }

    pub(super) fn stripes(&self, table: TableId, segment: SegmentId) -> Option<&Arc<Stripes>> {
        self.sets.iter().find(|set| set.has(table, segment))
    }
}

/// The maps that were read last.
#[derive(Debug, Default)]
pub(crate) struct KnownMaps {
    maps: Mutex<VecDeque<Arc<KnownMap>>>,
    /// The tables under which segments of protected tables were written, as the last catalog said.
    protected: Mutex<BTreeSet<TableId>>,
}

impl KnownMaps {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<KnownMap>>> {
        // Changed by code that does not panic.
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(&self, table: TableId) -> Option<Arc<KnownMap>> {
        self.lock().iter().find(|map| map.definition.id == table).map(Arc::clone)
    }

    pub(super) fn find(&self, table: TableId, segment: SegmentId) -> Option<(Arc<KnownMap>, Arc<Stripes>)> {
        let maps = self.lock();
        maps.iter().find_map(|map| Some((Arc::clone(map), Arc::clone(map.stripes(table, segment)?))))
    }

    pub(super) fn learn(&self, map: &Arc<KnownMap>) {
        let mut maps = self.lock();
        maps.retain(|known| known.definition.id != map.definition.id);
        maps.push_front(Arc::clone(map));
        maps.truncate(MAPS_KNOWN_MAX);
    }

    /// Whether segments that were written under this table are protected, as far as the last
    /// catalog said.
    pub(crate) fn protects(&self, table: TableId) -> bool {
        self.protected.lock().unwrap_or_else(PoisonError::into_inner).contains(&table)
    }

    pub(crate) fn note_protected(&self, tables: BTreeSet<TableId>) {
        *self.protected.lock().unwrap_or_else(PoisonError::into_inner) = tables;
    }

    /// Forgets all maps that have a segment, because they are outdated.
    pub(super) fn forget(&self, table: TableId, segment: SegmentId) {
        self.lock().retain(|map| map.stripes(table, segment).is_none());
    }
}
