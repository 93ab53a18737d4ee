//! How does a query keep what it reads, though its tables are flushed, replaced or dropped
//! meanwhile?
//!
//! Decision 0052: a transaction holds all tables from its beginning, another query holds its own
//! tables when it has run for a while. Most queries are over before that, and ask nodes for nothing
//! more.

use crate::limits::HOLD_AFTER;
use rackscan_client::{Cluster, TablesHold};
use rackscan_format::schema::TableDefinition;
use std::sync::Arc;

/// A hold of these tables; `None` if there is none, because one of them was replaced or a node has
/// no room for it.
pub(super) async fn held(cluster: &Cluster, tables: &[Arc<TableDefinition>]) -> Option<TablesHold> {
    match cluster.hold_tables(tables).await {
        Ok(hold) => hold,
        Err(error) => {
            tracing::warn!(%error, "tables are not held: a flush may take away what is read");
            None
        }
    }
}

/// The hold of a query. Dropping it lets the tables go.
pub(super) enum QueryHold {
    /// From the beginning; the tables that were replaced before are not held.
    Now(#[expect(dead_code, reason = "it is there to be dropped")] Option<TablesHold>),
    /// When the query has run for a while.
    Later(tokio::task::JoinHandle<()>),
}

impl QueryHold {
    /// Before anything is read.
    pub(super) async fn now(cluster: &Cluster, tables: &[Arc<TableDefinition>]) -> Self {
        Self::Now(held(cluster, tables).await)
    }

    /// From [`HOLD_AFTER`] on.
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
