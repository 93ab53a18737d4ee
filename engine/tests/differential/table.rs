//! Generates random tables.
//!
//! Their columns have sorted, constant, few, unique and arbitrary values, the ends of each type (of
//! times those that can be printed), and nulls alone, in runs and everywhere. Tables have no rows,
//! one row, or as many as a block or a segment.
//!
//! Invariants
//! - The same random numbers give the same table.
//! - A decimal of `DECIMAL(18, s)` has the widest type that is stored; wider ones are computed.

use crate::draw::Draw;
use rackscan_datasets::limits::{DAY_MAX, DAY_MIN};
use rackscan_engine::arrow::{
    array::{
        ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array,
        RecordBatch, StringViewArray, TimestampMicrosecondArray,
    },
    datatypes::{Field, Schema},
};
use rackscan_fabric::sim::Random;
use std::{collections::HashMap, sync::Arc};

/// A timestamp counts microseconds.
const DAY_MICROSECONDS: i64 = 86_400_000_000;

/// What a value is, however wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Boolean,
    Integer,
    Decimal,
    Float,
    Date,
    Timestamp,
    Text,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Boolean,
    Int32,
    Int64,
    Decimal { precision: u8, scale: u8 },
    Float,
    Date,
    Timestamp,
    Text,
}

impl Kind {
    pub(crate) fn class(self) -> Class {
        match self {
            Self::Boolean => Class::Boolean,
            Self::Int32 | Self::Int64 => Class::Integer,
            Self::Decimal { .. } => Class::Decimal,
            Self::Float => Class::Float,
            Self::Date => Class::Date,
            Self::Timestamp => Class::Timestamp,
            Self::Text => Class::Text,
        }
    }

    /// The least and the greatest value of a type that is stored as an integer.
    fn ends(self) -> (i64, i64) {
        match self {
            Self::Boolean => (0, 1),
            Self::Int32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            Self::Date => (DAY_MIN, DAY_MAX),
            Self::Timestamp => (DAY_MIN * DAY_MICROSECONDS, DAY_MAX * DAY_MICROSECONDS),
            Self::Decimal { precision, .. } => {
                let most = 10_i64.pow(u32::from(precision)) - 1;
                (-most, most)
            }
            _ => (i64::MIN, i64::MAX),
        }
    }
}

/// The values of a column.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    Integers(Vec<Option<i64>>),
    Floats(Vec<Option<f64>>),
    Texts(Vec<Option<String>>),
}

/// One column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) values: Values,
}

/// One table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
}

/// Where the values of a column lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Constant,
    Sorted,
    Few,
    Unique,
    Anywhere,
    Ends,
    Runs,
    /// So long texts that a block of them is more than the least quota of memory of a scan.
    Wide,
}

const ROWS: [usize; 16] =
    [0, 1, 60, 900, 1023, 1024, 1025, 1500, 2048, 2500, 3000, 4096, 5000, 6000, 9000, 12_000];

impl Table {
    /// A table; the first one of a round has rows.
    pub(crate) fn draw(random: &mut Random, name: String, is_first: bool) -> Self {
        let rows = if is_first { *random.pick(&ROWS[8..]) } else { *random.pick(&ROWS) };
        let mut kinds = vec![Kind::Boolean, Kind::Int32, Kind::Int64, Kind::Float, Kind::Date];
        kinds.extend([decimal(random), Kind::Timestamp, Kind::Text]);
        for _ in 0..random.index(5) {
            let more = [
                Kind::Int32,
                Kind::Int64,
                Kind::Date,
                Kind::Text,
                Kind::Text,
                decimal(random),
                decimal(random),
            ];
            kinds.push(*random.pick(&more));
        }
        let mut columns = vec![Column {
            name: "id".into(),
            kind: Kind::Int64,
            values: Values::Integers((0..rows as i64).map(Some).collect()),
        }];
        // DataFusion mistakes columns of two tables for each other that have one name, when it
        // pushes filters below an outer join.
        let of_table = name.clone();
        for (number, kind) in kinds.into_iter().enumerate() {
            let is_wide = is_first && number == 7;
            columns.push(Column::draw(random, number, kind, is_wide, rows));
        }
        for column in &mut columns {
            column.name = format!("{}_{of_table}", column.name);
        }
        Self { name, columns }
    }

