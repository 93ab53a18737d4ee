//! Rewrites joins with USING so that they return the columns that SQL defines.
//!
//! The columns named in USING come first, each once, with the value of the side that has one. Then
//! come the other columns of both sides (SQL:2016 7.10). DataFusion 55.2 keeps the columns of both
//! sides and uses the left one for both. Here each such join becomes the last one of a nested join
//! whose alias marks it, and [`MergedColumns`](crate::rules::MergedColumns) plans marked joins.
//!
//! ```text
//! a LEFT JOIN b USING (id)     -> (a LEFT JOIN b USING (id)) AS mark   columns: a.id, other columns of a, other columns of b
//! b.id, which may differ       -> "id of b", a column that the mark requests and `*` does not show
//! ```

use crate::visitors::visit_mut;
use std::{collections::BTreeSet, ops::ControlFlow};

use datafusion::sql::sqlparser::ast::{
    ExceptSelectItem, ExcludeSelectItem, Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName,
    OrderBy, Query, Select, SelectItem, SetExpr, TableAlias, TableAliasColumnDef, TableFactor,
    TableWithJoins, VisitMut, VisitorMut,
};

use super::refusal::refuse;
use crate::error::EngineError;

/// The alias of a nested join whose last join merges columns. The alias's columns are the
/// additional columns that are wanted.
pub(crate) const MARK: &str = "join that merges columns";

/// The name of a table's own column, where a merged column has taken its place.
pub(crate) fn own_column(table: &str, column: &str) -> String {
    format!("{column} of {table}")
}

/// Marks the joins of a SELECT, and of the ORDER BY that belongs to it.
pub(super) fn rewrite(select: &mut Select, order_by: Option<&mut OrderBy>) -> Result<(), Box<EngineError>> {
    if !select.from.iter().any(has_merging) {
        return Ok(());
    }
    if select.projection.iter().any(|item| matches!(item, SelectItem::QualifiedWildcard(..))) {
        return keep_for_wildcards(select);
    }
    let mut from = std::mem::take(&mut select.from);
    let mut own = OwnColumns::default();
    for table in &mut from {
        (*table, _) = marked(std::mem::replace(table, nothing()), &mut own);
    }
    own.rename(select)?;
    if let Some(order_by) = order_by {
        own.rename(order_by)?;
    }
    for table in &mut from {
        ask_for(table, &own.wanted);
    }
    if !own.wanted.is_empty() {
        select.projection.iter_mut().for_each(|item| leave_out(item, &own.wanted));
    }
    select.from = from;
    Ok(())
}

/// Keeps DataFusion's own joins where they give the right values: `t.*` has the table's columns,
/// merged or not.
fn keep_for_wildcards(select: &Select) -> Result<(), Box<EngineError>> {
    let has_all = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
    let joins = select.from.iter().flat_map(|table| &table.joins);
    if has_all || !joins.into_iter().all(keeps_left) {
        return Err(refuse(
            "all columns of one table beside RIGHT or FULL JOIN with USING or NATURAL, or beside *",
            "name the columns, or write ON",
        ));
    }
    Ok(())
}

/// Whether the merged column is the left one.
fn keeps_left(join: &Join) -> bool {
    match kind(&join.join_operator) {
        Some(Kind::Left | Kind::Inner) | None => true,
        Some(Kind::Right | Kind::Full) => constraint(join).is_none(),
    }
}

fn is_lateral(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Derived { lateral, .. } | TableFactor::Function { lateral, .. } => *lateral,
        TableFactor::UNNEST { .. } => true,
        _ => false,
    }
}

/// Which side's rows always come out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Inner,
    Left,
    Right,
    Full,
}

fn kind(operator: &JoinOperator) -> Option<Kind> {
    Some(match operator {
        JoinOperator::Join(_) | JoinOperator::Inner(_) => Kind::Inner,
        JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => Kind::Left,
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) => Kind::Right,
        JoinOperator::FullOuter(_) => Kind::Full,
        _ => return None,
    })
}

/// The constraint of a join that merges columns.
fn constraint(join: &Join) -> Option<&JoinConstraint> {
    let (JoinOperator::Join(constraint)
    | JoinOperator::Inner(constraint)
    | JoinOperator::Left(constraint)
    | JoinOperator::LeftOuter(constraint)
    | JoinOperator::Right(constraint)
    | JoinOperator::RightOuter(constraint)
    | JoinOperator::FullOuter(constraint)) = &join.join_operator
    else {
        return None;
    };
    matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural).then_some(constraint)
}

fn has_merging(table: &TableWithJoins) -> bool {
    let is_within = |factor: &TableFactor| matches!(factor, TableFactor::NestedJoin { table_with_joins, .. } if has_merging(table_with_joins));
    is_within(&table.relation)
        || table.joins.iter().any(|join| constraint(join).is_some() || is_within(&join.relation))
}

