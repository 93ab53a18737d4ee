//! Estimates the resources that the scan of a segment will need, as a profile for the planner.
//!
//! All values are estimates from zone maps, segment directories and the scan program. A wrong
//! estimate changes where a segment is scanned, never an answer.

use crate::{
    pushdown::{output_nodes, reachable},
    snapshot::TableSnapshot,
};
use az::SaturatingAs;
use rackscan_format::{
    ids::{ColumnId, NodeId},
    program::{Node, NodeIndex, Output, ScanProgram, ValueType, VerifiedProgram},
    schema::ColumnType,
    zone::ZoneValue,
};
use rackscan_planner::{Measured, PageDemand, ScanProfile};
use rackscan_scan::ScanEstimate;

/// Bytes assumed for a text value where nothing better is known: a view and some of its text.
const TEXT_BYTES: usize = 32;

/// The planner's profile of the scan of one segment.
#[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
pub(super) fn profile(
    program: &VerifiedProgram,
    node: NodeId,
    estimate: &ScanEstimate,
    table: &TableSnapshot,
) -> ScanProfile {
    let selectivity = if estimate.rows_max == 0 {
        0.0
    } else {
        (estimate.rows_selected / estimate.rows_max as f64).min(1.0)
    };
    let plain = program.program();
    let in_filter = reachable(&plain.nodes, plain.filter.iter().copied());
    let in_output = reachable(&plain.nodes, output_nodes(&plain.output));
    let weight = |wanted: &dyn Fn(usize) -> bool| -> f64 {
        let nodes = plain.nodes.iter().enumerate().filter(|(index, _)| wanted(*index));
        nodes.map(|(index, node)| node_weight(node, program.node_types()[index])).sum()
    };
    let payload_columns = plain
        .nodes
        .iter()
        .enumerate()
        .filter(|(index, node)| is_payload(*index, node, &in_filter, &in_output));
    let payload_pages = estimate.pages_payload as f64;
    let rows_per_page =
        estimate.rows_max as f64 * payload_columns.count().max(1) as f64 / payload_pages.max(1.0);
    // The probability that a page of `rows_per_page` rows holds a selected one, if those are spread
    // evenly.
    let page_needed = 1.0 - (1.0 - selectivity).powf(rows_per_page);
    let groups = groups_max(plain, table).map(|groups| groups.min(estimate.rows_selected.max(1.0)));
    let limit = plain.limit_rows.map_or(f64::INFINITY, f64::from);
    ScanProfile {
        node,
        rows: estimate.rows_max,
        filter: PageDemand { pages: saturated(estimate.pages_filter), bytes: estimate.bytes_filter },
        payload: PageDemand {
            pages: saturated(rounded(payload_pages * page_needed)),
            bytes: rounded(estimate.bytes_payload as f64 * page_needed),
        },
        selectivity,
        filter_values_per_row: weight(&|index| in_filter[index]),
        output_values_per_row: weight(&|index| in_output[index] && !in_filter[index])
            + aggregate_weight(plain),
        output_rows: groups.unwrap_or(estimate.rows_selected.min(limit)),
        output_row_bytes: estimate.row_bytes,
        cached: 0.0,
        repeated: false,
        rebuilt_from: 0.0,
        measured: Measured::default(),
    }
}

fn saturated(pages: u64) -> u32 {
    pages.saturating_as::<u32>()
}

fn is_payload(index: usize, node: &Node, in_filter: &[bool], in_output: &[bool]) -> bool {
    matches!(node, Node::Column(_)) && in_output[index] && !in_filter[index]
}

/// The work of one node for one row, in units of an integer unpacked or compared. From measured
/// relations, rounded.
fn node_weight(node: &Node, value_type: ValueType) -> f64 {
    match (node, value_type) {
        (Node::Literal(_), _) => 0.0,
        (Node::Like { .. }, _) => 20.0,
        (Node::Column(_) | Node::Substring { .. } | Node::Case { .. }, ValueType::Text) => 8.0,
        (Node::InSet { .. } | Node::InKeys { .. } | Node::Case { .. } | Node::DatePart { .. }, _) => 4.0,
        (
            Node::Column(_)
            | Node::Compare { .. }
            | Node::And(_)
            | Node::Or(_)
            | Node::Not(_)
            | Node::IsNull(_)
            | Node::Arithmetic { .. }
            | Node::Negate(_)
            | Node::Cast { .. }
            | Node::Substring { .. }
            | Node::RowNumber,
            _,
        ) => 1.0,
    }
}

