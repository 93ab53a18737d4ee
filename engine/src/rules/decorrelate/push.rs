//! Turns a subquery into a plan with its domain, which is the set of outer values that it is
//! computed for.
//!
//! Each operator gets the domain's columns from its input, and returns them, too. An operator over
//! all rows (an aggregate, a window, LIMIT, DISTINCT) becomes one over all rows with equal values
//! in these columns (Neumann and Kemper, section 3). A plan that uses no outer column is combined
//! with every row of the domain.

use std::sync::Arc;

use datafusion::{
    common::{Column, JoinType, not_impl_err, plan_err},
    error::Result,
    functions::expr_fn::coalesce,
    functions_window::expr_fn::row_number,
    logical_expr::{
        Aggregate, Case, Distinct, DistinctOn, Expr, ExprFunctionExt, FetchType, Filter, Join, Limit,
        LogicalPlan, LogicalPlanBuilder, Projection, SkipType, Sort, SortExpr, SubqueryAlias, Union, Values,
        Window, cast, expr::GroupingSet, lit,
    },
    scalar::ScalarValue,
};

use super::domain::{Domain, JoinOf, WithDomain, join_by_domain};
use crate::rules::shared_rows::SharedRows;
use datafusion::arrow::datatypes::DataType;

/// The plan with the domain.
///
/// # Errors
/// Operators that cannot have outer columns.
pub(super) fn with_domain(plan: &LogicalPlan, domain: &Domain<'_>) -> Result<WithDomain> {
    if domain.columns().is_empty() {
        return Ok(WithDomain { plan: plan.clone(), columns: Vec::new() });
    }
    if !domain.is_used(plan)? {
        let copy = domain.copy()?;
        let plan = LogicalPlanBuilder::from(plan.clone()).cross_join(copy.plan)?.build()?;
        return Ok(WithDomain { plan, columns: copy.columns });
    }
    match plan {
        LogicalPlan::Projection(projection) => of_projection(projection, domain),
        LogicalPlan::SubqueryAlias(alias) => {
            let input = with_domain(&alias.input, domain)?;
            let plan = SubqueryAlias::try_new(Arc::new(input.plan), alias.alias.clone())?;
            Ok(requalified(LogicalPlan::SubqueryAlias(plan), &input.columns))
        }
        LogicalPlan::Subquery(lateral) => with_domain(&lateral.subquery, domain),
        LogicalPlan::Filter(filter) => {
            let input = with_domain(&filter.input, domain)?;
            let predicate = domain.replaced(filter.predicate.clone(), &input.columns)?;
            let plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input.plan))?);
            Ok(WithDomain { plan, columns: input.columns })
        }
        LogicalPlan::Join(join) => of_join(join, domain),
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => of_total(aggregate, domain),
        LogicalPlan::Aggregate(aggregate) => of_groups(aggregate, domain),
        LogicalPlan::Window(window) => of_window(window, domain),
        LogicalPlan::Sort(sort) => {
            let input = with_domain(&sort.input, domain)?;
            let expr = sort_keys(&sort.expr, domain, &input.columns)?;
            let plan = LogicalPlan::Sort(Sort { expr, input: Arc::new(input.plan), fetch: None });
            assert!(sort.fetch.is_none(), "a limit is an operator of its own before plans are optimized");
            Ok(WithDomain { plan, columns: input.columns })
        }
        LogicalPlan::Limit(limit) => of_limit(limit, domain),
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let input = with_domain(input, domain)?;
            let plan = LogicalPlan::Distinct(Distinct::All(Arc::new(input.plan)));
            Ok(WithDomain { plan, columns: input.columns })
        }
        LogicalPlan::Distinct(Distinct::On(distinct)) => of_distinct_on(distinct, domain),
        LogicalPlan::Union(union) => {
            let inputs = union.inputs.iter().map(|input| with_domain(input, domain));
            of_union(inputs.collect::<Result<_>>()?, plan, domain)
        }
        LogicalPlan::Values(values) => of_values(values, plan, domain),
        LogicalPlan::Unnest(unnest) => {
            let input = with_domain(&unnest.input, domain)?;
            let builder = LogicalPlanBuilder::from(input.plan);
            let columns = unnest.exec_columns.clone();
            let plan = builder.unnest_columns_with_options(columns, unnest.options.clone())?.build()?;
            Ok(WithDomain { plan, columns: input.columns })
        }
        LogicalPlan::Extension(extension) => match SharedRows::of(extension) {
            Some((number, input)) => domain.shared(number, || with_domain(input, domain)),
            None => refused(plan),
        },
        other => refused(other),
    }
}

