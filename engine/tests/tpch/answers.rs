//! Compares an answer with the expected one, by the rules of `queries/README.md`.

use rackscan_engine::{
    QueryOutcome,
    arrow::{
        array::{Array, ArrayRef, AsArray},
        datatypes::{DataType, Float64Type},
        util::display::array_value_to_string,
    },
};
use std::{fs, path::PathBuf};

/// How the values of a column are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// By their text.
    Exact,
    /// By their text, and the column must be a decimal of this scale.
    Decimal(i8),
    /// A quotient.
    Approx,
}

/// An expected answer, read from its file.
pub(crate) struct Expected {
    names: Vec<String>,
    kinds: Vec<Kind>,
    rows: Vec<Vec<String>>,
}

impl Expected {
    /// The answer of a TPC-H query at a scale factor.
    pub(crate) fn of_tpch(scale: &str, query: &str) -> Result<Self, String> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../queries/tpch/answers");
        let path = root.join(format!("sf{scale}/{query}.tsv"));
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut lines = text.lines();
        if lines.next() != Some("# order: total") {
            return Err(format!("{}: the first line is not `# order: total`", path.display()));
        }
        let mut fields =
            || -> Vec<String> { lines.next().unwrap_or_default().split('\t').map(str::to_owned).collect() };
        let names = fields();
        let kinds = fields().iter().map(|kind| parse_kind(kind)).collect::<Result<_, _>>()?;
        let rows = lines.map(|line| line.split('\t').map(str::to_owned).collect()).collect();
        Ok(Self { names, kinds, rows })
    }

    /// What differs first, if anything does.
    pub(crate) fn difference(&self, found: &QueryOutcome) -> Option<String> {
        let names: Vec<&str> = found.schema.fields().iter().map(|field| field.name().as_str()).collect();
        if names != self.names {
            return Some(format!("columns are {names:?}, expected {:?}", self.names));
        }
        if found.rows() != self.rows.len() {
            return Some(format!("{} rows, expected {}", found.rows(), self.rows.len()));
        }
        let mut expected = self.rows.iter();
        for batch in &found.batches {
            for (row, expected) in (0..batch.num_rows()).zip(expected.by_ref()) {
                for (column, array) in batch.columns().iter().enumerate() {
                    let wanted = expected.get(column).map_or("", String::as_str);
                    if let Err(found) = matches(array, row, self.kinds[column], wanted) {
                        let name = names[column];
                        return Some(format!("{name} is {found}, expected {wanted}, in row {expected:?}"));
                    }
                }
            }
        }
        None
    }
}

fn parse_kind(text: &str) -> Result<Kind, String> {
    match text {
        "int" | "date" | "text" => Ok(Kind::Exact),
        "approx" => Ok(Kind::Approx),
        _ => {
            let scale = text.strip_prefix("decimal(").and_then(|rest| rest.strip_suffix(')'));
            let scale = scale.and_then(|scale| scale.parse().ok());
            scale.map(Kind::Decimal).ok_or_else(|| format!("a column of kind {text:?}"))
        }
    }
}

/// Whether a value is the expected one; if not, what it is.
fn matches(array: &ArrayRef, row: usize, kind: Kind, wanted: &str) -> Result<(), String> {
    let found = if array.is_null(row) {
        "\\N".to_owned()
    } else {
        let text = array_value_to_string(array, row).map_err(|error| error.to_string())?;
        text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n")
    };
    let scale = match array.data_type() {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => Some(*scale),
        _ => None,
    };
    let fine = match kind {
        Kind::Exact => found == wanted,
        Kind::Decimal(expected) => found == wanted && (scale == Some(expected) || wanted == "\\N"),
        Kind::Approx if wanted == "\\N" || found == "\\N" => found == wanted,
        Kind::Approx => {
            let expected: f64 = wanted.parse().map_err(|_| format!("{wanted} is no number"))?;
            match scale {
                Some(scale) if scale >= 6 => {
                    let value: f64 = found.parse().map_err(|_| format!("{found}, no number"))?;
                    let unit = 10_f64.powi(-i32::from(scale));
                    (value - expected).abs() <= (1e-9 * expected.abs()).max(unit)
                }
                Some(_) => false,
                None if *array.data_type() == DataType::Float64 => {
                    let value = array.as_primitive::<Float64Type>().value(row);
                    (value - expected).abs() <= 1e-9 * expected.abs()
                }
                None => false,
            }
        }
    };
    if fine { Ok(()) } else { Err(format!("{found} ({})", array.data_type())) }
}
