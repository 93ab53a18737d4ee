//! Provides a table to DataFusion's plans, which scan it.
//!
//! Invariant: what a provider returns never changes. It reads one snapshot, and every other
//! snapshot has its own provider.

use crate::{
    exec::{QueryContext, ScanExec},
    indexing::{Coverage, Lookup, filter_of_values},
    pushdown::ProgramBuilder,
    request::{ScanRequest, distribute},
    snapshot::{TableSnapshot, zone_scalar},
};
use async_trait::async_trait;
use az::SaturatingAs;
use datafusion::{
    arrow::datatypes::{DataType, Field, Schema, SchemaRef},
    catalog::{Session, TableProvider},
    common::{ColumnStatistics, DFSchema, Statistics},
    error::{DataFusionError, Result},
    logical_expr::{
        Expr, Operator, TableProviderFilterPushDown, TableType,
        physical_planning_context::PhysicalPlanningContext, utils::split_conjunction_owned,
    },
    physical_expr::{
        PhysicalExpr, create_physical_expr,
        execution_props::ExecutionProps,
        expressions::{BinaryExpr, Column},
        utils::{collect_columns, reassign_expr_columns},
    },
    physical_plan::{ExecutionPlan, filter::FilterExec, projection::ProjectionExec},
    prelude::SessionConfig,
};
use rackscan_delta::{
    identity::RowIdentity,
    layer::{Layer, LayerView},
};
use rackscan_format::{
    ids::ColumnId,
    program::Output,
    row_place::RowPlace,
    schema::{ColumnDefinition, TableDefinition},
};
use rackscan_ramp::timestamp::Timestamp;
use std::sync::Arc;

/// A line about a published table, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Its name.
    pub name: String,
    /// How many rows it has.
    pub rows: u64,
    /// How many columns it has.
    pub columns: usize,
    /// How many segments it has.
    pub segments: usize,
    /// How many nodes store it.
    pub nodes: usize,
    /// Its stored bytes.
    pub stored_bytes: u64,
    /// Rows of its segments that were updated or deleted, plus changed rows that are in no segment
    /// yet.
    pub changed_rows: u64,
    /// Where its rows came from.
    pub source: String,
    /// Why it cannot be queried, if it cannot.
    pub broken: Option<String>,
}

/// A table's columns and how it is stored.
#[derive(Clone, Debug)]
pub struct TableDescription {
    /// The definition.
    pub definition: Arc<TableDefinition>,
    /// The line about the table.
    pub info: TableInfo,
    /// The columns, in order.
    pub columns: Vec<ColumnDescription>,
}

/// A column and what its zone maps say.
#[derive(Clone, Debug)]
pub struct ColumnDescription {
    /// Name, type, whether values may be missing.
    pub definition: ColumnDefinition,
    /// A lower bound of its values, as text.
    pub min: Option<String>,
    /// An upper bound of its values, as text.
    pub max: Option<String>,
    /// Rows without a value.
    pub nulls: u64,
    /// Its stored bytes.
    pub stored_bytes: u64,
}

/// One table as DataFusion sees it.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) snapshot: Arc<TableSnapshot>,
    statistics: Statistics,
    /// The layer of changed rows over it, which the snapshot includes.
    layer: Arc<LayerView>,
    /// Its columns, and a last column with the places of rows if those are wanted.
    schema: SchemaRef,
    /// The indexes over its segments.
    indexes: Arc<Vec<TableIndex>>,
}

/// An index of a table.
#[derive(Clone, Debug)]
pub(crate) struct TableIndex {
    pub(crate) name: String,
    /// The indexed column's name.
    pub(crate) column: String,
    pub(crate) coverage: Coverage,
    /// The table that holds it.
    pub(crate) table: Arc<Table>,
}

impl TableIndex {
    /// A lookup for these filters, if they ask for values of the index's column.
    async fn lookup(&self, filters: &[Expr], state: &dyn Session) -> Result<Option<Lookup>> {
        let Some(asked) = filter_of_values(filters, &self.column)? else { return Ok(None) };
        if self.table.supports_filters_pushdown(&[&asked])? != [TableProviderFilterPushDown::Exact] {
            return Ok(None);
        }
        let plan = self.table.scan(state, Some(&vec![1]), &[asked], None).await?;
        Ok(Some(Lookup::new(self.name.clone(), self.coverage.below, plan)))
    }
}

/// The column with the places of rows, which only the engine's own statements see.
pub(crate) const PLACE_COLUMN: &str = "rackscan place";

