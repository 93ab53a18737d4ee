//! Reads a catalog that an earlier release wrote.
//!
//! | envelope | written before | type |
//! |---|---|---|
//! | `EarlierCatalog` | a table version could succeed (replace) another | [`Loaded`] |
//! | `SucceedingCatalog` | tables listed what is derived from their rows | [`Succeeding`] |
//! | `DerivingCatalog` | tables could be protected by parity | [`Deriving`] |
//!
//! Invariant: a table has exactly the features that its release had. No table is protected; tables
//! of the first two kinds derive nothing; tables of the first kind succeed no other and withhold no
//! rows.

use rackscan_format::{
    codec::{self, CodecError, Envelope},
    derived::DerivedDefinition,
    ids::{ColumnId, NodeId, TableId},
    message::{NodeCatalog, NodeSegment, NodeTable},
    schema::{ColumnDefinition, TableDefinition},
    segment::SegmentDirectory,
    withheld::WithheldRows,
};
use serde::{Deserialize, de::DeserializeOwned};

use crate::store::catalog_content::CatalogContent;

/// The content of a catalog of one of these layouts; [`CodecError::Foreign`] if it has none of
/// them.
pub(super) fn read(what: &'static str, bytes: &[u8]) -> Result<CatalogContent, CodecError> {
    let is_other =
        |found: &Result<CatalogContent, CodecError>| matches!(found, Err(CodecError::Foreign { .. }));
    let mut found = of::<Deriving>(Envelope::DerivingCatalog, what, bytes);
    if is_other(&found) {
        found = of::<Succeeding>(Envelope::SucceedingCatalog, what, bytes);
    }
    if is_other(&found) { of::<Loaded>(Envelope::EarlierCatalog, what, bytes) } else { found }
}

fn of<T: DeserializeOwned + Into<NodeTable>>(
    kind: Envelope,
    what: &'static str,
    bytes: &[u8],
) -> Result<CatalogContent, CodecError> {
    let Content { device_labels, cluster, node, tables } =
        codec::decode_envelope::<Content<T>>(kind, what, bytes)?;
    let catalog = NodeCatalog { node, tables: tables.into_iter().map(T::into).collect() };
    Ok(CatalogContent { device_labels, cluster, catalog })
}

/// As [`CatalogContent`] was.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct Content<T> {
    pub(super) device_labels: Vec<u64>,
    pub(super) cluster: u64,
    pub(super) node: NodeId,
    pub(super) tables: Vec<T>,
}

/// As [`NodeTable`] was at first.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct Loaded {
    pub(super) definition: Definition,
    pub(super) committed: bool,
    pub(super) segments: Vec<SegmentDirectory>,
}

/// As [`NodeTable`] was then, with a definition that ended where the table is named that it
/// succeeds.
#[derive(Debug, Deserialize)]
pub(super) struct Succeeding {
    definition: Definition,
    succeeds: Option<TableId>,
    committed: bool,
    segments: Vec<NodeSegment>,
}

/// As [`NodeTable`] was next, with a definition that ended with what is derived.
#[derive(Debug, Deserialize)]
pub(super) struct Deriving {
    definition: Definition,
    succeeds: Option<TableId>,
    derived: Vec<DerivedDefinition>,
    committed: bool,
    segments: Vec<NodeSegment>,
}

/// As [`TableDefinition`] was at first.
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

impl From<Loaded> for NodeTable {
    fn from(table: Loaded) -> Self {
        let Loaded { definition, committed, segments } = table;
        let segment = |directory| NodeSegment { directory, withheld: WithheldRows::NONE };
        let segments = segments.into_iter().map(segment).collect();
        Self { definition: definition.succeeding(None), committed, segments, sets: Vec::new() }
    }
}

impl From<Succeeding> for NodeTable {
    fn from(table: Succeeding) -> Self {
        let Succeeding { definition, succeeds, committed, segments } = table;
        Self { definition: definition.succeeding(succeeds), committed, segments, sets: Vec::new() }
    }
}

impl From<Deriving> for NodeTable {
    fn from(table: Deriving) -> Self {
        let Deriving { definition, succeeds, derived, committed, segments } = table;
        let definition = TableDefinition { derived, ..definition.succeeding(succeeds) };
        Self { definition, committed, segments, sets: Vec::new() }
    }
}

impl Definition {
    fn succeeding(self, succeeds: Option<TableId>) -> TableDefinition {
        TableDefinition {
            id: self.id,
            name: self.name,
            columns: self.columns,
            partition_key: self.partition_key,
            sorted_by: self.sorted_by,
            page_size: self.page_size,
            segment_rows: self.segment_rows,
            nodes: self.nodes,
            rows: self.rows,
            source: self.source,
            succeeds,
            derived: Vec::new(),
            protection: None,
        }
    }
}
