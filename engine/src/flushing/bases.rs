//! Computes the sums of a new table version for each of its materialised views.
//!
//! These are the sums over the rows of the table when it was closed for the flush. They are the
//! contents of the view at that time, or for a new view the result of a query over all rows.
//!
//! Invariants
//! - A base, which is the table with the sums of a view, is published before the new version that
//!   refers to it, while the table accepts no writes. So it is exact: a row is either in it or is
//!   written under the new version's id.
//! - A base whose new version was never published is dropped as soon as the version before no
//!   longer exists ([`crate::deriving::BaseName`]).

use super::{
    flusher::{Flusher, Replacement},
    work::Work,
};
use crate::{
    catalog::{Known, Moment},
    deriving::{BaseName, Changed, NewBase, Sums, generated_source, of_base, of_rows},
    error::EngineError,
    indexing::index_in,
    limits::VIEW_GROUPS_MAX,
    table::Table,
};
use datafusion::{
    arrow::array::RecordBatch,
    logical_expr::{LogicalPlan, LogicalPlanBuilder},
    physical_plan::collect,
};
use rackscan_client::new_table_id;
use rackscan_delta::{derived::Derived, replica::TableRows};
use rackscan_format::{
    derived::{DerivedKind, SumDefinition},
    schema::TableDefinition,
};
use std::sync::Arc;

/// The definition, with new bases for its sums.
pub(super) fn chosen(mut definition: TableDefinition) -> Result<TableDefinition, EngineError> {
    for derived in &mut definition.derived {
        if let DerivedKind::Sum(sum) = &mut derived.kind {
            sum.base = Some(new_table_id().map_err(EngineError::Catalog)?);
        }
    }
    Ok(definition)
}

impl Flusher {
    /// Publishes the bases that a new version names; its table is closed.
    pub(super) async fn lay_bases(
        &self,
        replacement: &Replacement<'_>,
        new_version: &TableDefinition,
    ) -> Result<(), EngineError> {
        for (definition, rows) in self.bases(replacement, new_version).await? {
            Work::whole(&self.cluster, definition, rows).await?;
        }
        Ok(())
    }

    /// The bases that a new version names, with the present sums of its table.
    ///
    /// # Errors
    /// The sums are too large or too many for a base; not all changed rows could be read.
    pub(super) async fn bases(
        &self,
        replacement: &Replacement<'_>,
        new_version: &TableDefinition,
    ) -> Result<Vec<(TableDefinition, TableRows)>, EngineError> {
        let sums = new_version.derived.iter().filter_map(|derived| match &derived.kind {
            DerivedKind::Sum(sum) => Some((derived.name.as_str(), sum, sum.base?)),
            _ => None,
        });
        let (sums, mut bases): (Vec<_>, _) = (sums.collect(), Vec::new());
        if sums.is_empty() {
            return Ok(bases);
        }
        let before = replacement.table.definition();
        // Brings tables up to date, and sums with them.
        self.changes.catch_up(&self.tables).await?;
        let (moment, changes) = self.changes.sums(&self.tables, None).await?;
        let table = moment.view.get(&before.name).map(Known::whole).transpose()?;
        let table = table.filter(|table| table.definition().id == before.id).ok_or(EngineError::Flushed)?;
        for (view, sum, id) in sums {
            let known = known(before, view, sum, &moment, &changes);
            let totals = match &known {
                Some((base, changed)) => of_base(before, sum, base, changed),
                None => of_rows(table, sum),
            };
            let totals = totals
                .and_then(|totals| LogicalPlanBuilder::from(totals).limit(0, Some(VIEW_GROUPS_MAX + 1)));
            let totals = totals.and_then(LogicalPlanBuilder::build);
            let totals = self.answer(totals.map_err(EngineError::from_datafusion)?).await?;
            let source = source_of(before, view, &moment);
            let source = replacement.sources.get(view).cloned().or(source);
            let source = source.unwrap_or_else(|| generated_source(view, new_version, sum));
            bases.push(NewBase { table: new_version, view, sum, id, source: &source }.lay_out(&totals)?);
        }
        Ok(bases)
    }

    async fn answer(&self, plan: LogicalPlan) -> Result<Vec<RecordBatch>, EngineError> {
        let failed = EngineError::from_datafusion;
        let plan = self.reading.create_physical_plan(&plan).await.map_err(failed)?;
        collect(plan, self.reading.task_ctx()).await.map_err(failed)
    }

    /// Drops bases and indexes that are no longer needed, and those that were prepared but never
    /// published.
    pub(super) async fn drop_abandoned_bases(&self) -> Result<(), EngineError> {
        let moment = self.tables.moment();
        for abandoned in moment.abandoned_bases() {
            self.cluster.drop_published(abandoned).await.map_err(EngineError::Catalog)?;
        }
        let mut prepared = self.cluster.prepared_loads().await.map_err(EngineError::Catalog)?;
        prepared.retain(|name| BaseName::parse(name).is_some() || index_in(name).is_some());
        if prepared.is_empty() {
            return Ok(());
        }
        // A catalog that was read before the preparation cannot tell whether it is about to be
        // published.
        self.changes.renew(&self.tables).await?;
        let moment = self.tables.moment();
        prepared.retain(|name| moment.is_abandoned(name));
        self.cluster.forget_loads(&prepared).await.map(drop).map_err(EngineError::Catalog)
    }
}

/// The base of a sum that the table before derived, too, and what changed rows add to it.
fn known<'m>(
    before: &TableDefinition,
    view: &str,
    sum: &SumDefinition,
    moment: &'m Moment,
    changes: &'m Sums,
) -> Option<(&'m Arc<Table>, &'m Changed)> {
    let derived = Derived::all_of(before).into_iter().find(|derived| derived.name() == view)?;
    let DerivedKind::Sum(of_before) = derived.kind() else { return None };
    let is_the_same = SumDefinition { base: sum.base, ..of_before.clone() } == *sum;
    let base = moment.base(of_before.base.filter(|_| is_the_same)?)?;
    let changed = changes.changed.get(&derived.id())?;
    Some((base, changed))
}

/// The statement that created a view of the table before.
fn source_of(before: &TableDefinition, view: &str, moment: &Moment) -> Option<String> {
    let derived = before.derived.iter().find(|derived| derived.name == view)?;
    let DerivedKind::Sum(sum) = &derived.kind else { return None };
    moment.base(sum.base?).map(|base| base.definition().source.clone())
}
