//! How do the selected rows of a window become batches?

use crate::{
    aggregate::{Grouping, Groups},
    error::Fault,
    narrow::Room,
    pages::InputView,
    plan::Plan,
    project::{Pick, Picked, gather},
};
use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
};
use rackscan_format::{ids::SegmentId, program::NodeIndex};
use std::sync::Arc;

/// The output nodes of picked rows, as a batch.
pub(crate) fn rows(
    (plan, segment): (&Plan, SegmentId),
    nodes: &[NodeIndex],
    schema: &SchemaRef,
    views: &[InputView<'_>],
    picks: &[Pick],
    room: &mut Room,
) -> Result<RecordBatch, Fault> {
    let picked = Picked::of(picks);
    let rows = picked.rows();
    let columns = payload(plan, views, &picked, room)?;
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
    picks: &[Pick],
    room: &mut Room,
) -> Result<(), Fault> {
    let picked = Picked::of(picks);
    let rows = picked.rows();
    let columns = payload(plan, views, &picked, room)?;
    let mut evaluation = plan.expressions.over(&columns, rows);
    let keys: Result<Vec<ArrayRef>, _> = grouping.keys.iter().map(|key| evaluation.array(*key)).collect();
    let arguments = grouping
        .aggregates
        .iter()
        .map(|aggregate| aggregate.argument.map(|argument| evaluation.array(argument)).transpose());
    let arguments: Result<Vec<Option<ArrayRef>>, _> = arguments.collect();
    Ok(groups.add_rows(&keys?, &arguments?, rows)?)
}

/// The inputs of the output, gathered.
fn payload(
    plan: &Plan,
    views: &[InputView<'_>],
    picked: &Picked<'_>,
    room: &mut Room,
) -> Result<Vec<Option<ArrayRef>>, Fault> {
    let mut columns: Vec<Option<ArrayRef>> = vec![None; plan.inputs];
    for &input in &plan.payload_inputs {
        columns[input] = Some(gather(&views[input], picked, room)?);
    }
    Ok(columns)
}
