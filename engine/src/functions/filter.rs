//! Applies the FILTER clause of an aggregate: decides which rows the aggregate uses.

use datafusion::arrow::{
    array::{Array, BooleanArray},
    buffer::NullBuffer,
};

/// The NULLs of values under a filter: rows that it drops become NULL. For states where each row
/// becomes a group of its own.
pub(super) fn kept(nulls: Option<&NullBuffer>, filter: Option<&BooleanArray>) -> Option<NullBuffer> {
    let filter = filter.map(|filter| match filter.nulls() {
        Some(known) => NullBuffer::new(filter.values() & known.inner()),
        None => NullBuffer::new(filter.values().clone()),
    });
    NullBuffer::union(nulls, filter.as_ref())
}

/// Whether a filter keeps a row.
pub(super) fn is_kept(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}
