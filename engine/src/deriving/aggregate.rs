//! Checks and reads the query of a materialised view: what it sums, over which rows, and by which
//! column it groups them.
//!
//! Invariants
//! - A view has a sum of exact amounts, a count of rows, or both, grouped by one column of one
//!   table, over all rows or those in one range of one column.
//! - No clause of the query is ignored: the query is refused if it has any that is not read here.
//! - The bounds of the range are not evaluated here.

use crate::{
    deriving::{
        clause::{normal, only, refused},
        range::{Range, bare, known, present},
        source::{FORM, Source},
    },
    error::EngineError,
};
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, GroupByExpr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectFlavor,
    SelectItem, SetExpr, Value, ValueWithSpan,
};
use rackscan_format::{
    derived::{Factor, SumDefinition},
    limits::FACTORS_MAX,
    schema::TableDefinition,
};

const QUERY: &str = "a materialized view with other clauses than SELECT, FROM, WHERE and GROUP BY";
const AMOUNT: &str = "an amount is a product of one to four of: a column, 1 - column, 1 + column";
const _: () = assert!(FACTORS_MAX == 4, "AMOUNT says so");

/// The query of a materialised view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Aggregate {
    /// The table whose rows are added up.
    pub(crate) table: String,
    /// Its columns, in the order of the SELECT list.
    pub(crate) outputs: Vec<Output>,
    /// The group's column.
    group: String,
    /// The alias by which GROUP BY names the group's column, if it uses an alias rather than the
    /// column's name or position.
    grouped_by: Option<String>,
    /// The factors of the amount; none if rows are only counted.
    factors: Vec<NamedFactor>,
    range: Option<Range>,
}

/// A column of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// Its name, as it is looked up.
    pub(crate) name: String,
    /// What it contains.
    pub(crate) kind: OutputKind,
}

/// What a column of a view contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputKind {
    /// The value of the group's column.
    Group,
    /// The sum of the group's amounts.
    Sum,
    /// The number of rows of the group.
    Count,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NamedFactor {
    Column(String),
    OneMinus(String),
    OnePlus(String),
}

impl Aggregate {
    /// Reads a view's query. `names` are the column names of the view; without any, its columns
    /// have the query's names.
    ///
    /// # Errors
    /// A query of another form, with the part that does not fit.
    pub(crate) fn of(query: &ast::Query, names: &[Ident]) -> Result<Self, EngineError> {
        let select = plain_select(query)?;
        let source = Source::of(&select.from)?;
        let mut parts = Parts::default();
        for item in &select.projection {
            parts.add(&source, item)?;
        }
        let Parts { mut outputs, group, amount, .. } = parts;
        let Some(group) = group else {
            return Err(refused("a materialized view without a group's column", FORM));
        };
        if outputs.len() < 2 {
            return Err(refused("a materialized view without sum and count(*)", FORM));
        }
        rename(&mut outputs, names)?;
        Ok(Self {
            grouped_by: grouped_by(&source, &select.group_by, &group)?,
            factors: amount.map_or(Ok(Vec::new()), |amount| factors(&source, amount))?,
            range: select.selection.as_ref().map_or(Ok(None), |selection| Range::of(&source, selection))?,
            table: source.table,
            outputs,
            group: group.column,
        })
    }

    /// The constants of the range, in the order that [`Aggregate::sum`] expects. The caller
    /// evaluates them and casts them to the type of the range's column.
    pub(crate) fn constants(&self) -> Vec<&ast::Expr> {
        self.range.iter().flat_map(Range::constants).collect()
    }

    /// The column whose range selects the rows; `None` if all rows count.
    pub(crate) fn range_column(&self) -> Option<&str> {
        self.range.as_ref().map(|range| range.column.as_str())
    }

