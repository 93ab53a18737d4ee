//! Defines the tables of a node, and their form in the catalog.
//!
//! Invariants
//! - A segment may be in several tables: in the version under which it was written, and in later
//!   versions. It is stored once, and freed when no table has it any more.
//! - The list of withheld rows belongs to the table; the rows themselves belong to the segment.

use std::{collections::BTreeMap, sync::Arc};

use rackscan_format::{
    ids::{NodeId, SegmentId, TableId},
    schema::TableDefinition,
};

use super::{
    catalog_content::{NodeCatalogRef, NodeSegmentRef, NodeTableRef},
    held_set::HeldSet,
    protected::TableMapState,
    table_segment::TableSegment,
};

/// A published or prepared table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) definition: Arc<TableDefinition>,
    pub(crate) committed: bool,
    pub(crate) segments: BTreeMap<SegmentId, TableSegment>,
    /// This node's part of the stripe sets that contain its segments.
    pub(crate) sets: Vec<Arc<HeldSet>>,
    /// The map of what all nodes have.
    pub(crate) map: TableMapState,
}

impl Table {
    /// Whether it is published under this name.
    pub(crate) fn is_published_as(&self, name: &str) -> bool {
        self.committed && self.definition.name == name
    }
}

/// All tables, by id.
pub(crate) type Tables = BTreeMap<TableId, Arc<Table>>;

/// The table that has a segment, for segments that were written under another table.
pub(crate) type SegmentHolders = BTreeMap<(TableId, SegmentId), TableId>;

/// The holders of segments that their own table does not have; if two tables have one, a published
/// table is preferred.
pub(crate) fn segment_holders(tables: &Tables) -> SegmentHolders {
    let mut holders = SegmentHolders::new();
    for committed in [false, true] {
        for (id, table) in tables.iter().filter(|(_, table)| table.committed == committed) {
            let directories = table.segments.values().map(TableSegment::directory);
            let kept = directories.filter(|directory| directory.table != *id);
            holders.extend(kept.map(|directory| ((directory.table, directory.segment), *id)));
        }
    }
    holders
}

/// The catalog of these tables.
pub(crate) fn catalog_of(node: NodeId, tables: &Tables) -> NodeCatalogRef<'_> {
    NodeCatalogRef {
        node,
        tables: tables
            .values()
            .map(|table| NodeTableRef {
                definition: &table.definition,
                committed: table.committed,
                segments: table.segments.values().map(NodeSegmentRef::of).collect(),
                sets: table.sets.iter().map(|set| set.in_table(&table.segments)).collect(),
            })
            .collect(),
    }
}
