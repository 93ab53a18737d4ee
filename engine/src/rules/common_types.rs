//! Chooses the common type of values of different types that are compared or that CASE and similar
//! expressions choose between.
//!
//! - A double and a decimal become doubles. Constants such as `1.5` are decimals here (so that
//!   `0.06 + 0.01` is `0.07`), and DataFusion would cast both sides to decimals with 15 digits
//!   before the point: 1e20 would fail the query, and zone maps could not be used.
//! - A timestamp and a date, or a constant text, become timestamps of microseconds. DataFusion
//!   would use nanoseconds, which only hold the years 1677 to 2262. A constant text needs no
//!   seconds.
//!
//! DataFusion handles expressions whose type is not known yet.

use crate::visitors::PlanTree;
use datafusion::{
    arrow::datatypes::{DataType, TimeUnit},
    common::{
        Column, DFSchema,
        config::ConfigOptions,
        tree_node::{Transformed, TransformedResult},
    },
    error::Result,
    logical_expr::{
        Between, BinaryExpr, Case, Cast, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator,
        Union, expr::InList, lit, type_coercion::binary::type_union_resolution,
    },
    optimizer::AnalyzerRule,
    scalar::ScalarValue,
};

use super::{
    expressions::rewritten,
    value_types::{CHOICES, is_comparison, type_of_column},
};
use crate::{
    functions::{INTERVAL, bytea},
    time_texts,
};
use std::sync::Arc;

const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
/// The rule that gives values of different types a common one.
#[derive(Debug)]
pub(crate) struct CommonTypes;

impl AnalyzerRule for CommonTypes {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = rewritten(plan, |expression, schema| Ok(rewrite(expression, schema)))?;
        let unified = plan.transform_queries_up(|plan| match plan {
            LogicalPlan::Union(union) => unified(union),
            other => Ok(Transformed::no(other)),
        })?;
        if !unified.transformed {
            return Ok(unified.data);
        }
        // The operators above see the new types.
        let above = |plan: LogicalPlan| plan.recompute_schema().map(Transformed::yes);
        unified.data.transform_queries_up(above).data()
    }

    fn name(&self) -> &'static str {
        "common_types"
    }
}

fn rewrite(mut expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let changed = match &mut expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            unify([left.as_mut(), right.as_mut()], schema)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
            let is_of_bytes = |side: &Expr| side.get_type(schema).is_ok_and(|found| found.is_binary());
            (is_of_bytes(left) || is_of_bytes(right)) && unify([left.as_mut(), right.as_mut()], schema)
        }
        Expr::Between(Between { expr, low, high, .. }) => {
            unify([expr.as_mut(), low.as_mut(), high.as_mut()], schema)
        }
        Expr::InList(InList { expr, list, .. }) => {
            unify(std::iter::once(expr.as_mut()).chain(list.iter_mut()), schema)
        }
        Expr::Case(Case { expr, when_then_expr, else_expr }) => {
            let compared = expr.is_some() && {
                let whens = when_then_expr.iter_mut().map(|(when, _)| when.as_mut());
                unify(expr.iter_mut().map(|expr| expr.as_mut()).chain(whens), schema)
            };
            let thens = when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
            let values: Vec<&mut Expr> =
                thens.chain(else_expr.iter_mut().map(|expr| expr.as_mut())).collect();
            choose(values, Numbers::Unified, schema) || compared
        }
        Expr::ScalarFunction(function) if CHOICES.contains(&function.name()) => {
            choose(function.args.iter_mut().collect(), Numbers::AsTheyAre, schema)
        }
        Expr::Cast(Cast { expr, field }) => complete(expr, field.data_type()),
        _ => false,
    };
    if changed { Transformed::yes(expression) } else { Transformed::no(expression) }
}

/// Whether numbers of different types get a common type. Functions do that themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbers {
    Unified,
    AsTheyAre,
}

/// As [`unify`], for values of which one is chosen: text constants take the type of another value.
fn choose(mut values: Vec<&mut Expr>, numbers: Numbers, schema: &DFSchema) -> bool {
    let types = |values: &[&mut Expr]| -> Vec<DataType> {
        let values = values.iter().filter(|value| !is_text_constant(value));
        let types = values.filter_map(|value| value.get_type(schema).ok());
        types.filter(|found| *found != DataType::Null).collect()
    };
    let mut changed = false;
    let found = types(&values);
    if let Some(to) = found.iter().find(|found| !found.is_decimal())
        && !is_text(to)
    {
        for value in values.iter_mut().filter(|value| is_text_constant(value)) {
            cast_constant(value, to);
            changed = true;
        }
    }
    let found = types(&values);
    if numbers == Numbers::Unified
        && found.iter().all(DataType::is_numeric)
        && let Some(to) = common_number(&found)
    {
        for value in &mut values {
            if !value.get_type(schema).is_ok_and(|found| found == to || found == DataType::Null) {
                **value = Expr::Cast(Cast::new(Box::new(std::mem::take(*value)), to.clone()));
                changed = true;
            }
        }
    }
    unify(values, schema) || changed
}

