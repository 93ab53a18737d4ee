//! Refuses expressions whose operands have types that cannot be combined: in comparisons, in CASE,
//! COALESCE and the like, in set operations, and in casts.
//!
//! DataFusion compares a date with an integer by its days, compares a text with a number by casting
//! each text, and casts both branches of a CASE to text. PostgreSQL refuses all of these, and so
//! does this rule. Text constants and NULL take the type of the other operand.
//!
//! The rule runs before all rules that add casts and comparisons of their own.

use crate::visitors::{PlanTree, Tree};
use datafusion::{
    arrow::datatypes::DataType,
    common::{DFSchema, config::ConfigOptions, plan_err, tree_node::TreeNodeRecursion},
    error::Result,
    logical_expr::{
        Between, BinaryExpr, Case, Cast, DmlStatement, Expr, LogicalPlan, Operator, Union, WindowFrameBound,
        WindowFrameUnits,
        expr::{Alias, InList, InSubquery, SetComparison, WindowFunctionParams},
        utils::merge_schema,
    },
    optimizer::AnalyzerRule,
    scalar::ScalarValue,
};

use super::value_types::{CHOICES, Type, is_comparison, type_below, type_of, type_of_column};
use crate::{
    error::{EngineError, in_words_of_users},
    functions::{BYTEA, FIRST_ROWS, NAMED_CAST},
};

/// The rule that refuses operands whose types have nothing in common.
#[derive(Debug)]
pub(crate) struct OperandTypes;

/// Functions that take bytes, beside [`CHOICES`].
const TAKE_BYTES: [&str; 6] = [BYTEA, FIRST_ROWS, NAMED_CAST, "character_length", "encode", "length"];

/// Types whose values can be compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Number,
    Text,
    Boolean,
    /// Dates and timestamps.
    Day,
    /// Times of a day.
    Time,
    Interval,
    Bytes,
}

impl AnalyzerRule for OperandTypes {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.apply_queries(|plan| {
            check_plan(plan)?;
            let schema = merge_schema(&plan.inputs());
            plan.each_expression(|expression| {
                expression.apply(|part| check(part, &schema).map(|()| TreeNodeRecursion::Continue))
            })
        })?;
        Ok(plan)
    }

    fn name(&self) -> &'static str {
        "operand_types"
    }
}

fn check_plan(plan: &LogicalPlan) -> Result<()> {
    match plan {
        LogicalPlan::Union(Union { inputs, schema }) => {
            for column in 0..schema.fields().len() {
                let types = inputs.iter().map(|input| type_of_column(input, column));
                one_family("set operation", types)?;
            }
            Ok(())
        }
        LogicalPlan::Join(join) => join.on.iter().try_for_each(|(left, right)| {
            let types = [type_below(left, &join.left), type_below(right, &join.right)];
            comparable(&"=", &types)
        }),
        _ => Ok(()),
    }
}

fn check(expression: &Expr, schema: &DFSchema) -> Result<()> {
    let of = |expression: &Expr| type_of(expression, schema);
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            let is_truth = matches!(**right, Expr::Literal(ScalarValue::Boolean(Some(_)), _));
            if is_truth && matches!(op, Operator::IsDistinctFrom | Operator::IsNotDistinctFrom) {
                return boolean("IS TRUE, or IS FALSE,", &of(left));
            }
            comparable(op, &[of(left), of(right)])
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ Operator::StringConcat, right }) => {
            let types = [of(left), of(right)];
            let is_of_bytes = |found: &Type| matches!(found, Some(found) if found.is_binary());
            if types.iter().any(is_of_bytes) { comparable(op, &types) } else { Ok(()) }
        }
        Expr::ScalarFunction(function)
            if !TAKE_BYTES.contains(&function.name()) && !CHOICES.contains(&function.name()) =>
        {
            no_bytes(function.name(), &function.args, schema)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            boolean(&op.to_string(), &of(left))?;
            boolean(&op.to_string(), &of(right))
        }
        Expr::Between(Between { expr, low, high, .. }) => {
            comparable(&">=", &[of(expr), of(low)])?;
            comparable(&"<=", &[of(expr), of(high)])
        }
        Expr::InList(InList { expr, list, .. }) => {
            list.iter().try_for_each(|one| comparable(&"=", &[of(expr), of(one)]))
        }
        Expr::InSubquery(InSubquery { expr, subquery, .. }) => {
            comparable(&"=", &[of(expr), type_of_column(&subquery.subquery, 0)])
        }
        Expr::SetComparison(SetComparison { expr, subquery, op, .. }) => {
            comparable(op, &[of(expr), type_of_column(&subquery.subquery, 0)])
        }
        Expr::Case(case) => check_case(case, schema),
        Expr::ScalarFunction(function) if function.name() == "nullif" => {
            comparable(&"=", &function.args.iter().map(of).collect::<Vec<_>>())
        }
        Expr::ScalarFunction(function) if CHOICES.contains(&function.name()) => {
            one_family(function.name(), function.args.iter().map(of))
        }
        Expr::AggregateFunction(function) => {
            if function.func.name() == "string_agg" {
                no_bytes("string_agg", &function.params.args, schema)?;
            }
            function.params.filter.as_ref().map_or(Ok(()), |filter| boolean("FILTER", &of(filter)))
        }
        Expr::WindowFunction(function) => {
            if let ("lag" | "lead", [value, _, default]) =
                (function.fun.name(), function.params.args.as_slice())
            {
                one_family(function.fun.name(), [of(value), of(default)].into_iter())?;
            }
            check_frame(&function.params, schema)
        }
        Expr::Cast(Cast { expr, field }) => castable(&of(expr), field.data_type()),
        _ => Ok(()),
    }
}

