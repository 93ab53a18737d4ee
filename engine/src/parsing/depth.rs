//! Decides whether a statement nests so deeply that it needs a larger stack than threads have, and
//! refuses statements that are too deep.

use crate::visitors::visit;
use std::{
    future::Future,
    ops::ControlFlow,
    pin::Pin,
    task::{Context, Poll},
};

use datafusion::sql::{
    parser::Statement,
    sqlparser::ast::{Expr, Query, Select, SetExpr, Visitor},
};

use crate::{
    error::EngineError,
    limits::{CHAIN_LENGTH_MAX, PLANNED_DEPTH_MAX, STACK_BYTES, SUBQUERIES_DEPTH_MAX},
};

/// Plans a statement, on a stack of its own if the statement is deep.
pub(crate) struct OnLargeStack<F> {
    planning: Pin<Box<F>>,
    is_deep: bool,
}

impl<F: Future> OnLargeStack<F> {
    pub(crate) fn new(planning: F, is_deep: bool) -> Self {
        Self { planning: Box::pin(planning), is_deep }
    }
}

impl<F: Future> Future for OnLargeStack<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { planning, is_deep } = &mut *self;
        let planning = planning.as_mut();
        if *is_deep { stacker::grow(STACK_BYTES, || planning.poll(context)) } else { planning.poll(context) }
    }
}

/// Runs `work` on a statement, on a stack of its own if the statement is deep.
pub(crate) fn with_stack_for<T>(statement: &Statement, work: impl FnOnce(&Statement) -> T) -> T {
    if is_deep(statement) { stacker::grow(STACK_BYTES, || work(statement)) } else { work(statement) }
}

/// Whether planning the statement needs more than the stack of a thread. Stops at the depth that
/// decides it.
pub(crate) fn is_deep(statement: &Statement) -> bool {
    match statement {
        Statement::Statement(statement) => visit(statement.as_ref(), &mut Levels(0)).is_break(),
        Statement::Explain(explain) => is_deep(&explain.statement),
        _ => false,
    }
}

/// The depth of the expression that is being visited.
struct Levels(usize);

impl Levels {
    fn enter(&mut self, levels: usize) -> ControlFlow<()> {
        self.0 += levels;
        if self.0 > PLANNED_DEPTH_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Visitor for Levels {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let (mut operations, mut body) = (0, query.body.as_ref());
        while let SetExpr::SetOperation { left, .. } = body {
            (operations, body) = (operations + 1, left.as_ref());
        }
        let tables = query.with.as_ref().map_or(0, |with| with.cte_tables.len());
        if operations.max(tables) > PLANNED_DEPTH_MAX { ControlFlow::Break(()) } else { self.enter(1) }
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.0 -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let tables: usize = select.from.iter().map(|table| 1 + table.joins.len()).sum();
        if tables > PLANNED_DEPTH_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.enter(1)
    }

    fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.0 -= 1;
        ControlFlow::Continue(())
    }
}

/// Refuses a statement that is too deep, for whatever reason.
pub(super) fn check(statement: &Statement) -> Result<(), EngineError> {
    let Statement::Statement(statement) = statement else {
        let Statement::Explain(explain) = statement else { return Ok(()) };
        return check(&explain.statement);
    };
    let mut depth = Deepest::default();
    match visit(statement.as_ref(), &mut depth) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) if depth.subqueries > SUBQUERIES_DEPTH_MAX => {
            Err(EngineError::TooDeep(format!(
                "subqueries nested more than {SUBQUERIES_DEPTH_MAX} levels deep within expressions, expected at most \
                 {SUBQUERIES_DEPTH_MAX}: write some of them as joins"
            )))
        }
        ControlFlow::Break(()) => Err(EngineError::TooDeep(format!(
            "expressions nested more than {CHAIN_LENGTH_MAX} levels deep, expected at most {CHAIN_LENGTH_MAX}: simplify some of them"
        ))),
    }
}

/// The depth of the expression that is being visited; parentheses do not count.
#[derive(Default)]
struct Deepest {
    expressions: usize,
    /// Queries within expressions: DataFusion visits each twice for each level above it.
    subqueries: usize,
}

/// ANY and ALL have their query as an operand, which counts by itself.
fn has_query(expression: &Expr) -> bool {
    matches!(expression, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. })
}

impl Visitor for Deepest {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        self.expressions += usize::from(!matches!(expression, Expr::Nested(_)));
        self.subqueries += usize::from(has_query(expression));
        if self.expressions > CHAIN_LENGTH_MAX || self.subqueries > SUBQUERIES_DEPTH_MAX {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        self.expressions -= usize::from(!matches!(expression, Expr::Nested(_)));
        self.subqueries -= usize::from(has_query(expression));
        ControlFlow::Continue(())
    }
}