/// The common type of numbers of these types. Beside decimals, DataFusion makes doubles decimals of
/// 15 digits before the point.
pub(super) fn common_number(types: &[DataType]) -> Option<DataType> {
    let is_mixed = types.iter().any(DataType::is_floating) && !types.iter().all(DataType::is_floating);
    if is_mixed { Some(DataType::Float64) } else { type_union_resolution(types) }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn cast_constant(constant: &mut Expr, to: &DataType) {
    complete(constant, to);
    *constant = cast_value(std::mem::take(constant), to);
}

fn cast_value(value: Expr, to: &DataType) -> Expr {
    match to.is_binary() {
        true => bytea().call(vec![value]),
        false => Expr::Cast(Cast::new(Box::new(value), to.clone())),
    }
}

/// Casts expressions to their common type, where this rule defines one. Returns whether that
/// changes any of them.
fn unify<'a>(parts: impl IntoIterator<Item = &'a mut Expr>, schema: &DFSchema) -> bool {
    let mut parts: Vec<(&mut Expr, DataType)> = parts
        .into_iter()
        .filter_map(|part| part.get_type(schema).ok().map(|data_type| (part, data_type)))
        .collect();
    let any = |wanted: &dyn Fn(&DataType) -> bool| parts.iter().any(|(_, data_type)| wanted(data_type));
    let is_decimal = |data_type: &DataType| data_type.is_decimal();
    let is_time = |data_type: &DataType| matches!(data_type, DataType::Timestamp(_, None));
    let to = if any(&DataType::is_floating) && any(&is_decimal) {
        DataType::Float64
    } else if any(&is_time) {
        TIMESTAMP
    } else {
        // DataFusion does not compare texts with these.
        let is_never_text = |found: &&DataType| {
            found.is_binary()
                || matches!(
                    found,
                    DataType::Boolean | DataType::Interval(_) | DataType::Duration(_) | DataType::Time64(_)
                )
        };
        let to = match parts.iter().map(|(_, found)| found).find(is_never_text) {
            None => return false,
            Some(DataType::Duration(_)) => INTERVAL,
            Some(found) => found.clone(),
        };
        let constants = parts.iter_mut().filter(|(part, _)| is_text_constant(part));
        return constants.map(|(part, _)| cast_constant(part, &to)).count() > 0;
    };
    let mut changed = false;
    for (part, data_type) in &mut parts {
        let is_changed = match to {
            DataType::Float64 => data_type.is_decimal(),
            _ => *data_type == DataType::Date32 || is_text_constant(part),
        };
        if is_changed {
            complete(part, &to);
            **part = Expr::Cast(Cast::new(Box::new(std::mem::take(*part)), to.clone()));
            changed = true;
        }
    }
    changed
}

/// A union whose columns have their common types in all inputs.
fn unified(union: Union) -> Result<Transformed<LogicalPlan>> {
    let columns = union.schema.fields().len();
    let type_of = |input: &Arc<LogicalPlan>, column: usize| input.schema().field(column).data_type().clone();
    let common: Vec<Option<DataType>> = (0..columns)
        .map(|column| {
            let types: Vec<DataType> = union.inputs.iter().map(|input| type_of(input, column)).collect();
            let told = union.inputs.iter().map(|input| type_of_column(input, column));
            let common = common_type(&types).or_else(|| beside_constants(&told.collect::<Vec<_>>()));
            common.filter(|common| types.iter().any(|found| found != common))
        })
        .collect();
    if common.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let cast = |input: Arc<LogicalPlan>| {
        let fields = input.schema().iter().zip(&common).map(|((qualifier, field), common)| {
            let column = Expr::Column(Column::from((qualifier, field)));
            match common {
                Some(common) if common != field.data_type() => {
                    let cast = cast_value(column, common);
                    cast.alias_qualified(qualifier.cloned(), field.name())
                }
                _ => column,
            }
        });
        let fields: Vec<Expr> = fields.collect();
        LogicalPlanBuilder::from(input.as_ref().clone()).project(fields)?.build().map(Arc::new)
    };
    let inputs = union.inputs.into_iter().map(cast).collect::<Result<Vec<_>>>()?;
    Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)))
}

/// The type of a column that has text constants (`None`) in some inputs, and no texts in the
/// others.
fn beside_constants(types: &[Option<DataType>]) -> Option<DataType> {
    let told: Vec<DataType> = types.iter().flatten().cloned().collect();
    if told.len() == types.len() || told.is_empty() || told.iter().any(is_text) {
        return None;
    }
    type_union_resolution(&told)
}

/// The common type of values of these types, where this rule defines one. Others are left alone.
fn common_type(types: &[DataType]) -> Option<DataType> {
    let any = |wanted: &dyn Fn(&DataType) -> bool| types.iter().any(wanted);
    if any(&DataType::is_floating) && any(&|data_type| data_type.is_decimal()) {
        return Some(DataType::Float64);
    }
    let is_time = |data_type: &DataType| matches!(data_type, DataType::Timestamp(_, None));
    let is_date = |data_type: &DataType| *data_type == DataType::Date32;
    (any(&is_time) && any(&is_date) && types.iter().all(|found| is_time(found) || is_date(found)))
        .then_some(TIMESTAMP)
}

/// Rewrites a constant text so that arrow parses it as a time. Returns whether that changes it.
fn complete(constant: &mut Expr, to: &DataType) -> bool {
    let Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) = constant else {
        return false;
    };
    let complete = match to {
        DataType::Timestamp(..) => time_texts::with_seconds(text),
        DataType::Interval(_) => time_texts::interval(text),
        _ => None,
    };
    complete.map(|complete| *constant = lit(complete)).is_some()
}

fn is_text_constant(part: &Expr) -> bool {
    matches!(part, Expr::Literal(ScalarValue::Utf8(Some(_)) | ScalarValue::Utf8View(Some(_)), _))
}
