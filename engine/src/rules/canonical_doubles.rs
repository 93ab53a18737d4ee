//! Maps all NaN among doubles to one NaN and, where zeros matter, -0.0 to 0.0.
//!
//! - Arithmetic, functions and casts of texts return NaN with and without a sign, so their results
//!   are mapped. Stored values contain only the one NaN.
//! - DISTINCT aggregates, windows, sorts by several keys and CASE compare doubles by their bits, so
//!   their inputs get one zero, too.
//!
//! Names of result columns stay as the user wrote them.

use crate::visitors::{PlanTree, Tree};
use std::sync::Arc;

use datafusion::{
    arrow::datatypes::DataType,
    common::{
        DFSchema,
        config::ConfigOptions,
        tree_node::{Transformed, TransformedResult, TreeNodeRecursion},
    },
    error::Result,
    logical_expr::{
        BinaryExpr, Case, Cast, Distinct, DistinctOn, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF,
        Sort, SortExpr, expr_rewriter::NamePreserver, utils::merge_schema,
    },
    optimizer::AnalyzerRule,
};

use crate::functions::{ONE_NAN, canonical, of_double, one_nan};

/// The rule that makes doubles canonical.
#[derive(Debug)]
pub(crate) struct CanonicalDoubles {
    one_nan: Arc<ScalarUDF>,
    canonical: Arc<ScalarUDF>,
}

impl Default for CanonicalDoubles {
    fn default() -> Self {
        Self { one_nan: one_nan(), canonical: canonical() }
    }
}

impl AnalyzerRule for CanonicalDoubles {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_queries_up(|plan| {
            let schema = match &plan {
                LogicalPlan::TableScan(scan) => scan.projected_schema.as_ref().clone(),
                plan => merge_schema(&plan.inputs()),
            };
            let plan = match plan {
                LogicalPlan::Sort(sort) => self.sorted(sort),
                LogicalPlan::Distinct(Distinct::On(distinct)) => self.first_of(distinct),
                other => Transformed::no(other),
            };
            let names = NamePreserver::new(&plan.data);
            let mapped = plan.data.transform_expressions(|expression| {
                let name = names.save(&expression);
                let rewritten = self.rewritten(expression, &schema)?;
                Ok(rewritten.update_data(|expression| name.restore(expression)))
            })?;
            Ok(Transformed { transformed: mapped.transformed || plan.transformed, ..mapped })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "canonical_doubles"
    }
}

impl CanonicalDoubles {
    fn rewritten(&self, expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        expression.transform_down(|expression| {
            Ok(match expression {
                // The expression inside needs no function of its own: a NaN stays one.
                made if makes_doubles(&made, schema) => {
                    let (data_type, one_nan) =
                        (made.get_type(schema)?, of_double(&self.one_nan, made.clone(), schema));
                    match one_nan {
                        Some(one_nan) if data_type != DataType::Float64 => {
                            let again = Expr::Cast(Cast::new(Box::new(one_nan), data_type));
                            Transformed::new(again, true, TreeNodeRecursion::Jump)
                        }
                        Some(one_nan) => Transformed::new(one_nan, true, TreeNodeRecursion::Jump),
                        None => Transformed::no(made),
                    }
                }
                Expr::AggregateFunction(mut aggregate) if aggregate.params.distinct => {
                    let changed = self.each(&mut aggregate.params.args, schema);
                    Transformed::new(Expr::AggregateFunction(aggregate), changed, TreeNodeRecursion::Jump)
                }
                Expr::AggregateFunction(mut aggregate) if aggregate.params.order_by.len() > 1 => {
                    let changed = self.keys(&mut aggregate.params.order_by, schema);
                    Transformed::new(Expr::AggregateFunction(aggregate), changed, TreeNodeRecursion::Continue)
                }
                Expr::WindowFunction(mut window) => {
                    let params = &mut window.params;
                    let mut changed = params.distinct && self.each(&mut params.args, schema);
                    changed |= self.each(&mut params.partition_by, schema);
                    for key in &mut params.order_by {
                        changed |= self.each(std::slice::from_mut(&mut key.expr), schema);
                    }
                    Transformed::new(Expr::WindowFunction(window), changed, TreeNodeRecursion::Continue)
                }
                Expr::Case(mut case) if case.expr.is_some() => {
                    let changed = self.compared(&mut case, schema);
                    Transformed::new(Expr::Case(case), changed, TreeNodeRecursion::Continue)
                }
                other => Transformed::no(other),
            })
        })
    }

    /// Rows with equal zeros are ordered by the keys that follow.
    fn sorted(&self, mut sort: Sort) -> Transformed<LogicalPlan> {
        let changed = self.keys(&mut sort.expr, sort.input.schema());
        Transformed::new_transformed(LogicalPlan::Sort(sort), changed)
    }

    /// The same for `DISTINCT ON`, which keeps the first of them.
    fn first_of(&self, mut distinct: DistinctOn) -> Transformed<LogicalPlan> {
        let schema = Arc::clone(distinct.input.schema());
        let changed = distinct.sort_expr.as_mut().is_some_and(|keys| self.keys(keys, &schema));
        Transformed::new_transformed(LogicalPlan::Distinct(Distinct::On(distinct)), changed)
    }

    /// Makes all keys canonical except the last one, which no key follows.
    fn keys(&self, keys: &mut [SortExpr], schema: &DFSchema) -> bool {
        let (mut changed, last) = (false, keys.len().saturating_sub(1));
        for key in &mut keys[..last] {
            changed |= self.each(std::slice::from_mut(&mut key.expr), schema);
        }
        changed
    }

    /// `CASE x WHEN y` compares the bits of doubles.
    fn compared(&self, case: &mut Case, schema: &DFSchema) -> bool {
        let is_double = |part: &Expr| part.get_type(schema).is_ok_and(|found| found.is_floating());
        let whens = || case.when_then_expr.iter().map(|(when, _)| when.as_ref());
        if !case.expr.as_deref().into_iter().chain(whens()).any(is_double) {
            return false;
        }
        let whens = case.when_then_expr.iter_mut().map(|(when, _)| when);
        for part in case.expr.iter_mut().chain(whens) {
            let inner = std::mem::take(part.as_mut());
            let double = Expr::Cast(Cast::new(Box::new(inner), DataType::Float64));
            **part = self.canonical.call(vec![double]);
        }
        true
    }

    fn each(&self, arguments: &mut [Expr], schema: &DFSchema) -> bool {
        let mut changed = false;
        for argument in arguments {
            if let Some(canonical) = of_double(&self.canonical, argument.clone(), schema) {
                (*argument, changed) = (canonical, true);
            }
        }
        changed
    }
}

/// Whether the result may be a NaN with a sign, or anything that the rule has not visited yet.
fn makes_doubles(expression: &Expr, schema: &DFSchema) -> bool {
    let is_double = || expression.get_type(schema).is_ok_and(|found| found.is_floating());
    match expression {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => {
            let is_arithmetic = matches!(
                op,
                Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo
            );
            is_arithmetic && is_double()
        }
        Expr::Negative(_) => is_double(),
        Expr::ScalarFunction(function) => function.name() != ONE_NAN && is_double(),
        Expr::Cast(Cast { expr, field, .. }) => {
            let of_text = || matches!(expr.get_type(schema), Ok(found) if found.is_string());
            matches!(field.data_type(), DataType::Float64 | DataType::Float32) && of_text()
        }
        _ => false,
    }
}
