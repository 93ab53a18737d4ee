//! Rewrites windows that extend a named window, such as `OVER (w ORDER BY x)`.
//!
//! Such a window is the one that WINDOW defines as w, with the additional clauses (PostgreSQL's
//! rules, which are those of SQL:2016 7.15). DataFusion ignores the name within the parentheses.

use crate::visitors::visit_mut;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, NamedWindowDefinition, NamedWindowExpr, OrderBy, Query, Select, SetExpr, VisitorMut,
    WindowSpec, WindowType,
};

use super::{
    own_expressions,
    refusal::{Flow, flow},
    syntax::normal,
};
use crate::error::EngineError;

/// Completes the windows of a query's SELECTs, but not those of nested queries.
pub(super) fn rewrite(body: &mut SetExpr, order_by: Option<&mut OrderBy>) -> Result<(), Box<EngineError>> {
    match body {
        SetExpr::Select(select) => of_select(select, order_by),
        SetExpr::SetOperation { left, right, .. } => {
            rewrite(left, None)?;
            rewrite(right, None)
        }
        _ => Ok(()),
    }
}

fn of_select(select: &mut Select, order_by: Option<&mut OrderBy>) -> Result<(), Box<EngineError>> {
    let mut resolver = Resolver::default();
    for NamedWindowDefinition(name, window) in std::mem::take(&mut select.named_window) {
        resolver.define(&name, window)?;
    }
    if let ControlFlow::Break(error) = visit_mut(select, &mut resolver) {
        return Err(error);
    }
    match order_by.map(|order_by| visit_mut(order_by, &mut resolver)) {
        Some(ControlFlow::Break(error)) => Err(error),
        _ => Ok(()),
    }
}

