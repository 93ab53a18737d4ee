//! Sets up DataFusion for a session.
//!
//! Invariants
//! - DataFusion's own optimizer rules run first and unchanged. Our optimizer rules run after them,
//!   on plans in which dynamic filters have reached the scans.

use super::options::EngineOptions;
use crate::{
    error::EngineError,
    exec::{Bounds, Loads, QueryContext},
    functions::{aggregates, functions},
    limits::{BATCH_ROW_SHARE, SEGMENTS_IN_FLIGHT_MAX, SORT_MERGE_SHARE},
    memory::{LargeLimits, LongRows, MeteredWindows, NestedLoops},
    rules::{
        CanonicalDoubles, CheckedIntegers, ColumnFirst, CommonAggregateRule, CommonTables, CommonTypes,
        DecimalDivision, Decorrelate, GroupKeys, GuardedBranches, InSubqueries, Intervals, KeyFilterRule,
        LiteralLimits, MergedColumns, MeteredFunctions, OperandTypes, PartialAggregateRule, Planner,
        Recursion, RoundedCasts, ScalarSubqueries, SetOperation, TextOperands, Texts, TotalOrderRule,
        WindowOffsets,
    },
};
use datafusion::{
    execution::{FunctionRegistry, SessionState, SessionStateBuilder, runtime_env::RuntimeEnv},
    optimizer::{Analyzer, AnalyzerRule},
    prelude::SessionConfig,
};
use rackscan_client::{Cluster, LocalDevices};
use rackscan_planner::Policy;
use std::sync::Arc;

/// The catalog and schema that SQL names are looked up in.
pub(crate) const CATALOG: &str = "rackscan";
pub(crate) const SCHEMA: &str = "public";

/// Rows of a batch between operators.
const BATCH_ROWS: usize = 8192;
/// Batches of scans are not smaller: the texts of a slice would be counted as those of the whole
/// batch.
const BATCH_ROWS_MIN: usize = rackscan_scan::BATCH_ROWS_MIN;

/// The DataFusion state of an engine with these options and this memory. Each statement adds its
/// own tables.
pub(crate) fn session_state(
    options: &EngineOptions,
    runtime: Arc<RuntimeEnv>,
) -> Result<SessionState, EngineError> {
    let mut config = SessionConfig::new()
        .with_target_partitions(options.threads.max(1))
        .with_batch_size(BATCH_ROWS)
        .with_information_schema(true)
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_create_default_catalog_and_schema(false);
    let sql = &mut config.options_mut().sql_parser;
    // `0.06 + 0.01` must be 0.07, or Q6 misses every row with that discount.
    sql.parse_float_as_decimal = true;
    // A LIMIT outside takes the first rows of a subquery with ORDER BY in FROM, so its sort must
    // stay.
    sql.enable_subquery_sort_elimination = false;
    // DataFusion 55.2 also filters by MIN and MAX of columns where another aggregate of the same
    // list is over an expression.
    config.options_mut().optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    // Keys come from taps (`runtime_filter`); the lists of keys in DataFusion's own filters would
    // not be used.
    config.options_mut().optimizer.hash_join_inlist_pushdown_max_size = 0;
    if let Some(bytes) = options.memory_bytes {
        let execution = &mut config.options_mut().execution;
        // Each sort reserves this before its first row, and cannot give it back.
        let merged = bytes / SORT_MERGE_SHARE;
        execution.sort_spill_reservation_bytes = execution.sort_spill_reservation_bytes.min(merged);
        // Every operator holds at least one batch.
        config = config.with_batch_size((bytes / BATCH_ROW_SHARE).clamp(BATCH_ROWS_MIN, BATCH_ROWS));
    }
    let builder = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_optimizer_rule(Arc::new(TotalOrderRule::default()))
        .with_physical_optimizer_rule(Arc::new(PartialAggregateRule::new(options.aggregates)))
        .with_physical_optimizer_rule(Arc::new(KeyFilterRule::new(options.narrowed_rows_min)))
        .with_physical_optimizer_rule(Arc::new(LargeLimits))
        .with_physical_optimizer_rule(Arc::new(MeteredWindows))
        .with_physical_optimizer_rule(Arc::new(LongRows))
        .with_physical_optimizer_rule(Arc::new(NestedLoops));
    with_answers(builder)
}

/// DataFusion set up to answer plans as PostgreSQL does (decision 0054), for any tables. Statements
/// must be rewritten before.
///
/// # Errors
/// Functions that cannot be registered.
pub fn with_answers(builder: SessionStateBuilder) -> Result<SessionState, EngineError> {
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![
        Arc::new(Recursion),
        Arc::new(CommonTables),
        Arc::new(OperandTypes),
        Arc::new(LiteralLimits),
        Arc::new(Decorrelate::default()),
        Arc::new(ScalarSubqueries::default()),
        Arc::new(InSubqueries),
        Arc::new(SetOperation::default()),
        Arc::new(WindowOffsets),
        Arc::new(CanonicalDoubles::default()),
        Arc::new(CommonTypes),
        Arc::new(CheckedIntegers::default()),
        Arc::new(Intervals::default()),
        Arc::new(RoundedCasts::default()),
        Arc::new(Texts::default()),
        Arc::new(GuardedBranches),
        Arc::new(GroupKeys),
        Arc::new(ColumnFirst),
        Arc::new(MeteredFunctions),
    ];
    rules.extend(Analyzer::new().rules);
    let builder = builder
        .with_analyzer_rules(rules)
        .with_relation_planners(vec![Arc::new(MergedColumns)])
        .with_query_planner(Arc::new(Planner))
        .with_physical_optimizer_rule(Arc::new(CommonAggregateRule));
    let mut state = builder.build();
    for function in functions() {
        state.register_udf(function).map_err(EngineError::from_datafusion)?;
    }
    for function in aggregates() {
        state.register_udaf(function).map_err(EngineError::from_datafusion)?;
    }
    state.register_expr_planner(Arc::new(TextOperands::default())).map_err(EngineError::from_datafusion)?;
    state.register_expr_planner(Arc::new(DecimalDivision)).map_err(EngineError::from_datafusion)?;
    Ok(state)
}

/// The context of scans that belong to no query of a user.
pub(super) fn context(
    cluster: &Cluster,
    devices: &LocalDevices,
    loads: &Arc<Loads>,
    options: &EngineOptions,
) -> QueryContext {
    QueryContext {
        cluster: cluster.clone(),
        devices: devices.clone(),
        loads: Arc::clone(loads),
        calibration: Arc::new(options.calibration.clone()),
        policy: Policy::Auto,
        bounds: Bounds::Withheld,
        threads: options.threads.max(1),
        segments_in_flight: options.segments_in_flight.clamp(1, SEGMENTS_IN_FLIGHT_MAX),
        partition_page_bytes: options.partition_page_bytes,
        span: tracing::Span::none(),
        trace: None,
    }
}
