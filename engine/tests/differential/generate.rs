//! Generates random expressions, mostly those that scans translate, and some that are computed
//! above scans. Constants are the table's own values and their neighbours, so that predicates
//! select every share of the rows.
//!
//! A double and a decimal are never compared with each other: the engine compares them as doubles
//! and DataFusion alone as decimals, on purpose (`rules/common_types`).

use crate::{
    draw::Draw,
    expression::Expression,
    table::{Class, Column, Kind, Table, Values},
};
use rackscan_fabric::sim::Random;

/// The columns that an expression may name.
pub(crate) struct Scope<'t> {
    pub(crate) tables: Vec<(&'static str, &'t Table)>,
}

const COMPARISONS: [&str; 6] = ["=", "<>", "<", "<=", ">", ">="];
const NUMBERS: [Class; 3] = [Class::Integer, Class::Decimal, Class::Float];

impl<'t> Scope<'t> {
    /// A column for which `wanted` holds.
    fn any(
        &self,
        random: &mut Random,
        wanted: impl Fn(&Column) -> bool,
    ) -> Option<(&'static str, &'t Column)> {
        let columns =
            self.tables.iter().flat_map(|(alias, table)| table.columns.iter().map(|column| (*alias, column)));
        let columns: Vec<_> = columns.filter(|(_, column)| wanted(column)).collect();
        (!columns.is_empty()).then(|| *random.pick(&columns))
    }

    /// Any column.
    pub(crate) fn column(&self, random: &mut Random) -> (&'static str, &'t Column) {
        self.any(random, |_| true).expect("tables have columns")
    }

    /// A column of the class; every table has one of each.
    pub(crate) fn column_of(&self, random: &mut Random, class: Class) -> (&'static str, &'t Column) {
        self.any(random, |column| column.kind.class() == class).expect("a column of each class")
    }

    /// A truth.
    pub(crate) fn predicate(&self, random: &mut Random, depth: u32) -> Expression {
        let truth = |sql: &str, operands: Vec<Expression>| Expression::of(Class::Boolean, sql, operands);
        let weights = [34, 8, 10, 10, 10, 7, 3, 2, 2, 5, 12, 12, 2];
        match random.weighted(&weights[..if depth == 0 { 9 } else { 13 }]) {
            0 => self.comparison(random, depth),
            1 => {
                let (_, column) = self.column(random);
                let class = column.kind.class();
                let (left, right) = (self.value(random, class, depth.min(1)), self.value(random, class, 0));
                truth(&format!("({{}} {} {{}})", random.pick(&COMPARISONS)), vec![left, right])
            }
            2 => self.between(random, depth),
            3 => self.in_list(random),
            4 => self.like(random, depth),
            5 => {
                let class = self.column(random).1.kind.class();
                let item = self.value(random, class, depth.min(1));
                let how = random.pick(&["IS NULL", "IS NOT NULL"]);
                truth(&format!("({{}} {how})"), vec![item])
            }
            6 => self.leaf(self.column_of(random, Class::Boolean)),
            7 => {
                let (alias, column) = self.column(random);
                let how = random.pick(&["IS DISTINCT FROM", "IS NOT DISTINCT FROM"]);
                let constant = self.constant(random, column);
                truth(&format!("({{}} {how} {{}})"), vec![self.leaf((alias, column)), constant])
            }
            8 => Expression::leaf(Class::Boolean, *random.pick(&["TRUE", "FALSE", "CAST(NULL AS BOOLEAN)"])),
            9 => truth("(NOT {})", vec![self.predicate(random, depth - 1)]),
            10 => self.several(random, depth, "AND"),
            11 => self.several(random, depth, "OR"),
            _ => {
                let how = random.pick(&["IS TRUE", "IS NOT TRUE", "IS FALSE", "IS UNKNOWN"]);
                truth(&format!("({{}} {how})"), vec![self.predicate(random, depth - 1)])
            }
        }
    }

    fn several(&self, random: &mut Random, depth: u32, word: &str) -> Expression {
        let items: Vec<_> = (0..2 + random.index(2)).map(|_| self.predicate(random, depth - 1)).collect();
        let sql = vec!["{}"; items.len()].join(&format!(" {word} "));
        Expression::of(Class::Boolean, &format!("({sql})"), items)
    }

