//! Converts the selected rows of a window (the blocks that a scan processes at a time) into
//! batches, or adds the rows to the groups.

use crate::{
    aggregate::{Grouping, Groups},
    error::Fault,
    narrow::Buffers,
    pages::InputView,
    plan::Plan,
    project::{BlockPick, PickedRows, gather},
};
use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
};
use rackscan_format::{ids::SegmentId, program::NodeIndex};
use std::sync::Arc;

/// Evaluates the output nodes for the picked rows and returns them as a batch.
pub(crate) fn rows(
    (plan, segment): (&Plan, SegmentId),
    nodes: &[NodeIndex],
    schema: &SchemaRef,
    views: &[InputView<'_>],
    picks: &[BlockPick],
    buffers: &mut Buffers,
) -> Result<RecordBatch, Fault> {
    let picked = PickedRows::of(picks);
    let rows = picked.rows();
    let columns = payload(plan, views, &picked, buffers)?;
    let mut evaluation = plan.expressions.over(&columns, rows);
    if plan.has_row_numbers {
        evaluation = evaluation.with_row_numbers(picked.row_numbers(segment));
    }
    let arrays: Result<Vec<ArrayRef>, _> = nodes.iter().map(|node| evaluation.array(*node)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), arrays?, &options)?)
}

/// Adds picked rows to the groups.
pub(crate) fn group(
    plan: &Plan,
    grouping: &Grouping,
    groups: &mut Groups,
    views: &[InputView<'_>],
    picks: &[BlockPick],
    buffers: &mut Buffers,
) -> Result<(), Fault> {
    let picked = PickedRows::of(picks);
    let rows = picked.rows();
    let columns = payload(plan, views, &picked, buffers)?;
    let mut evaluation = plan.expressions.over(&columns, rows);
    let keys: Result<Vec<ArrayRef>, _> = grouping.keys.iter().map(|key| evaluation.array(*key)).collect();
    let arguments = grouping
        .aggregates
        .iter()
        .map(|aggregate| aggregate.argument.map(|argument| evaluation.array(argument)).transpose());
    let arguments: Result<Vec<Option<ArrayRef>>, _> = arguments.collect();
    Ok(groups.add_rows(&keys?, &arguments?, rows)?)
}

/// Gathers the inputs of the output for the picked rows; `None` for other inputs.
fn payload(
    plan: &Plan,
    views: &[InputView<'_>],
    picked: &PickedRows<'_>,
    buffers: &mut Buffers,
) -> Result<Vec<Option<ArrayRef>>, Fault> {
    let mut columns: Vec<Option<ArrayRef>> = vec![None; plan.inputs];
    for &input in &plan.payload_inputs {
        columns[input] = Some(gather(&views[input], picked, buffers)?);
    }
    Ok(columns)
}
