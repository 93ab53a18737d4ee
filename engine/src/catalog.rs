//! Which tables does SQL see?
//!
//! Invariants
//! - A name is looked up once per query; the query keeps that snapshot, whatever is loaded meanwhile.
//! - A broken table is listed with what is wrong with it, and answers no query.

use crate::{
    exec::{QueryContext, ScanError, ScanExec},
    pushdown::ProgramBuilder,
    request::{ScanRequest, deal},
    snapshot::{TableSnapshot, zone_scalar},
};
use async_trait::async_trait;
use datafusion::{
    arrow::datatypes::{Schema, SchemaRef},
    catalog::{SchemaProvider, Session, TableProvider},
    common::{DFSchema, Statistics},
    error::{DataFusionError, Result},
    logical_expr::{
        Expr, TableProviderFilterPushDown, TableType, physical_planning_context::PhysicalPlanningContext,
        utils::split_conjunction_owned,
    },
    physical_expr::{PhysicalExpr, create_physical_expr, execution_props::ExecutionProps},
    physical_plan::ExecutionPlan,
    prelude::SessionConfig,
};
use rackscan_client::{ClientError, ClusterCatalog};
use rackscan_format::{
    ids::ColumnId,
    program::Output,
    schema::{ColumnDefinition, TableDefinition},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

/// A published table, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub rows: u64,
    /// Its columns.
    pub columns: usize,
    /// Its segments.
    pub segments: usize,
    /// The nodes that hold it.
    pub nodes: usize,
    /// Its stored bytes.
    pub stored_bytes: u64,
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
    /// The line of [`TableInfo`].
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

/// The tables of the cluster as they were when the catalog was last read.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    known: RwLock<BTreeMap<String, Known>>,
}

#[derive(Clone, Debug)]
enum Known {
    Whole(Arc<Table>),
    Broken(ClientError),
}

impl Tables {
    /// Takes the place of everything known before. Tables that have not changed keep their snapshot.
    pub(crate) fn replace(&self, catalog: &ClusterCatalog) {
        let whole = catalog.tables.iter().map(|table| {
            let segments = table.segments.iter().map(|placed| (placed.node, Arc::clone(&placed.directory)));
            let snapshot = TableSnapshot::new(Arc::clone(&table.definition), segments);
            (table.definition.name.clone(), Known::Whole(Arc::new(Table::new(snapshot))))
        });
        let broken =
            catalog.broken.iter().map(|table| (table.name.clone(), Known::Broken(table.error.clone())));
        let known = broken.chain(whole).collect();
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
    }

    #[cfg(test)]
    pub(crate) fn insert(&self, name: &str, table: Arc<Table>) {
        self.known
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.to_owned(), Known::Whole(table));
    }

    #[cfg(test)]
    pub(crate) fn snapshot(&self, name: &str) -> Option<Arc<TableSnapshot>> {
        match self.known.read().unwrap_or_else(PoisonError::into_inner).get(name)? {
            Known::Whole(table) => Some(Arc::clone(&table.snapshot)),
            Known::Broken(_) => None,
        }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).contains_key(name)
    }

    pub(crate) fn infos(&self) -> Vec<TableInfo> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let infos = known.iter().map(|(name, known)| match known {
            Known::Whole(table) => table.info(),
            Known::Broken(error) => TableInfo {
                name: name.clone(),
                rows: 0,
                columns: 0,
                segments: 0,
                nodes: 0,
                stored_bytes: 0,
                source: String::new(),
                broken: Some(error.to_string()),
            },
        });
        infos.collect()
    }

    /// A table's description, or what is wrong with it; `None` when there is no such table.
    pub(crate) fn description(&self, name: &str) -> Option<Result<TableDescription, ClientError>> {
        match self.known.read().unwrap_or_else(PoisonError::into_inner).get(name)? {
            Known::Whole(table) => Some(Ok(table.description())),
            Known::Broken(error) => Some(Err(error.clone())),
        }
    }
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        self.infos().into_iter().filter(|info| info.broken.is_none()).map(|info| info.name).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        match known {
            Some(Known::Whole(table)) => Ok(Some(table)),
            Some(Known::Broken(error)) => Err(ScanError::Client(error).into()),
            None => Ok(None),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.contains(name)
    }
}

/// One table as DataFusion sees it.
#[derive(Debug)]
pub(crate) struct Table {
    snapshot: Arc<TableSnapshot>,
    statistics: Statistics,
}

impl Table {
    pub(crate) fn new(snapshot: TableSnapshot) -> Self {
        Self { statistics: snapshot.statistics(), snapshot: Arc::new(snapshot) }
    }

    fn info(&self) -> TableInfo {
        let definition = &self.snapshot.definition;
        TableInfo {
            name: definition.name.clone(),
            rows: self.snapshot.rows(),
            columns: definition.columns.len(),
            segments: self.snapshot.segments.len(),
            nodes: definition.nodes.len(),
            stored_bytes: self.snapshot.stored_bytes(),
            source: definition.source.clone(),
            broken: None,
        }
    }

    fn description(&self) -> TableDescription {
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

    /// The conjuncts of logical filters as physical expressions over all columns of the table.
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
        Arc::clone(&self.snapshot.schema)
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
        for filter in filters {
            for conjunct in self.physical(filter)? {
                builder.filter(&conjunct).map_err(|reason| {
                    DataFusionError::Internal(format!("a filter was accepted, but {}", reason.0))
                })?;
            }
        }
        let all: Vec<usize> = (0..definition.columns.len()).collect();
        let columns = projection.unwrap_or(&all);
        let mut outputs = Vec::with_capacity(columns.len());
        for &column in columns {
            let column = u16::try_from(column).unwrap_or(u16::MAX);
            let node =
                builder.column(ColumnId(column)).map_err(|reason| DataFusionError::Internal(reason.0))?;
            outputs.push(node);
        }
        let limit_rows = limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
        let program = builder.finish(Output::Rows(outputs), limit_rows).map_err(|reason| {
            DataFusionError::Plan(format!("the scan of {}: {}", definition.name, reason.0))
        })?;
        let request = ScanRequest {
            table: definition.name.clone(),
            program,
            partitions: deal(self.snapshot.places(), query.threads),
            policy: query.policy,
        };
        let schema = Arc::new(self.snapshot.schema.project(columns)?);
        Ok(Arc::new(ScanExec::new(request, schema, Arc::clone(&self.snapshot), query)?))
    }
}

/// What the session says about the query that is being planned.
fn query_context(config: &SessionConfig) -> Result<Arc<QueryContext>> {
    config.get_extension::<QueryContext>().ok_or_else(|| {
        DataFusionError::Internal("a scan was planned outside of an engine's query".to_owned())
    })
}