impl Table {
    pub(crate) fn new(snapshot: TableSnapshot) -> Self {
        Self::over(snapshot, LayerView::default())
    }

    /// A table whose snapshot has this layer over it.
    pub(crate) fn over(snapshot: TableSnapshot, layer: LayerView) -> Self {
        let (statistics, schema) = (snapshot.statistics(), Arc::clone(&snapshot.schema));
        let (snapshot, layer) = (Arc::new(snapshot), Arc::new(layer));
        Self { snapshot, statistics, layer, schema, indexes: Arc::default() }
    }

    /// The same table with these indexes.
    pub(crate) fn with_indexes(self, indexes: Arc<Vec<TableIndex>>) -> Self {
        Self { indexes, ..self }
    }

    /// The indexes over its segments.
    pub(crate) fn indexes(&self) -> &Arc<Vec<TableIndex>> {
        &self.indexes
    }

    /// A lookup in the first index of which these filters ask for values.
    async fn lookup(&self, filters: &[Expr], state: &dyn Session) -> Result<Option<Arc<Lookup>>> {
        for index in self.indexes.iter() {
            if let Some(lookup) = index.lookup(filters, state).await? {
                return Ok(Some(Arc::new(lookup)));
            }
        }
        Ok(None)
    }

    /// The same table with one more column, the place of each row.
    pub(crate) fn with_places(&self) -> Self {
        let place = Arc::new(Field::new(PLACE_COLUMN, DataType::Int64, true));
        let fields: Vec<_> = self.snapshot.schema.fields().iter().cloned().chain([place]).collect();
        let statistics = self.statistics.clone().add_column_statistics(ColumnStatistics::new_unknown());
        Self { schema: Arc::new(Schema::new(fields)), statistics, ..self.clone() }
    }

    /// The layer over the table before any row has changed.
    pub(crate) fn layer(&self) -> Layer {
        Layer::new(Arc::clone(&self.snapshot.definition), Arc::clone(&self.snapshot.flushed))
    }

    pub(crate) fn definition(&self) -> &Arc<TableDefinition> {
        &self.snapshot.definition
    }

    /// The names and types of its columns.
    pub(crate) fn columns(&self) -> &SchemaRef {
        &self.snapshot.schema
    }

    /// The row at this place, and the timestamp of its version.
    pub(crate) fn version(&self, place: RowPlace) -> Option<(RowIdentity, Timestamp)> {
        self.layer.version(place.segment, place.row)
    }

    /// Whether this is a place in a stored segment, rather than in a run of changed rows.
    pub(crate) fn is_in_segment(&self, place: RowPlace) -> bool {
        !self.snapshot.runs.contains_key(&place.segment)
    }

    /// Rows of its segments that were updated or deleted, plus changed rows that are in no segment
    /// yet.
    pub(crate) fn changed_rows(&self) -> u64 {
        self.snapshot.rows_withheld() + self.snapshot.rows_beside()
    }

    pub(crate) fn info(&self) -> TableInfo {
        let definition = &self.snapshot.definition;
        TableInfo {
            name: definition.name.clone(),
            rows: self.snapshot.rows(),
            columns: definition.columns.len(),
            segments: self.snapshot.stored().count(),
            nodes: definition.nodes.len(),
            stored_bytes: self.snapshot.stored_bytes(),
            changed_rows: self.changed_rows(),
            source: definition.source.clone(),
            broken: None,
        }
    }

    pub(crate) fn description(&self) -> TableDescription {
        let definition = Arc::clone(&self.snapshot.definition);
        let columns = definition.columns.iter().enumerate().filter_map(|(index, column)| {
            let bounds = self.snapshot.bounds(ColumnId(u16::try_from(index).ok()?));
            let text = |value: &rackscan_format::zone::ZoneValue| {
                zone_scalar(column.column_type, value).map(|value| value.to_string())
            };
            Some(ColumnDescription {
                definition: column.clone(),
                min: bounds.min.as_ref().and_then(text),
                max: bounds.max.as_ref().and_then(text),
                nulls: bounds.nulls,
                stored_bytes: bounds.stored_bytes,
            })
        });
        TableDescription { columns: columns.collect(), info: self.info(), definition }
    }

