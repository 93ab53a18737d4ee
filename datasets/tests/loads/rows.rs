//! Reads all rows of a table back from a test cluster.

use std::sync::Arc;

use arrow::{
    array::RecordBatch,
    util::display::{ArrayFormatter, FormatOptions},
};
use rackscan_client::{ClusterTable, OfferedProgram, PlacedSegment, ProcessAnswer, SegmentPart};
use rackscan_format::{
    ids::{ColumnId, NodeId},
    program::{Input, Node, Output, ScanProgram},
};

use crate::cluster::{Outcome, TestCluster};

/// The rows of each node in stored order, each as one line of its values; nulls are `-`.
pub(crate) async fn stored(cluster: &TestCluster, table: &str) -> Outcome<Vec<(NodeId, Vec<String>)>> {
    let catalog = cluster.cluster.catalog().await?;
    let table = catalog.table(table)?;
    let program = every_column(table)?;
    let mut nodes: Vec<(NodeId, Vec<String>)> =
        table.definition.nodes.iter().map(|node| (*node, Vec::new())).collect();
    for segment in &table.segments {
        let mut rows = Vec::new();
        for batch in segment_batches(cluster, &program, segment).await? {
            rows.extend(lines(&batch)?);
        }
        assert_eq!(rows.len(), segment.directory.rows as usize);
        let node = nodes.iter_mut().find(|(node, _)| *node == segment.node).ok_or("a node of the table")?;
        node.1.extend(rows);
    }
    Ok(nodes)
}

/// The rows of all nodes, sorted as lines.
pub(crate) async fn stored_set(cluster: &TestCluster, table: &str) -> Outcome<Vec<String>> {
    let mut rows: Vec<String> =
        stored(cluster, table).await?.into_iter().flat_map(|(_, rows)| rows).collect();
    rows.sort_unstable();
    Ok(rows)
}

/// The rows of all nodes as they are stored, with their types.
pub(crate) async fn stored_batches(cluster: &TestCluster, table: &str) -> Outcome<Vec<RecordBatch>> {
    let catalog = cluster.cluster.catalog().await?;
    let table = catalog.table(table)?;
    let program = every_column(table)?;
    let mut batches = Vec::new();
    for segment in &table.segments {
        batches.extend(segment_batches(cluster, &program, segment).await?);
    }
    Ok(batches)
}

/// Rows as lines.
pub(crate) fn lines(batch: &RecordBatch) -> Outcome<Vec<String>> {
    let options = FormatOptions::new().with_null("-");
    let columns = batch.columns().iter().map(|array| ArrayFormatter::try_new(array, &options));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let line = |row: usize| {
        let values: Vec<String> = columns.iter().map(|column| column.value(row).to_string()).collect();
        values.join("|")
    };
    Ok((0..batch.num_rows()).map(line).collect())
}

async fn segment_batches(
    cluster: &TestCluster,
    program: &OfferedProgram,
    segment: &PlacedSegment,
) -> Outcome<Vec<RecordBatch>> {
    let (mut batches, mut next_block) = (Vec::new(), Some(0));
    while let Some(block) = next_block {
        let part = SegmentPart::from_block(&segment.directory, block);
        match cluster.cluster.process(segment.node, program, &part).await? {
            ProcessAnswer::Processed(part) => {
                batches.extend(part.batches);
                next_block = part.next_block;
            }
            ProcessAnswer::Bounced { .. } => tokio::task::yield_now().await,
        }
    }
    Ok(batches)
}

fn every_column(table: &ClusterTable) -> Outcome<OfferedProgram> {
    let columns = table.definition.columns.iter().zip(0..);
    let inputs =
        columns.map(|(column, number)| Input { column: ColumnId(number), column_type: column.column_type });
    let inputs: Vec<Input> = inputs.collect();
    let count = u16::try_from(inputs.len())?;
    let program = ScanProgram {
        version: rackscan_format::program::PROGRAM_VERSION,
        table: table.definition.id,
        inputs,
        nodes: (0..count).map(Node::Column).collect(),
        filter: Vec::new(),
        output: Output::Rows((0..count).collect()),
        limit_rows: None,
        key_filters: Vec::new(),
    };
    Ok(OfferedProgram::plain(Arc::new(program.verify(&table.definition)?)))
}
