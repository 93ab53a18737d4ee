//! How is a catalog read that was written before tables succeeded one another?
//!
//! Invariant: it says what it said then. Its tables succeed none and withhold nothing.

use rackscan_format::{
    ids::{ColumnId, NodeId, TableId},
    message::{NodeCatalog, NodeSegment, NodeTable},
    schema::{ColumnDefinition, TableDefinition},
    segment::SegmentDirectory,
    withheld::WithheldRows,
};
use serde::Deserialize;

/// As [`super::CatalogContent`] was.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct Content {
    pub(super) device_labels: Vec<u64>,
    pub(super) cluster: u64,
    pub(super) node: NodeId,
    pub(super) tables: Vec<Table>,
}

/// As [`NodeTable`] was.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct Table {
    pub(super) definition: Definition,
    pub(super) committed: bool,
    pub(super) segments: Vec<SegmentDirectory>,
}

/// As [`TableDefinition`] was.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct Definition {
    pub(super) id: TableId,
    pub(super) name: String,
    pub(super) columns: Vec<ColumnDefinition>,
    pub(super) partition_key: ColumnId,
    pub(super) sorted_by: Option<ColumnId>,
    pub(super) page_size: u32,
    pub(super) segment_rows: u32,
    pub(super) nodes: Vec<NodeId>,
    pub(super) rows: u64,
    pub(super) source: String,
}

impl From<Content> for super::CatalogContent {
    fn from(content: Content) -> Self {
        let Content { device_labels, cluster, node, tables } = content;
        let catalog = NodeCatalog { node, tables: tables.into_iter().map(NodeTable::from).collect() };
        Self { device_labels, cluster, catalog }
    }
}

impl From<Table> for NodeTable {
    fn from(table: Table) -> Self {
        let Table { definition, committed, segments } = table;
        let segment = |directory| NodeSegment { directory, withheld: WithheldRows::NONE };
        let segments = segments.into_iter().map(segment).collect();
        Self { definition: definition.into(), committed, segments }
    }
}

impl From<Definition> for TableDefinition {
    fn from(earlier: Definition) -> Self {
        Self {
            id: earlier.id,
            name: earlier.name,
            columns: earlier.columns,
            partition_key: earlier.partition_key,
            sorted_by: earlier.sorted_by,
            page_size: earlier.page_size,
            segment_rows: earlier.segment_rows,
            nodes: earlier.nodes,
            rows: earlier.rows,
            source: earlier.source,
            succeeds: None,
        }
    }
}
