//! Keeps the tables of a running query readable when they are flushed, replaced or dropped
//! meanwhile.
//!
//! To do so, it asks the nodes for a hold, until whose end they do not free the stored data of the
//! tables. A transaction holds all tables from its beginning; another query holds its own tables
//! when it has run for a while (decision 0052). Most queries end before that, and send no extra
//! requests to nodes.

use crate::limits::HOLD_AFTER;
use rackscan_client::{Cluster, TablesHold};
use rackscan_format::schema::TableDefinition;
use std::sync::Arc;

/// A hold of these tables; `None` if one of them was replaced or a node has no room for it.
pub(super) async fn held(cluster: &Cluster, tables: &[Arc<TableDefinition>]) -> Option<TablesHold> {
    match cluster.hold_tables(tables).await {
        Ok(hold) => hold,
        Err(error) => {
            tracing::warn!(
                %error,
                "the nodes do not hold the tables of a query: a flush may free data while the query reads it"
            );
            None
        }
    }
}

/// The hold of a query. Dropping it releases the tables.
pub(super) enum QueryHold {
    /// A hold from the beginning. `None` if tables were already replaced.
    Now(#[expect(dead_code, reason = "it is there to be dropped")] Option<TablesHold>),
    /// A hold that begins when the query has run for a while.
    Later(tokio::task::JoinHandle<()>),
}

impl QueryHold {
    /// Holds tables before anything is read.
    pub(super) async fn now(cluster: &Cluster, tables: &[Arc<TableDefinition>]) -> Self {
        Self::Now(held(cluster, tables).await)
    }

    /// Holds tables from [`HOLD_AFTER`] on.
    pub(super) fn later(cluster: &Cluster, tables: Vec<Arc<TableDefinition>>) -> Self {
        let cluster = cluster.clone();
        Self::Later(tokio::spawn(async move {
            tokio::time::sleep(HOLD_AFTER).await;
            let _hold = held(&cluster, &tables).await;
            std::future::pending::<()>().await;
        }))
    }
}

impl Drop for QueryHold {
    fn drop(&mut self) {
        if let Self::Later(holding) = self {
            holding.abort();
        }
    }
}
