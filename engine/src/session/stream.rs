//! How does a planned query run, and how do its rows come?

use super::holding::HeldLater;
use crate::{
    error::EngineError,
    explain::{explain_plan, total_of},
    report::{QueryReport, ScanReport},
    rewrite::shown,
};
use datafusion::{
    arrow::{
        array::{RecordBatch, RecordBatchOptions},
        datatypes::{Field, Schema, SchemaRef},
    },
    execution::{SendableRecordBatchStream, SessionState},
    physical_plan::{ExecutionPlan, execute_stream},
};
use futures::TryStreamExt;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tracing::Instrument;

/// A query that could be started.
pub(super) struct Planned {
    pub(super) plan: Arc<dyn ExecutionPlan>,
    pub(super) state: SessionState,
    pub(super) span: tracing::Span,
    pub(super) started: Instant,
    pub(super) planning: Duration,
    pub(super) unheard: Option<String>,
    pub(super) held: Option<HeldLater>,
}

impl Planned {
    pub(super) fn start(self) -> Result<QueryStream, EngineError> {
        let Self { plan, state, span, started, planning, unheard, held } = self;
        let stream =
            execute_stream(Arc::clone(&plan), state.task_ctx()).map_err(EngineError::from_datafusion)?;
        let schema = shown_schema(&plan.schema());
        let is_renamed = !Arc::ptr_eq(&schema, &plan.schema()) && *schema != *plan.schema();
        let _held = held;
        Ok(QueryStream { schema, is_renamed, stream, plan, span, started, planning, unheard, _held })
    }
}

/// A query's answer, batch by batch. Dropping it ends the query.
pub struct QueryStream {
    schema: SchemaRef,
    /// Whether columns have other names in the plan.
    is_renamed: bool,
    stream: SendableRecordBatchStream,
    pub(super) plan: Arc<dyn ExecutionPlan>,
    pub(super) span: tracing::Span,
    started: Instant,
    planning: Duration,
    unheard: Option<String>,
    _held: Option<HeldLater>,
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
    /// When the query fails; it is over then.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let span = self.span.clone();
        let next = self.stream.try_next().instrument(span).await.map_err(EngineError::from_datafusion)?;
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

    /// What the scans have done so far.
    #[must_use]
    pub fn report(&self) -> QueryReport {
        QueryReport {
            elapsed: self.started.elapsed(),
            planning: self.planning,
            total: total_of(&self.plan),
            unheard: self.unheard.clone(),
        }
    }

    /// As [`super::QueryOutcome::scans`], so far.
    #[must_use]
    pub fn scans(&self) -> Vec<ScanReport> {
        explain_plan(&self.plan).scans
    }
}

/// The schema with the names that people see.
fn shown_schema(schema: &SchemaRef) -> SchemaRef {
    if schema.fields().iter().all(|field| shown(field.name()) == field.name()) {
        return Arc::clone(schema);
    }
    let field = |field: &Arc<Field>| field.as_ref().clone().with_name(shown(field.name()));
    let fields: Vec<Field> = schema.fields().iter().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