/// Refuses windows where rows are filtered or grouped: windows are computed after that.
pub(super) fn check_places(select: &Select) -> Result<(), Box<EngineError>> {
    let within = |clause: &str, found: bool| {
        let message =
            format!("window functions are not allowed in {clause}: compute them in a query within FROM");
        if found { Err(Box::new(EngineError::Invalid { sqlstate: "42P20", message })) } else { Ok(()) }
    };
    let window = |expression: &Expr| match expression {
        Expr::Function(function) if function.over.is_some() => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    within("WHERE", own_expressions::visit(&select.selection, window).is_break())?;
    within("HAVING", own_expressions::visit(&select.having, window).is_break())?;
    within("GROUP BY", own_expressions::visit(&select.group_by, window).is_break())
}

#[derive(Default)]
struct Resolver {
    windows: Vec<(String, WindowSpec)>,
    /// How many nested queries are being visited.
    depth: usize,
}

impl Resolver {
    /// A window may use those that are defined before it.
    fn define(&mut self, name: &Ident, window: NamedWindowExpr) -> Result<(), Box<EngineError>> {
        if self.windows.iter().any(|(defined, _)| *defined == normal(name)) {
            return Err(wrong(&format!("window {name} is defined more than once")));
        }
        let window = match window {
            NamedWindowExpr::NamedWindow(same) => self.named(&same)?.clone(),
            NamedWindowExpr::WindowSpec(mut window) => {
                self.complete(&mut window)?;
                window
            }
        };
        self.windows.push((normal(name), window));
        Ok(())
    }

    fn named(&self, name: &Ident) -> Result<&WindowSpec, Box<EngineError>> {
        let found = self.windows.iter().find(|(defined, _)| *defined == normal(name));
        found.map(|(_, window)| window).ok_or_else(|| {
            let expected = "expected one that WINDOW defines before its use";
            Box::new(EngineError::invalid("42704", format!("window {name} does not exist, {expected}")))
        })
    }

    /// Adds to a window what it inherits from the window that it names.
    fn complete(&self, window: &mut WindowSpec) -> Result<(), Box<EngineError>> {
        let Some(name) = window.window_name.take() else { return Ok(()) };
        let named = self.named(&name)?;
        if !window.partition_by.is_empty() {
            return Err(wrong(&format!("cannot override PARTITION BY of window {name}: leave it out")));
        }
        if !window.order_by.is_empty() && !named.order_by.is_empty() {
            return Err(wrong(&format!("cannot override ORDER BY of window {name}: leave it out")));
        }
        if named.window_frame.is_some() {
            return Err(wrong(&format!(
                "cannot copy window {name} because it has a frame: write OVER {name} without parentheses"
            )));
        }
        window.partition_by.clone_from(&named.partition_by);
        if window.order_by.is_empty() {
            window.order_by.clone_from(&named.order_by);
        }
        Ok(())
    }

    fn put_in_place(&self, over: &mut WindowType) -> Result<(), Box<EngineError>> {
        if let WindowType::NamedWindow(name) = over {
            *over = WindowType::WindowSpec(self.named(name)?.clone());
        }
        Ok(())
    }
}

impl VisitorMut for Resolver {
    type Break = Box<EngineError>;

    fn pre_visit_query(&mut self, _: &mut Query) -> Flow {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> Flow {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> Flow {
        let Expr::Function(function) = expression else { return ControlFlow::Continue(()) };
        let completed = match function.over.as_mut().filter(|_| self.depth == 0) {
            None => Ok(()),
            Some(WindowType::WindowSpec(window)) => self.complete(window),
            Some(over @ WindowType::NamedWindow(_)) => self.put_in_place(over),
        };
        flow(completed.err())
    }
}

fn wrong(message: &str) -> Box<EngineError> {
    Box::new(EngineError::invalid("42P20", message))
}

#[cfg(test)]
mod tests {
    use crate::rewrite::tests::rewritten;

    #[test]
    fn a_window_has_what_the_one_that_it_names_has() {
        for (sql, expected) in [
            (
                "SELECT sum(v) OVER (w) AS x FROM t WINDOW w AS (PARTITION BY g ORDER BY id)",
                "SELECT sum(v) OVER (PARTITION BY g ORDER BY id) AS x FROM t",
            ),
            (
                "SELECT sum(v) OVER (W ORDER BY id ROWS CURRENT ROW) AS x FROM t WINDOW w AS (PARTITION BY g)",
                "SELECT sum(v) OVER (PARTITION BY g ORDER BY id ROWS CURRENT ROW) AS x FROM t",
            ),
            (
                "SELECT sum(v) OVER b AS x FROM t WINDOW a AS (PARTITION BY g), b AS (a ORDER BY id)",
                "SELECT sum(v) OVER (PARTITION BY g ORDER BY id) AS x FROM t",
            ),
            (
                "SELECT 1 AS x FROM t WINDOW w AS (ORDER BY id ROWS CURRENT ROW) ORDER BY sum(v) OVER w",
                "SELECT 1 AS x FROM t ORDER BY sum(v) OVER (ORDER BY id ROWS CURRENT ROW)",
            ),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
    }

    #[test]
    fn a_query_within_another_has_windows_of_its_own() {
        let sql = "SELECT (SELECT sum(v) OVER (w) FROM t) AS x FROM u WINDOW w AS (ORDER BY id)";
        assert!(rewritten(sql).unwrap_err().contains("window w does not exist"));
        let sql = "SELECT x FROM (SELECT sum(v) OVER w AS x FROM t WINDOW w AS (ORDER BY id)) AS u \
                   WINDOW w AS (ORDER BY x)";
        let expected = "SELECT x FROM (SELECT sum(v) OVER (ORDER BY id) AS x FROM t) AS u";
        assert_eq!(rewritten(sql).unwrap(), expected);
    }

    #[test]
    fn windows_are_refused_where_rows_are_chosen() {
        for (sql, clause) in [
            ("SELECT v FROM t WHERE row_number() OVER (ORDER BY v) = 1", "WHERE"),
            ("SELECT g FROM t GROUP BY g HAVING rank() OVER (ORDER BY g) > 1", "HAVING"),
            ("SELECT 1 FROM t GROUP BY sum(v) OVER ()", "GROUP BY"),
        ] {
            assert!(rewritten(sql).unwrap_err().contains(&format!("not allowed in {clause}")), "{sql}");
        }
        let within = "SELECT v FROM t WHERE v IN (SELECT max(v) OVER () FROM t)";
        assert!(rewritten(within).is_ok());
    }

    #[test]
    fn windows_that_break_the_rules_are_refused() {
        for (over, window, problem) in [
            ("(w PARTITION BY g)", "w AS (ORDER BY id)", "PARTITION BY"),
            ("(w ORDER BY g)", "w AS (ORDER BY id)", "override ORDER BY"),
            ("(w)", "w AS (ROWS CURRENT ROW)", "has a frame"),
            ("(x)", "w AS (ORDER BY id)", "does not exist"),
            ("(w)", "w AS (v), v AS (ORDER BY id)", "does not exist"),
            ("w", "w AS (), W AS (ORDER BY id)", "more than once"),
        ] {
            let refused = rewritten(&format!("SELECT sum(v) OVER {over} FROM t WINDOW {window}"));
            assert!(refused.unwrap_err().contains(problem), "{over} {window}");
        }
    }
}
