//! Closes a table to writers before it is replaced or dropped, so that no participant accepts a
//! write that nobody could read afterwards.
//!
//! ```text
//! look    which tables are published under the name; if only some nodes committed one, its commit is completed first
//! close   a transaction writes a closing key at every participant, which then refuses every PREPARE under the table's keys
//! end     exactly the closed tables are replaced or dropped; if another table is published by then, everything starts over
//! ```
//!
//! Invariants
//! - A table is replaced or dropped only after every participant refuses writes to it.
//! - If the client stops between closing and the end, the table stays published, and the next
//!   writer flushes it. So stopping there does no harm.

use std::collections::BTreeSet;

use rackscan_format::{
    ids::{NodeId, TableId},
    message::{NodeCatalog, Request},
    row_key::table_prefix,
};
use rackscan_ramp::{algorithm::Algorithm, closing::Closing, message::ParticipantId};

use crate::{
    ClientError, Cluster, Session, SessionOptions, TransactionError,
    catalog::half_committed,
    limits::{CLOSING_MEMORY_BYTES, SESSION_TIMEOUT_DEFAULT},
    retry::Retry,
};

/// The tables that a node has published under a name.
pub(crate) fn published<'c>(catalog: &'c NodeCatalog, name: &'c str) -> impl Iterator<Item = TableId> + 'c {
    let tables = catalog.tables.iter().filter(move |table| table.committed && table.definition.name == name);
    tables.map(|table| table.definition.id)
}

impl Cluster {
    /// The catalogs of all nodes, after interrupted commits of tables of this name were completed.
    /// A commit that arrives at a node later finds its table published or gone there, and replaces
    /// nothing.
    pub(crate) async fn completed_catalogs(&self, name: &str) -> Result<Vec<NodeCatalog>, ClientError> {
        let mut retry = Retry::of_replacement();
        loop {
            let catalogs = self.node_catalogs().await?;
            let ids: BTreeSet<TableId> =
                catalogs.iter().flat_map(|catalog| published(catalog, name)).collect();
            let mut unfinished = half_committed(&catalogs);
            unfinished.retain(|(_, load)| ids.contains(load));
            if unfinished.is_empty() {
                return Ok(catalogs);
            }
            for (node, load) in unfinished {
                self.complete_commit(node, load).await?;
            }
            retry.after_replacement(name)?;
        }
    }

    /// Commits a load at a node, because another node has committed it. Nothing is left to do if it
    /// was replaced or dropped meanwhile.
    pub(crate) async fn complete_commit(&self, node: NodeId, load: TableId) -> Result<(), ClientError> {
        tracing::info!(%node, table = %load, "completing a commit that was interrupted");
        match self.ask_done(node, Request::CommitPublish { load }).await {
            Err(error) if error.is_not_found() => Ok(()),
            done => done.map(drop),
        }
    }

    /// Closes these tables, which are published under `name`: after success no participant accepts
    /// a write to their rows. Where nodes keep no keys there are no writers.
    pub(crate) async fn close_tables(
        &self,
        name: &str,
        tables: BTreeSet<TableId>,
    ) -> Result<(), ClientError> {
        if tables.is_empty() {
            return Ok(());
        }
        let (lines, (told, outcome)) =
            (self.lines(CLOSING_MEMORY_BYTES, SESSION_TIMEOUT_DEFAULT), tokio::sync::oneshot::channel());
        // A session blocks, and the callers' runtimes may not allow that.
        let close = move || {
            let options =
                SessionOptions { reads: false, algorithm: Algorithm::Small, ..SessionOptions::new(lines) };
            let closed = Session::open(options).map(|mut session| {
                let closed = close(&mut session, &tables);
                session.close();
                closed
            });
            // The caller may have gone.
            drop(told.send(closed));
        };
        let thread = std::thread::Builder::new().name("closing".to_owned()).spawn(close);
        thread.map_err(|source| ClientError::Os { action: "start a thread", source: source.into() })?;
        match outcome.await.map_err(|_| ClientError::Closed)?? {
            Ok(()) | Err(TransactionError::KeepsNoKeys { .. }) => Ok(()),
            Err(source) => Err(ClientError::NotClosed { table: name.to_owned(), source: Box::new(source) }),
        }
    }
}

fn close(session: &mut Session, tables: &BTreeSet<TableId>) -> Result<(), TransactionError> {
    let participants: Vec<ParticipantId> = session.participants().to_vec();
    let items = tables.iter().map(|table| Closing::Closed.items(&table_prefix(*table), &participants));
    let items: Option<Vec<_>> = items.collect();
    assert!(
        items.is_some(),
        "{} participants, of which one has no closing key of its own",
        participants.len()
    );
    session.write(items.into_iter().flatten().flatten().collect()).map(drop)
}