    /// A value against a constant, on either side.
    fn comparison(&self, random: &mut Random, depth: u32) -> Expression {
        let (alias, column) = self.column(random);
        let constant = self.constant(random, column);
        let value = if depth > 0 && random.percent(30) {
            self.value(random, column.kind.class(), depth)
        } else {
            self.leaf((alias, column))
        };
        let sides = if random.percent(15) { [constant, value] } else { [value, constant] };
        Expression::of(Class::Boolean, &format!("({{}} {} {{}})", random.pick(&COMPARISONS)), sides)
    }

    fn between(&self, random: &mut Random, depth: u32) -> Expression {
        let (alias, column) = self.column(random);
        let (low, high) = (self.constant(random, column), self.constant(random, column));
        let item = if depth > 0 && random.percent(20) {
            self.value(random, column.kind.class(), depth)
        } else {
            self.leaf((alias, column))
        };
        let not = if random.percent(20) { "NOT " } else { "" };
        Expression::of(Class::Boolean, &format!("({{}} {not}BETWEEN {{}} AND {{}})"), [item, low, high])
    }

    fn in_list(&self, random: &mut Random) -> Expression {
        let (alias, column) = self.column(random);
        let mut operands = vec![self.leaf((alias, column))];
        let count = *random.pick(&[1, 2, 3, 5, 20]);
        let constants: Vec<_> = (0..count).map(|_| constant(random, column)).collect();
        let nulls = constants.contains(&null(column.kind));
        let class = column.kind.class();
        operands.extend(constants.into_iter().map(|constant| Expression::leaf(class, constant)));
        let list = vec!["{}"; count].join(", ");
        let how = match (random.percent(25), nulls) {
            (false, _) => format!("({{}} IN ({list}))"),
            (true, false) => format!("({{}} NOT IN ({list}))"),
            // DataFusion 55.2 takes the entries of `x NOT IN (..., NULL)` from those of
            // `x IN (...)` beside it and finds rows.
            (true, true) => format!("(({{}} IN ({list})) IS FALSE)"),
        };
        Expression::of(Class::Boolean, &how, operands)
    }

    fn like(&self, random: &mut Random, depth: u32) -> Expression {
        let (alias, column) = self.column_of(random, Class::Text);
        let item = if depth > 0 && random.percent(15) {
            self.value(random, Class::Text, depth)
        } else {
            self.leaf((alias, column))
        };
        let pattern = quoted(&pattern(random, column));
        let how = random.pick(&["LIKE", "LIKE", "LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"]);
        Expression::of(Class::Boolean, &format!("({{}} {how} {pattern})"), [item])
    }

    /// A value of a class.
    pub(crate) fn value(&self, random: &mut Random, class: Class, depth: u32) -> Expression {
        if depth == 0 || random.percent(35) {
            return self.leaf(self.column_of(random, class));
        }
        let depth = depth - 1;
        match random.weighted(&[15, 60, 25]) {
            0 => self.case(random, class, depth),
            1 => match class {
                Class::Boolean => self.predicate(random, depth),
                Class::Text => self.text(random, depth),
                Class::Date | Class::Timestamp => self.moment(random, class),
                _ => self.arithmetic(random, class, depth),
            },
            _ => match class {
                Class::Integer | Class::Decimal | Class::Float => self.cast(random, class, depth),
                _ => self.leaf(self.column_of(random, class)),
            },
        }
    }

    fn leaf(&self, (alias, column): (&str, &Column)) -> Expression {
        Expression::leaf(column.kind.class(), format!("{alias}.{}", column.name))
    }

    fn case(&self, random: &mut Random, class: Class, depth: u32) -> Expression {
        let (one, two) = (self.value(random, class, depth), self.value(random, class, 0));
        if random.percent(25) {
            let (alias, column) = self.column(random);
            let when = self.constant(random, column);
            let operands = [self.leaf((alias, column)), when, one, two];
            return Expression::of(class, "(CASE {} WHEN {} THEN {} ELSE {} END)", operands);
        }
        let condition = self.predicate(random, depth);
        if random.percent(30) {
            return Expression::of(class, "(CASE WHEN {} THEN {} END)", [condition, one]);
        }
        Expression::of(class, "(CASE WHEN {} THEN {} ELSE {} END)", [condition, one, two])
    }

