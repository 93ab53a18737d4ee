//! Draws random tables and programs from a seed: with nulls, extremes, constants, and few and many
//! distinct values.

use super::{Column, Datum, Table, interpret};
use rackscan_format::{
    program::{
        Aggregate, AggregateFunction, Arithmetic, Comparison, DatePart, Literal, Node, NodeIndex, Output,
        ValueType,
    },
    schema::ColumnType,
};

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("below a usize")
    }

    pub(crate) fn chance(&mut self, in_hundred: usize) -> bool {
        self.below(100) < in_hundred
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn number(&mut self, low: i64, high: i64) -> i128 {
        let extent = u128::from(high.abs_diff(low)) + 1;
        i128::from(low) + i128::try_from(u128::from(self.next()) % extent).expect("64 bits")
    }
}

pub(crate) const DECIMAL: ColumnType = ColumnType::Decimal { precision: 12, scale: 2 };
/// The types of the columns of a random table, in order.
pub(crate) const TYPES: [ColumnType; 10] = [
    ColumnType::Int64,
    ColumnType::Int32,
    ColumnType::Date32,
    DECIMAL,
    ColumnType::Text,
    ColumnType::Boolean,
    ColumnType::Float64,
    ColumnType::Text,
    ColumnType::TimestampMicros,
    ColumnType::Int64,
];

const WORDS: [&str; 12] = [
    "special",
    "requests",
    "quick",
    "deposits",
    "fl\u{fc}ssig",
    "pending",
    "a",
    "b",
    "carefully",
    "%",
    "_x",
    "packages",
];

/// A table of up to some blocks' rows.
pub(crate) fn table(draw: &mut Draw) -> Table {
    let rows = draw.pick(&[1, 700, 1023, 1024, 1025, 2048, 3000, 5000, 9000]);
    let page_size = draw.pick(&[4096, 8192, 131_072]);
    let columns = TYPES.iter().map(|column_type| column(draw, *column_type, rows)).collect();
    Table::new(columns, page_size)
}

fn column(draw: &mut Draw, column_type: ColumnType, rows: usize) -> Column {
    let null_chance = draw.pick(&[0, 0, 0, 5, 50, 100]);
    let shape = draw.below(5);
    let distinct = draw.pick(&[1, 3, 40, 100_000]);
    let mut values = Vec::with_capacity(rows);
    for row in 0..rows {
        let value = match column_type {
            ColumnType::Boolean => Datum::Boolean(draw.chance(30)),
            ColumnType::Float64 => Datum::Float(float(draw)),
            ColumnType::Text => Datum::Text(text(draw, shape, distinct)),
            integer => Datum::Number(integer_of(draw, integer, shape, row)),
        };
        // Nulls come in runs too, so that whole blocks are null.
        let in_run = null_chance == 50 && row / 1024 == 1;
        values.push(if in_run || draw.chance(null_chance) { Datum::Null } else { value });
    }
    Column { column_type, values }
}

fn integer_of(draw: &mut Draw, column_type: ColumnType, shape: usize, row: usize) -> i128 {
    let (low, high) = match column_type {
        ColumnType::Int32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        ColumnType::Date32 => (-30_000, 30_000),
        ColumnType::Decimal { .. } => (-99_999_999_999, 99_999_999_999),
        ColumnType::TimestampMicros => (-1 << 50, 1 << 50),
        _ => (i64::MIN, i64::MAX),
    };
    let row = i128::try_from(row).expect("few rows");
    match shape {
        0 => draw.number(low, high),
        1 => draw.number(0, 50) * 100,
        2 => row * 3 + draw.number(0, 2),
        3 if draw.chance(2) => draw.pick(&[i128::from(low), i128::from(high), 0]),
        3 => draw.number(-5, 5),
        _ => 42,
    }
}

fn float(draw: &mut Draw) -> f64 {
    match draw.below(20) {
        0 => f64::NAN,
        1 => -0.0,
        2 => f64::INFINITY,
        3 => 0.0,
        _ => f64::from(u16::try_from(draw.below(40)).expect("small")) - 20.0,
    }
}

fn text(draw: &mut Draw, shape: usize, distinct: usize) -> String {
    let mut own = Draw(draw.below(distinct) as u64);
    let words = own.below(if shape == 0 { 2 } else { 9 });
    let words: Vec<&str> = (0..words).map(|_| own.pick(&WORDS)).collect();
    words.join(" ")
}

/// Nodes being drawn; each call appends and says where the node is.
pub(crate) struct Program {
    pub(crate) nodes: Vec<Node>,
    types: Vec<ValueType>,
}

impl Program {
    pub(crate) fn new() -> Self {
        Self { nodes: Vec::new(), types: Vec::new() }
    }

    pub(crate) fn push(&mut self, node: Node, value_type: ValueType) -> NodeIndex {
        self.nodes.push(node);
        self.types.push(value_type);
        NodeIndex::try_from(self.nodes.len() - 1).expect("few nodes")
    }

    fn column(&mut self, column: usize) -> NodeIndex {
        self.push(Node::Column(u16::try_from(column).expect("few columns")), TYPES[column].into())
    }

