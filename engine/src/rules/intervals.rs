//! Corrects comparisons of intervals, sums of dates and intervals, and parts of times.
//!
//! - Intervals and differences of times are compared, and sorted, by their length.
//! - A date plus an interval with a time of day is a timestamp. DataFusion returns a date, and
//!   loses the time. A date plus a constant of whole days and months stays a date, because scans
//!   compare dates with their pages.
//! - `EXTRACT` becomes our `date_part`, because DataFusion would use its own.

use crate::visitors::PlanTree;
use std::sync::Arc;

use datafusion::{
    arrow::datatypes::{DataType, TimeUnit},
    common::{
        DFSchema,
        config::ConfigOptions,
        tree_node::{Transformed, TransformedResult},
    },
    error::Result,
    logical_expr::{
        Between, BinaryExpr, Case, Cast, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF, expr::InList,
    },
    optimizer::AnalyzerRule,
    scalar::ScalarValue,
};

use super::{expressions::rewritten, value_types::is_comparison};
use crate::functions::{date_part, interval_length};

/// The rule that compares intervals by their length.
#[derive(Debug)]
pub(crate) struct Intervals {
    length: Arc<ScalarUDF>,
    date_part: Arc<ScalarUDF>,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { length: interval_length(), date_part: date_part() }
    }
}

impl AnalyzerRule for Intervals {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = rewritten(plan, |expression, schema| Ok(self.rewrite(expression, schema)))?;
        plan.transform_queries_up(|plan| Ok(self.sorted(plan))).data()
    }

    fn name(&self) -> &'static str {
        "intervals"
    }
}

impl Intervals {
    fn rewrite(&self, mut expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
        let changed = match &mut expression {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
                self.measured([left.as_mut(), right.as_mut()], schema)
            }
            Expr::Between(Between { expr, low, high, .. }) => {
                self.measured([expr.as_mut(), low.as_mut(), high.as_mut()], schema)
            }
            Expr::InList(InList { expr, list, .. }) => {
                self.measured(std::iter::once(expr.as_mut()).chain(list.iter_mut()), schema)
            }
            Expr::Case(Case { expr: Some(expr), when_then_expr, .. }) => {
                let whens = when_then_expr.iter_mut().map(|(when, _)| when.as_mut());
                self.measured(std::iter::once(expr.as_mut()).chain(whens), schema)
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus | Operator::Minus, right }) => {
                with_time(left, right, schema) || with_time(right, left, schema)
            }
            Expr::ScalarFunction(function)
                if function.name() == self.date_part.name() && function.func != self.date_part =>
            {
                function.func = Arc::clone(&self.date_part);
                true
            }
            _ => false,
        };
        if changed { Transformed::yes(expression) } else { Transformed::no(expression) }
    }

    /// Replaces compared values by their lengths. Returns whether there is an interval among them.
    fn measured<'a>(&self, parts: impl IntoIterator<Item = &'a mut Expr>, schema: &DFSchema) -> bool {
        let parts: Vec<&mut Expr> = parts.into_iter().collect();
        let types: Vec<Option<DataType>> = parts.iter().map(|part| part.get_type(schema).ok()).collect();
        let is_length = |data_type: &Option<DataType>| {
            matches!(data_type, Some(DataType::Interval(_) | DataType::Duration(_)))
        };
        if !types.iter().any(|data_type| matches!(data_type, Some(DataType::Interval(_))))
            || !types.iter().all(is_length)
        {
            return false;
        }
        for part in parts {
            *part = self.length.call(vec![std::mem::take(part)]);
        }
        true
    }

    fn sorted(&self, plan: LogicalPlan) -> Transformed<LogicalPlan> {
        let LogicalPlan::Sort(mut sort) = plan else { return Transformed::no(plan) };
        let mut changed = false;
        for key in &mut sort.expr {
            if matches!(key.expr.get_type(sort.input.schema()), Ok(DataType::Interval(_))) {
                key.expr = self.length.call(vec![std::mem::take(&mut key.expr)]);
                changed = true;
            }
        }
        Transformed::new_transformed(LogicalPlan::Sort(sort), changed)
    }
}

/// Casts a date to a timestamp if a time of day may be added to it. Returns whether it did.
fn with_time(date: &mut Expr, interval: &Expr, schema: &DFSchema) -> bool {
    let types = (date.get_type(schema), interval.get_type(schema));
    let (Ok(DataType::Date32), Ok(DataType::Interval(_))) = types else { return false };
    if is_of_days(interval) {
        return false;
    }
    let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
    *date = Expr::Cast(Cast::new(Box::new(std::mem::take(date)), timestamp));
    true
}

/// Whether the interval is a constant without a time of day.
fn is_of_days(interval: &Expr) -> bool {
    match interval {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) => interval.nanoseconds == 0,
        Expr::Literal(ScalarValue::IntervalYearMonth(_), _) => true,
        Expr::Negative(inner) => is_of_days(inner),
        _ => false,
    }
}
