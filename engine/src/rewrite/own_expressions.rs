//! Visits the expressions of a clause without those of the queries nested in it, which have tables,
//! groups and windows of their own.

use std::ops::ControlFlow;

use crate::visitors;
use datafusion::sql::sqlparser::ast::{Expr, Query, Visit, VisitMut, Visitor, VisitorMut};

/// Visits each expression, outer ones first, until `look` breaks off.
pub(super) fn visit(clause: &impl Visit, look: impl FnMut(&Expr) -> ControlFlow<()>) -> ControlFlow<()> {
    visitors::visit(clause, &mut Own { each: look, depth: 0 })
}

/// Changes each expression, inner ones first.
pub(super) fn visit_mut(clause: &mut impl VisitMut, change: impl FnMut(&mut Expr)) {
    let _ = visitors::visit_mut(clause, &mut Own { each: change, depth: 0 });
}

struct Own<F> {
    each: F,
    /// How many nested queries are being visited.
    depth: usize,
}

impl<F: FnMut(&Expr) -> ControlFlow<()>> Visitor for Own<F> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        if self.depth == 0 { (self.each)(expression) } else { ControlFlow::Continue(()) }
    }
}

impl<F: FnMut(&mut Expr)> VisitorMut for Own<F> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0 {
            (self.each)(expression);
        }
        ControlFlow::Continue(())
    }
}
