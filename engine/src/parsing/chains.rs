//! Balances or refuses long chains such as `a OR b OR c`.
//!
//! A parsed chain is as deep as it is long: each operator contains the ones before it. Chains of
//! AND, OR and UNION become balanced trees with the same meaning. Other chains are refused if they
//! are too long.
//!
//! Invariants
//! - Chains are walked in loops, without recursion. A chain is balanced or taken apart before any
//!   recursive code reads it.

use crate::visitors::visit_mut;
use std::{collections::VecDeque, ops::ControlFlow};

use datafusion::sql::{
    parser::Statement,
    sqlparser::ast::{
        BinaryOperator, Expr, Query, Select, SetExpr, SetOperator, SetQuantifier, Value, VisitorMut,
    },
};

use crate::{
    error::EngineError,
    limits::{BALANCED_CHAIN_MIN, CHAIN_LENGTH_MAX, RELATIONS_MAX},
};

/// Balances the chains of a statement.
pub(super) fn balance(statement: &mut Statement) -> Result<(), EngineError> {
    match statement {
        Statement::Statement(statement) => match visit_mut(statement.as_mut(), &mut Balancer) {
            ControlFlow::Break(error) => Err(*error),
            ControlFlow::Continue(()) => Ok(()),
        },
        Statement::Explain(explain) => balance(&mut explain.statement),
        _ => Ok(()),
    }
}

struct Balancer;

type Flow = ControlFlow<Box<EngineError>>;

fn too_long(what: &str, found: usize, expected: usize, way_out: &str) -> Flow {
    let text = format!("{found} {what}, expected at most {expected}: {way_out}");
    ControlFlow::Break(Box::new(EngineError::TooDeep(text)))
}

impl VisitorMut for Balancer {
    type Break = Box<EngineError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        let tables = query.with.as_ref().map_or(0, |with| with.cte_tables.len());
        if tables > RELATIONS_MAX {
            return too_long("queries in WITH", tables, RELATIONS_MAX, "merge some of them");
        }
        let body = std::mem::replace(query.body.as_mut(), nothing());
        let (body, length) = balanced_query(body);
        if length > CHAIN_LENGTH_MAX {
            dismantle_query(body);
            return too_long("queries in a row", length, CHAIN_LENGTH_MAX, "put some of them in parentheses");
        }
        *query.body = body;
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        let tables: usize = select.from.iter().map(|table| 1 + table.joins.len()).sum();
        if tables > RELATIONS_MAX {
            return too_long(
                "joined tables",
                tables,
                RELATIONS_MAX,
                "join some of them in a query of their own",
            );
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> Flow {
        let whole = std::mem::replace(expression, Expr::Value(Value::Null.into()));
        let mut balanced = balanced(whole);
        let length = length(&mut balanced);
        if length > CHAIN_LENGTH_MAX {
            dismantle(balanced);
            return too_long(
                "operators in a row",
                length,
                CHAIN_LENGTH_MAX,
                "put some of them in parentheses",
            );
        }
        *expression = balanced;
        ControlFlow::Continue(())
    }
}

/// A chain of AND or of OR as a balanced tree.
fn balanced(whole: Expr) -> Expr {
    let op = match &whole {
        Expr::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } => op.clone(),
        _ => return whole,
    };
    let (mut operands, mut rest) = (VecDeque::new(), whole);
    let first = loop {
        match rest {
            Expr::BinaryOp { left, op: this, right } if this == op => {
                operands.push_front(*right);
                rest = *left;
            }
            first => break first,
        }
    };
    operands.push_front(first);
    let join = |left, right| Expr::BinaryOp { left: Box::new(left), op: op.clone(), right: Box::new(right) };
    tree(operands, &join)
}

/// A chain for few operands, a balanced tree for many.
fn tree<T>(mut operands: VecDeque<T>, join: &impl Fn(T, T) -> T) -> T {
    if operands.len() < BALANCED_CHAIN_MIN {
        let whole = operands.into_iter().reduce(join);
        return whole.unwrap_or_else(|| unreachable!("a chain has operands"));
    }
    let right = operands.split_off(operands.len() / 2);
    join(tree(operands, join), tree(right, join))
}

/// The length of a chain of operators that hold each other as left operands.
fn length(expression: &mut Expr) -> usize {
    let (mut length, mut next) = (0, left_of(expression));
    while let Some(left) = next {
        length += 1;
        next = left_of(left);
    }
    length
}

