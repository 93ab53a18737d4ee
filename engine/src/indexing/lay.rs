//! Writes the segments of an index.
//!
//! The values of the indexed segments are read, sorted, and written to segments of the index in
//! that order. So a value is in one segment of the index, or in two consecutive ones. A lookup
//! reads one page, because zone maps rule out the others.

use super::layout::{Coverage, PLACE, VALUE, table_of};
use crate::{
    changes::rows_of,
    error::EngineError,
    limits::{FLUSHED_IN_FLIGHT, INDEX_PAGE_BYTES},
    pushdown::arrow_type,
    table::{PLACE_COLUMN, Table},
};
use az::SaturatingAs;
use datafusion::{
    arrow::datatypes::DataType,
    common::TableReference,
    datasource::provider_as_source,
    error::Result,
    logical_expr::{LogicalPlan, LogicalPlanBuilder, ident},
    physical_plan::SendableRecordBatchStream,
};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use rackscan_client::LoadSession;
use rackscan_delta::{identity::RowIdentity, layer::RUN_BYTES_MAX, row::Datum, run::Run};
use rackscan_format::{
    chunk::Effort,
    ids::{ColumnId, NodeId, SegmentId, TableId},
    schema::{ColumnDefinition, ColumnType, TableDefinition},
};
use std::{collections::BTreeSet, sync::Arc};

/// The definition of an index's table, without its id.
pub(crate) fn definition(
    table: &TableDefinition,
    index: &str,
    column: ColumnId,
    coverage: Coverage,
) -> TableDefinition {
    let column_type =
        table.columns.get(column.index()).map_or(ColumnType::Int64, |column| column.column_type);
    let column =
        |name: &str, column_type| ColumnDefinition { name: name.to_owned(), column_type, nullable: false };
    TableDefinition {
        id: TableId(0),
        name: table_of(index),
        columns: vec![column(VALUE, column_type), column(PLACE, ColumnType::Int64)],
        partition_key: ColumnId(0),
        sorted_by: Some(ColumnId(0)),
        page_size: table.page_size.min(INDEX_PAGE_BYTES),
        rows: 0,
        source: coverage.to_string(),
        succeeds: None,
        derived: Vec::new(),
        ..table.clone()
    }
}

/// The values of a column in segments from a number on, sorted, with the places of their rows,
/// merged with the contents of some segments of the index. Missing values are left out: no lookup
/// asks for them.
pub(crate) fn sorted(
    table: &Table,
    column: ColumnId,
    from: SegmentId,
    worn: Option<(&Table, &BTreeSet<SegmentId>)>,
) -> Result<LogicalPlan> {
    let segments = table.snapshot.stored().map(|(_, directory)| directory.segment);
    let segments: BTreeSet<SegmentId> = segments.filter(|segment| *segment >= from).collect();
    let part = Table::new(table.snapshot.only(&segments)).with_places();
    let definition = table.definition();
    let name = definition.columns.get(column.index()).map_or("", |column| column.name.as_str());
    let values = scan(&definition.name, part)?.filter(ident(name).is_not_null())?;
    let mut values = values.project(vec![ident(name).alias(VALUE), ident(PLACE_COLUMN).alias(PLACE)])?;
    if let Some((index, worn)) = worn {
        let known = scan(&index.definition().name, Table::new(index.snapshot.only(worn)))?;
        values = values.union(known.project(vec![ident(VALUE), ident(PLACE)])?.build()?)?;
    }
    values.sort(vec![ident(VALUE).sort(true, true), ident(PLACE).sort(true, true)])?.build()
}

fn scan(name: &str, table: Table) -> Result<LogicalPlanBuilder> {
    LogicalPlanBuilder::scan(TableReference::bare(name), provider_as_source(Arc::new(table)), None)
}

/// Stores sorted values and places in segments from number `next` on, on the nodes in turn.
///
/// # Errors
/// What cannot be read or stored.
pub(crate) async fn lay(
    load: &LoadSession,
    sorted: SendableRecordBatchStream,
    next: SegmentId,
) -> Result<(), EngineError> {
    let definition = Arc::new(load.definition().clone());
    let types = definition.columns.iter().map(|column| arrow_type(column.column_type.into()));
    let types: Arc<[DataType]> = types.collect();
    let full = definition.segment_rows.saturating_as::<usize>().max(1);
    let next_of =
        move |(mut sorted, mut rows, number): (SendableRecordBatchStream, Vec<Vec<Datum>>, SegmentId)| {
            let (definition, types) = (Arc::clone(&definition), Arc::clone(&types));
            async move {
                let mut bytes = text_bytes(&rows);
                while rows.len() < full && bytes < RUN_BYTES_MAX {
                    let Some(batch) = sorted.try_next().await.map_err(EngineError::from_datafusion)? else {
                        break;
                    };
                    let more = rows_of(&definition, &types, &batch)?;
                    bytes += text_bytes(&more);
                    rows.extend(more);
                }
                if rows.is_empty() {
                    return Ok(None);
                }
                let rest = rows.split_off(rows.len().min(full));
                Ok(Some(((number, rows), (sorted, rest, SegmentId(number.0.saturating_add(1))))))
            }
        };
    let segments = stream::try_unfold((sorted, Vec::new(), next), next_of).boxed();
    let store = |(number, rows): (SegmentId, Vec<Vec<Datum>>)| {
        let storing = async move {
            let (node, run) = encoded(load.definition().clone(), number, rows).await?;
            load.append(node, run.directory(), &run.pages()).await.map(drop).map_err(EngineError::Catalog)
        };
        storing.boxed()
    };
    segments.map_ok(store).try_buffer_unordered(FLUSHED_IN_FLIGHT).try_collect().await
}

fn text_bytes(rows: &[Vec<Datum>]) -> usize {
    let bytes = |datum: &Datum| if let Datum::Text(text) = datum { text.len() } else { 0 };
    rows.iter().flatten().map(bytes).sum()
}

/// A segment of an index, and the node that stores it.
async fn encoded(
    definition: TableDefinition,
    number: SegmentId,
    rows: Vec<Vec<Datum>>,
) -> Result<(NodeId, Run), EngineError> {
    let nodes = definition.nodes.len().max(1);
    let at = number.0.saturating_as::<usize>() % nodes;
    let node = definition.nodes.get(at).copied().unwrap_or(NodeId(0));
    let encode = move || {
        let row = |(row, values)| (RowIdentity::Stored { segment: number, row }, values);
        let rows: Vec<_> = (0..).zip(rows).map(row).collect();
        Run::encode(&definition, number, &rows, Effort::Full)
    };
    // Encoding takes a processor for some time.
    let run = tokio::task::spawn_blocking(encode).await;
    let run = run.map_err(|error| {
        EngineError::Changes(format!("the thread that writes an index has failed: {error}"))
    })?;
    Ok((node, run.map_err(|fault| EngineError::Changes(fault.to_string()))?))
}
