//! Generates random statements, and knows which answers of a statement are right.
//!
//! Invariants
//! - The requirement on the answer is known: the rows as a multiset, the rows in order, or a number
//!   of the rows, whichever.
//! - Sums and averages of doubles depend on the order of rows. A statement only outputs them,
//!   beside all keys, and another column of the expected answer contains their tolerance.

use crate::{
    draw::Draw,
    expression::Expression,
    generate::Scope,
    table::{Class, Table},
};
use rackscan_fabric::sim::Random;
use std::{fmt::Write, ops::Range};

/// The most rows that a join may give before its filter.
const JOINED_ROWS_MAX: u64 = 20_000;

/// One column of the answer.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    expression: Expression,
    /// If the order of rows shows: how far it may be off, as the sum or average of the magnitudes
    /// that were added, or 0 of an extreme. Infinite or no number where anything may come out.
    scale: Option<Expression>,
}

/// Which rows of the answer are wanted.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    All,
    /// In the order of all exact columns: by column whether descending and whether nulls come
    /// first.
    InOrder {
        orders: Vec<(bool, bool)>,
        limit: Option<u64>,
        offset: u64,
    },
    /// So many, whichever.
    Any {
        limit: u64,
    },
}

/// A statement.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    from: String,
    filter: Vec<Expression>,
    outputs: Vec<Output>,
    /// The first so many outputs are keys; `None` without aggregation.
    keys: Option<usize>,
    /// ROLLUP or CUBE, if the keys are grouped by that.
    sets: Option<&'static str>,
    having: Option<Expression>,
    pub(crate) wanted: Wanted,
}

impl Query {
    /// A statement over one of the tables, or two of them.
    pub(crate) fn draw(random: &mut Random, tables: &[Table]) -> Self {
        let table = &tables[random.weighted(&[6, 2, 2][..tables.len().min(3)])];
        let joined = if random.percent(12) { join(random, table, tables) } else { None };
        let (from, scope) = match joined {
            Some((from, other)) => (from, Scope { tables: vec![("a", table), ("b", other)] }),
            None => {
                let scope = Scope { tables: vec![("a", table)] };
                let from = if random.percent(8) {
                    set_operation(random, &scope, &table.name)
                } else {
                    table.name.clone()
                };
                (format!("{from} AS a"), scope)
            }
        };
        let mut filter: Vec<_> =
            (0..random.weighted(&[14, 56, 20, 10])).map(|_| scope.predicate(random, 2)).collect();
        if random.percent(8) {
            filter.extend(subquery(random, table, tables));
        }
        let mut query = if random.percent(45) {
            aggregation(random, &scope, from)
        } else {
            projection(random, &scope, from, tables)
        };
        query.filter = filter;
        query
    }

    /// The statement as the engine gets it.
    pub(crate) fn sql(&self) -> String {
        self.text(false)
    }

    /// The statement whose answer is the expected one, once it is `cut`: with all rows, and with
    /// scales at the end.
    pub(crate) fn reference(&self) -> String {
        self.text(true)
    }

    /// The wanted rows among `rows` of the reference, if those are in order. DataFusion alone need
    /// not do it: its top-k loses rows with 0.0 where others have -0.0.
    pub(crate) fn cut(&self, rows: usize) -> Range<usize> {
        let Wanted::InOrder { limit, offset, .. } = &self.wanted else { return 0..rows };
        let number = |of: u64| usize::try_from(of).unwrap_or(usize::MAX);
        let first = number(*offset).min(rows);
        first..first.saturating_add(limit.map_or(usize::MAX, number)).min(rows)
    }

    fn text(&self, is_reference: bool) -> String {
        let mut columns: Vec<String> = Vec::new();
        for (number, output) in self.outputs.iter().enumerate() {
            columns.push(format!("{} AS c{number}", output.expression));
        }
        if is_reference {
            let scales = self.outputs.iter().filter_map(|output| output.scale.as_ref()).enumerate();
            columns.extend(scales.map(|(number, scale)| format!("{scale} AS s{number}")));
        }
        let mut sql = format!("SELECT {} FROM {}", columns.join(", "), self.from);
        for (number, conjunct) in self.filter.iter().enumerate() {
            let _ = write!(sql, " {} {conjunct}", if number == 0 { "WHERE" } else { "AND" });
        }
        if let Some(keys @ 1..) = self.keys {
            let _ = match self.sets {
                None => {
                    let numbers: Vec<_> = (1..=keys).map(|number| number.to_string()).collect();
                    write!(sql, " GROUP BY {}", numbers.join(", "))
                }
                Some(sets) => {
                    let keys = self.outputs[..keys].iter().map(|output| output.expression.to_string());
                    write!(sql, " GROUP BY {sets} ({})", keys.collect::<Vec<_>>().join(", "))
                }
            };
        }
        if let Some(having) = &self.having {
            let _ = write!(sql, " HAVING {having}");
        }
        match &self.wanted {
            Wanted::InOrder { orders, limit, offset } => {
                let exact = self.exact().zip(orders).map(|(number, (descending, nulls_first))| {
                    let (way, nulls) = (
                        if *descending { "DESC" } else { "ASC" },
                        if *nulls_first { "FIRST" } else { "LAST" },
                    );
                    format!("{} {way} NULLS {nulls}", number + 1)
                });
                let _ = write!(sql, " ORDER BY {}", exact.collect::<Vec<_>>().join(", "));
                limit.iter().filter(|_| !is_reference).for_each(|limit| _ = write!(sql, " LIMIT {limit}"));
                if *offset > 0 && !is_reference {
                    let _ = write!(sql, " OFFSET {offset}");
                }
            }
            Wanted::Any { limit } if !is_reference => _ = write!(sql, " LIMIT {limit}"),
            _ => {}
        }
        sql
    }

