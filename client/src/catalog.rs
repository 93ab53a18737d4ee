//! Which tables does the cluster hold, and where are their segments?
//!
//! Invariants
//! - Every definition and directory in a [`ClusterCatalog`] has been verified, and each table is whole: all its nodes
//!   answered for it and its segments hold as many rows as its definition says.
//! - A table is in the catalog if some node committed it. Where it was only prepared, the commit is completed first.

use std::sync::Arc;

use rackscan_format::{ids::NodeId, schema::TableDefinition, segment::SegmentDirectory};

use crate::{ClientError, Cluster};

/// The tables of a cluster at one moment.
#[derive(Debug, Clone, Default)]
pub struct ClusterCatalog {
    /// Published tables, by name.
    pub tables: Vec<ClusterTable>,
    /// Published tables that cannot be answered from, and why.
    pub broken: Vec<BrokenTable>,
}

/// A published table.
#[derive(Debug, Clone)]
pub struct ClusterTable {
    /// Its definition.
    pub definition: Arc<TableDefinition>,
    /// Its segments, by node, then by id.
    pub segments: Vec<PlacedSegment>,
}

/// A segment and the node that holds it.
#[derive(Debug, Clone)]
pub struct PlacedSegment {
    /// The node.
    pub node: NodeId,
    /// The segment.
    pub directory: Arc<SegmentDirectory>,
}

/// A published table of which a part is missing or wrong.
#[derive(Debug, Clone)]
pub struct BrokenTable {
    /// Its name.
    pub name: String,
    /// What is wrong.
    pub error: ClientError,
}

impl ClusterCatalog {
    /// The table named `name`.
    ///
    /// # Errors
    /// That there is none, or what is wrong with it.
    pub fn table(&self, name: &str) -> Result<&ClusterTable, ClientError> {
        if let Some(table) = self.tables.iter().find(|table| table.definition.name == name) {
            return Ok(table);
        }
        if let Some(broken) = self.broken.iter().find(|broken| broken.name == name) {
            return Err(broken.error.clone());
        }
        let known =
            self.tables.iter().map(|table| table.definition.name.as_str()).collect::<Vec<_>>().join(", ");
        Err(ClientError::UnknownTable {
            name: name.to_owned(),
            known: if known.is_empty() { "none".to_owned() } else { known },
        })
    }
}

impl ClusterTable {
    /// Stored bytes of all pages.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.segments.iter().map(|placed| placed.directory.stored_bytes()).sum()
    }
}

impl Cluster {
    /// The cluster's tables now.
    ///
    /// # Errors
    /// A node that is lost, refuses or sends a catalog that does not verify.
    pub async fn catalog(&self) -> Result<ClusterCatalog, ClientError> {
        todo!()
    }
}