fn refused(plan: &LogicalPlan) -> Result<WithDomain> {
    not_impl_err!(
        "a column of an outer query in {} is not supported; join with it instead",
        plan.display().to_string().split(':').next().unwrap_or_default()
    )
}

fn columns_of(columns: &[Column]) -> impl Iterator<Item = Expr> {
    columns.iter().cloned().map(Expr::Column)
}

/// A plan in which all columns, those of the domain too, have a qualifier of its own.
fn requalified(plan: LogicalPlan, columns: &[Column]) -> WithDomain {
    let schema = plan.schema();
    let start = schema.fields().len();
    let named = |column: &Column| {
        let found = schema.columns().into_iter().rev().find(|found| found.name == column.name);
        found.unwrap_or_else(|| panic!("{start} columns have {column}, for its name is given out once"))
    };
    let columns = columns.iter().map(named).collect();
    WithDomain { plan, columns }
}

fn of_projection(projection: &Projection, domain: &Domain<'_>) -> Result<WithDomain> {
    let input = with_domain(&projection.input, domain)?;
    let mut expressions = projection
        .expr
        .iter()
        .map(|expression| domain.replaced_by_name(expression.clone(), &input.columns))
        .collect::<Result<Vec<_>>>()?;
    expressions.extend(columns_of(&input.columns));
    let plan = LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(input.plan))?);
    Ok(WithDomain { plan, columns: input.columns })
}

fn of_join(join: &Join, domain: &Domain<'_>) -> Result<WithDomain> {
    let (in_left, in_right) = (domain.is_used(&join.left)?, domain.is_used_right(join)?);
    // A join that returns the rows of one side only needs the domain on that side.
    let (left, right) = match join.join_type {
        JoinType::Inner => (in_left || !in_right, in_right),
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => (true, in_right),
        JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => (in_left, true),
        JoinType::Full => (true, true),
    };
    let side = |input: &LogicalPlan, has_domain: bool| {
        if has_domain { with_domain(input, domain).map(Some) } else { Ok(None) }
    };
    let (left, right) = (side(&join.left, left)?, side(&join.right, right)?);
    let used = match (join.join_type, &left, &right) {
        (
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark,
            _,
            Some(right),
        ) => right.columns.clone(),
        (_, Some(left), _) => left.columns.clone(),
        (_, None, Some(right)) => right.columns.clone(),
        (_, None, None) => unreachable!("one side at least has the domain"),
    };
    let by: Vec<_> = match (&left, &right) {
        (Some(left), Some(right)) => {
            left.columns.iter().cloned().zip(right.columns.iter().cloned()).collect()
        }
        _ => Vec::new(),
    };
    let replaced = |expression: &Expr| domain.replaced(expression.clone(), &used);
    let on = join.on.iter().map(|(left, right)| Ok((replaced(left)?, replaced(right)?)));
    let of = JoinOf {
        join_type: join.join_type,
        on: on.collect::<Result<_>>()?,
        filter: join.filter.as_ref().map(replaced).transpose()?,
        null_equality: join.null_equality,
    };
    let plan_of =
        |side: Option<WithDomain>, input: &LogicalPlan| side.map_or_else(|| input.clone(), |side| side.plan);
    let (left, right) = (plan_of(left, &join.left), plan_of(right, &join.right));
    if by.is_empty() {
        let changed = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            of.on,
            of.filter,
            of.join_type,
            join.join_constraint,
            of.null_equality,
            join.null_aware,
        )?;
        return Ok(WithDomain { plan: LogicalPlan::Join(changed), columns: used });
    }
    let plan = join_by_domain(left, right, &by, of)?;
    if join.join_type != JoinType::Full {
        return Ok(WithDomain { plan, columns: used });
    }
    // A row of one side alone has NULL in the columns of the other side. So each domain column is
    // taken from the side that has it.
    let name = domain.names().next("outer");
    let mut expressions: Vec<_> = columns_of(&join.schema.columns()).collect();
    for (index, (left, right)) in by.into_iter().enumerate() {
        let either = coalesce(vec![Expr::Column(left), Expr::Column(right)]);
        expressions.push(either.alias_qualified(Some(name.as_str()), format!("{name}_{index}")));
    }
    let start = expressions.len() - domain.columns().len();
    let plan = LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(plan))?);
    let columns = plan.schema().columns().split_off(start);
    Ok(WithDomain { plan, columns })
}

