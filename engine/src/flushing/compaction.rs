//! Chooses the segments whose rows a flush writes again, and those that the new version omits.
//!
//! ```text
//! many segments of one node with few rows left  -> their rows are written to new segments with the changed rows, and withheld in the old ones
//! a segment without rows left                   -> the new version omits it, and its pages are freed
//! ```
//!
//! Invariants
//! - A segment is omitted only if the table version before had no rows of it left. Scans of that
//!   version do not read the segment, so queries that began earlier can continue.
//! - The number of rows that one flush writes again is bounded. Writing them again at least halves
//!   the number of their segments.

use crate::{
    changes::encoded,
    error::EngineError,
    limits::{COMPACTED_ROWS_MAX, COMPACTED_SEGMENTS_MIN, COMPACTED_STEP},
    snapshot::TableSnapshot,
    table::Table,
};
use datafusion::{
    arrow::{
        array::{AsArray, RecordBatch},
        datatypes::{DataType, Int64Type},
    },
    datasource::provider_as_source,
    execution::SessionState,
    logical_expr::LogicalPlanBuilder,
    physical_plan::collect,
};
use rackscan_delta::{
    identity::RowIdentity,
    replica::{RowVersion, TableRows},
};
use rackscan_format::{
    ids::{NodeId, SegmentId},
    row_place::RowPlace,
};
use rackscan_ramp::{item::Value, timestamp::Timestamp};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Segments of which the new version has no rows.
pub(super) fn emptied(table: &TableSnapshot) -> BTreeSet<SegmentId> {
    let segments = table.stored().map(|(_, directory)| directory.segment);
    segments.filter(|segment| table.rows_left(*segment) == 0).collect()
}

/// Segments whose rows are worth writing again.
pub(super) fn worn(table: &TableSnapshot) -> BTreeSet<SegmentId> {
    let rows_max = table.definition.segment_rows / 2;
    let mut by_node: BTreeMap<NodeId, Vec<(u32, SegmentId)>> = BTreeMap::new();
    for (node, directory) in table.stored() {
        let left = table.rows_left(directory.segment);
        if (1..=rows_max).contains(&left) {
            by_node.entry(*node).or_default().push((left, directory.segment));
        }
    }
    let of_node = COMPACTED_ROWS_MAX / by_node.len().max(1) as u64;
    by_node.into_values().flat_map(|segments| put_together(segments, of_node)).collect()
}

/// Chooses among segments of one node, given with their remaining rows, those that are merged: the
/// smallest, as long as none has many more rows than all smaller ones together. Otherwise a large
/// segment would be written again with every few small ones.
fn put_together(mut segments: Vec<(u32, SegmentId)>, rows_max: u64) -> Vec<SegmentId> {
    segments.sort_unstable();
    let (mut rows, mut chosen) = (0, Vec::new());
    for (left, segment) in segments {
        let left = u64::from(left);
        if rows + left > rows_max || (!chosen.is_empty() && left > COMPACTED_STEP * rows) {
            break;
        }
        rows += left;
        chosen.push(segment);
    }
    if chosen.len() >= COMPACTED_SEGMENTS_MIN { chosen } else { Vec::new() }
}

/// The rows of some segments of a table, as if they had just been written.
///
/// # Errors
/// Those of a query.
pub(super) async fn rows_of(
    reading: &SessionState,
    table: &Table,
    segments: &BTreeSet<SegmentId>,
) -> Result<TableRows, EngineError> {
    let part = Arc::new(Table::new(table.snapshot.only(segments)).with_places());
    let failed = EngineError::from_datafusion;
    let name = &table.definition().name;
    let plan = LogicalPlanBuilder::scan(name.as_str(), provider_as_source(part), None).map_err(failed)?;
    let plan = reading.create_physical_plan(&plan.build().map_err(failed)?).await.map_err(failed)?;
    let batches = collect(plan, reading.task_ctx()).await.map_err(failed)?;
    let mut rows = TableRows::default();
    for batch in &batches {
        take(table, batch, &mut rows)?;
    }
    Ok(rows)
}

fn take(table: &Table, batch: &RecordBatch, rows: &mut TableRows) -> Result<(), EngineError> {
    let columns: Vec<usize> = (0..table.columns().fields().len()).collect();
    let places = batch.column(columns.len()).as_primitive::<Int64Type>().values();
    let values = batch.project(&columns).map_err(|error| EngineError::Execution(error.to_string()))?;
    let types: Vec<DataType> =
        table.columns().fields().iter().map(|field| field.data_type().clone()).collect();
    for (place, value) in places.iter().zip(encoded(table.definition(), &types, &values)?) {
        let RowPlace { segment, row } = RowPlace::of_number(*place);
        let value = Value::new(&value).map_err(|error| EngineError::Execution(error.to_string()))?;
        rows.insert(RowIdentity::Stored { segment, row }, RowVersion { timestamp: Timestamp::FIRST, value });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &[u32]) -> Vec<(u32, SegmentId)> {
        (0..).zip(rows).map(|(number, rows)| (*rows, SegmentId(number))).collect()
    }

    #[test]
    fn a_large_segment_is_not_written_anew_with_a_few_small_ones() {
        assert!(put_together(of(&[37_500, 25, 25, 25, 25, 25, 25, 25]), 1 << 18).is_empty());
        let small: Vec<SegmentId> = (1..9).map(SegmentId).collect();
        assert_eq!(put_together(of(&[37_500, 25, 25, 25, 25, 25, 25, 25, 25]), 1 << 18), small);
        let like = [400, 25, 25, 25, 25, 25, 25, 25, 25];
        assert_eq!(put_together(of(&like), 1 << 18).len(), 9, "one of about as many rows goes along");
        assert_eq!(put_together(of(&[30; 20]), 300).len(), 10, "no more than may be at a time");
        assert!(put_together(of(&[30; 7]), 300).is_empty() && put_together(Vec::new(), 300).is_empty());
    }

    #[test]
    fn a_row_is_written_anew_about_as_often_as_its_table_grows_by_the_number_that_is_put_together() {
        let (mut segments, mut rewritten) = (Vec::new(), 0);
        for number in 0..4096 {
            segments.push((25, SegmentId(number)));
            let chosen: BTreeSet<SegmentId> = put_together(segments.clone(), 1 << 18).into_iter().collect();
            let rows: u32 = segments.iter().filter(|(_, id)| chosen.contains(id)).map(|(rows, _)| rows).sum();
            segments.retain(|(_, id)| !chosen.contains(id));
            if rows > 0 {
                segments.push((rows, SegmentId(10_000 + number)));
                rewritten += rows;
            }
        }
        let rows: u32 = segments.iter().map(|(rows, _)| rows).sum();
        assert_eq!(rows, 4096 * 25);
        assert!(segments.len() < 40, "{segments:?}");
        assert!(rewritten < 7 * rows, "each of {rows} rows was written {} times", rewritten / rows);
    }
}