    fn exact(&self) -> impl Iterator<Item = usize> {
        (0..self.outputs.len()).filter(|number| self.outputs[*number].scale.is_none())
    }

    /// For each output the position of its scale in the expected answer.
    pub(crate) fn scales(&self) -> Vec<Option<usize>> {
        let mut next = self.outputs.len();
        let scales = self.outputs.iter().map(|output| {
            output.scale.as_ref()?;
            next += 1;
            Some(next - 1)
        });
        scales.collect()
    }

    /// Whether the answer is known without the expected one: all rows or the first ones, and no sum
    /// of doubles.
    pub(crate) fn is_exact(&self) -> bool {
        !matches!(self.wanted, Wanted::Any { .. }) && self.outputs.iter().all(|output| output.scale.is_none())
    }

    /// The same computations of every row, whatever conjuncts, groups and limits kept from them.
    pub(crate) fn unguarded(&self) -> Vec<String> {
        let (keys, from) = (self.keys.unwrap_or(self.outputs.len()), &self.from);
        let aggregates = self.outputs[keys..].iter().map(|output| output.expression.to_string());
        let plain = self.outputs[..keys].iter().flat_map(|output| output.expression.connected());
        // A subquery and a window are nothing to compute by themselves.
        let filter = self.filter.iter().flat_map(Expression::connected);
        let rows = plain.chain(filter).map(ToString::to_string);
        let rows = rows.filter(|sql| !sql.contains("SELECT") && !sql.contains(" OVER ("));
        let each = rows.map(|sql| format!("MIN({sql})")).chain(aggregates);
        each.map(|sql| format!("SELECT {sql} FROM {from}")).collect()
    }

    /// Statements with less in them.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut smaller = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut copy = self.clone();
            change(&mut copy);
            smaller.push(copy);
        };
        with_less(&self.filter, |filter| with(&|query| query.filter = filter.clone()));
        if self.having.is_some() {
            with(&|query| query.having = None);
        }
        if self.sets.is_some() {
            with(&|query| query.sets = None);
        }
        if !matches!(self.wanted, Wanted::All) {
            with(&|query| query.wanted = Wanted::All);
        }
        let keys = self.keys.unwrap_or(0);
        for position in (0..self.outputs.len()).rev() {
            // The order names columns by number.
            if self.outputs.len() > 1 && matches!(self.wanted, Wanted::All) {
                with(&|query| {
                    query.outputs.remove(position);
                    if position < keys {
                        query.keys = Some(keys - 1);
                    }
                });
            }
            // A scale is of its own expression.
            let expressions = match self.outputs[position] {
                Output { scale: Some(_), .. } => Vec::new(),
                Output { ref expression, .. } => expression.smaller(),
            };
            for expression in expressions {
                with(&|query| {
                    query.outputs[position].expression = expression.clone();
                });
            }
        }
        smaller
    }
}

/// Each list with one expression left out, or made smaller.
fn with_less(expressions: &[Expression], mut with: impl FnMut(Vec<Expression>)) {
    for position in 0..expressions.len() {
        let mut fewer = expressions.to_vec();
        fewer.remove(position);
        with(fewer);
        for expression in expressions[position].smaller() {
            let mut copy = expressions.to_vec();
            copy[position] = expression;
            with(copy);
        }
    }
}

fn any_class(random: &mut Random, scope: &Scope<'_>) -> Class {
    scope.column(random).1.kind.class()
}