    /// A value that is, more often than not, in the table.
    fn constant(&mut self, draw: &mut Draw, table: &Table, column: usize) -> Literal {
        let values = &table.columns[column].values;
        let value = values[draw.below(values.len())].clone();
        let nudge = i128::try_from(draw.below(3)).expect("small") - 1;
        literal(&value, TYPES[column], nudge)
    }

    /// A boolean node.
    pub(crate) fn predicate(&mut self, draw: &mut Draw, table: &Table, depth: usize) -> NodeIndex {
        let boolean = ValueType::Boolean;
        let column = draw.below(TYPES.len());
        match draw.below(if depth == 0 { 7 } else { 11 }) {
            0 => {
                let item = self.column(column);
                self.push(Node::IsNull(item), boolean)
            }
            1 => self.column(5),
            2 => {
                let mut set: Vec<Literal> =
                    (0..1 + draw.below(12)).map(|_| self.constant(draw, table, column)).collect();
                set.retain(|literal| !matches!(literal, Literal::Null(_)));
                if set.is_empty() {
                    return self.column(5);
                }
                let item = self.column(column);
                let negated = draw.chance(30);
                self.push(Node::InSet { item, set, negated }, boolean)
            }
            3 => {
                let item = self.column(draw.pick(&[4, 7]));
                let parts = ["%", "special", "requests", "_", "a", "\\%", "fl\u{fc}", "deposits %", "quick"];
                let pattern: String = (0..1 + draw.below(5)).map(|_| draw.pick(&parts)).collect();
                let (negated, case_insensitive) = (draw.chance(30), draw.chance(10));
                self.push(Node::Like { item, pattern, negated, case_insensitive }, boolean)
            }
            4..=6 => self.comparison(draw, table, column, depth),
            7 => {
                let item = self.predicate(draw, table, depth - 1);
                self.push(Node::Not(item), boolean)
            }
            8 => {
                let items = (0..1 + draw.below(3)).map(|_| self.predicate(draw, table, depth - 1)).collect();
                self.push(Node::Or(items), boolean)
            }
            _ => {
                let items = (0..1 + draw.below(3)).map(|_| self.predicate(draw, table, depth - 1)).collect();
                self.push(Node::And(items), boolean)
            }
        }
    }

    fn comparison(&mut self, draw: &mut Draw, table: &Table, column: usize, depth: usize) -> NodeIndex {
        let op = draw.pick(&[
            Comparison::Equal,
            Comparison::NotEqual,
            Comparison::Less,
            Comparison::LessOrEqual,
            Comparison::Greater,
            Comparison::GreaterOrEqual,
        ]);
        let left = if depth > 0 && draw.chance(30) {
            self.value(draw, table, depth - 1)
        } else {
            self.column(column)
        };
        let value_type = self.types[usize::from(left)];
        let same: Vec<usize> =
            (0..TYPES.len()).filter(|column| ValueType::from(TYPES[*column]) == value_type).collect();
        let right = match same[..] {
            [] => left,
            _ if draw.chance(30) => self.column(draw.pick(&same)),
            _ => {
                let column = draw.pick(&same);
                let constant = self.constant(draw, table, column);
                self.push(Node::Literal(constant), value_type)
            }
        };
        let (left, right) = if draw.chance(20) { (right, left) } else { (left, right) };
        self.push(Node::Compare { op, left, right }, ValueType::Boolean)
    }

    /// A node of any type.
    pub(crate) fn value(&mut self, draw: &mut Draw, table: &Table, depth: usize) -> NodeIndex {
        let column = draw.below(TYPES.len());
        if depth == 0 {
            return self.column(column);
        }
        match draw.below(8) {
            0 => {
                let item = self.column(2);
                let part = draw.pick(&[DatePart::Year, DatePart::Month, DatePart::Day]);
                self.push(Node::DatePart { part, item }, ValueType::Int32)
            }
            1 => {
                let item = self.column(draw.pick(&[4, 7]));
                let start = u32::try_from(1 + draw.below(6)).expect("small");
                let length = draw.chance(70).then(|| u32::try_from(draw.below(8)).expect("small"));
                self.push(Node::Substring { item, start, length }, ValueType::Text)
            }
            2 | 3 => self.arithmetic(draw, table),
            4 => {
                let column = draw.pick(&[0, 1, 3, 6]);
                let item = self.column(column);
                let value_type = self.types[usize::from(item)];
                let of = |value| interpret::fits(Arithmetic::Subtract, &Datum::Number(0), value, value_type);
                let fits = table.columns[column].values.iter().all(of);
                if fits { self.push(Node::Negate(item), value_type) } else { item }
            }
            5 => {
                let item = self.column(3);
                let to = ValueType::Decimal { precision: 20, scale: 4 };
                self.push(Node::Cast { item, to }, to)
            }
            6 => {
                let condition = self.predicate(draw, table, depth - 1);
                let (one, two) = (self.column(column), self.column(column));
                let otherwise = draw.chance(70).then_some(two);
                self.push(Node::Case { branches: vec![(condition, one)], otherwise }, TYPES[column].into())
            }
            _ => self.column(column),
        }
    }