/// An aggregate without groups has a row even for no rows.
fn of_total(aggregate: &Aggregate, domain: &Domain<'_>) -> Result<WithDomain> {
    let grouped = of_groups(aggregate, domain)?;
    let found = domain.names().next("found");
    let builder = LogicalPlanBuilder::from(grouped.plan);
    let mut columns: Vec<_> = columns_of(&builder.schema().columns()).collect();
    columns.push(lit(true).alias(&found));
    let grouped_plan = builder.project(columns)?.build()?;
    let copy = domain.copy()?;
    let by: Vec<_> = copy.columns.iter().cloned().zip(grouped.columns).collect();
    let joined = join_by_domain(copy.plan, grouped_plan, &by, JoinOf::new(JoinType::Left, None))?;
    let is_missing = Expr::Column(Column::new_unqualified(found)).is_null();
    let mut expressions = Vec::new();
    for (expression, column) in aggregate.aggr_expr.iter().zip(aggregate.schema.columns()) {
        let of_none =
            of_no_rows(expression, aggregate.schema.field_with_name(None, &column.name)?.data_type())?;
        let value = Expr::Column(column.clone());
        expressions.push(if of_none.is_null() {
            value
        } else {
            let when_then_expr = vec![(Box::new(is_missing.clone()), Box::new(lit(of_none)))];
            let case = Expr::Case(Case { expr: None, when_then_expr, else_expr: Some(Box::new(value)) });
            case.alias_qualified(column.relation, column.name)
        });
    }
    expressions.extend(columns_of(&copy.columns));
    let plan = LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(joined))?);
    Ok(WithDomain { plan, columns: copy.columns })
}

/// The value of an aggregate over no rows.
fn of_no_rows(expression: &Expr, kind: &DataType) -> Result<ScalarValue> {
    match expression {
        Expr::Alias(alias) => of_no_rows(&alias.expr, kind),
        Expr::AggregateFunction(aggregate) => aggregate.func.default_value(kind),
        other => plan_err!("{other} is not an aggregate"),
    }
}

fn of_groups(aggregate: &Aggregate, domain: &Domain<'_>) -> Result<WithDomain> {
    let input = with_domain(&aggregate.input, domain)?;
    let replaced = |expression: &Expr| domain.replaced_by_name(expression.clone(), &input.columns);
    let group_expr = match aggregate.group_expr.as_slice() {
        [Expr::GroupingSet(sets)] => {
            let replaced = |expression: &Expr| domain.replaced(expression.clone(), &input.columns);
            let sets = sets_of(sets).into_iter().map(|set| {
                if set.is_empty() {
                    return not_impl_err!(
                        "a correlated subquery over ROLLUP, CUBE or GROUPING SETS (()) is not supported; \
                         join with it instead"
                    );
                }
                let set = set.iter().map(replaced).collect::<Result<Vec<_>>>()?;
                Ok(set.into_iter().chain(columns_of(&input.columns)).collect())
            });
            vec![Expr::GroupingSet(GroupingSet::GroupingSets(sets.collect::<Result<_>>()?))]
        }
        groups => {
            let groups = groups.iter().map(replaced).collect::<Result<Vec<_>>>()?;
            groups.into_iter().chain(columns_of(&input.columns)).collect()
        }
    };
    let aggr_expr = aggregate.aggr_expr.iter().map(replaced).collect::<Result<_>>()?;
    let plan = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(input.plan), group_expr, aggr_expr)?);
    Ok(WithDomain { plan, columns: input.columns })
}