    /// The definition, without a base. `values` are the values of [`Aggregate::constants`], as the
    /// range's column stores them.
    ///
    /// # Errors
    /// Columns that the table does not have, or in which values may be missing; bounds that no
    /// range can have.
    pub(crate) fn sum(
        &self,
        definition: &TableDefinition,
        values: &[i64],
    ) -> Result<SumDefinition, EngineError> {
        let (group, _) = known(definition, &self.group)?;
        if let Some(alias) = &self.grouped_by
            && definition.column(alias).is_some()
        {
            let (table, group) = (&definition.name, &self.group);
            return Err(EngineError::Plan(format!(
                "GROUP BY {alias:?} means the column of table {table}, not {group:?}, which has its name in the query: say GROUP BY {group:?}"
            )));
        }
        let factor = |factor: &NamedFactor| {
            Ok(match factor {
                NamedFactor::Column(name) => Factor::Column(present(definition, name)?.0),
                NamedFactor::OneMinus(name) => Factor::OneMinus(present(definition, name)?.0),
                NamedFactor::OnePlus(name) => Factor::OnePlus(present(definition, name)?.0),
            })
        };
        let factors = self.factors.iter().map(factor).collect::<Result<_, EngineError>>()?;
        let within = self.range.as_ref().map(|range| range.within(definition, values)).transpose()?;
        Ok(SumDefinition { group, factors, within, base: None })
    }
}

/// The query's SELECT, if it has only clauses that are understood.
fn plain_select(query: &Query) -> Result<&Select, EngineError> {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return Err(refused("a materialized view of something else than a plain SELECT", FORM));
    };
    let plain = Query {
        with: None,
        body: query.body.clone(),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    };
    only(plain == *query, QUERY)?;
    let plain = Select {
        select_token: select.select_token.clone(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection: select.projection.clone(),
        exclude: None,
        into: None,
        from: select.from.clone(),
        lateral_views: Vec::new(),
        prewhere: None,
        selection: select.selection.clone(),
        connect_by: Vec::new(),
        group_by: select.group_by.clone(),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    };
    only(plain == **select, QUERY)?;
    Ok(select)
}

/// The group's column, as it was selected.
struct Group {
    column: String,
    alias: Option<String>,
    /// Its position in the SELECT list, from one.
    place: usize,
}

/// The parsed SELECT list.
#[derive(Default)]
struct Parts<'q> {
    outputs: Vec<Output>,
    group: Option<Group>,
    amount: Option<&'q Expr>,
}

impl<'q> Parts<'q> {
    fn add(&mut self, source: &Source, item: &'q SelectItem) -> Result<(), EngineError> {
        let (expression, alias) = match item {
            SelectItem::UnnamedExpr(expression) => (expression, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(normal(alias))),
            SelectItem::ExprWithAliases { .. }
            | SelectItem::QualifiedWildcard(..)
            | SelectItem::Wildcard(_) => return Err(unknown(item)),
        };
        let (kind, name) = match (source.column(expression)?, expression) {
            (Some(column), _) => {
                let group = Group { column, alias: alias.clone(), place: self.outputs.len() + 1 };
                (OutputKind::Group, self.group.insert(group).column.clone())
            }
            (None, Expr::Function(function)) => match argument(function)? {
                Some(("sum", FunctionArgExpr::Expr(amount))) => {
                    self.amount = Some(amount);
                    (OutputKind::Sum, expression.to_string())
                }
                Some(("count", FunctionArgExpr::Wildcard)) => (OutputKind::Count, expression.to_string()),
                _ => return Err(unknown(item)),
            },
            _ => return Err(unknown(item)),
        };
        if self.outputs.iter().any(|output| output.kind == kind) {
            let found = match kind {
                OutputKind::Group => "a materialized view with several columns beside its sum",
                OutputKind::Sum => "a materialized view with several sums",
                OutputKind::Count => "a materialized view with several counts",
            };
            return Err(refused(found, "select each once; a table can have several views"));
        }
        self.outputs.push(Output { name: alias.unwrap_or(name), kind });
        Ok(())
    }
}

fn unknown(item: &SelectItem) -> EngineError {
    refused(&format!("{item} in a materialized view"), FORM)
}

/// The name of a plain function call and its only argument; `None` for other calls.
fn argument(function: &Function) -> Result<Option<(&'static str, &FunctionArgExpr)>, EngineError> {
    let FunctionArguments::List(list) = &function.args else { return Ok(None) };
    let [FunctionArg::Unnamed(argument)] = list.args.as_slice() else { return Ok(None) };
    let plain = Function {
        name: function.name.clone(),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![FunctionArg::Unnamed(argument.clone())],
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    };
    only(plain == *function, "a sum or count with other clauses than what it is of")?;
    let ObjectName(parts) = &function.name;
    let [ObjectNamePart::Identifier(name)] = parts.as_slice() else { return Ok(None) };
    let name = ["sum", "count"].into_iter().find(|known| *known == normal(name));
    Ok(name.map(|name| (name, argument)))
}

