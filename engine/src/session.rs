//! Runs a user's SQL and returns its answer.
//!
//! ```text
//! text -> one statement -> DataFusion's plan -> scans placed and run -> batches, and a report of the scans
//!                       -> rows to change    -> a transaction                                    (changing)
//! ```
//!
//! Invariants
//! - One [`Engine`] serves many queries at a time; each has its own policy and sees one state of
//!   the catalog.
//! - A statement sees all writes that were acknowledged before it began. In a transaction, every
//!   statement sees the writes that the first one could see, and those of the transaction.
//! - A failed query leaves nothing running: its streams are dropped, and with them its scans.

mod answers;
mod changing;
mod committing;
mod deriving;
mod flushed;
mod holding;
mod options;
mod reading;
mod seen;
mod sql_session;
mod state;
mod statement;
mod stream;

use crate::{
    catalog::{StatementTables, Tables},
    changes::Changes,
    error::{EngineError, near_names},
    exec::{Bounds, Loads, QueryContext},
    explain::{ExplainMode, Explanation, explain_plan},
    flushing::Flusher,
    limits::FLUSHING_MEMORY_BYTES,
    memory::Memory,
    parsing::{OnLargeStack, is_deep, parse},
    report::{QueryReport, ScanReport},
    rewrite::rewrite,
    rules::check_inserted,
    table::{TableDescription, TableInfo},
    trace::TraceSink,
};
use chrono::{DateTime, Utc};
use datafusion::{
    arrow::{array::RecordBatch, datatypes::SchemaRef},
    common::utils::memory::RecordBatchMemoryCounter,
    execution::{SessionState, memory_pool::MemoryConsumer},
    logical_expr::LogicalPlan,
    physical_plan::ExecutionPlan,
    sql::parser::Statement,
};
use futures::future::BoxFuture;
use rackscan_client::{Cluster, LocalDevices};
use rackscan_format::schema::TableDefinition;
use rackscan_planner::Policy;
use std::{
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};
use tracing::Instrument;

use holding::QueryHold;
pub use options::EngineOptions;
use seen::{Seen, is_missing, views_among};
pub use sql_session::{OneStatement, SqlSession};
use state::context;
pub use state::with_answers;
pub(crate) use state::{CATALOG, SCHEMA, session_state};
use statement::{Parsed, classify};
pub use stream::QueryStream;
use stream::{Again, Planned, contained};

/// An SQL engine over one cluster.
pub struct Engine {
    cluster: Cluster,
    devices: LocalDevices,
    loads: Arc<Loads>,
    options: EngineOptions,
    policy: RwLock<Policy>,
    trace: RwLock<Option<TraceSink>>,
    tables: Arc<Tables>,
    changes: Arc<Changes>,
    flusher: Flusher,
    memory: Memory,
    state: SessionState,
    queries: AtomicU64,
}

/// The whole answer of a query.
#[derive(Debug)]
pub struct QueryOutcome {
    /// Names and types of the columns.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: Vec<RecordBatch>,
    /// What the scans did, and how long the query took.
    pub report: QueryReport,
    plan: Option<Arc<dyn ExecutionPlan>>,
}

impl QueryOutcome {
    /// Rows of the answer.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The report of each scan, in the order of the plan. It is computed by each call.
    #[must_use]
    pub fn scans(&self) -> Vec<ScanReport> {
        self.plan.as_ref().map(|plan| explain_plan(plan).scans).unwrap_or_default()
    }
}