fn sets_of(sets: &GroupingSet) -> Vec<Vec<Expr>> {
    match sets {
        GroupingSet::GroupingSets(sets) => sets.clone(),
        // They include the set of no columns, which is refused.
        GroupingSet::Rollup(_) | GroupingSet::Cube(_) => vec![Vec::new()],
    }
}

fn of_window(window: &Window, domain: &Domain<'_>) -> Result<WithDomain> {
    let input = with_domain(&window.input, domain)?;
    let within = |expression: &Expr| {
        let mut replaced = domain.replaced(expression.clone().unalias(), &input.columns)?;
        let Expr::WindowFunction(function) = &mut replaced else {
            return plan_err!("{expression} is not a window function");
        };
        function.params.partition_by.extend(columns_of(&input.columns));
        Ok(replaced)
    };
    let expressions = window.window_expr.iter().map(within).collect::<Result<Vec<_>>>()?;
    let computed = Window::try_new(expressions, Arc::new(input.plan))?;
    let mut selected = as_in_window(window, &computed);
    selected.extend(columns_of(&input.columns));
    let plan =
        LogicalPlan::Projection(Projection::try_new(selected, Arc::new(LogicalPlan::Window(computed)))?);
    Ok(WithDomain { plan, columns: input.columns })
}

/// The output columns of `window`, from a window with other expressions for them.
pub(super) fn as_in_window(window: &Window, computed: &Window) -> Vec<Expr> {
    let count = window.window_expr.len();
    let (wanted, found) = (window.schema.columns(), computed.schema.columns());
    let (kept, renamed) = wanted.split_at(wanted.len() - count);
    let values = found[found.len() - count..].iter().zip(renamed).map(|(column, name)| {
        Expr::Column(column.clone()).alias_qualified(name.relation.clone(), name.name.clone())
    });
    columns_of(kept).chain(values).collect()
}

fn sort_keys(keys: &[SortExpr], domain: &Domain<'_>, columns: &[Column]) -> Result<Vec<SortExpr>> {
    let key =
        |key: &SortExpr| Ok(SortExpr { expr: domain.replaced(key.expr.clone(), columns)?, ..key.clone() });
    keys.iter().map(key).collect()
}

/// LIMIT selects by the number of a row among those with the same domain values.
fn of_limit(limit: &Limit, domain: &Domain<'_>) -> Result<WithDomain> {
    let limited = limited(limit, domain, &domain.names().next("row"))?;
    let mut selected: Vec<_> = columns_of(&limit.input.schema().columns()).collect();
    selected.extend(columns_of(&limited.columns));
    let plan = LogicalPlan::Projection(Projection::try_new(selected, Arc::new(limited.plan))?);
    Ok(WithDomain { plan, columns: limited.columns })
}

/// The rows that LIMIT keeps, with their numbers.
fn limited(limit: &Limit, domain: &Domain<'_>, number: &str) -> Result<WithDomain> {
    let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
        (limit.get_skip_type()?, limit.get_fetch_type()?)
    else {
        return not_impl_err!("LIMIT and OFFSET of a correlated subquery have to be numbers");
    };
    let numbered = numbered(&limit.input, domain, number)?;
    let (skip, fetch) = (of_count(skip)?, fetch.map(of_count).transpose()?);
    let row = cast(Expr::Column(Column::new_unqualified(number)), DataType::Int64);
    let mut kept = row.clone().gt(lit(skip));
    if let Some(fetch) = fetch {
        let last = skip.checked_add(fetch).unwrap_or_else(|| unreachable!("both are positions of rows"));
        kept = kept.and(row.lt_eq(lit(last)));
    }
    let plan = LogicalPlan::Filter(Filter::try_new(kept, Arc::new(numbered.plan))?);
    Ok(WithDomain { plan, columns: numbered.columns })
}

