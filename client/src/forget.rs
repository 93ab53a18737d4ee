//! Drops published tables, and forgets (aborts) prepared loads.
//!
//! Invariants
//! - A prepared load is forgotten first at the node that would decide on its commit, so that nobody
//!   can commit it afterwards.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use rackscan_format::{
    ids::{NodeId, TableId},
    message::{NodeCatalog, Request},
    schema::TableDefinition,
};

use crate::{ClientError, Cluster, closing::published, retry::Retry};

/// Forgets prepared loads of a table's name, except loads of new versions, which are made in the
/// background. Each is forgotten first at the node that would decide on its commit, so that it
/// cannot be committed after that. Interrupted commits are completed before, and again if a load
/// was committed meanwhile: what is only prepared after that was never committed.
pub(crate) async fn forget_left(cluster: &Cluster, wanted: &TableDefinition) -> Result<(), ClientError> {
    let gives_way = |other: &TableDefinition| {
        other.name == wanted.name && (wanted.succeeds.is_none() || other.succeeds.is_some())
    };
    let mut retry = Retry::of_replacement();
    loop {
        cluster.catalog().await?;
        match forget_prepared(cluster, gives_way).await {
            // The node has published the load meanwhile.
            Err(error) if error.is_malformed() => retry.after_replacement(&wanted.name)?,
            outcome => return outcome.map(drop),
        }
    }
}

/// Forgets the chosen prepared loads, in the order that [`forget_left`] needs. Returns their
/// number.
async fn forget_prepared(
    cluster: &Cluster,
    is_chosen: impl Fn(&TableDefinition) -> bool,
) -> Result<usize, ClientError> {
    let mut left: BTreeMap<TableId, Vec<NodeId>> = BTreeMap::new();
    for catalog in cluster.node_catalogs().await? {
        let prepared = catalog.tables.into_iter().filter(|table| !table.committed);
        for table in prepared.map(|table| table.definition).filter(&is_chosen) {
            let first = table.nodes.first().copied().filter(|first| cluster.address(*first).is_some());
            let nodes = left.entry(table.id).or_insert_with(|| first.into_iter().collect());
            if !nodes.contains(&catalog.node) {
                nodes.push(catalog.node);
            }
        }
    }
    let tables = left.len();
    for (load, nodes) in left {
        for node in nodes {
            cluster.ask_done(node, Request::AbortLoad { load }).await?;
        }
    }
    Ok(tables)
}

impl Cluster {
    /// Forgets a published table and frees its pages at all nodes that have a part of it. Does
    /// nothing if it does not exist.
    ///
    /// # Errors
    /// A lost or refusing node.
    pub async fn drop_published(&self, table: TableId) -> Result<(), ClientError> {
        let has_it = |catalog: &NodeCatalog| {
            catalog.tables.iter().any(|known| known.committed && known.definition.id == table)
        };
        let catalogs = self.node_catalogs().await?;
        let nodes = catalogs.iter().filter(|catalog| has_it(catalog)).map(|catalog| catalog.node);
        for outcome in join_all(nodes.map(|node| self.ask_done(node, Request::Drop { table }))).await {
            match outcome {
                // Another client was faster.
                Err(error) if error.is_not_found() => {}
                outcome => outcome.map(drop)?,
            }
        }
        Ok(())
    }

    /// Names of loads that some node has prepared and none has committed.
    ///
    /// # Errors
    /// A lost node.
    pub async fn prepared_loads(&self) -> Result<BTreeSet<String>, ClientError> {
        // Completes interrupted commits first.
        self.catalog().await?;
        let tables = self.node_catalogs().await?.into_iter().flat_map(|catalog| catalog.tables);
        Ok(tables.filter(|table| !table.committed).map(|table| table.definition.name).collect())
    }

    /// Forgets loads of tables with these names that some node has prepared and none has committed.
    /// Returns their number. The caller must know that nobody is about to commit them.
    ///
    /// # Errors
    /// A lost node, or a node that refuses because it has committed the load meanwhile.
    pub async fn forget_loads(&self, names: &BTreeSet<String>) -> Result<usize, ClientError> {
        forget_prepared(self, |table| names.contains(&table.name)).await
    }

    /// Drops a table and frees its pages, also if a part of it is missing. It is closed to writers
    /// before.
    ///
    /// # Errors
    /// No table of that name, or a lost or refusing node.
    pub async fn drop_table(&self, name: &str) -> Result<(), ClientError> {
        let known = self.catalog().await?;
        if !known.tables.iter().any(|table| table.definition.name == name)
            && !known.broken.iter().any(|broken| broken.name == name)
        {
            return known.table(name).map(drop);
        }
        let mut retry = Retry::of_replacement();
        loop {
            let catalogs = self.completed_catalogs(name).await?;
            let parts: Vec<(NodeId, TableId)> = catalogs
                .iter()
                .flat_map(|catalog| published(catalog, name).map(|table| (catalog.node, table)))
                .collect();
            // The second round finds a version that was published in between.
            if parts.is_empty() {
                return Ok(());
            }
            self.close_tables(name, parts.iter().map(|(_, table)| *table).collect()).await?;
            let drops = parts.into_iter().map(|(node, table)| self.ask_done(node, Request::Drop { table }));
            join_all(drops).await.into_iter().try_for_each(|outcome| outcome.map(drop))?;
            retry.after_replacement(name)?;
        }
    }
}
