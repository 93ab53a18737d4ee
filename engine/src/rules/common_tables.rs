//! Decides how often a WITH query is computed that a statement uses several times.
//!
//! It is computed once if it might return other rows the second time (LIMIT, windows, sums of
//! doubles, `random()`). Otherwise each use computes it and reads only the columns and rows that
//! this use needs.

use crate::visitors::PlanTree;
use std::{collections::HashMap, sync::Arc};

use datafusion::{
    common::{
        config::ConfigOptions,
        tree_node::{Transformed, TransformedResult, TreeNodeRecursion},
    },
    error::Result,
    logical_expr::{LogicalPlan, SubqueryAlias},
    optimizer::AnalyzerRule,
};

use super::{decorrelate::is_always_same, shared_rows::SharedRows};

/// The rule by which WITH queries are computed once where they must be.
#[derive(Debug)]
pub(crate) struct CommonTables;

impl AnalyzerRule for CommonTables {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let mut uses = Uses::default();
        uses.visit(&plan)?;
        if uses.several().next().is_none() {
            return Ok(plan);
        }
        let mut numbers = HashMap::new();
        for common in uses.several() {
            if !is_always_same(common)? {
                numbers.insert(address(common), SharedRows::next_number());
            }
        }
        if numbers.is_empty() {
            return Ok(plan);
        }
        let shared = |plan: LogicalPlan| match plan {
            LogicalPlan::SubqueryAlias(alias) => {
                let Some(number) = numbers.get(&address(&alias.input)) else {
                    return Ok(Transformed::no(LogicalPlan::SubqueryAlias(alias)));
                };
                let rows = SharedRows::plan(*number, Arc::unwrap_or_clone(alias.input));
                let named = SubqueryAlias::try_new(Arc::new(rows), alias.alias)?;
                Ok(Transformed::yes(LogicalPlan::SubqueryAlias(named)))
            }
            other => Ok(Transformed::no(other)),
        };
        plan.transform_queries_down(shared).data()
    }

    fn name(&self) -> &'static str {
        "common_tables"
    }
}

/// Identifies a plan: the planner gives each use of a WITH query the same one.
fn address(plan: &Arc<LogicalPlan>) -> usize {
    Arc::as_ptr(plan).addr()
}

/// The plans that have names, by their addresses.
#[derive(Default)]
struct Uses {
    named: HashMap<usize, Named>,
}

struct Named {
    plan: Arc<LogicalPlan>,
    uses: usize,
}

impl Uses {
    /// Counts the uses of named plans. Each named plan is visited once.
    fn visit(&mut self, plan: &LogicalPlan) -> Result<()> {
        if let LogicalPlan::SubqueryAlias(alias) = plan {
            if let Some(named) = self.named.get_mut(&address(&alias.input)) {
                named.uses += 1;
                return Ok(());
            }
            let named = Named { plan: Arc::clone(&alias.input), uses: 1 };
            self.named.insert(address(&alias.input), named);
        }
        plan.each_subquery(|subquery| {
            self.visit(subquery)?;
            Ok(TreeNodeRecursion::Jump)
        })?;
        plan.inputs().into_iter().try_for_each(|input| self.visit(input))
    }

    fn several(&self) -> impl Iterator<Item = &Arc<LogicalPlan>> {
        self.named.values().filter(|named| named.uses > 1).map(|named| &named.plan)
    }
}