fn nothing() -> TableWithJoins {
    let relation = TableFactor::Function {
        lateral: false,
        name: ObjectName::from(Vec::<Ident>::new()),
        args: Vec::new(),
        with_ordinality: false,
        alias: None,
    };
    TableWithJoins { relation, joins: Vec::new() }
}

/// Makes each join that merges columns the last one of a nested join, also inside nested joins.
fn marked(table: TableWithJoins, own: &mut OwnColumns) -> (TableWithJoins, BTreeSet<String>) {
    let (relation, mut tables) = within(table.relation, own);
    let mut nested = TableWithJoins { relation, joins: Vec::new() };
    for mut join in table.joins {
        let (relation, right) = within(join.relation, own);
        join.relation = relation;
        own.rename_here(&mut join.join_operator);
        if let Some(by) = constraint(&join).filter(|_| !(is_lateral(&join.relation) && keeps_left(&join))) {
            own.merge(by, kind(&join.join_operator), &tables, &right);
        }
        tables.extend(right);
        // DataFusion plans lateral joins together with the tables before them, and takes the left
        // column.
        let is_kept = is_lateral(&join.relation) && keeps_left(&join);
        let is_merging = constraint(&join).is_some() && !is_kept;
        nested.joins.push(join);
        if is_merging {
            let alias = TableAlias {
                explicit: true,
                name: Ident::with_quote('"', MARK),
                columns: Vec::new(),
                at: None,
            };
            let factor = TableFactor::NestedJoin { table_with_joins: Box::new(nested), alias: Some(alias) };
            nested = TableWithJoins { relation: factor, joins: Vec::new() };
        }
    }
    (nested, tables)
}

/// A table, with marked joins if it is a nested join, and the names that qualify its columns.
fn within(factor: TableFactor, own: &mut OwnColumns) -> (TableFactor, BTreeSet<String>) {
    match factor {
        TableFactor::NestedJoin { table_with_joins, alias: None } => {
            let (nested, tables) = marked(*table_with_joins, own);
            (TableFactor::NestedJoin { table_with_joins: Box::new(nested), alias: None }, tables)
        }
        TableFactor::NestedJoin { table_with_joins, alias: Some(alias) } => {
            // From outside only the alias is visible.
            let (nested, _) = marked(*table_with_joins, &mut OwnColumns::default());
            let tables = BTreeSet::from([normal(&alias.name)]);
            (TableFactor::NestedJoin { table_with_joins: Box::new(nested), alias: Some(alias) }, tables)
        }
        factor => {
            let tables = name_of(&factor).into_iter().collect();
            (factor, tables)
        }
    }
}

/// Tells all marked joins which additional columns are wanted.
fn ask_for(table: &mut TableWithJoins, wanted: &BTreeSet<String>) {
    let joined = table.joins.iter_mut().map(|join| &mut join.relation);
    for factor in std::iter::once(&mut table.relation).chain(joined) {
        let TableFactor::NestedJoin { table_with_joins, alias } = factor else { continue };
        match alias {
            Some(alias) if alias.name.value == MARK => {
                alias.columns = wanted.iter().map(|name| column_of(name)).collect();
            }
            Some(_) => continue,
            None => {}
        }
        ask_for(table_with_joins, wanted);
    }
}

fn column_of(name: &str) -> TableAliasColumnDef {
    TableAliasColumnDef { name: Ident::with_quote('"', name), data_type: None }
}

/// Leaves additional columns out of `*`.
fn leave_out(item: &mut SelectItem, wanted: &BTreeSet<String>) {
    let SelectItem::Wildcard(options) = item else { return };
    let mut names = wanted.iter().map(|name| Ident::with_quote('"', name));
    match (&mut options.opt_exclude, &mut options.opt_except) {
        (Some(ExcludeSelectItem::Multiple(excluded)), _) => excluded.extend(names.map(ObjectName::from)),
        (Some(exclude @ ExcludeSelectItem::Single(_)), _) => {
            let ExcludeSelectItem::Single(one) = &*exclude else { return };
            let all = std::iter::once(one.clone()).chain(names.map(ObjectName::from));
            *exclude = ExcludeSelectItem::Multiple(all.collect());
        }
        (None, Some(except)) => except.additional_elements.extend(names),
        (None, except @ None) => {
            let Some(first_element) = names.next() else { return };
            *except = Some(ExceptSelectItem { first_element, additional_elements: names.collect() });
        }
    }
}

/// The name that qualifies the columns of a table.
fn name_of(table: &TableFactor) -> Option<String> {
    match table {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            Some(normal(&alias.name))
        }
        TableFactor::Table { name, .. } => name.0.last()?.as_ident().map(normal),
        _ => None,
    }
}

/// The form in which DataFusion looks it up: lower case unless it is quoted.
fn normal(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_ascii_lowercase() }
}

