//! Which tables does the node have, and what do they look like to a reader?

use std::{collections::BTreeMap, sync::Arc};

use rackscan_format::{
    ids::{NodeId, SegmentId, TableId},
    schema::TableDefinition,
};

use super::{
    allocate::StoredSegment,
    catalog_file::{NodeCatalogRef, NodeTableRef},
};

/// A published or prepared table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) definition: Arc<TableDefinition>,
    pub(crate) committed: bool,
    pub(crate) segments: BTreeMap<SegmentId, Arc<StoredSegment>>,
}

/// All of them.
pub(crate) type Tables = BTreeMap<TableId, Arc<Table>>;

/// The catalog that these tables make.
pub(crate) fn catalog_of(node: NodeId, tables: &Tables) -> NodeCatalogRef<'_> {
    NodeCatalogRef {
        node,
        tables: tables
            .values()
            .map(|table| NodeTableRef {
                definition: &table.definition,
                committed: table.committed,
                segments: table.segments.values().map(|segment| segment.directory().as_ref()).collect(),
            })
            .collect(),
    }
}