/// Gives the output columns the names of the view's columns.
fn rename(outputs: &mut [Output], names: &[Ident]) -> Result<(), EngineError> {
    if !names.is_empty() && names.len() != outputs.len() {
        let (found, expected) = (names.len(), outputs.len());
        return Err(EngineError::Plan(format!(
            "the view has names for {found} columns, expected {expected}: its query has that many"
        )));
    }
    for (output, name) in outputs.iter_mut().zip(names) {
        output.name = normal(name);
    }
    for (place, output) in outputs.iter().enumerate() {
        if outputs.iter().take(place).any(|other| other.name == output.name) {
            let name = &output.name;
            return Err(EngineError::Plan(format!(
                "the view has two columns {name:?}, expected unique names"
            )));
        }
    }
    Ok(())
}

/// Checks GROUP BY against the group's column. Returns the alias by which it is named, if any: a
/// table column of that name would take precedence.
fn grouped_by(source: &Source, by: &GroupByExpr, group: &Group) -> Result<Option<String>, EngineError> {
    let GroupByExpr::Expressions(by, modifiers) = by else {
        return Err(refused("a materialized view with GROUP BY ALL", FORM));
    };
    only(modifiers.is_empty(), "a materialized view with other clauses behind GROUP BY than a column")?;
    let [by] = by.as_slice() else {
        return Err(refused("a materialized view with GROUP BY other than one column", FORM));
    };
    let is_group = match (by, source.column(bare(by))?) {
        (Expr::Value(ValueWithSpan { value: Value::Number(place, false), .. }), _) => {
            place.parse() == Ok(group.place)
        }
        (_, Some(column)) if column == group.column => true,
        (Expr::Identifier(_), Some(alias)) if group.alias.as_ref() == Some(&alias) => return Ok(Some(alias)),
        _ => false,
    };
    if is_group {
        return Ok(None);
    }
    let column = &group.column;
    Err(EngineError::Plan(format!(
        "the view selects {column:?} and has GROUP BY {by}, expected GROUP BY {column:?}"
    )))
}

fn factors(source: &Source, amount: &Expr) -> Result<Vec<NamedFactor>, EngineError> {
    let mut factors = Vec::new();
    let mut waiting = vec![amount];
    while let Some(expression) = waiting.pop() {
        match bare(expression) {
            // The left operand is visited first.
            Expr::BinaryOp { left, op: BinaryOperator::Multiply, right } => waiting.extend([&**right, left]),
            other => factors.push(factor(source, other)?),
        }
        // Each waiting expression has at least one factor.
        if factors.len() + waiting.len() > FACTORS_MAX {
            return Err(refused(&format!("an amount of more than {FACTORS_MAX} factors"), AMOUNT));
        }
    }
    Ok(factors)
}

fn factor(source: &Source, expression: &Expr) -> Result<NamedFactor, EngineError> {
    let named = match expression {
        Expr::BinaryOp { left, op: BinaryOperator::Minus, right } if is_one(left) => {
            source.column(bare(right))?.map(NamedFactor::OneMinus)
        }
        Expr::BinaryOp { left, op: BinaryOperator::Plus, right } if is_one(left) => {
            source.column(bare(right))?.map(NamedFactor::OnePlus)
        }
        Expr::BinaryOp { left, op: BinaryOperator::Plus, right } if is_one(right) => {
            source.column(bare(left))?.map(NamedFactor::OnePlus)
        }
        other => source.column(other)?.map(NamedFactor::Column),
    };
    named.ok_or_else(|| refused(&format!("{expression} as a factor of an amount"), AMOUNT))
}

