//! Runs a scan, partition by partition.
//!
//! ```text
//! partition: segment, segment, segment ...      a few in flight at a time (segments_in_flight)
//!   segment: decide its placement -> local | remote_fetch | remote_process -> batches     (segment)
//! ```
//!
//! Invariants
//! - Every segment of the request is scanned exactly once, or the query fails.
//! - IO is overlapped: while one segment is scanned on the partition's thread, others wait for
//!   devices and nodes.
//! - Dropping a partition's stream stops the scans of its segments, so no work continues for a
//!   query that nobody reads.

mod beside;
mod capture;
mod context;
mod counters;
mod equivalence;
mod error;
mod local;
mod meter;
mod profile;
mod remote_fetch;
mod remote_process;
mod repeats;
mod report;
mod segment;
mod shared;
mod shared_rows;
mod steering;
mod work;

pub use error::ScanError;

pub(crate) use context::{Bounds, Loads, QueryContext};
pub(crate) use profile::groups_max;
pub(crate) use shared::SharedExec;
pub(crate) use shared_rows::SharedRowsExec;

use self::capture::Capture;
use crate::{
    indexing::Lookup,
    limits::{SEGMENTS_FOR_NODES_MAX, SEGMENTS_PER_NODE, segment_page_bytes},
    pushdown::{ProgramBuilder, type_of},
    report::ScanFigures,
    request::{ScanRequest, SegmentPlace},
    runtime_filter::RuntimeFilter,
    snapshot::TableSnapshot,
    sql_text::SqlText,
};
use az::SaturatingAs;
use counters::Counters;
use datafusion::{
    arrow::datatypes::SchemaRef,
    common::{
        ColumnStatistics, Statistics, config::ConfigOptions, stats::Precision, tree_node::TreeNodeRecursion,
    },
    error::{DataFusionError, Result},
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::PhysicalExpr,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
        coop::make_cooperative,
        execution_plan::{Boundedness, EmissionType, SchedulingType},
        filter_pushdown::{ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown},
        metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet},
        projection::ProjectionExec,
        statistics::StatisticsArgs,
        stream::RecordBatchStreamAdapter,
    },
};
use equivalence::equivalences;
use futures::{StreamExt, stream};
use meter::Meter;
use rackscan_format::{
    ids::{ColumnId, NodeId},
    program::{Output, ScanProgram, VerifiedProgram},
};
use rackscan_scan::Estimator;
use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, OnceLock},
};
use steering::Steering;
use work::SegmentWork;

/// The scan of one table in a plan.
pub(crate) struct ScanExec {
    request: Arc<ScanRequest>,
    program: Arc<VerifiedProgram>,
    snapshot: Arc<TableSnapshot>,
    query: Arc<QueryContext>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    counters: Arc<Counters>,
    steering: Arc<Steering>,
    runtime_filter: Arc<RuntimeFilter>,
    /// The index that says which rows of stored segments are wanted.
    lookup: Option<Arc<Lookup>>,
    statistics: OnceLock<Arc<Statistics>>,
    /// Rows that are expected to pass the filter. Cached, because it is asked for often and takes
    /// time to estimate.
    rows_selected: Arc<OnceLock<f64>>,
}

impl ScanExec {
    /// A scan whose batches have `schema`: the types of the program's output, or types they are
    /// cast to.
    pub(crate) fn new(
        request: ScanRequest,
        schema: SchemaRef,
        snapshot: Arc<TableSnapshot>,
        query: Arc<QueryContext>,
    ) -> Result<Self> {
        let verified = request.program.clone().verify(&snapshot.definition);
        let program = verified.map_err(|error| DataFusionError::Internal(error.to_string()))?;
        let properties = PlanProperties::new(
            equivalences(&request.program, schema)?,
            Partitioning::UnknownPartitioning(request.partitions.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let steering = Steering::new(request.partitions.iter().flatten().map(|place| place.node));
        let program = Arc::new(program);
        Ok(Self {
            request: Arc::new(request),
            runtime_filter: Arc::new(RuntimeFilter::none(Arc::clone(&program))),
            program,
            snapshot,
            query,
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)),
            metrics: ExecutionPlanMetricsSet::new(),
            counters: Arc::default(),
            steering: Arc::new(steering),
            lookup: None,
            statistics: OnceLock::new(),
            rows_selected: Arc::default(),
        })
    }