fn of_count(rows: usize) -> Result<i64> {
    let rows = i64::try_from(rows).ok().filter(|rows| *rows <= i64::MAX / 2);
    rows.map_or_else(|| plan_err!("LIMIT or OFFSET beyond {} rows", i64::MAX / 2), Ok)
}

/// The plan with the domain and the numbers of the rows, in the order of the sort below.
fn numbered(plan: &LogicalPlan, domain: &Domain<'_>, number: &str) -> Result<WithDomain> {
    let number_column = || Expr::Column(Column::new_unqualified(number));
    match plan {
        LogicalPlan::Projection(projection) if is_sorted(&projection.input) => {
            let input = numbered(&projection.input, domain, number)?;
            let replaced = |expression: &Expr| domain.replaced_by_name(expression.clone(), &input.columns);
            let mut expressions = projection.expr.iter().map(replaced).collect::<Result<Vec<_>>>()?;
            expressions.extend(columns_of(&input.columns));
            expressions.push(number_column());
            let plan = LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(input.plan))?);
            Ok(WithDomain { plan, columns: input.columns })
        }
        LogicalPlan::SubqueryAlias(alias) if is_sorted(&alias.input) => {
            let input = numbered(&alias.input, domain, number)?;
            let plan = SubqueryAlias::try_new(Arc::new(input.plan), alias.alias.clone())?;
            Ok(requalified(LogicalPlan::SubqueryAlias(plan), &input.columns))
        }
        LogicalPlan::Sort(sort) => {
            let input = with_domain(&sort.input, domain)?;
            let keys = sort_keys(&sort.expr, domain, &input.columns)?;
            number_rows(input, keys, number)
        }
        LogicalPlan::Limit(limit) => {
            let inner = domain.names().next("row");
            let input = limited(limit, domain, &inner)?;
            let key = Expr::Column(Column::new_unqualified(inner)).sort(true, false);
            number_rows(input, vec![key], number)
        }
        LogicalPlan::Filter(filter) if is_sorted(&filter.input) => {
            let before = domain.names().next("row");
            let input = numbered(&filter.input, domain, &before)?;
            let predicate = domain.replaced(filter.predicate.clone(), &input.columns)?;
            let plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input.plan))?);
            let key = Expr::Column(Column::new_unqualified(before)).sort(true, false);
            number_rows(WithDomain { plan, columns: input.columns }, vec![key], number)
        }
        LogicalPlan::Distinct(Distinct::On(_)) => {
            not_impl_err!("LIMIT over DISTINCT ON in a correlated subquery is not supported")
        }
        other => number_rows(with_domain(other, domain)?, Vec::new(), number),
    }
}

/// Whether a sort determines the order of rows.
fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) | LogicalPlan::Limit(_) | LogicalPlan::Distinct(Distinct::On(_)) => true,
        LogicalPlan::Projection(projection) => is_sorted(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_sorted(&alias.input),
        LogicalPlan::Filter(filter) => is_sorted(&filter.input),
        _ => false,
    }
}

fn number_rows(input: WithDomain, keys: Vec<SortExpr>, number: &str) -> Result<WithDomain> {
    let row = row_number().partition_by(columns_of(&input.columns).collect());
    let row = if keys.is_empty() { row } else { row.order_by(keys) };
    let row = row.build()?;
    let mut selected: Vec<_> = columns_of(&input.plan.schema().columns()).collect();
    let window = Window::try_new(vec![row], Arc::new(input.plan))?;
    let Some(column) = window.schema.columns().pop() else { return plan_err!("a window without a column") };
    selected.push(Expr::Column(column).alias(number));
    let plan = LogicalPlan::Projection(Projection::try_new(selected, Arc::new(LogicalPlan::Window(window)))?);
    Ok(WithDomain { plan, columns: input.columns })
}

