//! Which segments do a table's indexes not know yet?
//!
//! Those that a sealing has just written. They are added to an index as parts of their own; when there are many small parts, or much that is gone, it is made anew. All that happens after the table is
//! published, while everybody goes on: an index that is behind says less, and nothing wrong ([`crate::indexing`]).

use super::Sealer;
use crate::{
    catalog::Known,
    error::EngineError,
    indexing::{Coverage, TableIndex, definition, lay, sorted},
    limits::{INDEX_PARTS_MAX, INDEX_STALE_TIMES, KEPT_IN_FLIGHT},
    table::Table,
};
use datafusion::physical_plan::execute_stream;
use futures::{StreamExt, TryStreamExt, stream};
use rackscan_client::{ClientError, LoadSession, new_table_id};
use rackscan_format::{
    derived::DerivedKind,
    ids::{ColumnId, NodeId, SegmentId},
    schema::TableDefinition,
    segment::SegmentDirectory,
    withheld::WithheldRows,
};
use std::sync::Arc;

impl Sealer {
    /// Lets the indexes of a table know all of its segments.
    ///
    /// # Errors
    /// A node that is away or has no room: then they know what they knew.
    pub(crate) async fn tend_indexes(&self, name: &str) -> Result<(), EngineError> {
        let moment = self.tables.moment();
        let Some(Known::Whole(table)) = moment.stored(name) else { return Ok(()) };
        let last = table.snapshot.stored().map(|(_, directory)| directory.segment.0).max();
        let below = SegmentId(last.map_or(0, |last| last.saturating_add(1)));
        let wanted = Coverage { of: table.definition().id, below };
        let mut is_changed = false;
        for derived in &table.definition().derived {
            let DerivedKind::Index { column } = derived.kind else { continue };
            let known = table.indexes().iter().find(|index| index.name == derived.name);
            if known.is_some_and(|index| index.coverage == wanted) {
                continue;
            }
            let known = known.filter(|index| !is_worn(index, table));
            let to_be = definition(table.definition(), &derived.name, column, wanted);
            match self.lay_index(table, column, known, to_be).await {
                // Somebody else was faster, or the table has another successor by now.
                Err(EngineError::Catalog(ClientError::Refused { .. })) => {}
                done => done?,
            }
            is_changed = true;
        }
        if is_changed {
            self.changes.renew(&self.tables).await?;
        }
        Ok(())
    }

    /// Makes an index, or adds to a known one what it does not know.
    async fn lay_index(
        &self,
        table: &Table,
        column: ColumnId,
        known: Option<&TableIndex>,
        mut to_be: TableDefinition,
    ) -> Result<(), EngineError> {
        let parts: Vec<(NodeId, Arc<SegmentDirectory>)> =
            known.map_or_else(Vec::new, |index| index.table.snapshot.stored().cloned().collect());
        let load = match known {
            Some(index) => {
                to_be.id = index.table.definition().id;
                LoadSession::succeed(&self.cluster, &to_be).await
            }
            None => {
                to_be.id = new_table_id().map_err(EngineError::Catalog)?;
                LoadSession::begin(&self.cluster, to_be).await
            }
        };
        let load = load.map_err(EngineError::Catalog)?;
        let keeping = &load;
        let keep = |(node, directory): (NodeId, Arc<SegmentDirectory>)| async move {
            keeping.keep(node, &directory, &WithheldRows::NONE).await
        };
        let kept = stream::iter(parts.clone().into_iter().map(keep)).buffer_unordered(KEPT_IN_FLIGHT);
        kept.try_collect::<()>().await.map_err(EngineError::Catalog)?;
        let (from, next) = (
            known.map_or(SegmentId(0), |index| index.coverage.below),
            parts.iter().map(|(_, directory)| directory.segment.0.saturating_add(1)).max().unwrap_or(0),
        );
        let failed = EngineError::from_datafusion;
        let values = sorted(table, column, from).map_err(failed)?;
        let values = self.reading.create_physical_plan(&values).await.map_err(failed)?;
        let values = execute_stream(values, self.reading.task_ctx()).map_err(failed)?;
        lay(&load, values, SegmentId(next)).await?;
        let published = load.publish().await.map_err(EngineError::Catalog)?;
        tracing::info!(index = published.name, rows = published.rows, "an index knows its table's segments");
        Ok(())
    }
}

/// Whether an index is better made anew than added to.
fn is_worn(index: &TableIndex, table: &Table) -> bool {
    let small = table.definition().segment_rows / 2;
    let parts = index.table.snapshot.stored().filter(|(_, directory)| directory.rows <= small).count();
    parts >= INDEX_PARTS_MAX || index.table.snapshot.rows() > INDEX_STALE_TIMES * table.snapshot.rows()
}