fn projection(random: &mut Random, scope: &Scope<'_>, from: String, tables: &[Table]) -> Query {
    let outputs = (0..1 + random.index(5)).map(|_| {
        let class = any_class(random, scope);
        let depth = *random.pick(&[0, 0, 1, 2]);
        Output { expression: scope.value(random, class, depth), scale: None }
    });
    let mut outputs: Vec<_> = outputs.collect();
    if random.percent(6)
        && let Some(expression) = subquery(random, scope.tables[0].1, tables)
    {
        outputs.push(Output { expression, scale: None });
    }
    if random.percent(8) {
        outputs.push(Output { expression: window(random, scope), scale: None });
    }
    let wanted = match random.weighted(&[60, 25, 15]) {
        0 => Wanted::All,
        1 => in_order(random, outputs.len()),
        _ => Wanted::Any { limit: *random.pick(&[0, 1, 7, 100, 1_500]) },
    };
    Query { from, filter: Vec::new(), outputs, keys: None, sets: None, having: None, wanted }
}

/// A window function that gives rows with equal keys equal values, in whichever order they come.
fn window(random: &mut Random, scope: &Scope<'_>) -> Expression {
    let key = |random: &mut Random| {
        // Doubles have other orders at nodes: a NaN may have a sign.
        let classes = [Class::Integer, Class::Date, Class::Text, Class::Timestamp];
        let class = *random.pick(&classes);
        scope.value(random, class, 0)
    };
    let (group, order) = (key(random), key(random));
    let sql = match random.below(4) {
        0 => "RANK() OVER (PARTITION BY {} ORDER BY {})",
        1 => "DENSE_RANK() OVER (PARTITION BY {} ORDER BY {} DESC)",
        2 => "COUNT({}) OVER (ORDER BY {})",
        _ => return Expression::of(Class::Integer, "COUNT(*) OVER (PARTITION BY {})", [group]),
    };
    Expression::of(Class::Integer, sql, [group, order])
}

/// Rows of the table and some of them, as a table in FROM.
fn set_operation(random: &mut Random, scope: &Scope<'_>, table: &str) -> String {
    let operations = ["UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"];
    let (one, two) = (scope.predicate(random, 1), scope.predicate(random, 1));
    let operation = random.pick(&operations);
    format!("(SELECT * FROM {table} AS a WHERE {one} {operation} SELECT * FROM {table} AS a WHERE {two})")
}

fn in_order(random: &mut Random, columns: usize) -> Wanted {
    let orders = (0..columns).map(|_| (random.percent(50), random.percent(50))).collect();
    let limit = random.percent(80).then(|| *random.pick(&[1, 3, 10, 100, 2_000]));
    Wanted::InOrder { orders, limit, offset: if random.percent(15) { 5 } else { 0 } }
}

fn aggregation(random: &mut Random, scope: &Scope<'_>, from: String) -> Query {
    let keys = random.weighted(&[35, 35, 20, 10]);
    let mut outputs: Vec<_> = (0..keys)
        .map(|_| {
            let class = any_class(random, scope);
            let depth = u32::from(random.percent(35));
            Output { expression: scope.value(random, class, depth), scale: None }
        })
        .collect();
    outputs.extend((0..1 + random.index(4)).map(|_| aggregate(random, scope)));
    // DataFusion plans a lone DISTINCT in another way, with other types of sums, unless a scale
    // stands beside it.
    if outputs.iter().any(|output| output.scale.is_some()) {
        outputs.retain(|output| !output.expression.to_string().contains("(DISTINCT "));
    }
    let having = random.percent(12).then(|| {
        let least = random.pick(&[0, 1, 2, 50]);
        let column = scope.column(random);
        Expression::leaf(
            Class::Boolean,
            match random.below(3) {
                0 => format!("COUNT(*) > {least}"),
                1 => format!("COUNT({}.{}) <= {least}", column.0, column.1.name),
                _ => format!("MIN({}.{}) IS NOT NULL", column.0, column.1.name),
            },
        )
    });
    let exact = outputs.iter().filter(|output| output.scale.is_none()).count();
    let wanted = if keys > 0 && random.percent(25) { in_order(random, exact) } else { Wanted::All };
    let sets = (keys > 0 && random.percent(10)).then(|| *random.pick(&["ROLLUP", "CUBE"]));
    Query { from, filter: Vec::new(), outputs, keys: Some(keys), sets, having, wanted }
}

