//! Translates a physical expression of DataFusion into nodes of a scan program.

use super::{Binding, ProgramBuilder, Untranslatable, literal::literal, value_type};
use crate::functions::{Checked, ONE_NAN};
use datafusion::{
    arrow::datatypes::Schema,
    logical_expr::Operator,
    physical_expr::{
        PhysicalExpr, ScalarFunctionExpr,
        expressions::{
            BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
            Literal as LiteralExpr, NegativeExpr, NotExpr,
        },
    },
};
use rackscan_format::program::{Arithmetic, Comparison, DatePart, Literal, Node, NodeIndex, ValueType};
use std::sync::Arc;

type Expression = Arc<dyn PhysicalExpr>;
type Translated = Result<NodeIndex, Untranslatable>;

impl ProgramBuilder<'_> {
    pub(super) fn expression(&mut self, expression: &Expression) -> Translated {
        if let Some(column) = expression.downcast_ref::<Column>() {
            return self.bound_column(column);
        }
        if let Some(constant) = expression.downcast_ref::<LiteralExpr>() {
            return self.node(Node::Literal(literal(constant.value())?));
        }
        if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
            return self.binary(binary);
        }
        if let Some(not) = expression.downcast_ref::<NotExpr>() {
            let item = self.expression(not.arg())?;
            return self.node(Node::Not(item));
        }
        if let Some(is_null) = expression.downcast_ref::<IsNullExpr>() {
            let item = self.expression(is_null.arg())?;
            return self.node(Node::IsNull(item));
        }
        if let Some(is_not_null) = expression.downcast_ref::<IsNotNullExpr>() {
            let item = self.expression(is_not_null.arg())?;
            let is_null = self.node(Node::IsNull(item))?;
            return self.node(Node::Not(is_null));
        }
        if let Some(negative) = expression.downcast_ref::<NegativeExpr>() {
            let item = self.expression(negative.arg())?;
            return self.node(Node::Negate(item));
        }
        if let Some(in_list) = expression.downcast_ref::<InListExpr>() {
            return self.in_list(in_list);
        }
        if let Some(like) = expression.downcast_ref::<LikeExpr>() {
            return self.like(like);
        }
        if let Some(cast) = expression.downcast_ref::<CastExpr>() {
            return self.cast(cast);
        }
        if let Some(case) = expression.downcast_ref::<CaseExpr>() {
            return self.case(case);
        }
        if let Some(function) = expression.downcast_ref::<ScalarFunctionExpr>() {
            return self.function(function);
        }
        Untranslatable::because(format!("no scan computes {expression}"))
    }

    fn bound_column(&mut self, column: &Column) -> Translated {
        match self.bindings.get(column.index()).cloned() {
            Some(Binding::Column(id)) => self.column(id),
            Some(Binding::Node(node)) => Ok(node),
            Some(Binding::Nothing(reason)) => Err(reason),
            None => Untranslatable::because(format!("column {column} is not of this table")),
        }
    }

    fn binary(&mut self, binary: &BinaryExpr) -> Translated {
        let op = *binary.op();
        if matches!(op, Operator::And | Operator::Or) {
            let mut items = Vec::new();
            self.operands_of(op, binary, &mut items)?;
            return self.node(if op == Operator::And { Node::And(items) } else { Node::Or(items) });
        }
        let node = |left, right| {
            if let Some(op) = comparison(op) {
                return Ok(Node::Compare { op, left, right });
            }
            match arithmetic(op) {
                Some(op) => Ok(Node::Arithmetic { op, left, right }),
                None => Untranslatable::because(format!("no scan computes {op}")),
            }
        };
        let left = self.expression(binary.left())?;
        let right = self.expression(binary.right())?;
        self.node(node(left, right)?)
    }

    /// Flattens `a AND (b AND c)` into its three items, and OR likewise.
    fn operands_of(
        &mut self,
        op: Operator,
        binary: &BinaryExpr,
        items: &mut Vec<NodeIndex>,
    ) -> Result<(), Untranslatable> {
        for side in [binary.left(), binary.right()] {
            match side.downcast_ref::<BinaryExpr>() {
                Some(inner) if *inner.op() == op => self.operands_of(op, inner, items)?,
                _ => {
                    let item = self.expression(side)?;
                    items.push(item);
                }
            }
        }
        Ok(())
    }

    fn in_list(&mut self, in_list: &InListExpr) -> Translated {
        let item = self.expression(in_list.expr())?;
        let set = in_list.list().iter().map(|entry| match entry.downcast_ref::<LiteralExpr>() {
            Some(constant) => match literal(constant.value())? {
                Literal::Null(_) => Untranslatable::because("NULL in an IN list"),
                constant => Ok(constant),
            },
            None => Untranslatable::because(format!("{entry} in an IN list is not a constant")),
        });
        let set = set.collect::<Result<Vec<_>, _>>()?;
        self.node(Node::InSet { item, set, negated: in_list.negated() })
    }

    fn like(&mut self, like: &LikeExpr) -> Translated {
        let pattern = match like.pattern().downcast_ref::<LiteralExpr>() {
            Some(constant) => literal(constant.value())?,
            None => return Untranslatable::because("a pattern that is not a constant"),
        };
        let Literal::Text(pattern) = pattern else {
            return Untranslatable::because("a pattern without value");
        };
        let item = self.expression(like.expr())?;
        let (negated, case_insensitive) = (like.negated(), like.case_insensitive());
        self.node(Node::Like { item, pattern, negated, case_insensitive })
    }

    fn cast(&mut self, cast: &CastExpr) -> Translated {
        if cast.cast_options().safe {
            return Untranslatable::because("TRY_CAST");
        }
        let Some(to) = value_type(cast.cast_type()) else {
            return Untranslatable::because(format!("a cast to {}", cast.cast_type()));
        };
        let item = self.expression(cast.expr())?;
        self.node(Node::Cast { item, to })
    }

    fn case(&mut self, case: &CaseExpr) -> Translated {
        let subject = case.expr().map(|subject| self.expression(subject)).transpose()?;
        if let Some(subject) = subject
            && self.types()?.get(usize::from(subject)) == Some(&ValueType::Float64)
        {
            // Everywhere else the two zeros are equal, to DataFusion and to scans.
            return Untranslatable::because("a CASE that tells 0.0 from -0.0");
        }
        let mut branches = Vec::with_capacity(case.when_then_expr().len());
        for (when, then) in case.when_then_expr() {
            let mut condition = self.expression(when)?;
            if let Some(left) = subject {
                condition = self.node(Node::Compare { op: Comparison::Equal, left, right: condition })?;
            }
            branches.push((condition, self.expression(then)?));
        }
        let otherwise = case.else_expr().map(|value| self.expression(value)).transpose()?;
        self.node(Node::Case { branches, otherwise })
    }

    fn function(&mut self, function: &ScalarFunctionExpr) -> Translated {
        match (Checked::named(function.name()), function.args()) {
            (Some(Checked::Of(op)), [left, right]) => {
                let (left, right) = (self.expression(left)?, self.expression(right)?);
                return self.node(Node::Arithmetic { op, left, right });
            }
            (Some(Checked::Negative), [item]) => {
                let item = self.expression(item)?;
                return self.node(Node::Negate(item));
            }
            _ => {}
        }
        match (function.name(), function.args()) {
            ("date_part", [part, date]) => {
                let Some(Literal::Text(part)) = constant(part) else {
                    return Untranslatable::because("a part of a date that is not a constant");
                };
                let part = match part.to_lowercase().as_str() {
                    "year" => DatePart::Year,
                    "month" => DatePart::Month,
                    "day" => DatePart::Day,
                    other => return Untranslatable::because(format!("EXTRACT({other})")),
                };
                let item = self.expression(date)?;
                self.node(Node::DatePart { part, item })
            }
            ("substr", [text, start, rest @ ..]) if rest.len() <= 1 => {
                let start = position(start, 1)?;
                let length = rest.first().map(|length| position(length, 0)).transpose()?;
                let item = self.expression(text)?;
                self.node(Node::Substring { item, start, length })
            }
            // Scans make only one NaN.
            (ONE_NAN, [double]) => self.expression(double),
            (name, _) => Untranslatable::because(format!("no scan computes {name}()")),
        }
    }
}