/// Methods return boxed futures: those of `async fn` would be compiled anew in each crate that
/// awaits them, with all that they await.
impl Engine {
    /// Reads the cluster's catalog and gets ready for queries.
    ///
    /// # Errors
    /// The catalog cannot be read, or options are unusable.
    pub async fn open(cluster: Cluster, options: EngineOptions) -> Result<Self, EngineError> {
        options.calibration.verify()?;
        let tables = Arc::new(Tables::default());
        let memory = Memory::new(options.memory_bytes, options.spill.as_ref())?;
        let state = session_state(&options, memory.runtime())?;
        let changes = Arc::new(Changes::of(&cluster));
        let (policy, trace) = (RwLock::new(options.policy), RwLock::new(None));
        let devices = LocalDevices::attach(cluster.statuses());
        let loads = Arc::new(Loads::new(cluster.nodes(), cluster.statuses()));
        let queries = AtomicU64::new(0);
        let context = context(&cluster, &devices, &loads, &options);
        let of_flushers = match options.memory_bytes {
            Some(_) => memory.runtime(),
            None => Memory::new(Some(FLUSHING_MEMORY_BYTES), None)?.runtime(),
        };
        let mut reading = session_state(&options, of_flushers)?;
        reading.config_mut().set_extension(Arc::new(context));
        let flusher = Flusher::new(cluster.clone(), reading, Arc::clone(&tables), Arc::clone(&changes));
        let engine = Self {
            cluster,
            devices,
            loads,
            options,
            policy,
            trace,
            tables,
            changes,
            flusher,
            memory,
            state,
            queries,
        };
        engine.refresh().await?;
        Ok(engine)
    }