/// Whether the expression is 1, 1.0, 1.00, ...
fn is_one(expression: &Expr) -> bool {
    let Expr::Value(ValueWithSpan { value: Value::Number(digits, false), .. }) = bare(expression) else {
        return false;
    };
    let (whole, behind) = digits.split_once('.').unwrap_or((digits, ""));
    whole == "1" && behind.bytes().all(|digit| digit == b'0')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deriving::samples::{MONEY, aggregate, error, lines, named, table};
    use rackscan_format::{
        derived::{DerivedDefinition, DerivedKind, Within},
        ids::ColumnId,
        schema::ColumnType,
    };

    fn factors_of(amount: &str) -> Result<Vec<Factor>, String> {
        aggregate(&format!("SELECT supplier, sum({amount}) FROM lines GROUP BY supplier"))
            .and_then(|view| view.sum(&lines(), &[]))
            .map(|sum| sum.factors)
            .map_err(|error| error.to_string())
    }

    fn outputs(view: &Aggregate) -> Vec<(&str, OutputKind)> {
        view.outputs.iter().map(|output| (output.name.as_str(), output.kind)).collect()
    }

    #[test]
    fn the_revenue_of_a_quarter_is_a_sum_that_its_table_can_derive() {
        let lineitem = table(
            "lineitem",
            &[
                ("l_orderkey", ColumnType::Int64, false),
                ("l_suppkey", ColumnType::Int64, false),
                ("l_extendedprice", MONEY, false),
                ("l_discount", MONEY, false),
                ("l_shipdate", ColumnType::Date32, false),
            ],
        );
        let query = "SELECT l_suppkey, sum(l_extendedprice * (1 - l_discount)) FROM lineitem
            WHERE l_shipdate >= date '1996-01-01' AND l_shipdate < date '1996-01-01' + interval '3' month GROUP BY l_suppkey";
        let view = named("(supplier_no, total_revenue)", query).unwrap();
        assert_eq!(view.table, "lineitem");
        assert_eq!(outputs(&view), [("supplier_no", OutputKind::Group), ("total_revenue", OutputKind::Sum)]);
        assert_eq!(view.range_column(), Some("l_shipdate"));
        let constants: Vec<String> = view.constants().into_iter().map(ToString::to_string).collect();
        assert_eq!(constants, ["DATE '1996-01-01'", "DATE '1996-01-01' + INTERVAL '3' MONTH"]);
        let expected = SumDefinition {
            group: ColumnId(1),
            factors: vec![Factor::Column(ColumnId(2)), Factor::OneMinus(ColumnId(3))],
            within: Some(Within { column: ColumnId(4), from: 9496, until: 9587 }),
            base: None,
        };
        let sum = view.sum(&lineitem, &[9496, 9587]).unwrap();
        assert_eq!(sum, expected);
        let derived = vec![DerivedDefinition { name: "revenue".to_owned(), kind: DerivedKind::Sum(sum) }];
        assert_eq!(TableDefinition { derived, ..lineitem }.verify(), Ok(()));
    }

    #[test]
    fn items_come_in_any_order_and_are_named_by_list_or_alias_or_text() {
        use OutputKind::{Count, Group, Sum};
        for (names, items, expected) in [
            ("", "Supplier, SUM(price)", &[("supplier", Group), ("SUM(price)", Sum)][..]),
            ("", "count(*), supplier", &[("count(*)", Count), ("supplier", Group)]),
            ("", "sum(price) AS S, lines.supplier G", &[("s", Sum), ("g", Group)]),
            (
                "",
                "count(*) \"N\", sum(price), supplier",
                &[("N", Count), ("sum(price)", Sum), ("supplier", Group)],
            ),
            (
                "(A, \"B\", c)",
                "supplier x, sum(price) y, count(*)",
                &[("a", Group), ("B", Sum), ("c", Count)],
            ),
        ] {
            let view = named(names, &format!("SELECT {items} FROM lines GROUP BY supplier")).unwrap();
            assert_eq!(outputs(&view), expected);
        }
        let count = aggregate("SELECT supplier, count(*) FROM lines GROUP BY 1").unwrap();
        let sum = count.sum(&lines(), &[]).unwrap();
        assert_eq!((sum.factors, sum.within), (Vec::new(), None), "rows are counted only");
    }

    #[test]
    fn names_of_a_views_columns_are_as_many_as_these_and_unique() {
        let query = "SELECT supplier, sum(price) FROM lines GROUP BY 1";
        for (names, query, expected) in [
            ("(a)", query, "the view has names for 1 columns, expected 2: its query has that many"),
            ("(a, b, c)", query, "the view has names for 3 columns, expected 2: its query has that many"),
            ("(a, A)", query, "the view has two columns \"a\", expected unique names"),
            (
                "",
                "SELECT supplier AS s, sum(price) AS s FROM lines GROUP BY 1",
                "the view has two columns \"s\", expected unique names",
            ),
        ] {
            assert_eq!(named(names, query).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn an_amount_is_a_product_of_columns_and_of_what_is_left_or_paid_beside_one() {
        let (price, discount, tax) = (ColumnId(1), ColumnId(2), ColumnId(6));
        let column = Factor::Column;
        for (amount, expected) in [
            ("price", vec![column(price)]),
            ("((lines.PRICE))", vec![column(price)]),
            ("1 - price", vec![Factor::OneMinus(price)]),
            ("1.0 + price", vec![Factor::OnePlus(price)]),
            ("price + 1.00", vec![Factor::OnePlus(price)]),
            ("(1) - (price)", vec![Factor::OneMinus(price)]),
            ("price * price", vec![column(price), column(price)]),
            (
                "(price * (1 - discount)) * (1 + \"Tax\")",
                vec![column(price), Factor::OneMinus(discount), Factor::OnePlus(tax)],
            ),
            (
                "price * ((1 - discount) * (price * (\"Tax\" + 1)))",
                vec![column(price), Factor::OneMinus(discount), column(price), Factor::OnePlus(tax)],
            ),
        ] {
            assert_eq!(factors_of(amount), Ok(expected), "{amount}");
        }
    }

    #[test]
    fn an_amount_of_any_other_form_is_refused_by_the_part_that_is_different() {
        for (amount, expected) in [
            ("2 * price", "2 as a factor of an amount is not supported"),
            ("price - 1", "price - 1 as a factor"),
            ("2 - price", "2 - price as a factor"),
            ("1.01 - price", "1.01 - price as a factor"),
            ("10 + price", "10 + price as a factor"),
            ("price + 2", "price + 2 as a factor"),
            ("price + discount", "price + discount as a factor"),
            ("1 - price * discount", "1 - price * discount as a factor"),
            ("1 - 1", "1 - 1 as a factor"),
            ("-price", "-price as a factor"),
            ("price / 1", "price / 1 as a factor"),
            ("price * abs(discount)", "abs(discount) as a factor"),
            ("cast(price AS int)", "CAST(price AS INT) as a factor"),
            ("price * price * price * price * price", "an amount of more than 4 factors is not supported"),
        ] {
            let found = factors_of(amount).unwrap_err();
            assert!(found.starts_with(expected) && found.ends_with(AMOUNT), "{found}");
        }
        // However long it is.
        let found = factors_of(&vec!["price"; 100].join(" * ")).unwrap_err();
        assert!(found.starts_with("an amount of more than 4 factors"), "{found}");
        let found = factors_of("price * orders.price").unwrap_err();
        assert_eq!(
            found,
            "orders.price is no column of the view's table, which is called lines in the query"
        );
    }

    #[test]
    fn an_alias_hides_the_name_of_the_table_and_a_schema_may_be_left_out() {
        for query in [
            "SELECT l.supplier, sum(l.price) FROM lines AS L GROUP BY l.supplier",
            "SELECT \"L\".supplier, sum(price) FROM lines \"L\" GROUP BY supplier",
            "SELECT LINES.supplier, sum(public.lines.price) FROM Public.Lines GROUP BY lines.supplier",
        ] {
            assert_eq!(aggregate(query).unwrap().table, "lines", "{query}");
        }
        for (query, expected) in [
            ("SELECT lines.supplier, sum(price) FROM lines l GROUP BY 1", "lines.supplier is no column"),
            ("SELECT L.supplier, sum(price) FROM lines \"L\" GROUP BY 1", "L.supplier is no column"),
            (
                "SELECT supplier, sum(s.lines.price) FROM public.lines GROUP BY 1",
                "s.lines.price is no column",
            ),
            ("SELECT supplier, sum(price) FROM lines GROUP BY l.supplier", "l.supplier is no column"),
        ] {
            let found = error(query);
            assert!(found.starts_with(expected), "{found}");
        }
        let quoted = aggregate("SELECT \"Tax\", count(*) FROM \"Lines\" GROUP BY \"Tax\"").unwrap();
        assert_eq!((quoted.table.as_str(), quoted.group.as_str()), ("Lines", "Tax"));
    }

    #[test]
    fn group_by_is_the_selected_column_by_its_name_its_alias_or_its_place() {
        let of = |items: &str, by: &str| aggregate(&format!("SELECT {items} FROM lines GROUP BY {by}"));
        for (items, by) in [
            ("supplier, sum(price)", "supplier"),
            ("supplier, sum(price)", "lines.supplier"),
            ("supplier, sum(price)", "(SUPPLIER)"),
            ("supplier, sum(price)", "1"),
            ("sum(price), supplier", "2"),
            ("supplier AS s, sum(price)", "S"),
            // A column's own name comes first.
            ("supplier AS s, sum(price) AS supplier", "supplier"),
        ] {
            let sum = of(items, by).unwrap().sum(&lines(), &[]).unwrap();
            assert_eq!(sum.group, ColumnId(0), "{items} {by}");
        }
        for (items, by) in [
            ("supplier, sum(price)", "2"),
            ("supplier, sum(price)", "0"),
            ("supplier, sum(price)", "price"),
            ("supplier, sum(price)", "supplier + 1"),
            ("supplier, sum(price) AS s", "s"),
            ("supplier AS s, sum(price)", "lines.s"),
            ("supplier AS \"S\", sum(price)", "s"),
        ] {
            let found = of(items, by).unwrap_err().to_string();
            let expected = format!(
                "the view selects \"supplier\" and has GROUP BY {by}, expected GROUP BY \"supplier\""
            );
            assert_eq!(found, expected);
        }
        let found = of("supplier AS day, sum(price)", "day").unwrap().sum(&lines(), &[]).unwrap_err();
        assert!(found.to_string().starts_with("GROUP BY \"day\" means the column of table lines"), "{found}");
    }

    #[test]
    fn columns_that_the_table_does_not_have_or_that_may_be_missing_are_named() {
        let of = |items: &str, selection: &str| {
            let view = aggregate(&format!("SELECT {items} FROM lines {selection} GROUP BY 1")).unwrap();
            let values = vec![7; view.constants().len()];
            view.sum(&lines(), &values).map_err(|error| error.to_string())
        };
        let unknown = |name| {
            format!(
                "table lines has no column {name:?}; there are supplier, price, discount, day, quantity, perhaps, Tax, seen"
            )
        };
        assert_eq!(of("nobody, count(*)", ""), Err(unknown("nobody")));
        assert_eq!(of("supplier, sum(cost)", ""), Err(unknown("cost")));
        assert_eq!(of("supplier, sum(1 - cost)", ""), Err(unknown("cost")));
        assert_eq!(of("supplier, sum(1 + cost)", ""), Err(unknown("cost")));
        assert_eq!(of("supplier, sum(price * tax)", ""), Err(unknown("tax")));
        assert_eq!(of("supplier, count(*)", "WHERE month < 7"), Err(unknown("month")));
        let missing =
            "column \"perhaps\" of table lines must be NOT NULL: a sum of missing values is not kept"
                .to_owned();
        assert_eq!(of("supplier, sum(perhaps)", ""), Err(missing.clone()));
        assert_eq!(of("supplier, sum(price * (1 - perhaps))", ""), Err(missing.clone()));
        assert_eq!(of("supplier, sum(1 + perhaps)", ""), Err(missing.clone()));
        assert_eq!(of("supplier, count(*)", "WHERE perhaps < 7"), Err(missing));
        assert_eq!(of("perhaps, count(*)", "").unwrap().group, ColumnId(5), "a group may be of no value");
    }

    #[test]
    fn a_query_of_another_form_is_refused_by_what_is_different() {
        let items = |items: &str| format!("SELECT {items} FROM lines GROUP BY supplier");
        let from = |from: &str| format!("SELECT supplier, sum(price) FROM {from} GROUP BY supplier");
        let by = |by: &str| format!("SELECT supplier, sum(price) FROM lines {by}");
        for (query, expected) in [
            (items("sum(price)"), "a materialized view without a group's column"),
            (items("supplier"), "a materialized view without sum and count(*)"),
            (items("supplier, day, sum(price)"), "a materialized view with several columns beside its sum"),
            (items("supplier, supplier, sum(price)"), "a materialized view with several columns"),
            (items("supplier, sum(price), sum(day)"), "a materialized view with several sums"),
            (items("supplier, count(*), count(*)"), "a materialized view with several counts"),
            (items("*"), "* in a materialized view"),
            (items("lines.*"), "lines.* in a materialized view"),
            (items("supplier, count(price)"), "count(price) in a materialized view"),
            (items("supplier, count(1)"), "count(1) in a materialized view"),
            (items("supplier, sum(*)"), "sum(*) in a materialized view"),
            (items("supplier, avg(price)"), "avg(price) in a materialized view"),
            (items("supplier, \"SUM\"(price)"), "\"SUM\"(price) in a materialized view"),
            (items("supplier, s.sum(price)"), "s.sum(price) in a materialized view"),
            (items("supplier, sum(price, 1)"), "sum(price, 1) in a materialized view"),
            (items("supplier, sum(price) + 1"), "sum(price) + 1 in a materialized view"),
            (items("supplier + 1, sum(price)"), "supplier + 1 in a materialized view"),
            (from("lines, orders"), "a materialized view of other than one table"),
            (from("lines JOIN orders ON true"), "a materialized view of a join"),
            (from("(SELECT * FROM lines) AS l"), "a materialized view of something that is not a table"),
            (
                "SELECT supplier, sum(price) GROUP BY 1".to_owned(),
                "a materialized view of other than one table",
            ),
            (by(""), "a materialized view with GROUP BY other than one column"),
            (by("GROUP BY supplier, day"), "a materialized view with GROUP BY other than one column"),
            (by("GROUP BY ALL"), "a materialized view with GROUP BY ALL"),
            (by("GROUP BY 1 UNION SELECT 1, 2"), "a materialized view of something else than a plain SELECT"),
            ("VALUES (1, 2)".to_owned(), "a materialized view of something else than a plain SELECT"),
            (format!("({})", by("GROUP BY 1")), "a materialized view of something else than a plain SELECT"),
        ] {
            let found = error(&query);
            assert!(found.starts_with(expected) && found.contains(" is not supported, "), "{query}: {found}");
        }
    }

    #[test]
    fn no_clause_of_a_query_is_passed_over() {
        let plain = "SELECT supplier, sum(price) FROM lines WHERE day < 7 GROUP BY supplier";
        assert!(aggregate(plain).is_ok());
        for (at, clause) in [
            ("SELECT", "WITH x AS (SELECT 1) SELECT"),
            ("SELECT", "SELECT DISTINCT"),
            ("SELECT", "SELECT ALL"),
            ("SELECT", "SELECT DISTINCT ON (supplier)"),
            ("SELECT", "SELECT TOP 3"),
            ("sum(price)", "sum(DISTINCT price)"),
            ("sum(price)", "sum(ALL price)"),
            ("sum(price)", "sum(price) FILTER (WHERE day < 3)"),
            ("sum(price)", "sum(price) OVER ()"),
            ("sum(price)", "sum(price ORDER BY day)"),
            ("sum(price)", "sum(price) WITHIN GROUP (ORDER BY day)"),
            ("sum(price)", "sum(price) IGNORE NULLS"),
            ("sum(price)", "sum(2)(price)"),
            ("sum(price)", "count(*) FILTER (WHERE day < 3)"),
            (" FROM lines", " INTO t FROM lines"),
            ("FROM lines", "FROM lines AS l (a, b)"),
            ("FROM lines", "FROM lines TABLESAMPLE BERNOULLI (10)"),
            ("FROM lines", "FROM lines(7)"),
            ("FROM lines", "FROM lines WITH (NOLOCK)"),
            ("FROM lines", "FROM lines WITH ORDINALITY"),
            ("FROM lines", "FROM lines PARTITION (a)"),
            ("FROM lines", "FROM lines LATERAL VIEW explode(x) y"),
            ("WHERE", "PREWHERE day > 1 WHERE"),
            ("BY supplier", "BY supplier WITH ROLLUP"),
            ("BY supplier", "BY ROLLUP (supplier)"),
            ("BY supplier", "BY GROUPING SETS ((supplier))"),
            ("BY supplier", "BY supplier HAVING count(*) > 1"),
            ("BY supplier", "BY supplier WINDOW w AS (ORDER BY day)"),
            ("BY supplier", "BY supplier QUALIFY true"),
            ("BY supplier", "BY supplier CLUSTER BY day"),
            ("BY supplier", "BY supplier DISTRIBUTE BY day"),
            ("BY supplier", "BY supplier SORT BY day"),
            ("BY supplier", "BY supplier ORDER BY supplier"),
            ("BY supplier", "BY supplier LIMIT 3"),
            ("BY supplier", "BY supplier OFFSET 3"),
            ("BY supplier", "BY supplier FETCH FIRST 3 ROWS ONLY"),
            ("BY supplier", "BY supplier FOR UPDATE"),
            ("BY supplier", "BY supplier SETTINGS a = 1"),
            ("BY supplier", "BY supplier FORMAT JSON"),
            ("BY supplier", "BY supplier |> LIMIT 3"),
        ] {
            let text = plain.replacen(at, clause, 1);
            assert_ne!(text, plain, "{at}");
            let found = error(&text);
            assert!(found.contains("expected"), "{text}: {found}");
        }
    }
}