fn constant(expression: &Expression) -> Option<Literal> {
    literal(expression.downcast_ref::<LiteralExpr>()?.value()).ok()
}

/// A constant integer of at least `least`.
fn position(expression: &Expression, least: u32) -> Result<u32, Untranslatable> {
    let number = match constant(expression) {
        Some(Literal::Int64(number)) => u32::try_from(number).ok(),
        Some(Literal::Int32(number)) => u32::try_from(number).ok(),
        _ => None,
    };
    match number {
        Some(number) if number >= least => Ok(number),
        _ => Untranslatable::because(format!("{expression} is not a constant of at least {least}")),
    }
}

fn comparison(op: Operator) -> Option<Comparison> {
    Some(match op {
        Operator::Eq => Comparison::Equal,
        Operator::NotEq => Comparison::NotEqual,
        Operator::Lt => Comparison::Less,
        Operator::LtEq => Comparison::LessOrEqual,
        Operator::Gt => Comparison::Greater,
        Operator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

fn arithmetic(op: Operator) -> Option<Arithmetic> {
    Some(match op {
        Operator::Plus => Arithmetic::Add,
        Operator::Minus => Arithmetic::Subtract,
        Operator::Multiply => Arithmetic::Multiply,
        _ => return None,
    })
}

/// The program's type of `expression` over rows of `schema`.
pub(crate) fn type_of(expression: &Expression, schema: &Schema) -> Result<ValueType, Untranslatable> {
    let data_type = expression.data_type(schema).map_err(|error| Untranslatable(error.to_string()))?;
    value_type(&data_type).ok_or_else(|| Untranslatable(format!("values of type {data_type}")))
}
