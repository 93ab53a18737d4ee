//! Computes the rows of a materialised view at one point in time.
//!
//! ```text
//! base: sums over the table's segments             -\
//! derived entries: what changed rows add to sums   ---> groups with rows -> the columns of the statement that created the view
//! ```
//!
//! Invariants
//! - The base, the entries and the tables of the reading statement are of one point in time. So a
//!   view and its table agree in one statement.
//! - A statement that was not given the entries fails with an error.

use super::{
    aggregate::{Aggregate, OutputKind},
    amounts::{self, GROUP, LOW, ROWS, SUM, SUM_DIGITS},
    parsed_view,
};
use crate::{
    error::EngineError,
    table::{ColumnDescription, Table, TableDescription, TableInfo},
};
use async_trait::async_trait;
use datafusion::{
    arrow::datatypes::{DataType, SchemaRef},
    catalog::{Session, TableProvider},
    datasource::ViewTable,
    error::{DataFusionError, Result},
    logical_expr::{Expr, LogicalPlanBuilder, TableType, cast, ident},
    physical_plan::ExecutionPlan,
};
use rackscan_delta::{
    derived::{Amount, Derived, DerivedId},
    row::Datum,
};
use rackscan_format::{
    derived::{DerivedKind, SumDefinition},
    ids::TableId,
    schema::{ColumnDefinition, ColumnType, TableDefinition},
};
use std::{collections::BTreeMap, sync::Arc};

/// What changed rows add to the sums of views.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    /// The changes, by view.
    pub(crate) changed: BTreeMap<DerivedId, Changed>,
    /// Why they are not known, if they are not.
    pub(crate) unknown: Option<String>,
}

/// The changes of a view, by group.
pub(crate) type Changed = Vec<(Datum, Amount)>;

/// A materialised view of a table.
#[derive(Clone, Debug)]
pub(crate) struct View {
    table: Arc<TableDefinition>,
    derived: Derived,
    sum: SumDefinition,
    base: Arc<Table>,
    aggregate: Aggregate,
}

impl View {
    /// The table of the sums over segments.
    pub(crate) fn base(&self) -> &Arc<Table> {
        &self.base
    }

    /// The view that `derived` defines; `None` if it defines something else.
    ///
    /// # Errors
    /// The base's source creates no view: it is not of this version.
    pub(crate) fn of(
        table: &Arc<TableDefinition>,
        derived: Derived,
        base: &Arc<Table>,
    ) -> Result<Option<Self>, EngineError> {
        let DerivedKind::Sum(sum) = derived.kind() else { return Ok(None) };
        let (sum, aggregate) = (sum.clone(), parsed_view(&base.definition().source)?);
        Ok(Some(Self { table: Arc::clone(table), derived, sum, base: Arc::clone(base), aggregate }))
    }

    /// The id of its base. It changes with every flush of the table.
    pub(crate) fn id(&self) -> TableId {
        self.base.definition().id
    }

    /// The table that it sums up.
    pub(crate) fn table(&self) -> &Arc<TableDefinition> {
        &self.table
    }

    /// The entries that are written for it with rows.
    pub(crate) fn derived(&self) -> &Derived {
        &self.derived
    }

    /// The view as a table, with what changed rows add to it. If that is not in `sums`, only its
    /// columns can be read.
    pub(crate) fn provider(&self, sums: &Sums) -> Result<Arc<dyn TableProvider>> {
        let changes = sums.changed.get(&self.derived.id());
        let totals =
            amounts::of_base(&self.table, &self.sum, &self.base, changes.map_or(&[], Vec::as_slice))?;
        let outputs =
            self.aggregate.outputs.iter().map(|output| self.output(output.kind).alias(output.name.clone()));
        let plan = LogicalPlanBuilder::from(totals).project(outputs.collect::<Vec<Expr>>())?.build()?;
        let whole = ViewTable::new(plan, None);
        if changes.is_some() {
            return Ok(Arc::new(whole));
        }
        let (schema, name) = (whole.schema(), self.derived.name());
        let why = match &sums.unknown {
            Some(why) => DataFusionError::Execution(format!(
                "view {name} cannot be computed, because the changed rows of its table cannot be read: {why}"
            )),
            None => DataFusionError::Internal(format!(
                "view {name} was planned without the entries of changed rows"
            )),
        };
        Ok(Arc::new(Columns { schema, why: Arc::new(why) }))
    }

    fn output(&self, kind: OutputKind) -> Expr {
        match kind {
            OutputKind::Group => ident(GROUP),
            OutputKind::Count => ident(ROWS),
            // SQL's sum of integers is a bigint.
            OutputKind::Sum if self.is_of_integers() => cast(ident(SUM), DataType::Int64),
            OutputKind::Sum => ident(SUM),
        }
    }

    fn is_of_integers(&self) -> bool {
        let column_type = |column: rackscan_format::ids::ColumnId| self.table.columns.get(column.index());
        let mut columns = self.sum.factors.iter().filter_map(|factor| column_type(factor.column()));
        columns.all(|column| !matches!(column.column_type, ColumnType::Decimal { .. }))
    }

    /// A line for the list of tables. Its number of rows is that of groups as of the last flush of
    /// its table.
    pub(crate) fn info(&self) -> TableInfo {
        let (name, columns) = (self.derived.name().to_owned(), self.aggregate.outputs.len());
        TableInfo { name, columns, changed_rows: 0, ..self.base.info() }
    }

    /// Its columns.
    pub(crate) fn description(&self) -> TableDescription {
        let base = self.base.description();
        let columns = self.aggregate.outputs.iter().filter_map(|output| {
            let name = match output.kind {
                OutputKind::Group => GROUP,
                OutputKind::Sum => LOW,
                OutputKind::Count => ROWS,
            };
            let column = base.columns.iter().find(|column| column.definition.name == name)?;
            let column_type = match (output.kind, column.definition.column_type) {
                (OutputKind::Sum, _) if self.is_of_integers() => ColumnType::Int64,
                (OutputKind::Sum, ColumnType::Decimal { scale, .. }) => {
                    ColumnType::Decimal { precision: SUM_DIGITS, scale }
                }
                (_, column_type) => column_type,
            };
            let name = output.name.clone();
            let definition = ColumnDefinition { name, column_type, ..column.definition };
            Some(ColumnDescription { definition, min: None, max: None, ..column.clone() })
        });
        TableDescription { columns: columns.collect(), info: self.info(), definition: base.definition }
    }
}

/// A view of which only the columns can be read.
#[derive(Debug)]
struct Columns {
    schema: SchemaRef,
    why: Arc<DataFusionError>,
}

#[async_trait]
impl TableProvider for Columns {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _: &dyn Session,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Err(DataFusionError::Shared(Arc::clone(&self.why)))
    }
}