/// Columns of tables that a merged column stands for, although they may have another value.
#[derive(Default)]
pub(super) struct OwnColumns {
    /// The merged columns: table and column.
    merged: BTreeSet<(String, String)>,
    /// Tables of NATURAL joins: any of their columns may be merged.
    natural: BTreeSet<String>,
    /// The names of those own columns that the statement uses.
    wanted: BTreeSet<String>,
    /// For each query nested in the SELECT that is being visited: the tables of its own.
    within: Vec<BTreeSet<String>>,
}

impl OwnColumns {
    /// Notes which columns a join merges. For NATURAL they are not known here, so all columns of
    /// its tables are noted.
    fn merge(
        &mut self,
        by: &JoinConstraint,
        kind: Option<Kind>,
        left: &BTreeSet<String>,
        right: &BTreeSet<String>,
    ) {
        let JoinConstraint::Using(columns) = by else {
            self.natural.extend(left.iter().chain(right).cloned());
            return;
        };
        let columns = columns.iter().filter_map(|column| column.0.last()?.as_ident().map(normal));
        for column in columns {
            if kind != Some(Kind::Right) {
                self.merged.extend(right.iter().map(|right| (right.clone(), column.clone())));
            }
            if matches!(kind, Some(Kind::Right | Kind::Full)) {
                self.merged.extend(left.iter().map(|left| (left.clone(), column.clone())));
            }
        }
    }

    fn rename(&mut self, part: &mut impl VisitMut) -> Result<(), Box<EngineError>> {
        match visit_mut(part, self) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    /// Renames own columns in the condition of a join, which sees the columns merged before it.
    fn rename_here(&mut self, operator: &mut JoinOperator) {
        let renamed: ControlFlow<Box<EngineError>> = visit_mut(operator, self);
        debug_assert!(renamed.is_continue(), "renaming refuses nothing");
    }
}

impl VisitorMut for OwnColumns {
    type Break = Box<EngineError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let mut tables = BTreeSet::new();
        if let SetExpr::Select(select) = query.body.as_ref() {
            for table in &select.from {
                let joined = table.joins.iter().map(|join| &join.relation);
                tables.extend(std::iter::once(&table.relation).chain(joined).filter_map(name_of));
            }
        }
        self.within.push(tables);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.within.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        if self.within.is_empty() {
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(expr @ Expr::CompoundIdentifier(_)) = item
                    && let Some((_, column)) = self.merged_column(expr)
                {
                    let alias = Ident::with_quote('"', column);
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Self::Break> {
        if let Some((table, column)) = self.merged_column(expression) {
            let name = own_column(&table, &column);
            *expression = Expr::Identifier(Ident::with_quote('"', name.clone()));
            self.wanted.insert(name);
        }
        ControlFlow::Continue(())
    }
}

impl OwnColumns {
    /// The table and name of a column that a merged column may stand for.
    fn merged_column(&self, expression: &Expr) -> Option<(String, String)> {
        let Expr::CompoundIdentifier(parts) = expression else { return None };
        let [.., table, column] = parts.as_slice() else { return None };
        let (table, column) = (normal(table), normal(column));
        let is_outside = !self.within.iter().any(|tables| tables.contains(&table));
        let is_merged =
            self.natural.contains(&table) || self.merged.contains(&(table.clone(), column.clone()));
        (is_outside && is_merged).then_some((table, column))
    }
}

#[cfg(test)]
mod tests {
    use crate::rewrite::tests::rewritten;

    #[test]
    fn joins_that_merge_columns_are_marked_and_columns_of_tables_are_asked_for() {
        for (sql, expected) in [
            (
                "SELECT * FROM a JOIN b USING (id) JOIN c ON c.x = b.y",
                "SELECT * FROM (a JOIN b USING(id)) AS \"join that merges columns\" JOIN c ON c.x = b.y",
            ),
            (
                "SELECT * FROM a LEFT JOIN b USING (id) WHERE b.id IS NULL ORDER BY a.id",
                "SELECT * EXCEPT (\"id of b\") FROM (a LEFT JOIN b USING(id)) AS \"join that merges columns\" (\"id of b\") \
                 WHERE \"id of b\" IS NULL ORDER BY a.id",
            ),
            (
                "SELECT a.id, B.id FROM a FULL JOIN b USING (id)",
                "SELECT \"id of a\" AS \"id\", \"id of b\" AS \"id\u{1}1\" FROM (a FULL JOIN b USING(id)) AS \
                 \"join that merges columns\" (\"id of a\", \"id of b\")",
            ),
            (
                "SELECT a.*, b.x + b.y AS z FROM a JOIN b USING (id)",
                "SELECT a.*, b.x + b.y AS \"z\u{1}a1\" FROM a JOIN b USING(id)",
            ),
            ("SELECT a.id FROM a JOIN b ON a.id = b.id", "SELECT a.id FROM a JOIN b ON a.id = b.id"),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
        let refused = rewritten("SELECT b.* FROM a RIGHT JOIN b USING (id)").unwrap_err();
        assert!(refused.contains("write ON"), "{refused}");
    }
}