    /// Arithmetic as queries have it: `price * (1 - discount)`, sums of keys.
    pub(crate) fn arithmetic(&mut self, draw: &mut Draw, table: &Table) -> NodeIndex {
        let op = draw.pick(&[Arithmetic::Add, Arithmetic::Subtract, Arithmetic::Multiply]);
        let column = draw.pick(&[0, 1, 3, 3, 3, 6, 9]);
        let left = self.column(column);
        let ValueType::Decimal { precision, scale } = self.types[usize::from(left)] else {
            let right = if draw.chance(50) {
                self.column(column)
            } else {
                let constant = self.constant(draw, table, column);
                self.push(Node::Literal(constant), TYPES[column].into())
            };
            let value_type = TYPES[column].into();
            let fits = (0..table.columns[column].values.len()).all(|row| {
                let of = |node: NodeIndex| match &self.nodes[usize::from(node)] {
                    Node::Literal(constant) => interpret::literal(constant),
                    _ => table.columns[column].values[row].clone(),
                };
                interpret::fits(op, &of(left), &of(right), value_type)
            });
            return if fits { self.push(Node::Arithmetic { op, left, right }, value_type) } else { left };
        };
        let one = Literal::Decimal { unscaled: 1, precision: 5, scale: 0 };
        let one = self.push(Node::Literal(one), ValueType::Decimal { precision: 5, scale: 0 });
        let inner = self.push(
            Node::Arithmetic { op, left: one, right: left },
            decimal_type(op, (5, 0), (precision, scale)),
        );
        let ValueType::Decimal { precision: inner_precision, scale: inner_scale } =
            self.types[usize::from(inner)]
        else {
            return inner;
        };
        let product = decimal_type(Arithmetic::Multiply, (precision, scale), (inner_precision, inner_scale));
        self.push(Node::Arithmetic { op: Arithmetic::Multiply, left, right: inner }, product)
    }

    /// Groups by up to three values, with every aggregate that fits.
    pub(crate) fn groups(&mut self, draw: &mut Draw, table: &Table) -> Output {
        let keys = (0..draw.below(4)).map(|_| {
            if draw.chance(70) {
                self.column(draw.pick(&[1, 2, 4, 5, 7, 9]))
            } else {
                self.value(draw, table, 1)
            }
        });
        let keys: Vec<NodeIndex> = keys.collect();
        let mut aggregates = vec![Aggregate { function: AggregateFunction::CountRows, argument: None }];
        for _ in 0..draw.below(5) {
            let argument = match draw.below(3) {
                0 => self.arithmetic(draw, table),
                1 => self.column(draw.below(TYPES.len())),
                _ => self.value(draw, table, 1),
            };
            let function = match self.types[usize::from(argument)] {
                // Float sums depend on the order of rows, which splitting changes.
                ValueType::Int64 | ValueType::Decimal { .. } => draw.pick(&[
                    AggregateFunction::Sum,
                    AggregateFunction::Sum,
                    AggregateFunction::Min,
                    AggregateFunction::Max,
                    AggregateFunction::Count,
                ]),
                _ => draw.pick(&[AggregateFunction::Min, AggregateFunction::Max, AggregateFunction::Count]),
            };
            aggregates.push(Aggregate { function, argument: Some(argument) });
        }
        Output::Groups { keys, aggregates }
    }
}

fn decimal_type(op: Arithmetic, (p1, s1): (u8, u8), (p2, s2): (u8, u8)) -> ValueType {
    let (precision, scale) = match op {
        Arithmetic::Multiply => (p1 + p2 + 1, s1 + s2),
        _ => ((p1 - s1).max(p2 - s2) + s1.max(s2) + 1, s1.max(s2)),
    };
    ValueType::Decimal { precision: precision.min(38), scale }
}

fn literal(value: &Datum, column_type: ColumnType, nudge: i128) -> Literal {
    match (value, column_type) {
        (Datum::Null, _) => Literal::Null(column_type.into()),
        (Datum::Boolean(value), _) => Literal::Boolean(*value),
        (Datum::Float(value), _) => Literal::Float64(*value),
        (Datum::Text(value), _) => Literal::Text(value.clone()),
        (Datum::Number(number), ColumnType::Int32) => {
            Literal::Int32(i32::try_from(number + nudge).unwrap_or(i32::MAX))
        }
        (Datum::Number(number), ColumnType::Date32) => {
            Literal::Date32(i32::try_from(number + nudge).unwrap_or(i32::MAX))
        }
        (Datum::Number(number), ColumnType::TimestampMicros) => {
            Literal::TimestampMicros(i64::try_from(number + nudge).unwrap_or(i64::MAX))
        }
        (Datum::Number(number), ColumnType::Decimal { precision, scale }) => {
            Literal::Decimal { unscaled: number + nudge, precision, scale }
        }
        (Datum::Number(number), _) => Literal::Int64(i64::try_from(number + nudge).unwrap_or(i64::MAX)),
    }
}
