//! Which segments does a sealing write anew, and which does the successor do without?
//!
//! ```text
//! many segments of a node with little in them  -> their rows go with those that have changed, into new segments; nothing is left in the old ones
//! nothing was left already                     -> the successor does not have it, and its pages are free
//! ```
//!
//! Invariants
//! - A segment is left out only if its table had nothing of it left: scans of that table do not read it. So a query goes on that began at any moment of it.
//! - What is written anew by one sealing is bounded in rows, and at least halves the number of segments that it is in.

use crate::{
    changes::encoded,
    error::EngineError,
    limits::{COMPACTED_ROWS_MAX, COMPACTED_SEGMENTS_MIN},
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
use rackscan_ramp::{item::Value, stamp::Stamp};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Segments of which the successor has nothing any more.
pub(super) fn emptied(table: &TableSnapshot) -> BTreeSet<SegmentId> {
    let segments = table.stored().map(|(_, directory)| directory.segment);
    segments.filter(|segment| table.rows_left(*segment) == 0).collect()
}

/// Segments whose rows are worth to be written anew.
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
    let chosen = by_node.into_values().map(|mut segments| {
        segments.sort_unstable();
        let mut rows = 0;
        segments.retain(|(left, _)| {
            rows += u64::from(*left);
            rows <= of_node
        });
        segments
    });
    let worth = chosen.filter(|segments| segments.len() >= COMPACTED_SEGMENTS_MIN);
    worth.flatten().map(|(_, segment)| segment).collect()
}

/// The rows of some segments of a table as nodes have it, as if they had just been written.
///
/// # Errors
/// What a query meets.
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
        rows.insert(RowIdentity::Stored { segment, row }, RowVersion { stamp: Stamp::FIRST, value });
    }
    Ok(())
}
