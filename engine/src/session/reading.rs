//! Runs a query, and runs it again if its tables are replaced while it reads them.
//!
//! Invariants
//! - A query whose tables were replaced is run again over the tables published then, if none of its
//!   rows was returned yet.
//! - In a transaction such a query is refused, and the error says whether the table was flushed,
//!   replaced or dropped.

use super::{Engine, ExplainMode, Explanation, QueryOutcome, Seen, SqlSession};
use crate::{catalog::View, error::EngineError, limits::QUERY_ATTEMPTS_MAX, parsing::with_stack_for};
use datafusion::sql::parser::Statement;
use futures::{FutureExt, future::BoxFuture};
use rackscan_client::Retry;
use std::{sync::Arc, time::Instant};

/// Attempts of a query, which runs again if a table that it reads was replaced meanwhile.
pub(super) const fn query_attempts() -> Retry {
    Retry::new(QUERY_ATTEMPTS_MAX)
}

/// From the second attempt on the tables are held before they are read, because others may replace
/// them faster than the query reads.
pub(super) fn holding(retry: &Retry, seen: Seen) -> Seen {
    Seen { is_held: retry.attempts() > 1, ..seen }
}

impl Engine {
    /// Answers a query.
    pub(super) async fn query(
        &self,
        session: &mut SqlSession,
        statement: Statement,
        started: Instant,
    ) -> Result<QueryOutcome, EngineError> {
        let read = |statement, seen| self.collect(statement, started, seen).boxed();
        self.read(session, &statement, read).await
    }

    /// Explains how a query would run, or runs it and explains how it ran.
    pub(super) async fn explained(
        &self,
        session: &mut SqlSession,
        statement: Statement,
        mode: ExplainMode,
    ) -> Result<Explanation, EngineError> {
        let read = |statement, seen| self.explain_statement(statement, mode, seen).boxed();
        self.read(session, &statement, read).await
    }

    async fn read<'a, T>(
        &'a self,
        session: &mut SqlSession,
        statement: &Statement,
        read: impl Fn(Statement, Seen) -> BoxFuture<'a, Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let mut retry = query_attempts();
        loop {
            let seen = holding(&retry, self.seen_by_query(session, statement).await?);
            let (view, is_fixed) = (Arc::clone(&seen.view), seen.is_fixed);
            match read(with_stack_for(statement, Statement::clone), seen).await {
                Err(error) if self.begins_again(&error, &view, &mut retry).await => {
                    if is_fixed {
                        return Err(self.why_not(statement, &view));
                    }
                }
                done => return done,
            }
        }
    }

    /// Whether a query failed because a table that it reads was replaced, and can be run again.
    pub(super) async fn begins_again(&self, error: &EngineError, before: &View, retry: &mut Retry) -> bool {
        if retry.is_last() || !error.may_be_of_another_time() || !self.has_moved(before).await {
            return false;
        }
        tracing::info!(%error, "a table was flushed or replaced while a query read it");
        retry.again()
    }

    /// The tables that a query sees. Nodes are asked for changes only if it refers to a table.
    async fn seen_by_query(&self, session: &mut SqlSession, query: &Statement) -> Result<Seen, EngineError> {
        let tables = with_stack_for(query, |query| self.state.resolve_table_references(query));
        if !session.is_open() && tables.is_ok_and(|tables| tables.is_empty()) {
            return Ok(Seen::of(self.tables.view()));
        }
        self.seen(session).await
    }

    /// Whether a table has been replaced since.
    pub(super) async fn has_moved(&self, before: &View) -> bool {
        let is_known = self.refresh().await.is_ok();
        let moment = self.tables.moment();
        is_known && before.iter().any(|(name, known)| known.id() != moment.id(name))
    }
}
