//! Adds new segments to the indexes of a table.
//!
//! A flush adds the segments that it has just written to an index as a new part. If the index has
//! many small parts, they are merged with the new one. If most of an index is about segments that
//! no longer exist, the index is built again. All of this happens after the table is published,
//! while other statements read and write. Until then an index lists fewer rows, never wrong ones
//! ([`crate::indexing`]).

use super::flusher::Flusher;
use crate::{
    catalog::Known,
    error::EngineError,
    indexing::{Coverage, definition, lay, sorted},
    limits::{INDEX_PARTS_MAX, INDEX_STALE_TIMES, KEPT_IN_FLIGHT},
    table::{Table, TableIndex},
};
use datafusion::physical_plan::execute_stream;
use futures::{StreamExt, TryStreamExt, stream};
use rackscan_client::{LoadSession, new_table_id};
use rackscan_format::{
    derived::DerivedKind,
    ids::{ColumnId, NodeId, SegmentId, TableId},
    schema::TableDefinition,
    segment::SegmentDirectory,
    withheld::WithheldRows,
};
use std::{collections::BTreeSet, sync::Arc};

impl Flusher {
    /// Brings the indexes of a table up to date with all of its segments.
    ///
    /// # Errors
    /// A node is unavailable or has no room. Then the indexes stay as they were.
    pub(crate) async fn tend_indexes(&self, name: &str) -> Result<(), EngineError> {
        let moment = self.tables.moment();
        let Some(Known::Whole(table)) = moment.stored(name) else { return Ok(()) };
        let last = table.snapshot.stored().map(|(_, directory)| directory.segment.0).max();
        let below = SegmentId(last.map_or(0, |last| last.saturating_add(1)));
        let wanted = Coverage { of: table.definition().id, below };
        let (mut is_changed, mut first) = (false, Ok(()));
        for derived in &table.definition().derived {
            let DerivedKind::Index { column } = derived.kind else { continue };
            let known = table.indexes().iter().find(|index| index.name == derived.name);
            if known.is_some_and(|index| index.coverage == wanted) {
                continue;
            }
            let to_be = definition(table.definition(), &derived.name, column, wanted);
            let there = moment.hidden(&to_be.name).map(|there| there.definition());
            // An index table of another column or on other nodes is about to be dropped; the new
            // one does not replace it.
            let there = there.filter(|there| there.columns == to_be.columns && there.nodes == to_be.nodes);
            let there = there.map(|there| there.id);
            let known = known.filter(|index| !is_stale(index, table));
            match self.lay_index(table, column, (known, there), to_be).await {
                // Another engine was faster, or the table has another new version by now.
                Err(EngineError::Catalog(error)) if error.is_overtaken() => {
                    tracing::info!(
                        index = derived.name,
                        %error,
                        "another engine has built the index, or flushed its table"
                    );
                }
                done => first = first.and(done),
            }
            is_changed = true;
        }
        if is_changed {
            self.changes.renew(&self.tables).await?;
        }
        first
    }

    /// Builds an index, or adds segments to one, merging its small parts. `there` is the table that
    /// it replaces.
    async fn lay_index(
        &self,
        table: &Table,
        column: ColumnId,
        (known, there): (Option<&TableIndex>, Option<TableId>),
        mut to_be: TableDefinition,
    ) -> Result<(), EngineError> {
        let parts: Vec<(NodeId, Arc<SegmentDirectory>)> =
            known.map_or_else(Vec::new, |index| index.table.snapshot.stored().cloned().collect());
        let next =
            parts.iter().map(|(_, directory)| directory.segment.0.saturating_add(1)).max().unwrap_or(0);
        let small = to_be.segment_rows / 2;
        let (mut worn, mut kept): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|(_, directory)| directory.rows <= small);
        if worn.len() < INDEX_PARTS_MAX {
            kept.append(&mut worn);
        }
        let worn: BTreeSet<SegmentId> = worn.iter().map(|(_, directory)| directory.segment).collect();
        let load = match there {
            Some(there)
                if known.is_some_and(|index| index.table.definition().id == there) || known.is_none() =>
            {
                to_be.id = there;
                LoadSession::succeed(&self.cluster, &to_be).await
            }
            _ => {
                to_be.id = new_table_id().map_err(EngineError::Catalog)?;
                LoadSession::begin(&self.cluster, to_be).await
            }
        };
        let load = load.map_err(EngineError::Catalog)?;
        let keeping = &load;
        let keep = |(node, directory): (NodeId, Arc<SegmentDirectory>)| async move {
            keeping.keep(node, &directory, &WithheldRows::NONE).await
        };
        let kept = stream::iter(kept.into_iter().map(keep)).buffer_unordered(KEPT_IN_FLIGHT);
        kept.try_collect::<()>().await.map_err(EngineError::Catalog)?;
        let failed = EngineError::from_datafusion;
        let from = known.map_or(SegmentId(0), |index| index.coverage.below);
        let worn = known.map(|index| (&*index.table, &worn)).filter(|(_, worn)| !worn.is_empty());
        let values = sorted(table, column, from, worn).map_err(failed)?;
        let values = self.reading.create_physical_plan(&values).await.map_err(failed)?;
        let values = execute_stream(values, self.reading.task_ctx()).map_err(failed)?;
        lay(&load, values, SegmentId(next)).await?;
        let published = load.publish().await.map_err(EngineError::Catalog)?;
        tracing::info!(
            index = published.name,
            rows = published.rows,
            "an index covers the segments of its table"
        );
        Ok(())
    }
}

/// Whether most of an index is about segments that are gone, so that it is built anew.
fn is_stale(index: &TableIndex, table: &Table) -> bool {
    index.table.snapshot.rows() > INDEX_STALE_TIMES * table.snapshot.rows()
}