    fn text(&self, random: &mut Random, depth: u32) -> Expression {
        let item = self.value(random, Class::Text, depth);
        let sql = match random.weighted(&[70, 6, 6, 6]) {
            0 => {
                let start = *random.pick(&[1, 1, 2, 3, 9, 0, -2]);
                let length = random.between(0, 8);
                if random.percent(75) {
                    format!("substring({{}}, {start}, {length})")
                } else {
                    format!("substring({{}}, {start})")
                }
            }
            1 => "upper({})".to_owned(),
            2 => "({} || 'x')".to_owned(),
            _ => "coalesce({}, 'none')".to_owned(),
        };
        Expression::of(Class::Text, &sql, [item])
    }

    fn moment(&self, random: &mut Random, class: Class) -> Expression {
        let (alias, column) = self.column_of(random, class);
        let (_, other) = self.column_of(random, class);
        let constant = self.constant(random, other);
        Expression::of(class, "coalesce({}, {})", [self.leaf((alias, column)), constant])
    }

    fn arithmetic(&self, random: &mut Random, class: Class, depth: u32) -> Expression {
        if class == Class::Integer && random.percent(30) {
            let when = *random.pick(&[Class::Date, Class::Date, Class::Timestamp]);
            let item = self.value(random, when, 0);
            let part = random.pick(&["YEAR", "MONTH", "DAY", "YEAR", "MONTH", "DAY", "DOW"]);
            return Expression::of(class, &format!("EXTRACT({part} FROM {{}})"), [item]);
        }
        if random.percent(10) {
            return Expression::of(class, "(- {})", [self.value(random, class, depth)]);
        }
        let left = self.value(random, class, depth);
        let right = if random.percent(50) {
            self.small_constant(random, class)
        } else {
            self.value(random, class, depth)
        };
        let op = ["+", "-", "*", "/", "%"][random.weighted(&[30, 25, 25, 2, 2])];
        let sides = if random.percent(25) { [right, left] } else { [left, right] };
        Expression::of(class, &format!("({{}} {op} {{}})"), sides)
    }

    fn small_constant(&self, random: &mut Random, class: Class) -> Expression {
        let number = random.between(-3, 12);
        let sql = match class {
            Class::Integer => format!("({number})"),
            Class::Decimal => {
                random.pick(&["1", "1.00", "0.07", "(-2.5)", "1000000", "0.000001"]).to_string()
            }
            _ => format!("CAST('{}' AS DOUBLE)", number as f64 / 4.0),
        };
        Expression::leaf(class, sql)
    }

    fn cast(&self, random: &mut Random, class: Class, depth: u32) -> Expression {
        let from = NUMBERS[random.weighted(&[6, 3, 2])];
        let item = self.value(random, from, depth);
        let to = match class {
            Class::Integer => (*random.pick(&["BIGINT", "BIGINT", "BIGINT", "INT"])).to_owned(),
            Class::Decimal => {
                let wide = *random.pick(&[20, 25, 30, 38]);
                format!("DECIMAL({wide}, {})", random.pick(&[0, 2, 4, 6]))
            }
            _ => "DOUBLE".to_owned(),
        };
        Expression::of(class, &format!("CAST({{}} AS {to})"), [item])
    }

    /// A value of the column or one beside it, or none.
    pub(crate) fn constant(&self, random: &mut Random, column: &Column) -> Expression {
        Expression::leaf(column.kind.class(), constant(random, column))
    }
}

/// How many of the column's values are looked at for one that is not null.
const ATTEMPTS: usize = 4;

fn constant(random: &mut Random, column: &Column) -> String {
    if random.percent(2) {
        return null(column.kind);
    }
    match &column.values {
        Values::Integers(values) => {
            let value = drawn(random, values).unwrap_or(0).saturating_add(random.between(-1, 1));
            integer(random, column.kind, value)
        }
        Values::Floats(values) => {
            let value = drawn(random, values).unwrap_or(1.5);
            float(random, value)
        }
        Values::Texts(values) => {
            let text = drawn(random, values).unwrap_or_default();
            quoted(&match random.weighted(&[60, 20, 10, 10]) {
                0 => text,
                1 => piece(random, &text),
                2 => format!("{text} "),
                _ => format!("{text}\u{10ffff}"),
            })
        }
    }
}

