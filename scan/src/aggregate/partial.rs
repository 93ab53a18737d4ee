//! Defines partial groups: the groups of some rows with their aggregated values, as they are passed
//! to the table of all groups.

use arrow::array::ArrayRef;

/// Groups of some rows, each with at least one row, and the partial value of each aggregate.
pub(crate) struct PartialGroups {
    pub(crate) keys: Vec<ArrayRef>,
    pub(crate) rows: usize,
    pub(crate) values: Vec<PartialValues>,
}

/// The partial values of one aggregate, one per group.
pub(crate) enum PartialValues {
    /// The number of rows with a value, and their sum or extreme, which is undefined where the
    /// count is 0. A count has no values.
    Numbers { counts: Vec<i64>, values: Vec<i128> },
    /// The first or last text of each group; null if it has none.
    Texts(ArrayRef),
}