    /// The same rows for arrow.
    pub(crate) fn batch(&self) -> RecordBatch {
        let arrays: Vec<ArrayRef> = self.columns.iter().map(Column::array).collect();
        let fields = self.columns.iter().zip(&arrays);
        let fields = fields.map(|(column, array)| {
            Field::new(&column.name, array.data_type().clone(), !column.name.starts_with("id_"))
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        RecordBatch::try_new(schema, arrays).expect("columns that agree")
    }
}

fn decimal(random: &mut Random) -> Kind {
    let precision = *random.pick(&[1, 4, 9, 12, 15, 18, 18]);
    let scale = (*random.pick(&[0, 1, 2, 2, 4, 18])).min(precision);
    Kind::Decimal { precision, scale }
}

impl Column {
    fn draw(random: &mut Random, number: usize, kind: Kind, is_wide: bool, rows: usize) -> Self {
        let shapes = [
            Shape::Constant,
            Shape::Sorted,
            Shape::Few,
            Shape::Unique,
            Shape::Anywhere,
            Shape::Ends,
            Shape::Runs,
        ];
        let shape = if is_wide { Shape::Wide } else { shapes[random.weighted(&[1, 3, 4, 1, 3, 2, 2])] };
        let values = match kind {
            Kind::Float => Values::Floats(floats(random, shape, rows)),
            Kind::Text => Values::Texts(texts(random, shape, rows)),
            _ => Values::Integers(integers(random, shape, kind, rows)),
        };
        let letter = match kind.class() {
            Class::Boolean => 'b',
            Class::Integer => 'i',
            Class::Decimal => 'n',
            Class::Float => 'f',
            Class::Date => 'd',
            Class::Timestamp => 's',
            Class::Text => 't',
        };
        let values = if is_wide { values } else { with_nulls(random, values) };
        Self { name: format!("{letter}{number}"), kind, values }
    }

    /// How the column is declared.
    pub(crate) fn array(&self) -> ArrayRef {
        match &self.values {
            Values::Floats(values) => Arc::new(values.iter().copied().collect::<Float64Array>()),
            Values::Texts(values) => {
                Arc::new(values.iter().map(Option::as_deref).collect::<StringViewArray>())
            }
            Values::Integers(values) => integer_array(self.kind, values),
        }
    }

    /// Each value as a text that only equal values share, for counting matches of joins.
    pub(crate) fn counts(&self) -> HashMap<String, u64> {
        let mut counts = HashMap::new();
        let mut count = |value: Option<String>| {
            if let Some(value) = value {
                *counts.entry(value).or_insert(0) += 1;
            }
        };
        match &self.values {
            Values::Integers(values) => {
                values.iter().for_each(|value| count(value.map(|value| value.to_string())));
            }
            Values::Floats(values) => {
                values.iter().for_each(|value| count(value.map(|value| value.to_string())))
            }
            Values::Texts(values) => values.iter().for_each(|value| count(value.clone())),
        }
        counts
    }
}

fn integer_array(kind: Kind, values: &[Option<i64>]) -> ArrayRef {
    let narrow = || values.iter().map(|value| value.map(|value| i32::try_from(value).expect("32 bits")));
    match kind {
        Kind::Boolean => {
            Arc::new(values.iter().map(|value| value.map(|value| value != 0)).collect::<BooleanArray>())
        }
        Kind::Int32 => Arc::new(narrow().collect::<Int32Array>()),
        Kind::Date => Arc::new(narrow().collect::<Date32Array>()),
        Kind::Timestamp => Arc::new(values.iter().copied().collect::<TimestampMicrosecondArray>()),
        Kind::Decimal { precision, scale } => {
            let wide = values.iter().map(|value| value.map(i128::from)).collect::<Decimal128Array>();
            let scale = i8::try_from(scale).expect("at most 18");
            Arc::new(wide.with_precision_and_scale(precision, scale).expect("a decimal's type"))
        }
        _ => Arc::new(values.iter().copied().collect::<Int64Array>()),
    }
}

fn integers(random: &mut Random, shape: Shape, kind: Kind, rows: usize) -> Vec<Option<i64>> {
    let (least, most) = kind.ends();
    // Where values usually lie: dates around 1995, others around zero or far away.
    let middle = match kind {
        Kind::Boolean => 0,
        Kind::Date => 9_000,
        Kind::Timestamp => 9_000 * 86_400_000_000,
        _ => *random.pick(&[0, 0, 1_000, 1_000_000_000_000, -70_000]),
    };
    let width = match kind {
        Kind::Timestamp => *random.pick(&[3_600_000_000, 86_400_000_000 * 400]),
        _ => *random.pick(&[1, 10, 100, 3_000, 1 << 20, 1 << 33]),
    };
    let low = middle.clamp(least, most);
    let high = low.saturating_add(width).clamp(least, most);
    let few: Vec<i64> = (0..1 + random.index(12)).map(|_| random.between(low, high)).collect();
    let constant = *random.pick(&[low, high, least, most]);
    let step = (width / 3_000).max(1);
    let ends = [least, most, least + 1, most - 1, 0];
    let mut run = (low, 0);
    (0..rows)
        .map(|row| {
            let at = low.saturating_add((row as i64).saturating_mul(step)).clamp(least, most);
            Some(match shape {
                Shape::Constant => constant,
                Shape::Sorted => at.saturating_add(random.between(0, step / 2)).clamp(least, most),
                Shape::Few => *random.pick(&few),
                Shape::Unique => ((row as i64).wrapping_mul(7_919) % 100_003).clamp(least, most),
                Shape::Anywhere if width == 1 << 33 => random.between(least, most),
                Shape::Anywhere | Shape::Wide => random.between(low, high),
                Shape::Ends if random.percent(3) => *random.pick(&ends),
                Shape::Ends => random.between(-5, 5).clamp(least, most),
                Shape::Runs => in_run(random, &mut run, |random| random.between(low, high)),
            })
        })
        .collect()
}

/// The value of the run that goes on, or of the next one.
fn in_run<T: Clone>(random: &mut Random, run: &mut (T, i64), next: impl FnOnce(&mut Random) -> T) -> T {
    if run.1 == 0 {
        *run = (next(random), random.between(500, 4_000));
    }
    run.1 -= 1;
    run.0.clone()
}

fn floats(random: &mut Random, shape: Shape, rows: usize) -> Vec<Option<f64>> {
    let ends = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        0.0,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        5e-324,
    ];
    let scale = *random.pick(&[1.0, 0.01, 0.5, 1e-7, 1e12]);
    let number = |random: &mut Random, most: i64| random.between(-most, most) as f64 * scale;
    let few: Vec<f64> = (0..1 + random.index(12)).map(|_| number(random, 50)).collect();
    let constant = if random.percent(30) { *random.pick(&ends) } else { number(random, 1_000) };
    let mut run = (0.0, 0);
    (0..rows)
        .map(|row| {
            Some(match shape {
                Shape::Constant => constant,
                Shape::Sorted => row as f64 * scale,
                Shape::Few => *random.pick(&few),
                Shape::Ends if random.percent(3) => *random.pick(&ends),
                Shape::Runs => in_run(random, &mut run, |random| number(random, 1_000)),
                Shape::Anywhere => f64::from_bits(0x4000_0000_0000_0000 | random.next_u64() >> 4),
                _ => number(random, 100_000),
            })
        })
        .collect()
}

const WORDS: [&str; 18] = [
    "",
    "a",
    "b",
    "special",
    "requests",
    "quick",
    "deposits",
    "fl\u{fc}ssig",
    "pending",
    "A",
    "carefully",
    "%",
    "_x",
    "back\\slash",
    "packages",
    "it's",
    "\u{1f680}",
    "BRASS",
];

fn texts(random: &mut Random, shape: Shape, rows: usize) -> Vec<Option<String>> {
    let words = *random.pick(&[1, 2, 3, 8]);
    let text = |random: &mut Random| {
        let count = random.index(words + 1);
        (0..count).map(|_| *random.pick(&WORDS)).collect::<Vec<_>>().join(" ")
    };
    let wide = |random: &mut Random| {
        (0..random.between(10, 60)).map(|_| format!("{:x}", random.next_u64())).collect::<String>()
    };
    let few: Vec<String> = (0..1 + random.index(40)).map(|_| text(random)).collect();
    let mut run = (String::new(), 0);
    (0..rows)
        .map(|row| {
            Some(match shape {
                Shape::Constant => few[0].clone(),
                Shape::Sorted => format!("{} {row:06}", few[0]),
                Shape::Unique => format!("{:05}{}", row * 7_919 % 100_003, few[0]),
                Shape::Few | Shape::Ends => random.pick(&few).clone(),
                Shape::Runs => in_run(random, &mut run, |random| random.pick(&few).clone()),
                Shape::Anywhere => text(random),
                Shape::Wide => text(random) + &wide(random),
            })
        })
        .collect()
}

fn with_nulls(random: &mut Random, values: Values) -> Values {
    match values {
        Values::Integers(values) => Values::Integers(punched(random, values)),
        Values::Floats(values) => Values::Floats(punched(random, values)),
        Values::Texts(values) => Values::Texts(punched(random, values)),
    }
}

fn punched<T>(random: &mut Random, mut values: Vec<Option<T>>) -> Vec<Option<T>> {
    // None, a few, half, runs of whole pages, nearly all, all.
    let manner = random.weighted(&[10, 4, 2, 3, 1, 1]);
    let mut run = (false, 0);
    let lone = random.index(values.len());
    for (row, value) in values.iter_mut().enumerate() {
        let is_null = match manner {
            0 => false,
            1 => random.percent(5),
            2 => random.percent(50),
            3 => in_run(random, &mut run, |random| random.percent(40)),
            4 => row != lone,
            _ => true,
        };
        if is_null {
            *value = None;
        }
    }
    values
}