fn null(kind: Kind) -> String {
    let sql_type = match kind {
        Kind::Boolean => "BOOLEAN",
        Kind::Int32 => "INT",
        Kind::Int64 => "BIGINT",
        Kind::Decimal { precision, scale } => return format!("CAST(NULL AS DECIMAL({precision}, {scale}))"),
        Kind::Float => "DOUBLE",
        Kind::Date => "DATE",
        Kind::Timestamp => return "arrow_cast(NULL, 'Timestamp(Microsecond, None)')".to_owned(),
        Kind::Text => "VARCHAR",
    };
    format!("CAST(NULL AS {sql_type})")
}

fn drawn<T: Clone>(random: &mut Random, values: &[Option<T>]) -> Option<T> {
    if values.is_empty() {
        return None;
    }
    (0..ATTEMPTS).find_map(|_| random.pick(values).clone())
}

fn integer(random: &mut Random, kind: Kind, value: i64) -> String {
    match kind {
        Kind::Boolean => if value > 0 { "TRUE" } else { "FALSE" }.to_owned(),
        Kind::Int32 | Kind::Int64 => format!("({value})"),
        Kind::Date => date(i32::try_from(value).unwrap_or(i32::MAX)),
        Kind::Timestamp => format!("arrow_cast({value}, 'Timestamp(Microsecond, None)')"),
        Kind::Decimal { scale, .. } => {
            let (mut unscaled, mut scale) = (i128::from(value), usize::from(scale));
            if random.percent(10) {
                // Between two values of the column.
                (unscaled, scale) = (unscaled * 10 + 5, scale + 1);
            } else if random.percent(1) {
                (unscaled, scale) = (10_i128.pow(38) - 1, 0);
            }
            decimal(unscaled, scale)
        }
        Kind::Float | Kind::Text => unreachable!("not stored as an integer"),
    }
}

fn decimal(unscaled: i128, scale: usize) -> String {
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    if scale == 0 { format!("({sign}{whole})") } else { format!("({sign}{whole}.{part})") }
}

fn float(random: &mut Random, value: f64) -> String {
    let near = match random.weighted(&[70, 10, 10, 4, 3, 3]) {
        0 => value,
        1 => value.next_up(),
        2 => value.next_down(),
        3 => f64::NAN,
        4 => f64::INFINITY,
        _ => -0.0,
    };
    format!("CAST('{near:e}' AS DOUBLE)")
}

/// A date by its day, and by its number where years have not four digits.
fn date(day: i32) -> String {
    let month_starts = rackscan_engine::arrow::temporal_conversions::date32_to_datetime(day);
    match month_starts {
        Some(date) if (-719_162..=2_932_896).contains(&day) => format!("DATE '{}'", date.format("%Y-%m-%d")),
        _ => format!("CAST(CAST({day} AS INT) AS DATE)"),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A part of a text, at characters' borders.
fn piece(random: &mut Random, text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let start = random.index(characters.len());
    let count = random.index(6).min(characters.len() - start);
    characters[start..start + count].iter().collect()
}

/// A pattern that some values of the column match.
fn pattern(random: &mut Random, column: &Column) -> String {
    let Values::Texts(values) = &column.values else { return "%".to_owned() };
    let text = drawn(random, values).unwrap_or_default();
    let text: String = text.chars().take(60).collect();
    let piece = piece(random, &text);
    match random.weighted(&[14, 14, 20, 6, 8, 5, 5, 4]) {
        0 => format!("{piece}%"),
        1 => format!("%{piece}"),
        2 => format!("%{piece}%"),
        3 => text,
        4 => text.chars().map(|c| if random.percent(20) { '_' } else { c }).collect(),
        5 => text.chars().map(|c| if random.percent(20) { '%' } else { c }).collect(),
        6 => piece
            .chars()
            .flat_map(|c| if random.percent(50) { vec!['\\', c] } else { vec![c] })
            .chain(['%'])
            .collect(),
        _ => (*random.pick(&["", "%", "%%", "_", "%_", "\\%", "%\\\\%"])).to_owned(),
    }
}