fn aggregate(random: &mut Random, scope: &Scope<'_>) -> Output {
    let depth = *random.pick(&[0, 0, 1, 1, 2]);
    let exact = |sql: &str, class, operands: Vec<Expression>| Output {
        expression: Expression::of(class, sql, operands),
        scale: None,
    };
    match random.weighted(&[15, 10, 30, 15, 14, 14, 2]) {
        0 => exact("COUNT(*)", Class::Integer, vec![]),
        1 => {
            let class = any_class(random, scope);
            exact("COUNT({})", Class::Integer, vec![scope.value(random, class, depth)])
        }
        number @ (2 | 3) => {
            let class = *random.pick(&[Class::Integer, Class::Decimal, Class::Decimal, Class::Float]);
            let item = scope.value(random, class, depth);
            let function = if number == 2 { "SUM" } else { "AVG" };
            // DataFusion averages integers as doubles.
            let is_float = class == Class::Float || (class == Class::Integer && number == 3);
            let sql = format!("{function}(ABS(CAST({{}} AS DOUBLE)))");
            let scale = is_float.then(|| Expression::of(Class::Float, &sql, [item.clone()]));
            Output { expression: Expression::of(class, &format!("{function}({{}})"), [item]), scale }
        }
        number @ (4 | 5) => {
            let class = any_class(random, scope);
            let sql = if number == 4 { "MIN({})" } else { "MAX({})" };
            let item = scope.value(random, class, depth);
            // Among groups, DataFusion keeps whatever comes after a NaN.
            let nan = "SUM(CASE WHEN isnan({}) THEN CAST('NaN' AS DOUBLE) ELSE CAST('0' AS DOUBLE) END)";
            let scale = (class == Class::Float).then(|| Expression::of(class, nan, [item.clone()]));
            Output { expression: Expression::of(class, sql, [item]), scale }
        }
        _ => {
            let class = any_class(random, scope);
            exact("COUNT(DISTINCT {})", Class::Integer, vec![scope.value(random, class, 0)])
        }
    }
}

/// Columns of two tables by which they can be joined.
fn joinable<'t>(random: &mut Random, left: &'t Table, right: &'t Table) -> Option<(&'t str, &'t str)> {
    let classes = [Class::Integer, Class::Date, Class::Text, Class::Timestamp];
    for _ in 0..6 {
        let (one, two) = (random.pick(&left.columns), random.pick(&right.columns));
        if one.kind.class() != two.kind.class() || !classes.contains(&one.kind.class()) {
            continue;
        }
        let counts = two.counts();
        let pairs =
            one.counts().into_iter().map(|(value, count)| count * counts.get(&value).copied().unwrap_or(0));
        if pairs.sum::<u64>() <= JOINED_ROWS_MAX {
            return Some((&one.name, &two.name));
        }
    }
    None
}

fn join<'t>(random: &mut Random, table: &Table, tables: &'t [Table]) -> Option<(String, &'t Table)> {
    let other = another(random, table, tables);
    let (left, right) = joinable(random, table, other)?;
    let how = random.pick(&["JOIN", "JOIN", "JOIN", "LEFT JOIN", "FULL JOIN"]);
    let (one, two) = (&table.name, &other.name);
    Some((format!("{one} AS a {how} {two} AS b ON a.{left} = b.{right}"), other))
}

/// Another table: no column of it has the name of one of `table`'s.
fn another<'t>(random: &mut Random, table: &Table, tables: &'t [Table]) -> &'t Table {
    let others: Vec<_> = tables.iter().filter(|other| other.name != table.name).collect();
    others[random.index(others.len())]
}

fn subquery(random: &mut Random, table: &Table, tables: &[Table]) -> Option<Expression> {
    let other = another(random, table, tables);
    let (left, right) = joinable(random, table, other)?;
    let inner = Scope { tables: vec![("x", other)] }.predicate(random, 1);
    let rows = format!("FROM {} AS x WHERE", other.name);
    let same = format!("x.{right} = a.{left}");
    let comparison = *random.pick(&["=", "<>", "<", ">="]);
    let sql = match random.below(9) {
        0 => format!("a.{left} IN (SELECT x.{right} {rows} {{}})"),
        1 => format!("a.{left} NOT IN (SELECT x.{right} {rows} {{}})"),
        2 => format!("EXISTS (SELECT 1 {rows} {same} AND {{}})"),
        3 => format!("NOT EXISTS (SELECT 1 {rows} {same} AND {{}})"),
        4 => format!("(SELECT COUNT(*) {rows} {same} AND {{}}) {comparison} {}", random.below(3)),
        5 => format!("(SELECT x.{right} {rows} {same} AND {{}} LIMIT 1) {comparison} a.{left}"),
        6 => format!("a.{left} {comparison} ANY (SELECT x.{right} {rows} {{}})"),
        7 => format!("(EXISTS (SELECT 1 {rows} {same} AND {{}})) IS NOT FALSE"),
        _ => {
            format!(
                "(SELECT MAX(y.{right}) FROM (SELECT DISTINCT x.{right} {rows} {same} AND {{}}) AS y) {comparison} a.{left}"
            )
        }
    };
    Some(Expression::of(Class::Boolean, &sql, [inner]))
}