    /// Reads the catalog and the changed rows again, so that tables loaded or dropped since are
    /// seen.
    ///
    /// # Errors
    /// They cannot be read. The engine then keeps the catalog it has.
    pub fn refresh<'a>(&'a self) -> BoxFuture<'a, Result<(), EngineError>> {
        Box::pin(async move { self.changes.renew(&self.tables).await })
    }

    /// All tables, with all writes that were acknowledged before this call.
    async fn now(&self) -> Result<Seen, EngineError> {
        self.changes.catch_up(&self.tables).await?;
        Ok(Seen::of(self.tables.view()))
    }

    /// The cluster that is queried.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The policy of placements for the next queries.
    #[must_use]
    pub fn policy(&self) -> Policy {
        *self.policy.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the policy of placements for the next queries.
    pub fn set_policy(&self, policy: Policy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = policy;
    }

    /// Sets or removes the trace in which the reads of the next queries are recorded.
    pub fn set_trace(&self, trace: Option<TraceSink>) {
        *self.trace.write().unwrap_or_else(PoisonError::into_inner) = trace;
    }

    /// The published tables, by name.
    #[must_use]
    pub fn tables(&self) -> Vec<TableInfo> {
        self.tables.infos()
    }

    /// A table's columns and how it is stored.
    ///
    /// # Errors
    /// There is no such table, or a part of it is missing.
    pub fn describe(&self, table: &str) -> Result<TableDescription, EngineError> {
        let description = self.tables.description(table).ok_or_else(|| self.unknown_table(table))?;
        description.map_err(EngineError::Catalog)
    }

    /// Answers one statement.
    ///
    /// # Errors
    /// The statement is not a query, cannot be planned or placed as asked, or fails while it runs.
    pub fn sql<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<QueryOutcome, EngineError>> {
        Box::pin(async move {
            let mut session = SqlSession::default();
            let outcome = self.sql_in(&mut session, sql).await?;
            if session.is_open() {
                let way_out = "send BEGIN together with the statements of the transaction, as one script";
                return Err(EngineError::Statement { found: "BEGIN alone".to_owned(), way_out });
            }
            Ok(outcome)
        })
    }

    /// Answers one query batch by batch.
    ///
    /// # Errors
    /// As [`Engine::sql`]; errors while the query runs come with the batches.
    pub fn stream<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<QueryStream, EngineError>> {
        Box::pin(async move {
            let started = Instant::now();
            match self.statement(sql)? {
                Parsed::Query(statement) => self.run(*statement, started, self.now().await?).await,
                _ => Err(EngineError::Statement {
                    found: "streaming the rows of a statement that is not a query".to_owned(),
                    way_out: "run it without streaming",
                }),
            }
        })
    }

    /// Explains how a query would run, or runs it and explains how it ran.
    ///
    /// # Errors
    /// As [`Engine::sql`].
    pub fn explain<'a>(
        &'a self,
        sql: &'a str,
        mode: ExplainMode,
    ) -> BoxFuture<'a, Result<Explanation, EngineError>> {
        Box::pin(async move {
            match self.statement(sql)? {
                Parsed::Query(statement) => {
                    self.explained(&mut SqlSession::default(), *statement, mode).await
                }
                Parsed::Explain(statement, inner, _) => {
                    self.explained(&mut SqlSession::default(), *statement, mode.max(inner)).await
                }
                _ => Err(EngineError::Statement {
                    found: "an explanation of a statement that is not a query".to_owned(),
                    way_out: "explain a query with the same tables and conditions",
                }),
            }
        })
    }

    async fn explain_statement(
        &self,
        statement: Statement,
        mode: ExplainMode,
        seen: Seen,
    ) -> Result<Explanation, EngineError> {
        let started = Instant::now();
        let planned = self.plan(statement, started, seen).await?;
        if mode == ExplainMode::Plan {
            return Ok(explain_plan(&planned.plan));
        }
        let mut stream = planned.start()?;
        let mut rows = 0;
        while let Some(batch) = stream.next().await? {
            rows += batch.num_rows() as u64;
        }
        let mut explanation = explain_plan(&stream.plan);
        explanation.ran(rows, &stream.report());
        Ok(explanation)
    }

    async fn collect(
        &self,
        statement: Statement,
        started: Instant,
        seen: Seen,
    ) -> Result<QueryOutcome, EngineError> {
        let mut stream = self.run(statement, started, seen).await?;
        let mut batches = Vec::new();
        // The rows collected for the answer count as memory of the query.
        let answer = MemoryConsumer::new("the answer").register(&stream.memory.runtime.memory_pool);
        let mut counter = RecordBatchMemoryCounter::new();
        while let Some(batch) = stream.next().await? {
            answer.try_grow(counter.count_batch(&batch)).map_err(EngineError::from_datafusion)?;
            batches.push(batch);
        }
        let report = stream.report();
        tracing::info!(parent: &stream.span, elapsed_us = report.elapsed.as_micros(), "{}", report.summary());
        let plan = Some(Arc::clone(&stream.plan));
        Ok(QueryOutcome { schema: Arc::clone(stream.schema()), batches, report, plan })
    }

    /// Plans a query and starts it: from then on some operators read ahead.
    async fn run(
        &self,
        statement: Statement,
        started: Instant,
        seen: Seen,
    ) -> Result<QueryStream, EngineError> {
        self.plan(statement, started, seen).await?.start()
    }

    /// Plans a query. Nothing is read.
    async fn plan(&self, statement: Statement, started: Instant, seen: Seen) -> Result<Planned, EngineError> {
        let policy = self.policy();
        let query = self.queries.fetch_add(1, Ordering::Relaxed);
        let span = tracing::info_span!("query", query, %policy);
        let time = seen.time;
        let mut told = self.state_for(policy, time, &span, Bounds::Told);
        let mut held = None;
        let is_deep = is_deep(&statement);
        let planning = async {
            let (is_fixed, is_held) = (seen.is_fixed, seen.is_held);
            let (logical, tables) = self.logical_plan(&mut told, statement, seen).await?;
            held = match (is_fixed, is_held) {
                (true, _) => None,
                (false, true) => Some(QueryHold::now(&self.cluster, &tables).await),
                (false, false) => Some(QueryHold::later(&self.cluster, tables)),
            };
            // An INSERT is planned as the query for its rows.
            let logical = match logical {
                LogicalPlan::Dml(insert) => {
                    check_inserted(&insert)?;
                    Arc::unwrap_or_clone(insert.input)
                }
                query => query,
            };
            if let Ok(plan) = told.create_physical_plan(&logical).await {
                return Ok((plan, told, logical));
            }
            // DataFusion estimates filters by the bounds of columns, and fails where a bound cannot
            // be cast although every row can. So the query is planned again without bounds.
            let mut withheld = self.state_for(policy, time, &span, Bounds::Withheld);
            withheld.register_catalog_list(Arc::clone(told.catalog_list()));
            let plan = withheld.create_physical_plan(&logical).await;
            plan.map(|plan| (plan, withheld, logical)).map_err(EngineError::from_datafusion)
        };
        let planning = OnLargeStack::new(planning.instrument(span.clone()), is_deep);
        let (plan, state, logical) = contained(planning).await??;
        let again = Again::new(logical, &state, self.options.memory_bytes, is_deep);
        let (planning, memory) = (started.elapsed(), self.memory.of_query());
        Ok(Planned { plan, state, span, started, planning, held, memory, again })
    }

    fn state_for(
        &self,
        policy: Policy,
        time: DateTime<Utc>,
        span: &tracing::Span,
        bounds: Bounds,
    ) -> SessionState {
        let mut state = self.state.clone();
        state.mark_start_execution();
        state.execution_props_mut().query_execution_start_time = Some(time);
        state.config_mut().set_extension(Arc::new(QueryContext {
            policy,
            bounds,
            span: span.clone(),
            trace: self.trace.read().unwrap_or_else(PoisonError::into_inner).clone(),
            ..context(&self.cluster, &self.devices, &self.loads, &self.options)
        }));
        state
    }

    async fn logical_plan(
        &self,
        state: &mut SessionState,
        mut statement: Statement,
        mut seen: Seen,
    ) -> Result<(LogicalPlan, Vec<Arc<TableDefinition>>), EngineError> {
        rewrite(&mut statement)?;
        let references = state.resolve_table_references(&statement).map_err(EngineError::from_datafusion)?;
        if !seen.is_fixed && references.iter().any(|reference| is_missing(reference, &seen.view, state)) {
            // The table may have been loaded since the catalog was read.
            self.refresh().await?;
            seen.view = self.now().await?.view;
        }
        if let Some(missing) = references.iter().find(|reference| is_missing(reference, &seen.view, state)) {
            return Err(self.unknown_table(missing.table()));
        }
        let views = views_among(&references, &seen)?;
        if !views.is_empty() && seen.sums.is_none() {
            let (moment, sums) = self.changes.sums(&self.tables, Some(views)).await?;
            (seen.view, seen.sums) = (Arc::clone(&moment.view), Some(sums));
        }
        let Seen { view, placed, sums, .. } = seen;
        let read = references.iter().filter_map(|reference| view.get(reference.table())?.definition());
        let read = read.map(Arc::clone).collect();
        let tables = StatementTables::catalog(view, placed, sums.unwrap_or_default(), (CATALOG, SCHEMA));
        state.register_catalog_list(tables.map_err(EngineError::from_datafusion)?);
        let plan = state.statement_to_plan(statement).await.map_err(EngineError::from_datafusion)?;
        Ok((plan, read))
    }

    fn unknown_table(&self, name: &str) -> EngineError {
        let names: Vec<String> = self.tables.infos().into_iter().map(|info| info.name).collect();
        let near = near_names(name, &names, "no table is loaded yet: load one with `rackscan load`");
        EngineError::UnknownTable { name: name.to_owned(), near }
    }

    /// Parses a text that must be one statement of a supported kind.
    fn statement(&self, sql: &str) -> Result<Parsed, EngineError> {
        classify(Self::parse(sql)?)
    }

    fn parse(sql: &str) -> Result<Statement, EngineError> {
        let mut statements = parse(sql)?;
        match (statements.pop_front(), statements.is_empty()) {
            (Some(statement), true) => Ok(statement),
            (None, _) => Err(EngineError::Syntax("the text is empty, expected one statement".to_owned())),
            (Some(_), false) => Err(EngineError::Statement {
                found: "a text of several statements".to_owned(),
                way_out: "send them one by one",
            }),
        }
    }
}

#[cfg(test)]
mod tests;
