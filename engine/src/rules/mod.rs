//! Which rewrites of a plan are ours?

mod partial_aggregate;

pub use partial_aggregate::AggregatePushdown;

pub(crate) use partial_aggregate::PartialAggregateRule;