    /// The same scan with an index lookup.
    pub(crate) fn with_lookup(self, lookup: Option<Arc<Lookup>>) -> Self {
        Self { lookup, ..self }
    }

    /// The same rows with another output. `program` has the filter of this scan.
    pub(crate) fn with_output(&self, program: ScanProgram, schema: SchemaRef) -> Result<Self> {
        let request = ScanRequest { program, ..ScanRequest::clone(&self.request) };
        let scan = Self::new(request, schema, Arc::clone(&self.snapshot), Arc::clone(&self.query))?;
        let runtime_filter = Arc::new(self.runtime_filter.of_program(Arc::clone(&scan.program)));
        let (rows_selected, lookup) = (Arc::clone(&self.rows_selected), self.lookup.clone());
        Ok(Self { rows_selected, runtime_filter, lookup, ..scan })
    }

    pub(crate) fn program(&self) -> &ScanProgram {
        &self.request.program
    }

    /// The same scan, narrowed by what operators above want of its rows.
    fn narrowed(&self, runtime_filter: RuntimeFilter) -> Result<Self> {
        let request = ScanRequest::clone(&self.request);
        let scan = Self::new(request, self.schema(), Arc::clone(&self.snapshot), Arc::clone(&self.query))?;
        let (rows_selected, lookup) = (Arc::clone(&self.rows_selected), self.lookup.clone());
        Ok(Self { rows_selected, runtime_filter: Arc::new(runtime_filter), lookup, ..scan })
    }

    /// The column of the table that is returned unchanged at this position.
    pub(crate) fn column_of_output(&self, index: usize) -> Option<ColumnId> {
        let (Output::Rows(nodes) | Output::Groups { keys: nodes, .. }) = &self.request.program.output;
        profile::column_of(&self.request.program, *nodes.get(index)?)
    }

    /// Whether all rows that pass its filter are returned. With a limit, other rows would take the
    /// places of dropped ones.
    pub(crate) fn has_no_limit(&self) -> bool {
        self.request.program.limit_rows.is_none()
    }

    pub(crate) fn runtime_filter(&self) -> &RuntimeFilter {
        &self.runtime_filter
    }

    pub(crate) fn snapshot(&self) -> &TableSnapshot {
        &self.snapshot
    }

