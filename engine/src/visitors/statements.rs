//! Visits parsed statements.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut, Visitor,
    VisitorMut,
};

/// Calls the visitor for each part of `node`, until it breaks.
pub(crate) fn visit<B>(node: &impl Visit, visitor: &mut dyn Visitor<Break = B>) -> ControlFlow<B> {
    node.visit(&mut Dynamic(visitor))
}

/// Calls the visitor for each part of `node`, which it may change, until it breaks.
pub(crate) fn visit_mut<B>(
    node: &mut impl VisitMut,
    visitor: &mut dyn VisitorMut<Break = B>,
) -> ControlFlow<B> {
    node.visit(&mut DynamicMut(visitor))
}

/// Calls `look` with the name of each table that `node` names, until it breaks.
pub(crate) fn visit_relations(
    node: &impl Visit,
    look: &mut dyn FnMut(&ObjectName) -> ControlFlow<()>,
) -> ControlFlow<()> {
    visit(node, &mut Relations(look))
}

struct Relations<'v>(&'v mut dyn FnMut(&ObjectName) -> ControlFlow<()>);

impl Visitor for Relations<'_> {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        (self.0)(relation)
    }
}

struct Dynamic<'v, B>(&'v mut dyn Visitor<Break = B>);

struct DynamicMut<'v, B>(&'v mut dyn VisitorMut<Break = B>);

/// Implements both traits: each method calls the visitor within.
macro_rules! visitor {
    ($($method:ident($node:ident)),* $(,)?) => {
        impl<B> Visitor for Dynamic<'_, B> {
            type Break = B;

            $(fn $method(&mut self, node: &$node) -> ControlFlow<B> {
                self.0.$method(node)
            })*
        }

        impl<B> VisitorMut for DynamicMut<'_, B> {
            type Break = B;

            $(fn $method(&mut self, node: &mut $node) -> ControlFlow<B> {
                self.0.$method(node)
            })*
        }
    };
}

visitor! {
    pre_visit_query(Query),
    post_visit_query(Query),
    pre_visit_select(Select),
    post_visit_select(Select),
    pre_visit_relation(ObjectName),
    post_visit_relation(ObjectName),
    pre_visit_table_factor(TableFactor),
    post_visit_table_factor(TableFactor),
    pre_visit_expr(Expr),
    post_visit_expr(Expr),
    pre_visit_statement(Statement),
    post_visit_statement(Statement),
    pre_visit_value(ValueWithSpan),
    post_visit_value(ValueWithSpan),
}
