//! Holds tables for a reader: nodes keep the segments of a held table until the reader releases it,
//! even if the table is replaced or dropped.
//!
//! Invariants
//! - A node keeps the held segments until the [`TablesHold`] is dropped, the client's connection to
//!   the node ends, or the node stops. Nodes that were unavailable hold nothing.
//! - Only a published table can be held, not one that was replaced or dropped before.

use std::sync::Arc;

use futures::future::join_all;
use rackscan_format::{
    ids::{NodeId, TableId},
    limits::HELD_TABLES_MAX,
    message::{HoldTables, RefusalCode, Request},
    schema::TableDefinition,
};

use crate::{ClientError, Cluster};

/// A hold on tables, whose segments stay until this is dropped.
#[derive(Debug)]
pub struct TablesHold {
    cluster: Cluster,
    hold: u64,
    nodes: Vec<NodeId>,
}

impl Cluster {
    /// Lets the nodes of these tables keep their segments. Unavailable nodes are left out. Returns
    /// `None` and holds nothing if a table is not published any more, or there are more than
    /// [`HELD_TABLES_MAX`].
    ///
    /// # Errors
    /// A node that refuses for another reason.
    pub async fn hold_tables(
        &self,
        tables: &[Arc<TableDefinition>],
    ) -> Result<Option<TablesHold>, ClientError> {
        if tables.len() > HELD_TABLES_MAX {
            return Ok(None);
        }
        let hold = getrandom::u64().map_err(|error| ClientError::Os {
            action: "draw a random number",
            source: Arc::new(std::io::Error::other(error.to_string())),
        })?;
        let of = |node: NodeId| -> Vec<TableId> {
            let there = tables.iter().filter(|table| table.nodes.contains(&node));
            there.map(|table| table.id).collect()
        };
        let wanted: Vec<_> =
            self.nodes().map(|node| (node, of(node))).filter(|(_, tables)| !tables.is_empty()).collect();
        // From here on everything is released when `held` is dropped, whatever happens.
        let nodes = wanted.iter().map(|(node, _)| *node).collect();
        let held = TablesHold { cluster: self.clone(), hold, nodes };
        let asked = wanted
            .into_iter()
            .map(|(node, tables)| self.ask_done(node, Request::HoldTables(HoldTables { hold, tables })));
        for outcome in join_all(asked).await {
            match outcome {
                Err(ClientError::Refused { refusal, .. }) if refusal.code == RefusalCode::Replaced => {
                    return Ok(None);
                }
                Err(error) if error.is_node_lost() => {}
                outcome => drop(outcome?),
            }
        }
        Ok(Some(held))
    }
}

impl Drop for TablesHold {
    fn drop(&mut self) {
        for node in &self.nodes {
            if !self.cluster.tell(*node, Request::ReleaseTables(self.hold)) {
                tracing::warn!(%node, "could not release tables: the node releases them when the connection ends");
            }
        }
    }
}