    /// Whether both scans return the same rows, whatever the operators above do.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_narrowed = |scan: &Self| scan.runtime_filter.is_any();
        self.request == other.request
            && Arc::ptr_eq(&self.snapshot, &other.snapshot)
            && !is_narrowed(self)
            && !is_narrowed(other)
    }

    /// Total number of rows that are expected to pass the filter.
    pub(crate) fn rows_selected(&self) -> f64 {
        let directories = self.snapshot.segments.values();
        *self.rows_selected.get_or_init(|| {
            let estimator = Estimator::new(&self.program);
            directories.map(|(_, directory)| estimator.estimate(directory).rows_selected).sum()
        })
    }

    /// What it has done so far, with its index lookup; `None` before it began.
    pub(crate) fn figures(&self) -> Option<ScanFigures> {
        let mut figures = self.counters.figures()?;
        let lookup = self.lookup.as_ref().and_then(|lookup| lookup.plan().downcast_ref::<Self>());
        if let Some(looked) = lookup.and_then(Self::figures) {
            figures.index_lookup = Some(looked.work);
        }
        Some(figures)
    }

    /// Segments of one partition in flight at a time: enough that every node has work.
    fn segments_in_flight(&self) -> usize {
        let nodes: BTreeSet<NodeId> = self.snapshot.segments.values().map(|(node, _)| *node).collect();
        let wanted = (nodes.len() * SEGMENTS_PER_NODE).div_ceil(self.request.partitions.len().max(1));
        self.query.segments_in_flight.max(wanted.min(SEGMENTS_FOR_NODES_MAX))
    }

    /// Everything that the scan of a segment needs. It may hold `page_bytes` bytes of stored pages.
    fn work(
        &self,
        place: SegmentPlace,
        capture: Option<&Arc<Capture>>,
        page_bytes: usize,
        context: &Arc<TaskContext>,
    ) -> Result<SegmentWork, ScanError> {
        let Some((_, directory)) = self.snapshot.segments.get(&place.segment) else {
            return Err(ScanError::UnknownSegment {
                table: self.request.table.clone(),
                segment: place.segment,
            });
        };
        Ok(SegmentWork {
            node: place.node,
            directory: Arc::clone(directory),
            withheld: self.snapshot.withheld.get(&place.segment).cloned(),
            run: self.snapshot.runs.get(&place.segment).cloned(),
            narrowed: self.runtime_filter.plain(),
            runtime_filter: Arc::clone(&self.runtime_filter),
            lookup: self.lookup.clone().map(|lookup| (lookup, Arc::clone(context))),
            snapshot: Arc::clone(&self.snapshot),
            policy: self.request.policy,
            query: Arc::clone(&self.query),
            counters: Arc::clone(&self.counters),
            meter: Meter::new(place.node, Arc::clone(&self.counters)),
            capture: capture.cloned(),
            page_bytes,
            batch_rows: context.session_config().batch_size(),
        })
    }

    fn estimated_statistics(&self) -> Statistics {
        let outputs = match &self.request.program.output {
            Output::Rows(outputs) => outputs,
            Output::Groups { .. } => {
                let groups = groups_max(&self.request.program, &self.snapshot).unwrap_or(f64::INFINITY);
                let groups = profile::rounded(groups.min(self.rows_selected())).max(1);
                let num_rows = Precision::Inexact(groups.saturating_as::<usize>());
                return Statistics::new_unknown(&self.schema()).with_num_rows(num_rows);
            }
        };
        let whole = self.snapshot.statistics();
        let unfiltered = self.request.program.filter.is_empty() && self.request.program.limit_rows.is_none();
        let num_rows = if unfiltered {
            whole.num_rows
        } else {
            Precision::Inexact(profile::rounded(self.rows_selected()).saturating_as::<usize>())
        };
        let mut statistics = Statistics { num_rows, ..Statistics::default() };
        let mut row_bytes = 0;
        for &output in outputs {
            let column = profile::column_of(&self.request.program, output);
            let known = column.and_then(|column| whole.column_statistics.get(column.index())).cloned();
            let mut known = known.unwrap_or_default();
            if self.query.bounds == Bounds::Withheld {
                known =
                    ColumnStatistics { min_value: Precision::Absent, max_value: Precision::Absent, ..known };
            }
            statistics =
                statistics.add_column_statistics(if unfiltered { known } else { known.to_inexact() });
            row_bytes += profile::output_bytes(&self.program, &self.snapshot, output);
        }
        let rows = statistics.num_rows.get_value().copied().unwrap_or(0);
        statistics.with_total_byte_size(Precision::Inexact(rows.saturating_mul(row_bytes)))
    }
}

impl fmt::Debug for ScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanExec").field("request", &self.request).finish_non_exhaustive()
    }
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = SqlText::new(&self.request.program, &self.snapshot.definition);
        write!(f, "ScanExec: {}, columns=[{}]", self.request.table, text.columns().join(", "))?;
        if let Some((aggregates, keys)) = text.groups() {
            write!(f, ", aggregates=[{}], keys=[{}]", aggregates.join(", "), keys.join(", "))?;
        }
        let filter = text.filter();
        if !filter.is_empty() {
            write!(f, ", filter=[{}]", filter.join(" AND "))?;
        }
        if let Some(limit) = self.request.program.limit_rows {
            write!(f, ", limit={limit} per segment")?;
        }
        let sources = self.runtime_filter.report(&self.snapshot).sources;
        if !sources.is_empty() {
            write!(f, ", narrowed by=[{}]", sources.join("; "))?;
        }
        if let Some(lookup) = &self.lookup {
            write!(f, ", index={}", lookup.index())?;
        }
        write!(f, ", placement={}", self.request.policy)
    }
}

