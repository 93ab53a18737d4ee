//! How does a table get into the cluster, wholly or not at all?
//!
//! Invariants
//! - Nothing of a load can be read before every node has prepared it and one has committed it.
//! - A session that is dropped before [`LoadSession::publish`] aborts: its segments are freed, the table is absent.

use rackscan_format::{ids::NodeId, schema::TableDefinition, segment::SegmentDirectory};

use crate::{ClientError, Cluster};

/// A load in progress.
#[derive(Debug)]
pub struct LoadSession {
    definition: TableDefinition,
}

/// One stored segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Stored bytes.
    pub stored_bytes: u64,
    /// Bytes that crossed the wire.
    pub wire_bytes: u64,
}

impl LoadSession {
    /// Begins to load a table. `definition.rows` is filled in by [`LoadSession::publish`].
    ///
    /// # Errors
    /// A definition that breaks an invariant or names a node that the cluster does not have.
    pub async fn begin(cluster: &Cluster, definition: TableDefinition) -> Result<Self, ClientError> {
        let _ = cluster;
        Ok(Self { definition })
    }

    /// What is being loaded.
    #[must_use]
    pub fn definition(&self) -> &TableDefinition {
        &self.definition
    }

    /// Stores a segment at a node. The directory's extents say only lengths; `pages` follow its order, chunk by chunk. May be
    /// called from many tasks at a time; the cluster's memory bounds how many are in flight.
    ///
    /// # Errors
    /// A segment that does not fit its table or the memory; a lost or refusing node.
    pub async fn append<P: AsRef<[u8]> + Sync>(
        &self,
        node: NodeId,
        directory: SegmentDirectory,
        pages: &[P],
    ) -> Result<Appended, ClientError> {
        let _ = (node, directory, pages);
        todo!()
    }

    /// Makes everything durable and then visible, in place of a table of the same name; returns the final definition.
    ///
    /// # Errors
    /// A node that could not prepare: the load is aborted everywhere. A node that could not commit.
    pub async fn publish(self) -> Result<TableDefinition, ClientError> {
        todo!()
    }

    /// Forgets the load everywhere.
    ///
    /// # Errors
    /// A node that could not be told; it forgets the load when it starts anew.
    pub async fn abort(self) -> Result<(), ClientError> {
        todo!()
    }
}

impl Cluster {
    /// Forgets a table and frees its pages.
    ///
    /// # Errors
    /// No table of that name, or a lost or refusing node.
    pub async fn drop_table(&self, name: &str) -> Result<(), ClientError> {
        let _ = name;
        todo!()
    }
}
