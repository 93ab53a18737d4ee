//! Makes a type a physical optimizer rule, which keeps the schema and needs no options.

/// Implements DataFusion's trait for a type with a method `optimized`, which returns the new plan:
/// `physical_rule!(LargeLimits, "large_limits")`.
macro_rules! physical_rule {
    ($rule:ty, $name:expr) => {
        impl datafusion::physical_optimizer::PhysicalOptimizerRule for $rule {
            fn optimize(
                &self,
                plan: std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>,
                _config: &datafusion::common::config::ConfigOptions,
            ) -> datafusion::error::Result<std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>> {
                self.optimized(plan)
            }

            fn name(&self) -> &'static str {
                $name
            }

            fn schema_check(&self) -> bool {
                true
            }
        }
    };
}

pub(crate) use physical_rule;