impl ExecutionPlan for ScanExec {
    fn name(&self) -> &'static str {
        "ScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for filter in self.runtime_filter.filters() {
            if f(&filter)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    /// Takes the filters that operators above will have while the query runs.
    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        pushed: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        if phase != FilterPushdownPhase::Post {
            return Ok(FilterPushdownPropagation::all_unsupported(pushed));
        }
        let mut runtime_filter: Option<RuntimeFilter> = None;
        let taken = pushed.parent_filters.iter().map(|parent| {
            let so_far = runtime_filter.as_ref().unwrap_or(&self.runtime_filter);
            match so_far.with(&parent.filter, &self.request.program, &self.snapshot) {
                Some(more) => {
                    runtime_filter = Some(more);
                    PushedDown::Yes
                }
                None => PushedDown::No,
            }
        });
        let taken = FilterPushdownPropagation::with_parent_pushdown_result(taken.collect());
        match runtime_filter {
            Some(runtime_filter) => Ok(taken.with_updated_node(Arc::new(self.narrowed(runtime_filter)?))),
            None => Ok(taken),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(places) = self.request.partitions.get(partition) else {
            return Err(DataFusionError::Internal(format!("a scan has no partition {partition}")));
        };
        let capture = self.query.trace.clone().map(|sink| Arc::new(Capture::new(sink, &self.snapshot)));
        // Computed once for all partitions, because it looks at every segment.
        let in_flight = self.segments_in_flight();
        let page_bytes = segment_page_bytes(self.query.partition_page_bytes, in_flight);
        let mut works = places
            .iter()
            .map(|&place| self.work(place, capture.as_ref(), page_bytes, &context))
            .collect::<Result<Vec<_>, ScanError>>()?;
        let schema = self.schema();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        self.counters.begin();
        let conform_to = Arc::clone(&schema);
        let loads = Arc::clone(&self.query.loads);
        let steering = Arc::clone(&self.steering);
        // The next segment is one of the least busy node, so that a slow node does not delay the
        // others.
        let next = std::iter::from_fn(move || {
            let position = loads.least_busy(works.iter().map(|work| work.node))?;
            Some(works.remove(position))
        });
        let batches = stream::iter(next)
            .map(move |work| segment::batches(work, Arc::clone(&steering)).boxed())
            .flatten_unordered(in_flight)
            .map(move |batch| {
                let batch = segment::conform(batch?, &conform_to)?;
                metrics.record_output(batch.num_rows());
                Ok(batch)
            });
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(schema, batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        if args.partition().is_some() {
            return Ok(Arc::new(Statistics::new_unknown(&self.schema())));
        }
        Ok(Arc::clone(self.statistics.get_or_init(|| Arc::new(self.estimated_statistics()))))
    }

    /// Takes a projection above the scan into the program, if the program can compute all of it.
    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let definition = &self.snapshot.definition;
        let Some(mut builder) = ProgramBuilder::over_output(definition, &self.request.program) else {
            return Ok(None);
        };
        let mut outputs = Vec::with_capacity(projection.expr().len());
        for expression in projection.expr() {
            let Ok(wanted) = type_of(&expression.expr, &self.schema()) else { return Ok(None) };
            let Ok(node) = builder.translate(&expression.expr, wanted) else { return Ok(None) };
            outputs.push(node);
        }
        let Ok(program) = builder.finish(Output::Rows(outputs), None) else { return Ok(None) };
        Ok(Some(Arc::new(self.with_output(program, projection.schema())?)))
    }
}
