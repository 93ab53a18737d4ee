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
use std::{sync::Arc, time::Instant};

/// How often a query was run again because tables that it reads were replaced.
#[derive(Default)]
pub(super) struct Attempts(usize);

impl Attempts {
    /// From the second attempt on the tables are held before they are read, because others may
    /// replace them faster than the query reads.
    pub(super) fn holding(&self, seen: Seen) -> Seen {
        Seen { is_held: self.0 > 0, ..seen }
    }
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
        let mut attempts = Attempts::default();
        loop {
            let seen = attempts.holding(self.seen_by_query(session, statement).await?);
            let (view, is_fixed) = (Arc::clone(&seen.view), seen.is_fixed);
            match read(with_stack_for(statement, Statement::clone), seen).await {
                Err(error) if self.begins_again(&error, &view, &mut attempts).await => {
                    if is_fixed {
                        return Err(self.why_not(statement, &view));
                    }
                }
                done => return done,
            }
        }
    }

    /// Whether a query failed because a table that it reads was replaced, and can be run again.
    pub(super) async fn begins_again(
        &self,
        error: &EngineError,
        before: &View,
        attempts: &mut Attempts,
    ) -> bool {
        if attempts.0 == QUERY_ATTEMPTS_MAX
            || !error.may_be_of_another_time()
            || !self.has_moved(before).await
        {
            return false;
        }
        tracing::info!(%error, "a table was flushed or replaced while a query read it");
        attempts.0 += 1;
        true
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