    /// The conjuncts of a logical filter as physical expressions over all columns of the table.
    pub(crate) fn physical(&self, filter: &Expr) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
        let schema = DFSchema::try_from(Schema::clone(&self.snapshot.schema))?;
        let (properties, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
        let unqualified = datafusion::logical_expr::expr_rewriter::unnormalize_col(filter.clone());
        let conjuncts = split_conjunction_owned(unqualified).into_iter();
        conjuncts.map(|conjunct| create_physical_expr(&conjunct, &schema, &properties, &context)).collect()
    }

    /// Whether every conjunct of `filter` runs inside a scan.
    fn is_translatable(&self, filter: &Expr) -> bool {
        let Ok(conjuncts) = self.physical(filter) else { return false };
        let mut builder = ProgramBuilder::over_table(&self.snapshot.definition);
        conjuncts.iter().all(|conjunct| builder.filter(conjunct).is_ok())
    }
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.statistics.clone())
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let supported = filters.iter().map(|filter| {
            if self.is_translatable(filter) {
                TableProviderFilterPushDown::Exact
            } else {
                TableProviderFilterPushDown::Unsupported
            }
        });
        Ok(supported.collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let query = query_context(state.config())?;
        let definition = &self.snapshot.definition;
        let mut builder = ProgramBuilder::over_table(definition);
        let width = self.schema.fields().len();
        let mut above = Vec::new();
        for filter in filters {
            for conjunct in self.physical(filter)? {
                let fits = builder.filter_within(&conjunct, width).map_err(|reason| {
                    DataFusionError::Internal(format!(
                        "a filter was pushed into a scan that cannot compute it: {}",
                        reason.0
                    ))
                })?;
                if !fits {
                    above.push(conjunct);
                }
            }
        }
        let all: Vec<usize> = (0..width).collect();
        let wanted = projection.unwrap_or(&all);
        let mut columns = wanted.clone();
        for column in above.iter().flat_map(collect_columns).map(|column| column.index()) {
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        let mut outputs = Vec::with_capacity(columns.len());
        for &column in &columns {
            let node = if column == definition.columns.len() {
                builder.row_number()
            } else {
                builder.column(ColumnId(u16::try_from(column).expect("a table has at most 65,535 columns")))
            };
            outputs.push(node.map_err(|reason| DataFusionError::Internal(reason.0))?);
        }
        let limit = limit.filter(|_| above.is_empty());
        let limit_rows = limit.map(|limit| limit.saturating_as::<u32>());
        let program = builder.finish(Output::Rows(outputs), limit_rows).map_err(|reason| {
            DataFusionError::Plan(format!(
                "the scan of table {} cannot be planned: {}",
                definition.name, reason.0
            ))
        })?;
        let request = ScanRequest {
            table: definition.name.clone(),
            program,
            partitions: distribute(self.snapshot.places(), query.threads),
            policy: query.policy,
        };
        let schema = Arc::new(self.schema.project(&columns)?);
        let lookup = self.lookup(filters, state).await?;
        let scan = ScanExec::new(request, schema, Arc::clone(&self.snapshot), query)?;
        filtered(Arc::new(scan.with_lookup(lookup)), above, wanted.len())
    }
}

/// Filters a scan by the conditions for which its program has no room, and keeps its first
/// `columns` columns.
fn filtered(
    scan: Arc<dyn ExecutionPlan>,
    mut conditions: Vec<Arc<dyn PhysicalExpr>>,
    columns: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = scan.schema();
    // A balanced tree, so that evaluating it needs little stack.
    while conditions.len() > 1 {
        let pairs = conditions.chunks(2).map(|pair| match pair {
            [left, right] => Arc::new(BinaryExpr::new(Arc::clone(left), Operator::And, Arc::clone(right)))
                as Arc<dyn PhysicalExpr>,
            rest => Arc::clone(&rest[0]),
        });
        conditions = pairs.collect();
    }
    let Some(condition) = conditions.pop() else { return Ok(scan) };
    let condition = reassign_expr_columns(condition, &schema)?;
    let filter = FilterExec::try_new(condition, scan)?;
    let first = (0..columns).map(|at| {
        let name = schema.field(at).name().clone();
        (Arc::new(Column::new(&name, at)) as Arc<dyn PhysicalExpr>, name)
    });
    Ok(Arc::new(ProjectionExec::try_new(first.collect::<Vec<_>>(), Arc::new(filter))?))
}

/// The context of the query that is being planned, from the session.
fn query_context(config: &SessionConfig) -> Result<Arc<QueryContext>> {
    config.get_extension::<QueryContext>().ok_or_else(|| {
        DataFusionError::Internal("a scan was planned outside of an engine's query".to_owned())
    })
}