/// The operand before an operator, or its only operand.
fn left_of(expression: &mut Expr) -> Option<&mut Expr> {
    Some(match expression {
        Expr::BinaryOp { left, .. } | Expr::AnyOp { left, .. } | Expr::AllOp { left, .. } => left,
        Expr::IsDistinctFrom(left, _) | Expr::IsNotDistinctFrom(left, _) => left,
        Expr::IsNull(expr)
        | Expr::IsNotNull(expr)
        | Expr::IsTrue(expr)
        | Expr::IsNotTrue(expr)
        | Expr::IsFalse(expr)
        | Expr::IsNotFalse(expr)
        | Expr::IsUnknown(expr)
        | Expr::IsNotUnknown(expr)
        | Expr::Nested(expr) => expr,
        Expr::UnaryOp { expr, .. }
        | Expr::Cast { expr, .. }
        | Expr::Collate { expr, .. }
        | Expr::Between { expr, .. }
        | Expr::InList { expr, .. }
        | Expr::InSubquery { expr, .. }
        | Expr::Like { expr, .. }
        | Expr::ILike { expr, .. }
        | Expr::SimilarTo { expr, .. }
        | Expr::RLike { expr, .. } => expr,
        Expr::AtTimeZone { timestamp, .. } => timestamp,
        Expr::JsonAccess { value, .. } => value,
        Expr::CompoundFieldAccess { root, .. } => root,
        _ => return None,
    })
}

/// Drops a chain from the outside inwards in a loop, so that drops do not recurse.
fn dismantle(mut expression: Expr) {
    while let Some(left) = left_of(&mut expression) {
        expression = std::mem::replace(left, Expr::Value(Value::Null.into()));
    }
}

fn nothing() -> SetExpr {
    SetExpr::Values(datafusion::sql::sqlparser::ast::Values {
        explicit_row: false,
        value_keyword: false,
        rows: Vec::new(),
    })
}

/// A chain of UNION, or of UNION ALL, as a balanced tree, and the length of any other chain.
fn balanced_query(body: SetExpr) -> (SetExpr, usize) {
    let (mut operands, mut rest) = (VecDeque::new(), body);
    let kind = match &rest {
        SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, .. }
            if matches!(
                set_quantifier,
                SetQuantifier::All | SetQuantifier::Distinct | SetQuantifier::None
            ) =>
        {
            *set_quantifier
        }
        _ => {
            let length = length_of_query(&rest);
            return (rest, length);
        }
    };
    let first = loop {
        match rest {
            SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, right }
                if set_quantifier == kind =>
            {
                operands.push_front(*right);
                rest = *left;
            }
            first => break first,
        }
    };
    let length = length_of_query(&first);
    operands.push_front(first);
    let join = |left, right| SetExpr::SetOperation {
        op: SetOperator::Union,
        set_quantifier: kind,
        left: Box::new(left),
        right: Box::new(right),
    };
    (tree(operands, &join), length)
}

fn length_of_query(body: &SetExpr) -> usize {
    let (mut length, mut next) = (0, body);
    while let SetExpr::SetOperation { left, .. } = next {
        length += 1;
        next = left;
    }
    length
}

fn dismantle_query(mut body: SetExpr) {
    while let SetExpr::SetOperation { left, .. } = &mut body {
        body = std::mem::replace(left.as_mut(), nothing());
    }
}

#[cfg(test)]
mod tests {
    use crate::parsing::parse;

    fn depth_of_chain(operator: &str, times: usize) -> Result<usize, String> {
        let text = format!("select 1 where a = 0{}", format!(" {operator} a = 1").repeat(times));
        parse(&text).map(|statements| statements[0].to_string().len()).map_err(|error| error.to_string())
    }

    #[test]
    fn long_chains_of_and_and_or_are_as_they_were_written() {
        for operator in ["OR", "AND"] {
            let text = format!("SELECT 1 WHERE a = 0{}", format!(" {operator} a = 1").repeat(100_000));
            assert_eq!(parse(&text).unwrap()[0].to_string(), text);
        }
        let text = format!("SELECT 1{}", " UNION ALL SELECT 2".repeat(9_000));
        assert_eq!(parse(&text).unwrap()[0].to_string(), text);
        assert!(depth_of_chain("OR", 3).is_ok());
    }

    #[test]
    fn other_long_chains_are_refused_with_both_numbers() {
        for (begin, link) in [
            ("SELECT 1", " + 1"),
            ("SELECT 'a'", " || 'a'"),
            ("SELECT 1", "::int"),
            ("SELECT 1", " IS NULL"),
            ("SELECT 1", " EXCEPT SELECT 2"),
            ("SELECT 1 FROM a", ", a"),
            ("SELECT 1 FROM a", " JOIN a USING (b)"),
        ] {
            let error = parse(&format!("{begin}{}", link.repeat(20_000))).unwrap_err().to_string();
            assert!(error.contains("20000") || error.contains("20001"), "{link}: {error}");
            assert!(error.contains("expected at most"), "{link}: {error}");
        }
    }
}
