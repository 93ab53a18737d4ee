//! Which tables does the node have, and what do they look like to a reader?
//!
//! Invariants
//! - A segment may be in several tables: in the one under which it was written, and in those that
//!   succeeded it. What is stored is there once, and is freed when none of them has it any more.
//! - What a table withholds of a segment is its own; the rows are rows of the segment.

use std::{collections::BTreeMap, sync::Arc};

use rackscan_format::{
    ids::{NodeId, SegmentId, TableId},
    schema::TableDefinition,
    segment::SegmentDirectory,
    withheld::WithheldRows,
};

use super::{
    allocate::{MetadataFull, MetadataShare, StoredSegment},
    catalog_file::{NodeCatalogRef, NodeSegmentRef, NodeTableRef},
    protected::{HeldSet, MapHere},
};

static NO_ROWS: WithheldRows = WithheldRows::NONE;

/// A segment as one table has it.
#[derive(Debug, Clone)]
pub(crate) struct TableSegment {
    stored: Arc<StoredSegment>,
    /// Absent where the table wrote the segment itself and withholds nothing.
    kept: Option<Arc<Kept>>,
}

/// What a table has of a segment beside what is stored.
#[derive(Debug)]
struct Kept {
    withheld: WithheldRows,
    _memory: MetadataShare,
}

impl TableSegment {
    /// A segment that was written for the table.
    pub(crate) fn written(stored: Arc<StoredSegment>) -> Self {
        Self { stored, kept: None }
    }

    /// One that the table keeps without these rows. Takes memory for them, and for the directory in
    /// the encoded catalog once more.
    pub(crate) fn kept(stored: Arc<StoredSegment>, withheld: WithheldRows) -> Result<Self, MetadataFull> {
        let memory = stored.share_for(&withheld)?;
        Ok(Self { stored, kept: Some(Arc::new(Kept { withheld, _memory: memory })) })
    }

    /// What is on the devices.
    pub(crate) fn stored(&self) -> &Arc<StoredSegment> {
        &self.stored
    }

    /// Its directory.
    pub(crate) fn directory(&self) -> &Arc<SegmentDirectory> {
        self.stored.directory()
    }

    /// The rows that are not there in the table.
    pub(crate) fn withheld(&self) -> &WithheldRows {
        self.kept.as_deref().map_or(&NO_ROWS, |kept| &kept.withheld)
    }
}

/// A published or prepared table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) definition: Arc<TableDefinition>,
    pub(crate) committed: bool,
    pub(crate) segments: BTreeMap<SegmentId, TableSegment>,
    /// What this node has of the stripe sets in which they lie.
    pub(crate) sets: Vec<Arc<HeldSet>>,
    /// What all nodes have.
    pub(crate) map: MapHere,
}

impl Table {
    /// Whether it is published under this name.
    pub(crate) fn is_published_as(&self, name: &str) -> bool {
        self.committed && self.definition.name == name
    }
}

/// All of them.
pub(crate) type Tables = BTreeMap<TableId, Arc<Table>>;

/// Which table has a segment that was written under another one.
pub(crate) type ReplicaNodes = BTreeMap<(TableId, SegmentId), TableId>;

/// Where the segments are whose own table is not the one that has them; of two that have one, a
/// published table is named.
pub(crate) fn replica_nodes_of(tables: &Tables) -> ReplicaNodes {
    let mut replica_nodes = ReplicaNodes::new();
    for committed in [false, true] {
        for (id, table) in tables.iter().filter(|(_, table)| table.committed == committed) {
            let directories = table.segments.values().map(TableSegment::directory);
            let kept = directories.filter(|directory| directory.table != *id);
            replica_nodes.extend(kept.map(|directory| ((directory.table, directory.segment), *id)));
        }
    }
    replica_nodes
}

/// The catalog that these tables make.
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