fn of_distinct_on(distinct: &DistinctOn, domain: &Domain<'_>) -> Result<WithDomain> {
    let input = with_domain(&distinct.input, domain)?;
    let columns = &input.columns;
    let on = distinct.on_expr.iter().map(|expression| domain.replaced(expression.clone(), columns));
    let selected =
        distinct.select_expr.iter().map(|expression| domain.replaced_by_name(expression.clone(), columns));
    // The sort keys begin with those of ON.
    let of_domain = || columns_of(columns);
    let sorts = distinct.sort_expr.as_ref().map(|keys| -> Result<Vec<_>> {
        let keys = sort_keys(keys, domain, columns)?;
        Ok(of_domain().map(|column| column.sort(true, false)).chain(keys).collect())
    });
    let on = of_domain().map(Ok).chain(on).collect::<Result<_>>()?;
    let selected = selected.chain(of_domain().map(Ok)).collect::<Result<_>>()?;
    let plan = DistinctOn::try_new(on, selected, sorts.transpose()?, Arc::new(input.plan.clone()))?;
    Ok(WithDomain { plan: LogicalPlan::Distinct(Distinct::On(plan)), columns: input.columns })
}

/// The union of plans with the domain, with the columns of `plan`.
fn of_union(inputs: Vec<WithDomain>, plan: &LogicalPlan, domain: &Domain<'_>) -> Result<WithDomain> {
    let name = domain.names().next("outer");
    let width = plan.schema().fields().len();
    let mut branches = Vec::new();
    for input in inputs {
        let all = input.plan.schema().columns();
        let own = all.iter().filter(|column| !input.columns.contains(column)).take(width);
        let mut selected: Vec<_> = own.cloned().map(Expr::Column).collect();
        assert_eq!(selected.len(), width, "a plan with its domain has its own columns");
        for (index, column) in input.columns.iter().enumerate() {
            let renamed =
                Expr::Column(column.clone()).alias_qualified(Some(name.as_str()), format!("{name}_{index}"));
            selected.push(renamed);
        }
        branches
            .push(Arc::new(LogicalPlan::Projection(Projection::try_new(selected, Arc::new(input.plan))?)));
    }
    let union = LogicalPlan::Union(Union::try_new_with_loose_types(branches)?);
    let found = union.schema().columns();
    let mut selected = Vec::new();
    for (column, wanted) in found.iter().zip(plan.schema().columns()) {
        let value = Expr::Column(column.clone());
        let is_same = *column == wanted;
        selected.push(if is_same { value } else { value.alias_qualified(wanted.relation, wanted.name) });
    }
    selected.extend(columns_of(&found[width..]));
    let plan = LogicalPlan::Projection(Projection::try_new(selected, Arc::new(union))?);
    let columns = plan.schema().columns().split_off(width);
    Ok(WithDomain { plan, columns })
}

/// Each row of VALUES becomes a select list over the domain.
fn of_values(values: &Values, plan: &LogicalPlan, domain: &Domain<'_>) -> Result<WithDomain> {
    let mut rows = Vec::new();
    for row in &values.values {
        let copy = domain.copy()?;
        let named = row.iter().zip(values.schema.fields()).map(|(value, field)| {
            let value = domain.replaced(value.clone(), &copy.columns)?;
            Ok(cast(value, field.data_type().clone()).alias(field.name()))
        });
        let mut selected = named.collect::<Result<Vec<_>>>()?;
        selected.extend(columns_of(&copy.columns));
        let plan = LogicalPlan::Projection(Projection::try_new(selected, Arc::new(copy.plan))?);
        rows.push(WithDomain { plan, columns: copy.columns });
    }
    match <[WithDomain; 1]>::try_from(rows) {
        Ok([row]) => Ok(row),
        Err(rows) => of_union(rows, plan, domain),
    }
}

/// Whether a plan has at most one row for each row of its domain.
pub(super) fn has_single_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_single_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_single_row(&alias.input),
        LogicalPlan::Filter(filter) => has_single_row(&filter.input),
        LogicalPlan::Sort(sort) => has_single_row(&sort.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Limit(limit) => {
            matches!(limit.get_fetch_type(), Ok(FetchType::Literal(Some(0 | 1))))
                || has_single_row(&limit.input)
        }
        LogicalPlan::Values(values) => values.values.len() <= 1,
        LogicalPlan::EmptyRelation(_) => true,
        _ => false,
    }
}