/// The work of grouping one row.
fn aggregate_weight(program: &ScanProgram) -> f64 {
    match &program.output {
        Output::Rows(_) => 0.0,
        Output::Groups { keys, aggregates } => {
            let values = keys.len() + aggregates.len();
            2.0 * f64::from(values.saturating_as::<u16>())
        }
    }
}

/// The column of the table that a node passes on unchanged.
pub(super) fn column_of(program: &ScanProgram, node: NodeIndex) -> Option<ColumnId> {
    match program.nodes.get(usize::from(node))? {
        Node::Column(input) => Some(program.inputs.get(usize::from(*input))?.column),
        _ => None,
    }
}

/// Arrow bytes of an output value.
pub(super) fn output_bytes(program: &VerifiedProgram, table: &TableSnapshot, node: NodeIndex) -> usize {
    match program.node_types().get(usize::from(node)) {
        Some(ValueType::Boolean) => 1,
        Some(ValueType::Int32 | ValueType::Date32) => 4,
        Some(ValueType::Int64 | ValueType::TimestampMicros | ValueType::Float64) => 8,
        Some(ValueType::Decimal { .. }) => 16,
        Some(ValueType::Text) | None => {
            let Some(column) = column_of(program.program(), node) else { return TEXT_BYTES };
            // Stored text is assumed to be compressed to a half, and a view takes 16 bytes more.
            let stored = table.bounds(column).stored_bytes.saturating_mul(2) / table.rows().max(1);
            stored.saturating_as::<usize>().saturating_add(16)
        }
    }
}

/// An upper bound of the groups that a scan of any number of rows can return; `None` for a scan of
/// rows, infinite if unknown.
///
/// An integer column has at most as many values as lie between its bounds. A text column stored at
/// `b` bits a row, dictionary and padding included, has about `2^b` values at most: codes of a
/// dictionary need `log2` of its size, and text that is not repeated takes far more bits. For other
/// columns there is no bound.
pub(crate) fn groups_max(program: &ScanProgram, table: &TableSnapshot) -> Option<f64> {
    let Output::Groups { keys, .. } = &program.output else { return None };
    Some(keys.iter().map(|&key| values_max(program, table, key)).product())
}

#[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
fn values_max(program: &ScanProgram, table: &TableSnapshot, key: NodeIndex) -> f64 {
    let Some(node) = program.nodes.get(usize::from(key)) else { return f64::INFINITY };
    let column = match node {
        Node::Literal(_) => return 1.0,
        Node::Compare { .. } | Node::And(_) | Node::Or(_) | Node::Not(_) | Node::IsNull(_) => return 3.0,
        Node::InSet { .. } | Node::Like { .. } | Node::InKeys { .. } => return 3.0,
        Node::Case { branches, otherwise } => {
            let values = branches.iter().map(|(_, value)| *value).chain(*otherwise);
            return values.map(|value| values_max(program, table, value)).sum::<f64>() + 1.0;
        }
        // Years, of which the first and the last may be incomplete, or days of a month; and NULL.
        Node::DatePart { item, .. } => {
            return (values_max(program, table, *item) / 365.0 + 2.0).max(31.0) + 1.0;
        }
        // A function of one value has at most as many values as its argument.
        Node::Substring { item, .. } | Node::Cast { item, .. } | Node::Negate(item) => {
            return values_max(program, table, *item);
        }
        Node::Arithmetic { left, right, .. } => {
            return values_max(program, table, *left) * values_max(program, table, *right);
        }
        Node::Column(_) => column_of(program, key),
        // Groups have no row numbers.
        Node::RowNumber => return f64::INFINITY,
    };
    let Some(column) = column else { return f64::INFINITY };
    let bounds = table.bounds(column);
    let null = if bounds.nulls > 0 { 1.0 } else { 0.0 };
    let Some(definition) = table.definition.columns.get(column.index()) else { return f64::INFINITY };
    match (definition.column_type, &bounds.min, &bounds.max) {
        (ColumnType::Boolean, ..) => 2.0 + null,
        (ColumnType::Text, ..) => {
            let bits = bounds.stored_bytes as f64 * 8.0 / table.rows().max(1) as f64;
            bits.exp2().min(table.rows() as f64) + null
        }
        (_, Some(ZoneValue::Integer(min)), Some(ZoneValue::Integer(max))) => {
            max.abs_diff(*min) as f64 + 1.0 + null
        }
        _ => f64::INFINITY,
    }
}

/// An estimate as a whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate; `as` saturates and is 0 for NaN"
)]
pub(super) fn rounded(estimate: f64) -> u64 {
    estimate.round() as u64
}

#[cfg(test)]
mod tests;
