//! Which rewrites of a plan are ours?

mod canonical_doubles;
mod column_first;
mod common_aggregate;
mod decimal_division;
mod float_comparison;
mod in_subquery;
mod key_filters;
mod lineage;
mod merged_columns;
mod partial_aggregate;
mod set_operation;
mod total_order;
mod total_row;

pub use partial_aggregate::AggregatePushdown;

pub(crate) use canonical_doubles::CanonicalDoubles;
pub(crate) use column_first::ColumnFirst;
pub(crate) use common_aggregate::CommonAggregateRule;
pub(crate) use decimal_division::DecimalDivision;
pub(crate) use float_comparison::FloatComparison;
pub(crate) use in_subquery::InSubqueries;
pub(crate) use key_filters::KeyFilterRule;
pub(crate) use merged_columns::MergedColumns;
pub(crate) use partial_aggregate::PartialAggregateRule;
pub(crate) use set_operation::SetOperation;
pub(crate) use total_order::TotalOrderRule;
pub(crate) use total_row::TotalRow;
