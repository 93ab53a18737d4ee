//! How often is a query of WITH computed that a statement uses several times?
//!
//! Once where it might give other rows the second time (LIMIT, windows, sums of doubles,
//! `random()`); else at each use, which then reads only what it needs.
//!
//! Invariant: uses within uses do not multiply beyond a limit.

use std::{collections::HashMap, sync::Arc};

use datafusion::{
    common::{
        config::ConfigOptions,
        not_impl_err,
        tree_node::{Transformed, TransformedResult, TreeNodeRecursion},
    },
    error::Result,
    logical_expr::{LogicalPlan, SubqueryAlias},
    optimizer::AnalyzerRule,
};

use super::{decorrelate::is_always_same, shared_rows::SharedRows};
use crate::limits::COMMON_TABLE_OPERATORS_MAX;

/// Has queries of WITH computed once.
#[derive(Debug)]
pub(crate) struct CommonTables;

impl AnalyzerRule for CommonTables {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let mut uses = Uses::default();
        let operators = uses.visit(&plan)?;
        if uses.several().next().is_none() {
            return Ok(plan);
        }
        if operators > COMMON_TABLE_OPERATORS_MAX {
            return not_impl_err!(
                "queries of WITH that are used several times become {operators} operators, which is not \
                 supported; expected at most {COMMON_TABLE_OPERATORS_MAX}: store one of them in a table"
            );
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
        plan.transform_down_with_subqueries(shared).data()
    }

    fn name(&self) -> &'static str {
        "common_tables"
    }
}

/// Which plan it is: the planner gives each use of a query of WITH the same one.
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
    /// Operators of one use.
    operators: usize,
    uses: usize,
}

impl Uses {
    /// Counts the operators of a plan, those of a query of WITH at each use.
    fn visit(&mut self, plan: &LogicalPlan) -> Result<usize> {
        if let LogicalPlan::SubqueryAlias(alias) = plan {
            if let Some(named) = self.named.get_mut(&address(&alias.input)) {
                named.uses += 1;
                return Ok(named.operators.saturating_add(1));
            }
            let operators = self.visit(&alias.input)?;
            let named = Named { plan: Arc::clone(&alias.input), operators, uses: 1 };
            self.named.insert(address(&alias.input), named);
            return Ok(operators.saturating_add(1));
        }
        let mut operators: usize = 1;
        plan.apply_subqueries(|subquery| {
            operators = operators.saturating_add(self.visit(subquery)?);
            Ok(TreeNodeRecursion::Jump)
        })?;
        for input in plan.inputs() {
            operators = operators.saturating_add(self.visit(input)?);
        }
        Ok(operators)
    }

    fn several(&self) -> impl Iterator<Item = &Arc<LogicalPlan>> {
        self.named.values().filter(|named| named.uses > 1).map(|named| &named.plan)
    }
}
