//! Which rewrites of a plan are ours?

mod canonical_doubles;
mod checked_integers;
mod column_first;
mod common_aggregate;
mod common_types;
mod decimal_division;
mod expressions;
mod guarded_branches;
mod in_subquery;
mod intervals;
mod key_filters;
mod lineage;
mod merged_columns;
mod partial_aggregate;
mod rounded_casts;
mod scalar_subqueries;
mod set_operation;
mod spilling_joins;
mod texts;
mod total_order;
mod total_row;
mod window_offsets;

pub use partial_aggregate::AggregatePushdown;

pub(crate) use canonical_doubles::CanonicalDoubles;
pub(crate) use checked_integers::CheckedIntegers;
pub(crate) use column_first::ColumnFirst;
pub(crate) use common_aggregate::CommonAggregateRule;
pub(crate) use common_types::CommonTypes;
pub(crate) use decimal_division::DecimalDivision;
pub(crate) use guarded_branches::GuardedBranches;
pub(crate) use in_subquery::InSubqueries;
pub(crate) use intervals::Intervals;
pub(crate) use key_filters::KeyFilterRule;
pub(crate) use merged_columns::MergedColumns;
pub(crate) use partial_aggregate::PartialAggregateRule;
pub(crate) use rounded_casts::RoundedCasts;
pub(crate) use scalar_subqueries::ScalarSubqueries;
pub(crate) use set_operation::SetOperation;
pub(crate) use spilling_joins::SpillingJoins;
pub(crate) use texts::Texts;
pub(crate) use total_order::TotalOrderRule;
pub(crate) use total_row::TotalRow;
pub(crate) use window_offsets::WindowOffsets;
