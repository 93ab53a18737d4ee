//! Which rewrites of a plan are ours?

mod column_first;
mod common_aggregate;
mod float_comparison;
mod key_filters;
mod lineage;
mod partial_aggregate;
mod total_order;

pub use partial_aggregate::AggregatePushdown;

pub(crate) use column_first::ColumnFirst;
pub(crate) use common_aggregate::CommonAggregateRule;
pub(crate) use float_comparison::FloatComparison;
pub(crate) use key_filters::KeyFilterRule;
pub(crate) use partial_aggregate::PartialAggregateRule;
pub(crate) use total_order::TotalOrderRule;
