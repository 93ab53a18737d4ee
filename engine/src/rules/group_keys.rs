//! Works around a fault of DataFusion 55.2, which treats group columns as unique that are not.
//!
//! A key of one side of a join may occur in several rows of the join. If these rows are grouped by
//! the key and by further columns, a value of the key may occur in several groups. DataFusion still
//! treats the key as unique, and leaves out DISTINCT and group columns. It identifies columns by
//! their names, so the values are grouped under other names here.

use crate::visitors::PlanTree;
use std::sync::Arc;

use datafusion::{
    common::{
        Dependency,
        config::ConfigOptions,
        tree_node::{Transformed, TransformedResult},
    },
    error::Result,
    logical_expr::{Aggregate, Distinct, Expr, LogicalPlan, Projection},
    optimizer::AnalyzerRule,
};

/// The rule that groups rows of joins by columns with names of their own.
#[derive(Debug)]
pub(crate) struct GroupKeys;

impl AnalyzerRule for GroupKeys {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_queries_up(|plan| match plan {
            LogicalPlan::Distinct(Distinct::All(input)) if !input.schema().fields().is_empty() => {
                let groups = input.schema().columns().into_iter().map(Expr::Column).collect();
                grouped(Aggregate::try_new(input, groups, Vec::new())?).map(Transformed::yes)
            }
            LogicalPlan::Aggregate(aggregate) if has_wrong_key(&aggregate) => {
                grouped(aggregate).map(Transformed::yes)
            }
            other => Ok(Transformed::no(other)),
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "group_keys"
    }
}

/// Whether a key of one join side is among more group columns.
fn has_wrong_key(aggregate: &Aggregate) -> bool {
    let input = aggregate.input.schema();
    let names = input.field_names();
    let groups: Vec<String> =
        aggregate.group_expr.iter().map(|group| group.schema_name().to_string()).collect();
    input.functional_dependencies().iter().any(|dependency| {
        dependency.mode == Dependency::Multi
            && dependency.source_indices.len() < groups.len()
            && dependency.source_indices.iter().all(|index| groups.contains(&names[*index]))
    })
}

/// The aggregation by renamed columns, and its output columns under their former names.
fn grouped(aggregate: Aggregate) -> Result<LogicalPlan> {
    if !has_wrong_key(&aggregate) {
        return Ok(LogicalPlan::Aggregate(aggregate));
    }
    let names = aggregate.schema.columns();
    let mut groups = aggregate.group_expr;
    for (index, group) in groups.iter_mut().enumerate() {
        if let Expr::Column(_) = group {
            *group = group.clone().alias(format!("__group_{index}"));
        }
    }
    let renamed = LogicalPlan::Aggregate(Aggregate::try_new(aggregate.input, groups, aggregate.aggr_expr)?);
    let columns = renamed.schema().columns().into_iter().zip(names).map(|(column, name)| {
        if column == name {
            return Expr::Column(column);
        }
        Expr::Column(column).alias_qualified(name.relation, name.name)
    });
    let columns = columns.collect();
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(renamed))?))
}