/// Refuses bytes where DataFusion's functions would take them for texts.
fn no_bytes(function: &str, arguments: &[Expr], schema: &DFSchema) -> Result<()> {
    let mut types = arguments.iter().filter_map(|argument| type_of(argument, schema));
    if types.any(|found| found.is_binary()) {
        return plan_err!("No function matches the given name and argument types '{function}(bytea)'");
    }
    Ok(())
}

fn check_case(Case { expr, when_then_expr, else_expr }: &Case, schema: &DFSchema) -> Result<()> {
    for (when, _) in when_then_expr {
        match expr {
            Some(expr) => comparable(&"=", &[type_of(expr, schema), type_of(when, schema)])?,
            None => boolean("CASE WHEN", &type_of(when, schema))?,
        }
    }
    let thens = when_then_expr.iter().map(|(_, then)| then.as_ref());
    let values = thens.chain(else_expr.as_deref());
    one_family("CASE", values.map(|value| type_of(value, schema)))
}

/// Only numbers and times can have a distance (RANGE frames).
fn check_frame(window: &WindowFunctionParams, schema: &DFSchema) -> Result<()> {
    let frame = &window.window_frame;
    let has_distance = [&frame.start_bound, &frame.end_bound].into_iter().any(|bound| match bound {
        WindowFrameBound::Preceding(distance) | WindowFrameBound::Following(distance) => !distance.is_null(),
        WindowFrameBound::CurrentRow => false,
    });
    let Some(key) = window.order_by.first().and_then(|key| type_of(&key.expr, schema)) else { return Ok(()) };
    if frame.units == WindowFrameUnits::Range
        && has_distance
        && matches!(family(&key), Some(Family::Text | Family::Boolean))
    {
        return plan_err!("RANGE with a distance is not supported for ORDER BY of type {key}; write ROWS");
    }
    Ok(())
}

fn boolean(of: &str, found: &Type) -> Result<()> {
    match found {
        None | Some(DataType::Boolean) => Ok(()),
        Some(found) => plan_err!("the argument of {of} must be type boolean, not {found}"),
    }
}

fn comparable(op: &dyn std::fmt::Display, types: &[Type]) -> Result<()> {
    let [Some(left), Some(right)] = types else { return Ok(()) };
    if have_one_family(left, right) {
        return Ok(());
    }
    plan_err!("operator does not exist: {left} {op} {right}; cast one of them")
}

fn one_family(of: &str, types: impl Iterator<Item = Type>) -> Result<()> {
    let mut types = types.flatten();
    let Some(first) = types.next() else { return Ok(()) };
    match types.find(|other| !have_one_family(&first, other)) {
        None => Ok(()),
        Some(other) => {
            plan_err!("the types {first} and {other} of a {of} cannot be matched; cast one of them")
        }
    }
}

/// Types without a family are left to DataFusion.
fn have_one_family(left: &DataType, right: &DataType) -> bool {
    match (family(left), family(right)) {
        (Some(left), Some(right)) => left == right,
        _ => true,
    }
}

/// As PostgreSQL's explicit casts. Between booleans and numbers, only integers can be cast.
fn castable(from: &Type, to: &DataType) -> Result<()> {
    let Some(from) = from else { return Ok(()) };
    let (Some(of), Some(into)) = (family(from), family(to)) else { return Ok(()) };
    let is_allowed = match (of, into) {
        (of, into) if of == into => true,
        (Family::Text, _) | (_, Family::Text) => true,
        (Family::Number, Family::Boolean) => from.is_integer(),
        (Family::Boolean, Family::Number) => to.is_integer(),
        (Family::Day, Family::Time) => matches!(from, DataType::Timestamp(..)),
        (Family::Time, Family::Interval) | (Family::Interval, Family::Time) => true,
        _ => false,
    };
    if is_allowed { Ok(()) } else { plan_err!("cannot cast type {from} to {to}") }
}

/// Whether a column of type `to` may be set to values of type `from`.
pub(crate) fn is_assignable(from: &DataType, to: &DataType) -> bool {
    matches!(family(to), Some(Family::Text)) || have_one_family(from, to)
}

/// The error where [`is_assignable`] is false.
pub(crate) fn cannot_be_assigned(column: &str, to: &DataType, found: &DataType) -> EngineError {
    let message = format!("column {column:?} is of type {to}, and its new value of type {found}; cast it");
    EngineError::invalid("42804", in_words_of_users(&message))
}

/// Whether the rows of an INSERT may become rows of its table. Values in VALUES are already cast.
///
/// # Errors
/// A column with another kind of type.
pub(crate) fn check_inserted(insert: &DmlStatement) -> std::result::Result<(), EngineError> {
    let LogicalPlan::Projection(columns) = insert.input.as_ref() else { return Ok(()) };
    if matches!(columns.input.as_ref(), LogicalPlan::Values(_)) {
        return Ok(());
    }
    for (column, field) in columns.expr.iter().zip(columns.schema.fields()) {
        let mut value = column;
        while let Expr::Alias(Alias { expr, .. }) | Expr::Cast(Cast { expr, .. }) = value {
            value = expr;
        }
        if let Some(found) = type_below(value, &columns.input)
            && !is_assignable(&found, field.data_type())
        {
            return Err(cannot_be_assigned(field.name(), field.data_type(), &found));
        }
    }
    Ok(())
}

fn family(data_type: &DataType) -> Option<Family> {
    Some(match data_type {
        found if found.is_numeric() => Family::Number,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Family::Text,
        found if found.is_binary() => Family::Bytes,
        DataType::Boolean => Family::Boolean,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => Family::Day,
        DataType::Time32(_) | DataType::Time64(_) => Family::Time,
        DataType::Interval(_) | DataType::Duration(_) => Family::Interval,
        _ => return None,
    })
}
