//! Corrects the results of `x IN (subquery)` when NULL is involved.
//!
//! The result is NULL when no row of the subquery equals x, and x or one of the rows is NULL. For
//! an empty subquery it is false. DataFusion 55.2 is correct only for `x NOT IN` of a column x and
//! an uncorrelated subquery, as a conjunct of a filter. Everywhere else this rule rewrites it with
//! EXISTS, which is never NULL:
//!
//! ```text
//! x IN q       CASE WHEN EXISTS (q where c = x) THEN true
//!                   WHEN EXISTS (q where c IS NULL) OR x IS NULL AND EXISTS (q) THEN NULL ELSE false END
//! x NOT IN q   where NULL has the same effect as false:
//!              NOT EXISTS (q where c = x) AND NOT EXISTS (q where c IS NULL) AND (x IS NOT NULL OR NOT EXISTS (q))
//! ```

use crate::visitors::{PlanTree, Tree};
use std::{cell::Cell, sync::Arc};

use crate::limits::SUBQUERY_COPIES_MAX;
use datafusion::{
    common::{
        Column, DFSchema, ExprSchema, ScalarValue,
        config::ConfigOptions,
        not_impl_err, plan_err,
        tree_node::{Transformed, TransformedResult},
    },
    error::Result,
    functions_aggregate::expr_fn::count,
    logical_expr::{
        Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, and, binary_expr, col,
        expr::{BinaryExpr, Case, Exists, InList, InSubquery, SetComparison, SetQuantifier},
        expr_rewriter::NamePreserver,
        lit, not, or, scalar_subquery,
        utils::merge_schema,
    },
    optimizer::AnalyzerRule,
};

/// The rule that writes IN with EXISTS where DataFusion would take NULL for false.
#[derive(Debug)]
pub(crate) struct InSubqueries;

impl AnalyzerRule for InSubqueries {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let names = Cell::new(0);
        plan.transform_queries_up(|plan| match plan {
            LogicalPlan::Filter(mut filter) if has_in(&filter.predicate) => {
                let scope = Scope { schema: filter.input.schema(), names: &names };
                filter.predicate = scope.known(filter.predicate, false, true)?;
                Ok(Transformed::yes(LogicalPlan::Filter(filter)))
            }
            plan @ (LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_)) => {
                let schema = merge_schema(&plan.inputs());
                let scope = Scope { schema: &schema, names: &names };
                let preserved = NamePreserver::new(&plan);
                plan.transform_expressions(|expression| {
                    let name = preserved.save(&expression);
                    let counted = scope.counted(expression)?;
                    Ok(counted.update_data(|expression| name.restore(expression)))
                })
            }
            other => Ok(Transformed::no(other)),
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "in_subqueries"
    }
}

/// Whether the expression compares something with a subquery.
fn has_in(expression: &Expr) -> bool {
    let is_in = |part: &Expr| match part {
        Expr::InSubquery(_) | Expr::SetComparison(_) => true,
        Expr::InList(InList { list, .. }) => matches!(list.as_slice(), [Expr::ScalarSubquery(_)]),
        _ => false,
    };
    expression.exists(|part| Ok(is_in(part))).unwrap_or(true)
}

/// The comparison as IN, if it is equivalent to IN, however it was written.
pub(super) fn as_in(expression: Expr) -> Result<Expr> {
    Ok(match expression {
        Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => match (op, quantifier) {
            (Operator::Eq, SetQuantifier::Any) => {
                Expr::InSubquery(InSubquery { expr, subquery, negated: false })
            }
            (Operator::NotEq, SetQuantifier::All) => {
                Expr::InSubquery(InSubquery { expr, subquery, negated: true })
            }
            (op, quantifier) => Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }),
        },
        Expr::InList(InList { expr, mut list, negated }) => match list.pop() {
            Some(Expr::ScalarSubquery(subquery)) if list.is_empty() => {
                Expr::InSubquery(InSubquery { expr, subquery, negated })
            }
            last => {
                list.extend(last);
                Expr::InList(InList { expr, list, negated })
            }
        },
        other => other,
    })
}

