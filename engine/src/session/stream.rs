//! Runs a planned query and streams its rows, and plans it again if it needs too much memory.

use super::holding::QueryHold;
use crate::{
    error::{EngineError, inner_error},
    explain::{explain_plan, total_of},
    functions::LongBatch,
    limits::HELD_SIDE_SHARE,
    memory::{BatchRows, NESTED_LOOPS, QueryMemory, Replanned, SpillingNestedLoops, is_out_of_memory},
    parsing::OnLargeStack,
    report::{QueryReport, ScanReport},
    rewrite::shown,
    rules::SpillingJoins,
};
use datafusion::{
    arrow::{
        array::{RecordBatch, RecordBatchOptions},
        datatypes::{Field, Schema, SchemaRef},
    },
    error::DataFusionError,
    execution::{SendableRecordBatchStream, SessionState, SessionStateBuilder, TaskContext},
    logical_expr::LogicalPlan,
    physical_plan::{EmptyRecordBatchStream, ExecutionPlan, empty::EmptyExec, execute_stream},
};
use futures::{FutureExt, TryStreamExt};
use std::{
    future::Future,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};
use tracing::Instrument;

/// A query that is ready to be started.
pub(super) struct Planned {
    pub(super) plan: Arc<dyn ExecutionPlan>,
    pub(super) state: SessionState,
    pub(super) span: tracing::Span,
    pub(super) started: Instant,
    pub(super) planning: Duration,
    pub(super) held: Option<QueryHold>,
    pub(super) memory: QueryMemory,
    pub(super) again: Again,
}

impl Planned {
    pub(super) fn start(self) -> Result<QueryStream, EngineError> {
        let Self { plan, state, span, started, planning, held, memory, again } = self;
        let batch_rows = Arc::new(BatchRows::default());
        let stream = started_in(&memory, &state, &plan, &batch_rows)?;
        let schema = shown_schema(&plan.schema());
        let is_renamed = !Arc::ptr_eq(&schema, &plan.schema()) && *schema != *plan.schema();
        let _held = held;
        Ok(QueryStream {
            schema,
            is_renamed,
            stream,
            plan,
            span,
            started,
            planning,
            memory,
            batch_rows,
            again: Some(again),
            plans: 1,
            replanned: Replanned::default(),
            _held,
        })
    }
}

fn started_in(
    memory: &QueryMemory,
    state: &SessionState,
    plan: &Arc<dyn ExecutionPlan>,
    batch_rows: &Arc<BatchRows>,
) -> Result<SendableRecordBatchStream, EngineError> {
    // DataFusion's hash joins would wait until all partitions have the keys of their build sides,
    // to fill filters that are not used (`runtime_filter`). Where an operator above needs only some
    // of the partitions they would wait forever (55.2).
    let mut config = state.config().clone().with_extension(Arc::clone(batch_rows));
    config.options_mut().optimizer.enable_join_dynamic_filter_pushdown = false;
    let context =
        TaskContext::from(state).with_session_config(config).with_runtime(Arc::clone(&memory.runtime));
    execute_stream(Arc::clone(plan), Arc::new(context)).map_err(EngineError::from_datafusion)
}

/// What is needed to plan a query again whose joins do not fit into memory, or whose rows are long
/// (decision 0056).
pub(super) struct Again {
    logical: LogicalPlan,
    state: SessionState,
    is_deep: bool,
    /// Bytes of join sides that may still be held in memory, for the next plan and the one after
    /// it; the last one comes first.
    held_bytes: Vec<usize>,
    /// The rule for the joins of this plan.
    spilling: Option<SpillingJoins>,
}

impl Again {
    pub(super) fn new(
        logical: LogicalPlan,
        state: &SessionState,
        memory_bytes: Option<usize>,
        is_deep: bool,
    ) -> Self {
        let held_bytes = memory_bytes.map_or_else(Vec::new, |bytes| vec![0, bytes / HELD_SIDE_SHARE]);
        Self { logical, state: state.clone(), is_deep, held_bytes, spilling: None }
    }

    /// The next plan, with `rows` rows in a batch or with more joins that spill; `None` if there is
    /// no other plan.
    async fn plan(&mut self, rows: Option<usize>) -> Option<Result<Arc<dyn ExecutionPlan>, EngineError>> {
        if let Some(rows) = rows {
            *self.state.config_mut() = self.state.config().clone().with_batch_size(rows);
        } else {
            self.spilling = Some(SpillingJoins { held_bytes_max: self.held_bytes.pop()? });
        }
        let mut rules = self.state.physical_optimizers().to_vec();
        if let Some(joins) = self.spilling {
            rules.insert(0, Arc::new(joins));
            let last = rules.iter().position(|rule| rule.name() == NESTED_LOOPS).expect("of every state");
            rules.insert(last, Arc::new(SpillingNestedLoops));
        }
        let state = SessionStateBuilder::new_from_existing(self.state.clone())
            .with_physical_optimizer_rules(rules)
            .build();
        let planning =
            async { state.create_physical_plan(&self.logical).await.map_err(EngineError::from_datafusion) };
        Some(OnLargeStack::new(planning, self.is_deep).await)
    }
}

