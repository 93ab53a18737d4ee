//! Generates values and the texts that represent them in a CSV file.

use fastrand::Rng;
use rackscan_datasets::csv::CsvOptions;

use super::{cells::Cell, values};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Key,
    Boolean,
    Integer,
    Double,
    Date,
    Timestamp,
    Text,
}

/// What texts are made of.
pub(super) fn parts(options: &CsvOptions, encoding: &'static encoding_rs::Encoding) -> Vec<String> {
    let mut parts: Vec<String> = [
        "a",
        "Z",
        "0",
        "7",
        " ",
        "_",
        ".",
        "-",
        ",",
        ";",
        "|",
        "\t",
        "\"",
        "'",
        "\\",
        "\"\"",
        "\n",
        "\r\n",
        "\r",
        "NULL",
        "\u{e9}",
        "\u{df}",
        "\u{20ac}",
        "\u{6771}\u{4eac}",
        "\u{1f600}",
        "e\u{301}",
        "\u{7f}",
    ]
    .map(str::to_owned)
    .into();
    parts.push(char::from(options.delimiter).to_string());
    parts.retain(|part| is_in(encoding, part));
    parts
}

/// Whether an encoding has these characters, and reads them as they were.
pub(super) fn is_in(encoding: &'static encoding_rs::Encoding, text: &str) -> bool {
    let (bytes, _, is_lost) = encoding.encode(text);
    let is_utf = encoding.name().starts_with("UTF");
    is_utf || (!is_lost && encoding.decode_without_bom_handling(&bytes).0 == text)
}

pub(super) fn random_kind(random: &mut Rng) -> Kind {
    *random
        .choice(&[
            Kind::Boolean,
            Kind::Integer,
            Kind::Double,
            Kind::Date,
            Kind::Timestamp,
            Kind::Text,
            Kind::Text,
        ])
        .expect("one")
}

/// A value and a text that means it; an anchor's is of a shape that only its type has.
pub(super) fn value(random: &mut Rng, kind: Kind, is_anchor: bool) -> (String, Cell) {
    match kind {
        Kind::Boolean => {
            let is_true = random.bool();
            let texts = if is_true { ["true", "TRUE", "True"] } else { ["false", "FALSE", "faLse"] };
            ((*random.choice(texts).expect("one")).to_owned(), Cell::Boolean(is_true))
        }
        Kind::Date => {
            let day = values::day(random);
            (date(day), Cell::Date(day))
        }
        Kind::Timestamp => timestamp(random, is_anchor),
        Kind::Double => {
            let value = if is_anchor { values::finite_double(random) } else { values::double(random) };
            (if is_anchor { format!("{value:?}") } else { double(random, value) }, Cell::double(value))
        }
        Kind::Key | Kind::Integer | Kind::Text => {
            let number = values::integer(random, i64::MIN, i64::MAX);
            (number.to_string(), Cell::Integer(number.into()))
        }
    }
}

fn date(day: i64) -> String {
    let (year, month, day) = values::civil(day);
    format!("{year:04}-{month:02}-{day:02}")
}

fn timestamp(random: &mut Rng, is_anchor: bool) -> (String, Cell) {
    let (day, time) = (values::day(random), values::time_of_day(random));
    let cell = Cell::Timestamp(i128::from(day) * i128::from(values::DAY_MICROS) + i128::from(time));
    if time == 0 && !is_anchor && random.bool() {
        return (date(day), cell);
    }
    let (seconds, micros) = (time / 1_000_000, time % 1_000_000);
    let between = if random.bool() { 'T' } else { ' ' };
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = format!("{}{between}{hour:02}:{minute:02}:{second:02}", date(day));
    let digits = format!("{micros:06}");
    match random.u8(..3) {
        0 if micros == 0 => {}
        0 => text.push_str(&format!(".{}", digits.trim_end_matches('0'))),
        1 => text.push_str(&format!(".{digits}")),
        // Finer than it is stored.
        _ => text.push_str(&format!(".{digits}{:03}", random.u16(..1000))),
    }
    (text, cell)
}

fn double(random: &mut Rng, value: f64) -> String {
    if !value.is_finite() {
        let sign = if value == f64::NEG_INFINITY { "-" } else { "" };
        let names = if value.is_nan() { ["nan", "NaN", "NAN"] } else { ["inf", "Infinity", "INF"] };
        return format!("{sign}{}", random.choice(names).expect("one"));
    }
    let is_short = value.abs() < 9e15 && (value == 0.0 || value.abs() > 1e-9);
    match random.u8(..5) {
        0 => format!("{value:e}"),
        1 => format!("{value:E}"),
        2 if is_short => format!("{value}"),
        3 if is_short => format!("{value}").replacen("0.", ".", usize::from(value.abs() < 1.0)),
        _ => format!("{value:?}"),
    }
}
