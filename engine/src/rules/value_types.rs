//! Finds the types of expressions and of the columns of a plan.
//!
//! Text constants and NULL have no type here, because they take the type of the other operand.

use datafusion::{
    arrow::datatypes::DataType,
    common::DFSchema,
    logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator},
    scalar::ScalarValue,
};

/// Functions whose result is one of their arguments.
pub(super) const CHOICES: [&str; 6] = ["coalesce", "greatest", "ifnull", "least", "nullif", "nvl"];

/// A value's type; `None` if the value takes the type of the others.
pub(super) type Type = Option<DataType>;

/// Whether an operator compares two values.
pub(super) fn is_comparison(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

/// The type of an expression over a schema.
pub(super) fn type_of(expression: &Expr, schema: &DFSchema) -> Type {
    match expression {
        Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Utf8View(_), _) => None,
        Expr::Alias(alias) => type_of(&alias.expr, schema),
        // DataFusion would visit everything inside it again at each level.
        Expr::BinaryExpr(BinaryExpr { op, .. })
            if is_comparison(*op) || matches!(op, Operator::And | Operator::Or) =>
        {
            Some(DataType::Boolean)
        }
        other => other.get_type(schema).ok().filter(|found| *found != DataType::Null),
    }
}

/// The type of an expression over the output of a plan.
pub(super) fn type_below(expression: &Expr, plan: &LogicalPlan) -> Type {
    let index = |column| plan.schema().index_of_column(column).ok();
    match expression {
        Expr::Column(column) => index(column).and_then(|column| type_of_column(plan, column)),
        other => type_of(other, plan.schema()),
    }
}

/// The type of a column of a plan; `None` for a column of text constants.
pub(super) fn type_of_column(plan: &LogicalPlan, column: usize) -> Type {
    match plan {
        LogicalPlan::Projection(projection) => match &projection.expr[column] {
            Expr::Column(_) => type_below(&projection.expr[column], &projection.input),
            other => type_of(other, projection.input.schema()),
        },
        LogicalPlan::SubqueryAlias(alias) => type_of_column(&alias.input, column),
        LogicalPlan::Distinct(distinct) => type_of_column(distinct.input(), column),
        LogicalPlan::Filter(filter) => type_of_column(&filter.input, column),
        LogicalPlan::Sort(sort) => type_of_column(&sort.input, column),
        LogicalPlan::Limit(limit) => type_of_column(&limit.input, column),
        LogicalPlan::Values(values) => {
            let of_row = |row: &Vec<Expr>| type_of(&row[column], &DFSchema::empty());
            values.values.iter().find_map(of_row)
        }
        other => {
            let found = other.schema().field(column).data_type();
            (*found != DataType::Null).then(|| found.clone())
        }
    }
}