/// A query's answer, batch by batch. Dropping it ends the query.
pub struct QueryStream {
    schema: SchemaRef,
    /// Whether columns have other names in the plan than in the answer.
    is_renamed: bool,
    stream: SendableRecordBatchStream,
    pub(super) plan: Arc<dyn ExecutionPlan>,
    pub(super) span: tracing::Span,
    started: Instant,
    planning: Duration,
    pub(super) memory: QueryMemory,
    batch_rows: Arc<BatchRows>,
    /// `None` once rows have been returned.
    again: Option<Again>,
    /// How often the query was planned.
    plans: u32,
    replanned: Replanned,
    _held: Option<QueryHold>,
}

impl QueryStream {
    /// Names and types of the columns.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next rows; `None` at the end.
    ///
    /// # Errors
    /// The query fails; it has ended then.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let next = loop {
            let span = self.span.clone();
            match contained(self.stream.try_next().instrument(span)).await.inspect_err(|_| self.end())? {
                Ok(next) => match self.batch_rows.return_rows() {
                    Some(rows) if self.plan_again(Some(rows)).await? => {}
                    _ => break next,
                },
                Err(error) if self.is_again(&error).await? => {}
                Err(error) => return Err(EngineError::from_datafusion(error)),
            }
        };
        self.again = None;
        match next {
            Some(batch) if self.is_renamed => {
                let columns = batch.columns().to_vec();
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let renamed = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options);
                renamed.map(Some).map_err(|error| EngineError::from_datafusion(error.into()))
            }
            next => Ok(next),
        }
    }

    /// Drops the plan and what it holds.
    fn end(&mut self) {
        let schema = self.plan.schema();
        self.stream = Box::pin(EmptyRecordBatchStream::new(Arc::clone(&schema)));
        self.plan = Arc::new(EmptyExec::new(schema));
    }

    /// Whether the query starts again after an error.
    async fn is_again(&mut self, error: &DataFusionError) -> Result<bool, EngineError> {
        let rows = self.batch_rows.asked_for().or_else(|| self.fewer_rows(error));
        Ok((rows.is_some() || is_out_of_memory(error)) && self.plan_again(rows).await?)
    }

    /// The rows in a batch for which its texts are short enough, if the error is that they are too
    /// long.
    fn fewer_rows(&self, error: &DataFusionError) -> Option<usize> {
        let rows = usize::try_from(inner_error::<LongBatch>(error)?.fewer_rows()).ok()?;
        let planned = self.again.as_ref()?.state.config().batch_size();
        (1..planned).contains(&rows).then_some(rows)
    }

    /// Starts again with `rows` rows in a batch, or with joins that need less memory. Returns
    /// whether there is such a plan.
    async fn plan_again(&mut self, rows: Option<usize>) -> Result<bool, EngineError> {
        if self.again.is_none() {
            return Ok(false);
        }
        self.end();
        self.memory.given_back().await;
        let Some(again) = &mut self.again else { return Ok(false) };
        let planned = contained(again.plan(rows).instrument(self.span.clone())).await?;
        // A query that cannot be planned in another way fails for lack of memory.
        let Some(Ok(plan)) = planned else { return Ok(false) };
        self.plan = plan;
        self.plans += 1;
        self.replanned.sorted_joins = again.spilling.is_some();
        self.replanned.batch_rows_max = rows.or(self.replanned.batch_rows_max);
        self.batch_rows = Arc::new(BatchRows::default());
        self.stream = started_in(&self.memory, &again.state, &self.plan, &self.batch_rows)?;
        Ok(true)
    }

    /// The figures so far.
    #[must_use]
    pub fn report(&self) -> QueryReport {
        QueryReport {
            elapsed: self.started.elapsed(),
            planning: self.planning,
            total: total_of(&self.plan),
            memory: self.memory.figures(&self.plan, self.plans, self.replanned),
        }
    }

    /// As [`super::QueryOutcome::scans`], so far.
    #[must_use]
    pub fn scans(&self) -> Vec<ScanReport> {
        explain_plan(&self.plan).scans
    }
}

/// The result of planning or reading, or an error if it panics: a fault in an operator of
/// DataFusion must end the query, not the process with its open transactions.
pub(super) async fn contained<T>(work: impl Future<Output = T>) -> Result<T, EngineError> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| EngineError::of_panic(panic.as_ref()))
}

/// The schema with the column names that users see.
fn shown_schema(schema: &SchemaRef) -> SchemaRef {
    if schema.fields().iter().all(|field| shown(field.name()) == field.name()) {
        return Arc::clone(schema);
    }
    let field = |field: &Arc<Field>| field.as_ref().clone().with_name(shown(field.name()));
    let fields: Vec<Field> = schema.fields().iter().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_of_the_query() {
        let empty: Vec<u8> = Vec::new();
        let error = contained(async { empty[std::hint::black_box(1)] }).await.unwrap_err();
        assert_eq!(error.sqlstate(), "XX000");
        assert!(error.to_string().contains("the len is 0 but the index is 1"), "{error}");
        assert_eq!(contained(async { 7 }).await.unwrap(), 7);
    }
}