struct Scope<'s> {
    /// The schema of the rows that are filtered.
    schema: &'s DFSchema,
    names: &'s Cell<usize>,
}

impl Scope<'_> {
    /// The condition, or its negation, in a place where NULL and false have the same effect. A
    /// conjunct of a filter may be left to DataFusion.
    fn known(&self, condition: Expr, negated: bool, is_conjunct: bool) -> Result<Expr> {
        match as_in(condition)? {
            Expr::Not(inner) if has_in(&inner) => self.known(*inner, !negated, is_conjunct),
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right })
                if has_in(&left) || has_in(&right) =>
            {
                let op = match op {
                    Operator::And if negated => Operator::Or,
                    Operator::Or if negated => Operator::And,
                    op => op,
                };
                let is_conjunct = is_conjunct && op == Operator::And;
                let (left, right) =
                    (self.known(*left, negated, is_conjunct)?, self.known(*right, negated, is_conjunct)?);
                Ok(binary_expr(left, op, right))
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated: is_not }) => {
                let negated = is_not != negated;
                let is_known =
                    |expr: &Expr| subquery.outer_ref_columns.is_empty() && !expr.column_refs().is_empty();
                match negated {
                    false if is_conjunct => Ok(Expr::InSubquery(InSubquery { expr, subquery, negated })),
                    true if is_conjunct && is_known(&expr) => {
                        Ok(Expr::InSubquery(InSubquery { expr, subquery, negated }))
                    }
                    false => self.equal_one(&expr, &subquery),
                    true => self.not_in(&expr, &subquery),
                }
            }
            other => {
                let exact = other.transform_up(|part| match as_in(part)? {
                    Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                        let is_in = self.exact(&expr, &subquery)?;
                        Ok(Transformed::yes(if negated { not(is_in) } else { is_in }))
                    }
                    other => Ok(Transformed::no(other)),
                });
                let exact = exact.data()?;
                Ok(if negated { not(exact) } else { exact })
            }
        }
    }

    /// The expression with counting subqueries instead of EXISTS and IN, for places other than
    /// filters: DataFusion knows EXISTS and IN only in filters.
    fn counted(&self, expression: Expr) -> Result<Transformed<Expr>> {
        let exact = expression.transform_up(|part| match as_in(part)? {
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                let is_in = self.exact(&expr, &subquery)?;
                Ok(Transformed::yes(if negated { not(is_in) } else { is_in }))
            }
            other => Ok(Transformed::no(other)),
        })?;
        let counted = exact.data.transform_up(|part| match part {
            Expr::SetComparison(_) => not_impl_err!("{part} is not supported here; write it in WHERE"),
            Expr::Exists(Exists { subquery, negated }) => {
                let mut rows = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
                if subquery.outer_ref_columns.is_empty() {
                    rows = rows.limit(0, Some(1))?;
                }
                let count = count(lit(1_i64)).alias("rows");
                let is_there = col("rows").gt(lit(0_i64));
                let is_there = if negated { not(is_there) } else { is_there };
                let plan = rows.aggregate(Vec::<Expr>::new(), [count])?.project([is_there])?.build()?;
                Ok(Transformed::yes(scalar_subquery(Arc::new(plan))))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(Transformed { transformed: exact.transformed || counted.transformed, ..counted })
    }

    fn not_in(&self, value: &Expr, subquery: &Subquery) -> Result<Expr> {
        let mut condition = not(self.equal_one(value, subquery)?);
        if self.has_nulls(subquery) {
            condition = and(condition, not(self.null_one(subquery)?));
        }
        if value.nullable(self.schema)? {
            let is_empty = not(self.any(subquery)?);
            condition = and(condition, or(value.clone().is_not_null(), is_empty));
        }
        Ok(condition)
    }

    fn exact(&self, value: &Expr, subquery: &Subquery) -> Result<Expr> {
        let mut unknown = None;
        if self.has_nulls(subquery) {
            unknown = Some(self.null_one(subquery)?);
        }
        if value.nullable(self.schema)? {
            let of_null = and(value.clone().is_null(), self.any(subquery)?);
            unknown = Some(unknown.map_or(of_null.clone(), |unknown| or(unknown, of_null)));
        }
        let equal = self.equal_one(value, subquery)?;
        let Some(unknown) = unknown else { return Ok(equal) };
        let when = |condition: Expr, then: Expr| (Box::new(condition), Box::new(then));
        Ok(Expr::Case(Case {
            expr: None,
            when_then_expr: vec![when(equal, lit(true)), when(unknown, lit(ScalarValue::Boolean(None)))],
            else_expr: Some(Box::new(lit(false))),
        }))
    }

    fn has_nulls(&self, subquery: &Subquery) -> bool {
        subquery.subquery.schema().fields().first().is_none_or(|field| field.is_nullable())
    }

    /// Whether a row of the subquery equals the value.
    fn equal_one(&self, value: &Expr, subquery: &Subquery) -> Result<Expr> {
        let outer = self.outer(value)?;
        self.exists(subquery, |column| Some(column.eq(outer)), false)
    }

    fn null_one(&self, subquery: &Subquery) -> Result<Expr> {
        self.exists(subquery, |column| Some(column.is_null()), true)
    }

    fn any(&self, subquery: &Subquery) -> Result<Expr> {
        self.exists(subquery, |_| None, true)
    }

    /// EXISTS over the rows of the subquery for which the condition is true. Where those are the
    /// same for all outer rows, one row is enough.
    fn exists(
        &self,
        subquery: &Subquery,
        condition: impl FnOnce(Expr) -> Option<Expr>,
        is_of_all: bool,
    ) -> Result<Expr> {
        let plan = subquery.subquery.as_ref();
        let columns = plan.schema().columns();
        let [column] = columns.as_slice() else {
            return plan_err!("IN of a subquery of {} columns, expected one", columns.len());
        };
        // A unique name: DataFusion renames columns of subqueries by their names.
        self.names.set(self.names.get() + 1);
        if self.names.get() > SUBQUERY_COPIES_MAX {
            return plan_err!(
                "more than {SUBQUERY_COPIES_MAX} comparisons with subqueries that may be NULL are needed; write EXISTS, or nest fewer of them"
            );
        }
        let name = format!("__in_{}", self.names.get());
        let mut rows =
            LogicalPlanBuilder::from(plan.clone()).project([Expr::Column(column.clone()).alias(&name)])?;
        if let Some(condition) = condition(Expr::Column(Column::new_unqualified(&name))) {
            rows = rows.filter(condition)?;
        }
        if is_of_all && subquery.outer_ref_columns.is_empty() {
            rows = rows.limit(0, Some(1))?;
        }
        let plan = rows.build()?;
        let outer_ref_columns = plan.all_out_ref_exprs();
        let subquery =
            Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: subquery.spans.clone() };
        Ok(Expr::Exists(Exists { subquery, negated: false }))
    }

    /// The value as an expression inside the subquery.
    fn outer(&self, value: &Expr) -> Result<Expr> {
        let is_odd = |part: &Expr| {
            matches!(
                part,
                Expr::OuterReferenceColumn(..)
                    | Expr::ScalarSubquery(_)
                    | Expr::Exists(_)
                    | Expr::InSubquery(_)
                    | Expr::SetComparison(_)
            )
        };
        if value.is_volatile() || value.exists(|part| Ok(is_odd(part)))? {
            return plan_err!(
                "NOT IN of {value}, expected columns and constants before it; write NOT EXISTS"
            );
        }
        let outer = value.clone().transform_up(|part| match part {
            Expr::Column(column) => {
                let field = Arc::clone(self.schema.field_from_column(&column)?);
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
            }
            other => Ok(Transformed::no(other)),
        });
        outer.data()
    }
}
