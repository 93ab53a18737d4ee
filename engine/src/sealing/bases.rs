//! What do the segments of a successor add up to, for each of its views?
//!
//! What the rows of the table added up to when it was closed: what its view had then, or for a new view a query over all of them.
//!
//! Invariants
//! - A base is published before the successor that names it, while nobody can write to the table. So it is exact: rows are either in it or written under the successor's id.
//! - A base whose successor never came is dropped as soon as the table before is gone ([`crate::deriving::BaseName`]).

use super::{Sealer, Succession, work::Work};
use crate::{
    catalog::Known,
    deriving::{NewBase, generated_source, of_rows},
    error::EngineError,
};
use datafusion::{arrow::array::RecordBatch, logical_expr::LogicalPlan, physical_plan::collect};
use rackscan_client::new_table_id;
use rackscan_format::{derived::DerivedKind, schema::TableDefinition};

/// This definition, with new bases.
pub(super) fn chosen(mut definition: TableDefinition) -> Result<TableDefinition, EngineError> {
    for derived in &mut definition.derived {
        if let DerivedKind::Sum(sum) = &mut derived.kind {
            sum.base = Some(new_table_id().map_err(EngineError::Catalog)?);
        }
    }
    Ok(definition)
}

impl Sealer {
    /// Publishes the bases that a successor names; its table is closed.
    pub(super) async fn lay_bases(
        &self,
        succession: &Succession<'_>,
        successor: &TableDefinition,
    ) -> Result<(), EngineError> {
        let sums = successor.derived.iter().filter_map(|derived| match &derived.kind {
            DerivedKind::Sum(sum) => Some((derived.name.as_str(), sum, sum.base?)),
            _ => None,
        });
        let sums: Vec<_> = sums.collect();
        if sums.is_empty() {
            return Ok(());
        }
        let before = succession.table.definition();
        let (moment, changes) = self.changes.sums(&self.tables, None).await?;
        let table = moment.view.get(&before.name).map(Known::whole).transpose()?;
        let table = table.filter(|table| table.definition().id == before.id).ok_or(EngineError::Sealed)?;
        for (view, sum, id) in sums {
            let known = match moment.view.get(view) {
                Some(Known::View(known)) if known.is(before.id, sum) => Some(known),
                _ => None,
            };
            let totals = match known {
                Some(known) => known.totals(&changes),
                None => of_rows(table, sum),
            };
            let totals = self.answer(totals.map_err(EngineError::from_datafusion)?).await?;
            let given = succession.sources.get(view).cloned();
            let source = given.or_else(|| known.map(|known| known.source().to_owned()));
            let source = source.unwrap_or_else(|| generated_source(view, successor, sum));
            let base = NewBase { table: successor, view, sum, id, source: &source };
            let (definition, rows) = base.lay_out(&totals)?;
            Work::whole(&self.cluster, definition, rows).await?;
        }
        Ok(())
    }

    async fn answer(&self, plan: LogicalPlan) -> Result<Vec<RecordBatch>, EngineError> {
        let failed = EngineError::from_datafusion;
        let plan = self.reading.create_physical_plan(&plan).await.map_err(failed)?;
        collect(plan, self.reading.task_ctx()).await.map_err(failed)
    }

    /// Drops bases that nobody will ask for any more; how many.
    pub(super) async fn drop_orphans(&self) -> Result<usize, EngineError> {
        let orphans = self.tables.moment().orphans();
        for name in &orphans {
            self.cluster.drop_table(name).await.map_err(EngineError::Catalog)?;
        }
        Ok(orphans.len())
    }
}
