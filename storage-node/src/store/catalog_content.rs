//! Defines the content of the catalog's file.
//!
//! The types that borrow are encoded in the same way as the types that own, so that a change writes
//! the catalog from memory without copying it.

use rackscan_format::{
    ids::{NodeId, SegmentId, TableId},
    message::NodeCatalog,
    schema::TableDefinition,
    segment::SegmentDirectory,
    stripe_set::{ParityCell, SetId},
    withheld::WithheldRows,
};
use serde::{Deserialize, Serialize};

use super::table_segment::TableSegment;

/// The content of the file.
#[derive(Debug, Deserialize)]
pub(crate) struct CatalogContent {
    /// The random labels of the node's devices, in order.
    pub(crate) device_labels: Vec<u64>,
    /// The cluster.
    pub(crate) cluster: u64,
    /// The catalog that readers may see.
    pub(crate) catalog: NodeCatalog,
}

/// As [`CatalogContent`], borrowed from memory; encoded alike.
#[derive(Debug, Serialize)]
pub(crate) struct CatalogContentRef<'c> {
    pub(crate) device_labels: &'c [u64],
    pub(crate) cluster: u64,
    pub(crate) catalog: NodeCatalogRef<'c>,
}

/// As [`NodeCatalog`], borrowed; encoded alike.
#[derive(Debug, Serialize)]
pub(crate) struct NodeCatalogRef<'c> {
    pub(crate) node: NodeId,
    pub(crate) tables: Vec<NodeTableRef<'c>>,
}

/// As [`rackscan_format::message::NodeTable`], borrowed; encoded alike.
#[derive(Debug, Serialize)]
pub(crate) struct NodeTableRef<'c> {
    pub(crate) definition: &'c TableDefinition,
    pub(crate) committed: bool,
    pub(crate) segments: Vec<NodeSegmentRef<'c>>,
    pub(crate) sets: Vec<NodeSetRef<'c>>,
}

/// As [`rackscan_format::stripe_set::NodeSet`], borrowed; encoded alike.
#[derive(Debug, Serialize)]
pub(crate) struct NodeSetRef<'c> {
    pub(crate) id: SetId,
    pub(crate) segments: Vec<(TableId, SegmentId)>,
    pub(crate) beside: Vec<&'c SegmentDirectory>,
    pub(crate) parity: &'c [ParityCell],
}

/// As [`rackscan_format::message::NodeSegment`], borrowed; encoded alike.
#[derive(Debug, Serialize)]
pub(crate) struct NodeSegmentRef<'c> {
    directory: &'c SegmentDirectory,
    withheld: &'c WithheldRows,
}

impl<'c> NodeSegmentRef<'c> {
    pub(crate) fn of(segment: &'c TableSegment) -> Self {
        Self { directory: segment.directory(), withheld: segment.withheld() }
    }
}
